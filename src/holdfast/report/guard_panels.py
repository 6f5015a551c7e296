"""The charts of a guarded run: people against the ensemble's claims, how far claims hold, and the signals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, pvariance

from holdfast.charts.spec import ChartSpec, Series
from holdfast.events.sentences import Opponent, claimant, ensemble_right, rate_of
from holdfast.report.data import EventRow, RunData
from holdfast.statistics import wilson
from holdfast.text import counted, format_value

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = range(6)
SIGNALS = "signal/"
MOST_DOTS = 60
CHUNKS = 20  # stretches of a run whose means are compared, to see how far a signal moved
SMALL_WIDTH, SMALL_HEIGHT = 350.0, 210.0


# ---- audits


def audit_charts(run: RunData) -> list[ChartSpec]:
    """What was preferred beside what was claimed, and the test that decides; only those that have data."""
    audits = run.happened("audit")
    charts = [
        _win_rate(
            audits,
            "reference",
            "Preferred: policy or reference?",
            "How often the policy's answer is preferred, with its 95% interval. Claims far above it: a fooled reward.",
        ),
        _win_rate(
            audits,
            "anchor",
            "Preferred: policy or last good policy?",
            "The same against the policy that a rollback goes back to. Below one half the run is getting worse.",
        ),
        _reliability(audits),
        _evidence(run),
    ]
    return [chart for chart in charts if chart.has_data()]


def _win_rate(audits: Sequence[EventRow], opponent: Opponent, title: str, subtitle: str) -> ChartSpec:
    answered_by = audits[-1].fields["answered_by"] if audits else ""
    preferred = rate_line(answered_by, audits, opponent, GREEN)
    claims = [rate.claimed for event in audits if (rate := rate_of(event.fields, opponent))]
    return ChartSpec(
        title=title,
        subtitle=subtitle,
        series=(preferred, Series("claimed", preferred.xs, claims, BLUE, dots=preferred.dots)),
        limit=one_half(preferred.xs),
        percent=True,
    )


def rate_line(name: str, audits: Sequence[EventRow], opponent: Opponent, colour: int) -> Series:
    """How often the policy was preferred in each audit that asked, with the intervals."""
    known = [(event.step, rate) for event in audits if (rate := rate_of(event.fields, opponent))]
    return Series(
        name,
        [float(step) for step, _ in known],
        [rate.rate for _, rate in known],
        colour,
        dots=len(known) <= MOST_DOTS,
        low=[rate.low for _, rate in known],
        high=[rate.high for _, rate in known],
    )


def one_half(xs: Sequence[float]) -> Series | None:
    """The level at which there is no preference."""
    return Series("one half", [min(xs)], [0.5], bare=True) if xs else None


@dataclass(frozen=True)
class ClaimBin:
    """Fresh pairs of which the ensemble claimed about the same."""

    count: int
    claimed: float
    observed: float


def pooled_bins(audits: Sequence[EventRow]) -> list[ClaimBin]:
    """The bins of several audits as one: counts add up, means are weighted by them."""
    by_edges: dict[tuple[float, float], list[ClaimBin]] = {}
    for event in audits:
        for row in event.fields["reliability"]:
            if row["count"]:
                one = ClaimBin(row["count"], row["claimed"], row["observed"])
                by_edges.setdefault((row["low"], row["high"]), []).append(one)
    return [_together(by_edges[edges]) for edges in sorted(by_edges)]


def _together(parts: Sequence[ClaimBin]) -> ClaimBin:
    count = sum(one.count for one in parts)
    return ClaimBin(
        count=count,
        claimed=sum(one.count * one.claimed for one in parts) / count,
        observed=sum(one.count * one.observed for one in parts) / count,
    )


def _reliability(audits: Sequence[EventRow]) -> ChartSpec:
    whole, newest = pooled_bins(audits), pooled_bins(audits[-1:])
    series = [_claims("all audits", whole, GREEN, intervals=True)]
    if len(audits) > 1 and newest:
        series.append(_claims("the newest", newest, SKY))
    series.append(Series("as claimed", [0.0, 1.0], [0.0, 1.0], PURPLE, bare=True))
    pairs = sum(one.count for one in whole)
    who = claimant(audits[-1].fields) if audits else "ensemble"
    return ChartSpec(
        title="Do claims hold?",
        subtitle=f"Left to right: the chance of winning that the {who} claimed. Upwards: how often the policy won, "
        f"in {counted(pairs, 'fresh pair')}. Below the diagonal it claims too much.{_measures(audits)}",
        x_label="claimed",
        series=tuple(series) if whole else (),
        percent=True,
        x_percent=True,
        x_range=(0.0, 1.0),
        y_range=(0.0, 1.0),
    )


def _claims(name: str, bins: Sequence[ClaimBin], colour: int, intervals: bool = False) -> Series:
    ends = [wilson(min(max(one.observed, 0.0), 1.0) * one.count, one.count) for one in bins] if intervals else []
    return Series(
        name,
        [one.claimed for one in bins],
        [one.observed for one in bins],
        colour,
        dots=True,
        low=[end.low for end in ends],
        high=[end.high for end in ends],
        bare=True,
    )


def _measures(audits: Sequence[EventRow]) -> str:
    """Accuracy and errors of the claims in the newest audit."""
    fields = audits[-1].fields if audits else {}
    named = (("calibration error", "ece", True), ("Brier score", "brier", False))
    values = [(words, fields.get(name), percent) for words, name, percent in named]
    measures = [f"{words} {format_value(value, percent)}" for words, value, percent in values if value is not None]
    if right := ensemble_right(fields) if fields else "":
        measures.insert(0, right)
    return f" Newest audit: {', '.join(measures)}." if measures else ""


def _evidence(run: RunData) -> ChartSpec:
    """The sequential test: how strongly all answers so far speak for an alarm, beside what an alarm takes."""
    verdicts = [(float(event.step), event.fields["evidence"]) for event in run.happened("verdict")]
    rows = [(step, evidence["evidence"]) for step, evidence in verdicts if evidence.get("evidence")]
    few = len(rows) <= MOST_DOTS
    bars = [evidence["evidence_needed"] for _, evidence in verdicts if evidence.get("evidence_needed")]
    return ChartSpec(
        title="Evidence that it is liked less",
        subtitle="The test over all audits: on average at most 1 while nothing is wrong. At the bar the verdict is "
        "hacking or worse; a rollback spends it.",
        unit="times likelier than chance",
        series=(Series("evidence", [x for x, _ in rows], [y for _, y in rows], VERMILION, dots=few),),
        limit=Series("alarm", [rows[0][0]], [round(bars[-1], 2)]) if rows and bars else None,
        log_y=True,
    )


# ---- signals


def signal_charts(run: RunData) -> list[ChartSpec]:
    """A small chart for each signal, those first that moved farthest from where they began."""
    names = [name for name in run.metrics.names if name.startswith(SIGNALS) and run.metrics.count(name)]
    if not names:
        return []
    # The signals' own words; they bring torch with them, which a report without signals does not need.
    from holdfast.guard.signals import SIGNALS as KNOWN

    by_movement = sorted(names, key=lambda name: (-movement(run.metrics.column(name)), name))
    charts, usual = [], baselines(run)
    for name in by_movement:
        signal = KNOWN.get(name.removeprefix(SIGNALS))
        meaning, unit = (signal.meaning, signal.unit) if signal else ("", "")
        charts.append(_signal(run, name, meaning, unit, usual.get(name)))
    return charts


def movement(values: Sequence[float | None]) -> float:
    """How far the mean of any stretch of the run lies from that of the first one, in standard deviations within them.

    A signal that only flickers has not moved; one that ran away and came back with a rollback has.
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    chunks = min(CHUNKS, len(known) // 3)
    if chunks < 2:
        return 0.0
    edges = [round(n * len(known) / chunks) for n in range(chunks + 1)]
    parts = [known[a:b] for a, b in pairwise(edges)]
    means = [fmean(part) for part in parts]
    within = math.sqrt(fmean(pvariance(part, mean) for part, mean in zip(parts, means, strict=True)))
    # Readings that hardly vary would make the least change look large.
    least = 0.01 * max(abs(mean) for mean in means)
    return max(abs(mean - means[0]) for mean in means) / max(within, least, 1e-12)


def window(count: int) -> int:
    """Light smoothing: about a twenty-fifth of the run, and none where there are few values."""
    return 0 if count < 25 else max(3, count // 25) | 1


NAMES = {"kl": "KL", "ppo": "PPO"}


def baselines(run: RunData) -> dict[str, float]:
    """What each signal reads in the reference's answers, by its metric, as far as the run has written it down."""
    written = [event.fields["signals"] for event in run.happened("baselines")]
    return {name: entry["mean"] for name, entry in written[-1].items()} if written else {}


def _signal(run: RunData, name: str, meaning: str, unit: str, usual: float | None) -> ChartSpec:
    words = [NAMES.get(word, word) for word in name.removeprefix(SIGNALS).split("_")]
    title = " ".join(words)
    xs, ys = run.metric(name)
    return ChartSpec(
        title=title[:1].upper() + title[1:],
        subtitle=f"{meaning[:1].upper()}{meaning[1:]}." if meaning else "",
        unit="" if unit == "share" else unit,
        series=(Series("", xs, ys, SKY, smooth=window(run.metrics.count(name))),),
        limit=Series("reference", xs[:1], [usual], bare=True) if usual is not None and xs else None,
        percent=unit == "share",
        width=SMALL_WIDTH,
        height=SMALL_HEIGHT,
    )
