"""The squeezing effect on the built-in world: what DPO does to chosen answers, rejected ones and the argmax.

Four passes over the labelled pairs of the reference's own answers in large batches, with and without fine-tuning on
both answers first.

python -m benchmarks squeezing         writes benchmarks/results/squeezing.json and squeezing.svg
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, stdev
from typing import Any

from benchmarks.record import keep, keep_figure, seeds_and_runs
from benchmarks.trials import DPOJob, DPOTrial, run_dpo_trial
from holdfast.charts.chart import ChartSpec, Series
from holdfast.statistics import bootstrap

SETTINGS = ("dpo.epochs=4", "dpo.lr=1e-4", "dpo.batch=64", "probes.prompts=512", "probes.every=10")
ARMS = {"dpo": (), "both answers first": ("dpo.sft_both=4",)}
LINES = (("chosen", 0), ("rejected", 1), ("chosen_varied", 5), ("other", 3))
# Standard errors by which chosen has to rise before its fall counts as one from a peak.
BEYOND_CHANCE = 2.0


def rise(each: Sequence[Sequence[float]]) -> tuple[float, float]:
    """How far the probed answers rise from the first probe to their peak, with its standard error.

    `each` holds a value for every answer at every probe. The highest of many noisy probes is above the first one by
    chance alone, so each half of the answers is read at the peak of the other half.
    """
    halves = [[row[start::2] for row in each] for start in (0, 1)]
    changes = []
    for mine, other in (halves, halves[::-1]):
        means = [fmean(row) for row in other]
        peak = mine[means.index(max(means))]
        changes += [after - before for before, after in zip(mine[0], peak, strict=True)]
    return fmean(changes), stdev(changes) / len(changes) ** 0.5


def fall(trial: DPOTrial) -> dict[str, Any]:
    """What is asked of each run, from its probes."""
    chosen = [row["logprob"]["chosen"] for row in trial.probes]
    rejected = [row["logprob"]["rejected"] for row in trial.probes]
    argmax = [row["argmax"] for row in trial.probes]
    peak = chosen.index(max(chosen))
    rises, error = rise([row["each"]["chosen"] for row in trial.probes])
    chosen_fall, rejected_fall = chosen[peak] - chosen[-1], rejected[0] - rejected[-1]
    return {
        "seed": trial.seed,
        "chosen_start": chosen[0],
        "chosen_peak": chosen[peak],
        "peak_update": trial.probes[peak]["step"],
        "chosen_rise": rises,
        "chosen_rise_error": error,
        "chosen_end": chosen[-1],
        "chosen_fall": chosen_fall,
        "rejected_fall": rejected_fall,
        "argmax_rise_while_chosen_falls": argmax[-1] - argmax[peak],
        "squeezed": rises > BEYOND_CHANCE * error
        and chosen_fall > 0
        and rejected_fall >= 3 * chosen_fall
        and argmax[-1] > argmax[peak],
        "warned_at": None if trial.warned is None else trial.warned["step"],
        "warned": trial.warned is not None,
        "gold": trial.gold,
        "kl": trial.kl,
        "length": trial.length,
    }


def mean_line(trials: Sequence[DPOTrial], read: Any) -> tuple[list[float], list[float]]:
    steps = [
        row["step"] for row in trials[0].probes if all(any(r["step"] == row["step"] for r in t.probes) for t in trials)
    ]
    by_step = [{row["step"]: row for row in t.probes} for t in trials]
    return [float(s) for s in steps], [fmean(read(rows[s]) for rows in by_step) for s in steps]


def figures(row: dict[str, Any]) -> dict[str, Any]:
    """A probe without what it says prompt by prompt."""
    return {name: value for name, value in row.items() if name not in ("each", "argmax_ids")}


def charts(trials: dict[str, list[DPOTrial]], mitigation: str) -> list[ChartSpec]:
    plain = trials["dpo"]
    lines = [
        Series(kind.replace("_", " "), *mean_line(plain, lambda row, k=kind: row["logprob"][k]), colour)
        for kind, colour in LINES
    ]
    lines.append(Series("argmax", *mean_line(plain, lambda row: row["argmax"]), 2))
    return [
        ChartSpec(
            title="DPO: rejected falls, chosen follows, the argmax rises",
            subtitle="Log-probs of fixed answers, summed over tokens; mean over seeds.",
            unit="nats per answer",
            x_label="update",
            width=470.0,
            series=tuple(lines),
        ),
        ChartSpec(
            title=f"Chosen: {mitigation}",
            subtitle="Change since the start of DPO; mean over seeds.",
            unit="nats per answer",
            x_label="update",
            width=470.0,
            series=tuple(
                Series(arm, *changes(of), colour) for colour, (arm, of) in zip((0, 2), trials.items(), strict=True)
            ),
        ),
    ]


def changes(trials: Sequence[DPOTrial]) -> tuple[list[float], list[float]]:
    steps, means = mean_line(trials, lambda row: row["logprob"]["chosen"])
    return steps, [value - means[0] for value in means]


def main(words: Sequence[str]) -> None:
    seeds, runs = seeds_and_runs("squeezing", __doc__, words)
    trials: dict[str, list[DPOTrial]] = {arm: [] for arm in ARMS}
    for seed in seeds:
        for arm, settings in ARMS.items():
            path = runs / f"{arm.replace(' ', '-')}-{seed}"
            trials[arm].append(run_dpo_trial(DPOJob((*SETTINGS, *settings), seed, path, runs / "references")))
            print(
                f"seed {seed}, {arm}: gold {trials[arm][-1].gold[0]:+.3f} -> {trials[arm][-1].gold[-1]:+.3f}",
                flush=True,
            )
    falls = {arm: [fall(t) for t in of] for arm, of in trials.items()}
    heads = f"{'start':>8} {'rise':>6} {'error':>6} {'at':>5} {'end':>8} {'fall':>6} {'rejected':>9} {'argmax':>7}"
    print(f"\n{'arm':<20} {'seed':>5} {heads}")
    for arm, of in falls.items():
        for f in of:
            print(
                f"{arm:<20} {f['seed']:>5} {f['chosen_start']:>8.2f} {f['chosen_rise']:>6.3f} "
                f"{f['chosen_rise_error']:>6.3f} {f['peak_update']:>5} "
                f"{f['chosen_end']:>8.2f} {f['chosen_fall']:>6.2f} {-f['rejected_fall']:>9.2f} "
                f"{f['argmax_rise_while_chosen_falls']:>+7.2f}  {'squeezed' if f['squeezed'] else 'not squeezed'}"
            )
    squeezed = sum(f["squeezed"] for f in falls["dpo"])
    less = bootstrap(
        [a["chosen_fall"] - b["chosen_fall"] for a, b in zip(falls["dpo"], falls["both answers first"], strict=True)]
    )
    gold = bootstrap(
        [b["gold"][-1] - a["gold"][-1] for a, b in zip(falls["dpo"], falls["both answers first"], strict=True)]
    )
    print(f"\nsqueezed in {squeezed} of {len(seeds)} seeds; the mitigation lessens the fall of chosen by {less} nats,")
    print(f"and changes gold at the end by {gold}")
    keep(
        "squeezing",
        {
            "seeds": list(seeds),
            "settings": SETTINGS,
            "arms": ARMS,
            "squeezed": squeezed,
            "fall_lessened": asdict(less),
            "gold_changed": asdict(gold),
            "runs": falls,
            "probes": {arm: [[figures(row) for row in t.probes] for t in of] for arm, of in trials.items()},
        },
    )
    keep_figure("squeezing", charts(trials, f"with both answers first it falls {less.mean:.2f} less"))
