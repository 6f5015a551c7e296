"""What a run came to: the figures that matter, before and after, and the guard's part of it in words."""

from __future__ import annotations

from holdfast.report.data import RunData
from holdfast.report.rounds import Summary
from holdfast.report.undone import kept_curve, kept_gold
from holdfast.text import counted, percent

FIGURES = (
    ("proxy (ensemble score)", "objective/scores"),
    ("KL to reference", "objective/kl"),
    ("answer length", "response/length_mean"),
    ("right about pairs", "rewards/accuracies"),
    ("right about held-out pairs", "rewards/heldout_accuracies"),
)


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
