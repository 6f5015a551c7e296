"""Events in words, each with its reason, and which refreshes of a run count."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.charts.axes import format_setting, format_value
from holdfast.guard import lines
from holdfast.report.data import EventRow, RunData
from holdfast.report.metrics import as_number
from holdfast.report.rounds import sentence
from holdfast.text import counted


@dataclass(frozen=True)
class EventLine:
    """One event in words; `weight` is main, minor or alarm."""

    when: str
    text: str
    weight: str


def refresh_events(run: RunData) -> list[EventRow]:
    """The refreshes that the gate let through, one per ensemble version: a resumed run may have written one twice.

    After a rollback versions may be numbered again, and then each counts.
    """
    by_version: dict[object, EventRow] = {}
    rollbacks = 0
    for index, event in enumerate(run.events):
        rollbacks += event.kind == "rollback"
        if event.kind == "refresh" and not is_refused(event):
            version = event.number("version")
            key: object = ("no version", index) if version is None else (version, rollbacks)
            by_version.pop(key, None)
            by_version[key] = event
    return list(by_version.values())


def is_refused(event: EventRow) -> bool:
    """Whether the gate refused this refresh."""
    return event.kind == "refresh" and event.fields.get("accepted") is False


def joined_version(event: EventRow) -> float | None:
    """The version that one member of this refused refresh made by joining the others; None where none did."""
    return event.number("in_use") if is_refused(event) and event.number("joined") is not None else None


def refused_events(run: RunData) -> list[EventRow]:
    """The refreshes that the gate refused."""
    return [event for event in run.events if is_refused(event)]


_MINOR = frozenset(
    {
        "baselines",
        "labels_repeated",
        "waiting",
        "waited",
        "labels_collected",
        "refresh_skipped",
        "round_finished",
        "audit",
        "gate",
    }
)
_ALARM = frozenset({"kl_limit", "step_skipped", "lr_decayed", "rollback", "stopped", "squeezing"})
_VERDICTS = {"healthy": "minor", "hacking": "alarm"}


def event_lines(events: Sequence[EventRow]) -> list[EventLine]:
    """Events in words, in the order in which they were written."""
    return [_event_line(event) for event in events]


def weight(event: EventRow) -> str:
    """main, minor or alarm."""
    if event.kind == "verdict":
        return _VERDICTS.get(lines.text(event.fields.get("level")), "main")
    if is_refused(event):
        return "alarm"
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
        clauses.append(f" from {counted(int(labels), 'label')}")
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
    gate = lines.text(event.fields.get("gate_reason"))
    if is_refused(event):
        return sentence(f"Refresh{_because(event)} {lines.refused(event.fields)}")
    if gate:
        return f"{_refreshed(event)} {sentence(f'gate: {gate}')}"
    return _refreshed(event)


def _refreshed(event: EventRow) -> str:
    return f"Reward ensemble refreshed to{_version(event) or ' a new version'}{_because(event)}{_lead(event)}."


def _lead(event: EventRow) -> str:
    fit = _reward_fit(event)
    return fit if not fit or fit.startswith(" ") else f", {fit}"


def _labels(event: EventRow) -> str:
    labels, comparisons = event.number("labels"), event.number("comparisons")
    got = counted(int(labels), "label") if labels is not None else "Labels"
    return f"{got} collected" + (f" on {counted(int(comparisons), 'comparison')}." if comparisons else ".")


def _repeated(event: EventRow) -> str:
    repeats = event.number("repeats")
    return f"{counted(int(repeats or 0), 'easy comparison')} asked again, for the gate to compare with."


def _comparisons(event: EventRow) -> str:
    count = event.number("comparisons")
    return "comparisons" if count is None else counted(int(count), "comparison")


def _waiting(event: EventRow) -> str:
    return f"Waiting for people to answer {_comparisons(event)} ({_shown(event.fields.get('purpose'))})."


def _waited(event: EventRow) -> str:
    answered = event.number("answered")
    got = "Some" if answered is None else f"{int(answered):,}"
    return sentence(lines.because(f"{got} of {_comparisons(event)} answered", event.fields.get("reason")))


def _second_opinions_missing(event: EventRow) -> str:
    words = f"No second opinions of the judge on {_comparisons(event)}"
    return sentence(lines.because(words, event.fields.get("reason")))


def _label_quality(event: EventRow) -> str:
    rows = event.fields.get("changed")
    said = [_weighed(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return sentence("Quality of labels: " + "; ".join(said)) if said else "Quality of labels looked at."


def _weighed(row: Mapping[str, object]) -> str:
    who, weight, reasons = row.get("labeller"), as_number(row.get("weight")), row.get("reasons")
    if not reasons:
        return f"{_shown(who)} is reliable again"
    why = ", ".join(map(_shown, reasons)) if isinstance(reasons, list) else ""
    return f"{_shown(who)} is unreliable ({why}) and counts {_shown(weight)}"


def _kl_limit(event: EventRow) -> str:
    kl, limit = event.number("kl"), event.number("limit")
    if kl is None or limit is None:
        return f"KL went over its limit{_details(event)}."
    return f"KL reached {format_value(kl)} nats, over the limit of {format_setting(limit)}."


def _lr(event: EventRow) -> str:
    lr = event.number("lr")
    return "Learning rate lowered" + (f" to {format_value(lr)}." if lr is not None else ".")


def _gate(event: EventRow) -> str:
    """The gate's decision with how right both versions are on the newest labels, which neither has learnt from."""
    taken = "refused" if event.fields.get("accepted") is False else "accepted"
    before, after = (_newest(event.fields.get(name)) for name in ("before", "after"))
    right = "" if before is None or after is None else f" ({_share(before)} right before, {_share(after)} after)"
    return sentence(lines.because(f"Gate {taken}{_version(event)}{right}", event.fields.get("reason")))


def _newest(quality: object) -> float | None:
    newest = quality.get("newest") if isinstance(quality, dict) else None
    return as_number(newest.get("accuracy")) if isinstance(newest, dict) else None


def _share(value: float) -> str:
    return format_value(value, percent=True)


def _audit(event: EventRow) -> str:
    labels, left = event.number("labels"), event.number("labels_left")
    asked = "Audit" if labels is None else f"Audit of {counted(int(labels), 'label')}"
    measures = ((name, event.number(field)) for name, field in (("accuracy", "accuracy"), ("ECE", "ece")))
    figures = [f"{name} {format_value(value, percent=True)}" for name, value in measures if value is not None]
    figures += [] if left is None else [f"{counted(int(left), 'label')} left"]
    return f"{asked}: {'; '.join([lines.people(event.fields), *figures])}."


def _verdict(event: EventRow) -> str:
    level = lines.text(event.fields.get("level")) or "unknown"
    return sentence(lines.because(f"Verdict {level}", event.fields.get("sentence")))


def _rollback(event: EventRow) -> str:
    version, lost = event.number("ensemble_version"), lines.undone(event.fields)
    words = f"Rolled back to {lines.goal(event.fields.get('to'))}"
    words += "" if version is None else f" and ensemble v{version:g}"
    return sentence(lines.because(words + (f", {lost}" if lost else ""), event.fields.get("reason")))


def _sft(event: EventRow) -> str:
    loss = event.number("loss")
    return "Supervised fine-tuning finished" + (f" with a loss of {format_value(loss)}." if loss is not None else ".")


_SENTENCES: dict[str, Callable[[EventRow], str]] = {
    "sft_finished": _sft,
    "ensemble_trained": lambda event: f"Reward ensemble{_version(event)} trained{_lead(event)}.",
    "labels_collected": _labels,
    "labels_repeated": _repeated,
    "refresh": _refresh,
    "refresh_skipped": lambda event: f"No refresh this time{_because(event)}.",
    "gate": _gate,
    "audit": _audit,
    "verdict": _verdict,
    "action": lambda event: sentence(lines.because(lines.done(event.fields), event.fields.get("reason"))),
    "advice": lambda event: sentence(
        lines.because(f"Advice only: the guard {lines.advised(event.fields)}", event.fields.get("reason"))
    ),
    "rollback": _rollback,
    "stopped": lambda event: sentence(
        lines.because("Stopped by the guard at its last good policy", event.fields.get("reason"))
    ),
    "kl_limit": _kl_limit,
    "baselines": lambda event: "The signals have read the reference's answers.",
    "waiting": _waiting,
    "waited": _waited,
    "second_opinions_missing": _second_opinions_missing,
    "owner": lambda event: sentence(lines.because(lines.owner(event.fields), event.fields.get("reason"))),
    "label_quality": _label_quality,
    "squeezing": lambda event: sentence(f"Squeezing: {lines.text(event.fields.get('sentence'))}"),
    "step_skipped": lambda event: f"Step skipped{_because(event)}.",
    "lr_decayed": _lr,
    "averaged": lambda event: sentence(lines.averaged(event.fields)),
    "choice": lambda event: sentence(lines.chosen(event.fields)),
    "round_finished": lambda event: f"Round finished{_details(event)}.",
    "resumed": lambda event: f"Resumed{_details(event)}.",
    "run_finished": lambda event: f"Run finished{_details(event)}.",
}
