"""The failure this project exists for: no KL penalty, one reward model of a thousand labels, never refreshed.

Gold rises, then falls, while the proxy climbs, by itself: nothing is planted.

python -m benchmarks collapse         writes benchmarks/results/collapses.json and collapses.svg
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.record import keep, keep_figure, seeds_and_runs, smoothed
from benchmarks.trials import run_trials
from holdfast.charts.chart import ChartSpec, Series
from holdfast.lab.trial import Job, Trial, by_round

BARE = (
    "kl.controller=fixed", "kl.beta=0.0", "reward.members=1", "refresh.every_rounds=0", "preferences.per_round=0",
    "guard.mode=off", "reward.initial_comparisons=1000", "ppo.lr_final=1.0", "run.steps_per_round=10",
)  # fmt: skip


def fall(trial: Trial) -> dict[str, float | bool]:
    """How much of gold's rise is lost again, on smoothed rollouts, and whether the proxy's last round is its best."""
    gold = smoothed(trial.gold)
    start, peak, end = trial.gold[0], max(gold), gold[-1]
    proxy = by_round(trial, trial.proxy)
    return {
        "start": start,
        "peak": peak,
        "peak_step": trial.steps[gold.index(peak)],
        "end": end,
        "share_lost": (peak - end) / (peak - start),
        "proxy_ends_highest": proxy[-1] == max(proxy),
    }


def main(words: Sequence[str]) -> None:
    seeds, runs = seeds_and_runs("collapse", __doc__, words)
    print("beta 0, one reward model of 1000 labels, no refresh, 80 steps")
    trials = run_trials([Job(BARE, seed, runs / f"bare-{seed}") for seed in seeds])
    falls = [fall(t) for t in trials]
    print(f"\n{'seed':>6} {'start':>7} {'peak':>7} {'at step':>8} {'end':>7} {'rise lost':>10} {'proxy highest':>14}")
    for t, f in zip(trials, falls, strict=True):
        print(
            f"{t.seed:>6} {f['start']:>7.3f} {f['peak']:>7.3f} {f['peak_step']:>8} {f['end']:>7.3f} "
            f"{f['share_lost']:>10.0%} {'at the end' if f['proxy_ends_highest'] else 'earlier':>14}"
        )
    keep("collapses", {"settings": BARE, "falls": falls, "trials": [asdict(t) for t in trials]})
    keep_figure(
        "collapses",
        [
            ChartSpec(
                title="Proxy: what the reward model says",
                subtitle="Five seeds with no KL penalty, one reward model and no refresh.",
                unit="standardised score",
                series=tuple(Series(f"seed {t.seed}", t.steps, smoothed(t.proxy)) for t in trials),
            ),
            ChartSpec(
                title="Gold: what is true",
                subtitle="It rises, then falls, while the proxy climbs on.",
                unit="gold score",
                series=tuple(Series(f"seed {t.seed}", t.steps, smoothed(t.gold)) for t in trials),
            ),
        ],
    )
