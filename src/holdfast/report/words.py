"""A run in words: its result in a few sentences, and its key figures."""

from dataclasses import dataclass

from holdfast.events.sentences import Rate
from holdfast.report.data import RunData
from holdfast.report.rounds import Summary, summary
from holdfast.report.undone import Curve, kept_curve, kept_gold, undone
from holdfast.text import counted, format_setting, format_value, percent

# What a terminal shows of a run, before and after.
FIGURES = (
    ("proxy (ensemble score)", "objective/scores"),
    ("KL to reference", "objective/kl"),
    ("answer length", "response/length_mean"),
    ("right about pairs", "rewards/accuracies"),
    ("right about held-out pairs", "rewards/heldout_accuracies"),
)


@dataclass(frozen=True)
class Tile:
    """A key figure: what it is, its value, and a short note under it."""

    label: str
    value: str
    note: str = ""


def status(run: RunData) -> str:
    """Whether the run finished, was stopped by the guard, or is (as far as its files tell) under way."""
    for event in reversed(run.events):
        if event.kind == "run_finished":
            return "finished"
        if event.kind == "stopped":
            return "stopped"
        if event.kind == "resumed":
            break
    return "not finished"


def result(run: RunData) -> str:
    """The result of the run in a few plain sentences."""
    proxy = kept_curve(run, "objective/scores")
    label, gold = gold_curve(run)
    moves = []
    if proxy:
        moves.append(_moved("Proxy", proxy))
    if gold:
        moves.append(_moved(f"gold on {label}" if proxy else f"Gold on {label}", gold) + _peak(gold))
    sentences = ["; ".join(moves) + "."] if moves else []
    if not sentences:
        steps = len(run.metrics)
        none = "all of them undone" if run.known("objective/scores") else "none with a score"
        sentences = [f"{counted(steps, 'step')} recorded, {none}." if steps else "No step recorded yet."]
    sentences += [_parting(proxy, gold), _refreshes(run), _kl(run)]
    return " ".join(sentence for sentence in sentences if sentence)


def gold_curve(run: RunData) -> tuple[str, Curve]:
    """Gold on held-out prompts, or on the rollouts where there is no other, and what to call it."""
    heldout = kept_gold(run, "heldout")
    return ("held-out prompts", heldout) if heldout else ("rollouts", kept_gold(run, "rollout"))


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
    if not run.metrics or _has_no_ensemble(run):
        return ""
    count, refused = len(run.refreshes), _refused(run)
    words = counted(count, "refresh", "refreshes") if count else "No refresh"
    return f"{words}{f', {refused}' if refused else ''}."


def _refused(run: RunData) -> str:
    """How many refreshes the gate refused; empty where none was."""
    refused = len(run.refused)
    return f"{refused:,} refused by the gate" if refused else ""


def _has_no_ensemble(run: RunData) -> bool:
    """Whether the run learns from pairs alone, without a reward model."""
    return bool(run.known("loss/dpo")) and not run.known("objective/scores")


def _kl(run: RunData) -> str:
    kl, budget = kept_curve(run, "objective/kl"), kept_curve(run, "control/kl_target")
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
    sentences = [
        *_guard_tiles(summary(run)),
        _steps_tile(run),
        _curve_tile("Proxy score", kept_curve(run, "objective/scores")),
        _curve_tile("Gold, " + gold_curve(run)[0], gold_curve(run)[1]),
        _kl_tile(run),
        _refresh_tile(run),
        _accuracy_tile(run),
        _answers_tile(run),
        _time_tile(run),
    ]
    return [tile for tile in sentences if tile]


def _guard_tiles(guard: Summary | None) -> list[Tile | None]:
    if guard is None:
        return []
    left = guard.audit_labels_left
    return [
        Tile(
            "Verdict",
            guard.verdict or "none",
            counted(guard.rollbacks, "rollback") if guard.rollbacks else "no rollback",
        ),
        _people_tile("People against the reference", guard.reference),
        _people_tile("Against the last good policy", guard.anchor),
        Tile(
            "Audit labels",
            f"{guard.audit_labels:,}",
            f"of {guard.labels:,} labels in all" + ("" if left is None else f"; {left:,} left for audits"),
        ),
    ]


def _people_tile(label: str, rate: Rate | None) -> Tile | None:
    if rate is None:
        return None
    claimed = "" if rate.claimed is None else f"; ensemble claims {percent(rate.claimed)}"
    return Tile(label, percent(rate.rate), f"{rate.interval} in {counted(rate.pairs, 'pair')}{claimed}")


def _steps_tile(run: RunData) -> Tile | None:
    if not run.metrics:
        return None
    rounds = len(set(run.metrics.rounds))
    skipped = run.known("steps/skipped")
    note = counted(rounds, "round")
    if skipped and skipped[-1][1] > 0:
        note += f", {int(skipped[-1][1]):,} skipped"
    gone = undone(run)
    if taken_back := sum(map(gone.covers, run.metrics.steps)) if gone.spans else 0:
        note += f", {counted(taken_back, 'step')} undone"
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
    kl, budget = kept_curve(run, "objective/kl"), kept_curve(run, "control/kl_target")
    if not kl:
        return None
    note = f"nats of a budget of {format_setting(budget[-1][1])}" if budget else "nats"
    return Tile("KL to reference", format_value(kl[-1][1]), note)


def _refresh_tile(run: RunData) -> Tile | None:
    if (not run.metrics and not run.events) or _has_no_ensemble(run):
        return None
    labels = run.known("ensemble/labels")
    note = f"ensemble learnt from {counted(int(labels[-1][1]), 'label')}" if labels else ""
    if refused := _refused(run):
        note = refused + (f"; {note}" if note else "")
    return Tile("Refreshes", str(len(run.refreshes)), note)


def _accuracy_tile(run: RunData) -> Tile | None:
    rows = [event.fields for event in run.events if not event.refused]
    known = [fields for fields in rows if fields.get("holdout_accuracy") is not None]
    if not known:
        return None
    note = f"on held-out comparisons, v{known[-1]['version']}"
    return Tile("Reward-model accuracy", format_value(known[-1]["holdout_accuracy"], percent=True), note)


def _answers_tile(run: RunData) -> Tile | None:
    length, unfinished = kept_curve(run, "response/length_mean"), kept_curve(run, "response/unfinished")
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


# ---- for a terminal


def result_figures(data: RunData) -> dict[str, dict[str, float]]:
    """Start and end of each figure, of the policy that the run has kept."""
    figures: dict[str, dict[str, float]] = {}
    for label, metric in FIGURES:
        # Where all was undone, what was undone is still better than nothing to see.
        if known := kept_curve(data, metric) or data.known(metric):
            figures[label] = {"start": known[0][1], "end": known[-1][1]}
    if heldout := kept_gold(data, "heldout"):
        figures["gold on held-out prompts"] = {"start": heldout[0][1], "end": heldout[-1][1]}
    return figures


def guard_lines(guard: Summary | None) -> list[tuple[str, str]]:
    """The guard's part of the result, a line each."""
    if guard is None:
        return []
    back = counted(guard.rollbacks, "rollback") if guard.rollbacks else "no rollback"
    lines = [("verdict", f"{guard.verdict or 'none'}; {back}")]
    for label, rate in (("people vs reference", guard.reference), ("people vs last good", guard.anchor)):
        if rate is not None:
            claimed = "" if rate.claimed is None else f"; the ensemble claims {percent(rate.claimed)}"
            words = f"{percent(rate.rate)} ({rate.interval}, {counted(rate.pairs, 'pair')}){claimed}"
            lines.append((label, words))
    left = "" if guard.audit_labels_left is None else f"; {guard.audit_labels_left:,} left for audits"
    again = f" and {guard.repeats:,} asked again" if guard.repeats else ""
    lines.append(("labels spent", f"{guard.labels:,}, of which {guard.audit_labels:,} in audits{again}{left}"))
    return lines
