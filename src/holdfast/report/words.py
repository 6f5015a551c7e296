"""A run in words: its result in one sentence, its key figures, and its events."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.report.axes import format_setting, format_value
from holdfast.report.data import EventRow, RunData
from holdfast.report.metrics import as_number

Curve = list[tuple[int, float]]


@dataclass(frozen=True)
class Tile:
    """A key figure: what it is, its value, and a short note under it."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class EventLine:
    """One event in words; `weight` is main, minor or alarm."""

    when: str
    text: str
    weight: str


def status(run: RunData) -> str:
    """Whether the run finished, was interrupted, or is (as far as its files tell) under way."""
    for event in reversed(run.events):
        if event.kind == "run_finished":
            return "finished"
        if event.kind == "interrupted":
            return "interrupted"
        if event.kind in ("resumed", "run_started"):
            break
    return "not finished"


def result(run: RunData) -> str:
    """The result of the run in a few plain sentences."""
    proxy = run.known("objective/scores")
    label, gold = gold_curve(run)
    moves = []
    if proxy:
        moves.append(_moved("Proxy", proxy))
    if gold:
        moves.append(_moved(f"gold on {label}" if proxy else f"Gold on {label}", gold) + _peak(gold))
    sentences = ["; ".join(moves) + "."] if moves else []
    if not sentences:
        steps = len(run.metrics)
        sentences = [f"{_count(steps, 'step')} recorded, none with a score." if steps else "No step recorded yet."]
    sentences += [_parting(proxy, gold), _refreshes(run), _kl(run)]
    return " ".join(sentence for sentence in sentences if sentence)


def gold_curve(run: RunData) -> tuple[str, Curve]:
    """Gold on held-out prompts, or on the rollouts where there is no other, and what to call it."""
    heldout = run.gold_of("heldout")
    return ("held-out prompts", heldout) if heldout else ("rollouts", run.gold_of("rollout"))


def refresh_events(run: RunData) -> list[EventRow]:
    """The refreshes that count, one per ensemble version: a resumed run may have written one twice."""
    by_version: dict[object, EventRow] = {}
    for index, event in enumerate(run.events):
        if event.kind == "refresh":
            version = event.number("version")
            key: object = ("no version", index) if version is None else version
            by_version.pop(key, None)
            by_version[key] = event
    return list(by_version.values())


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _moved(subject: str, curve: Curve) -> str:
    start, end = curve[0][1], curve[-1][1]
    first, last = format_value(start, beside=end), format_value(end, beside=start)
    if len(curve) == 1:
        return f"{subject} was {first} at step {curve[0][0]:,}"
    if first == last:
        return f"{subject} stayed at {last}"
    return f"{subject} {'rose' if end > start else 'fell'} from {first} to {last}"


def _peak(curve: Curve) -> str:
    step, value = max(curve, key=lambda point: point[1])
    if len(curve) < 3 or format_value(value) == format_value(curve[-1][1]):
        return ""
    return f" (peak {format_value(value)} at step {step:,})"


def _parting(proxy: Curve, gold: Curve) -> str:
    """Say so when gold fell after its peak while the proxy went on rising: the mark of over-optimisation.

    Gold is noisy, so a fall of less than a fifth of the range it covered in the run is not reported.
    """
    if len(proxy) < 2 or len(gold) < 3:
        return ""
    peak_step, peak = max(gold, key=lambda point: point[1])
    fall = peak - gold[-1][1]
    rise = proxy[-1][1] - min(proxy, key=lambda point: abs(point[0] - peak_step))[1]
    if fall < 0.2 * (peak - min(value for _, value in gold)) or fall <= 0 or rise <= 0:
        return ""
    return (
        f"After its peak gold fell by {format_value(fall)} while the proxy rose by {format_value(rise)}: "
        "a sign that the reward was over-optimised."
    )


def _refreshes(run: RunData) -> str:
    if not run.metrics:
        return ""
    count = len(refresh_events(run))
    return f"{_count(count, 'refresh').replace('refreshs', 'refreshes')}." if count else "No refresh."


def _kl(run: RunData) -> str:
    kl, budget = run.known("objective/kl"), run.known("control/kl_target")
    if not kl:
        return ""
    end = f"KL to reference {'ended at' if len(kl) > 1 else 'was'} {format_value(kl[-1][1])} nats"
    if not budget:
        return f"{end}."
    over = kl[-1][1] > budget[-1][1]
    return f"{end}{', over its' if over else ' of a'} budget of {format_setting(budget[-1][1])}."


# ---- key figures


def tiles(run: RunData) -> list[Tile]:
    """The figures worth knowing before any chart; one that the run has not recorded is left out."""
    found = [
        _steps_tile(run),
        _curve_tile("Proxy score", run.known("objective/scores")),
        _curve_tile("Gold, " + gold_curve(run)[0], gold_curve(run)[1]),
        _kl_tile(run),
        _refresh_tile(run),
        _accuracy_tile(run),
        _answers_tile(run),
        _time_tile(run),
    ]
    return [tile for tile in found if tile]


def _steps_tile(run: RunData) -> Tile | None:
    if not run.metrics:
        return None
    rounds = len(set(run.metrics.rounds))
    skipped = run.known("steps/skipped")
    note = _count(rounds, "round")
    if skipped and skipped[-1][1] > 0:
        note += f", {int(skipped[-1][1]):,} skipped"
    return Tile("Last step", f"{run.metrics.steps[-1]:,}", note)


def _curve_tile(label: str, curve: Curve) -> Tile | None:
    if not curve:
        return None
    peak_step, peak = max(curve, key=lambda point: point[1])
    start, end = curve[0][1], curve[-1][1]
    note = f"from {format_value(start, beside=end)}" if len(curve) > 1 else f"at step {curve[0][0]:,}"
    if len(curve) > 2 and format_value(peak) != format_value(end):
        note += f", peak {format_value(peak)} at {peak_step:,}"
    return Tile(label, format_value(end, beside=start), note)


def _kl_tile(run: RunData) -> Tile | None:
    kl, budget = run.known("objective/kl"), run.known("control/kl_target")
    if not kl:
        return None
    note = f"nats of a budget of {format_setting(budget[-1][1])}" if budget else "nats"
    return Tile("KL to reference", format_value(kl[-1][1]), note)


def _refresh_tile(run: RunData) -> Tile | None:
    if not run.metrics and not run.events:
        return None
    labels = run.known("ensemble/labels")
    note = f"ensemble learnt from {_count(int(labels[-1][1]), 'label')}" if labels else ""
    return Tile("Refreshes", str(len(refresh_events(run))), note)


def _accuracy_tile(run: RunData) -> Tile | None:
    rows = [(event.number("holdout_accuracy"), event) for event in run.events]
    known = [(value, event) for value, event in rows if value is not None]
    if not known:
        return None
    value, event = known[-1]
    version = event.number("version")
    note = "on held-out comparisons" + (f", v{version:g}" if version is not None else "")
    return Tile("Reward-model accuracy", format_value(value, percent=True), note)


def _answers_tile(run: RunData) -> Tile | None:
    length, unfinished = run.known("response/length_mean"), run.known("response/unfinished")
    if not length:
        return None
    note = f"tokens, from {format_value(length[0][1])}"
    if unfinished:
        note += f"; {format_value(unfinished[-1][1], percent=True)} unfinished"
    return Tile("Answer length", format_value(length[-1][1]), note)


def _time_tile(run: RunData) -> Tile | None:
    total = sum(sum(row.seconds.values()) for row in run.timings)
    if not run.timings or total <= 0:
        return None
    return Tile("Time in steps", duration(total), f"{duration(total / len(run.timings))} a step")


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


# ---- events

_MINOR = frozenset({"labels_collected", "refresh_skipped", "round_finished"})
_ALARM = frozenset({"kl_limit", "step_skipped", "lr_decayed", "interrupted"})


def event_lines(events: Sequence[EventRow]) -> list[EventLine]:
    """Events in words, in the order in which they were written."""
    return [_event_line(event) for event in events]


def weight(event: EventRow) -> str:
    """main, minor or alarm."""
    return "minor" if event.kind in _MINOR else "alarm" if event.kind in _ALARM else "main"


def _event_line(event: EventRow) -> EventLine:
    when = [f"step {event.step:,}"] if event.step is not None else []
    when += [f"round {event.round:,}"] if event.round is not None else []
    say = _SENTENCES.get(event.kind, _any_event)
    return EventLine(", ".join(when), say(event), weight(event))


def _any_event(event: EventRow) -> str:
    name = event.kind.replace("_", " ").strip().capitalize()
    return name + _details(event) + "."


def _details(event: EventRow) -> str:
    fields = {name: value for name, value in event.fields.items() if name != "time"}
    shown = [f"{name.replace('_', ' ')} {_shown(value)}" for name, value in fields.items()]
    return f" ({', '.join(shown)})" if shown else ""


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    number = as_number(value)
    if number is not None:
        return format_value(number)
    text = "unknown" if value is None else str(value)
    return text if len(text) <= 300 else text[:300] + "…"


def _reward_fit(event: EventRow) -> str:
    """What is known of a reward model's training, as clauses that begin with a comma."""
    clauses = []
    if (labels := event.number("labels")) is not None:
        clauses.append(f" from {_count(int(labels), 'label')}")
    for name, words in (("train_accuracy", "training"), ("holdout_accuracy", "held-out")):
        if (accuracy := event.number(name)) is not None:
            clauses.append(f"{format_value(accuracy, percent=True)} right on {words} comparisons")
    return ", ".join(clauses)


def _version(event: EventRow) -> str:
    version = event.number("version")
    return "" if version is None else f" v{version:g}"


def _because(event: EventRow) -> str:
    reason = event.fields.get("reason")
    return f" ({_shown(reason)})" if reason else ""


def _refresh(event: EventRow) -> str:
    return f"Reward ensemble refreshed to{_version(event) or ' a new version'}{_because(event)}{_lead(event)}."


def _lead(event: EventRow) -> str:
    fit = _reward_fit(event)
    return fit if not fit or fit.startswith(" ") else f", {fit}"


def _labels(event: EventRow) -> str:
    labels, comparisons = event.number("labels"), event.number("comparisons")
    got = _count(int(labels), "label") if labels is not None else "Labels"
    return f"{got} collected" + (f" on {_count(int(comparisons), 'comparison')}." if comparisons else ".")


def _kl_limit(event: EventRow) -> str:
    kl, limit = event.number("kl"), event.number("limit")
    if kl is None or limit is None:
        return f"KL went over its limit{_details(event)}."
    return f"KL reached {format_value(kl)} nats, over the limit of {format_setting(limit)}."


def _lr(event: EventRow) -> str:
    lr = event.number("lr")
    return "Learning rate lowered" + (f" to {format_value(lr)}." if lr is not None else ".")


def _sft(event: EventRow) -> str:
    loss = event.number("loss")
    return "Supervised fine-tuning finished" + (f" with a loss of {format_value(loss)}." if loss is not None else ".")


_SENTENCES: dict[str, Callable[[EventRow], str]] = {
    "run_started": lambda event: f"Run started{_details(event)}.",
    "sft_finished": _sft,
    "ensemble_trained": lambda event: f"Reward ensemble{_version(event)} trained{_lead(event)}.",
    "labels_collected": _labels,
    "refresh": _refresh,
    "refresh_skipped": lambda event: f"No refresh this time{_because(event)}.",
    "kl_limit": _kl_limit,
    "step_skipped": lambda event: f"Step skipped{_because(event)}.",
    "lr_decayed": _lr,
    "round_finished": lambda event: f"Round finished{_details(event)}.",
    "interrupted": lambda event: f"Interrupted{_details(event)}.",
    "resumed": lambda event: f"Resumed{_details(event)}.",
    "run_finished": lambda event: f"Run finished{_details(event)}.",
}
