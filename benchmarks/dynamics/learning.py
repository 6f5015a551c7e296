"""Does the default run make the policy better? Five seeds, gold on held-out prompts before and after.

python -m benchmarks learning            writes benchmarks/results/learns.json and learns.svg
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.record import keep, keep_figure, seeds_and_runs
from benchmarks.trials import run_trials
from holdfast.charts.chart import ChartSpec, Series
from holdfast.lab.trial import Job, by_round
from holdfast.statistics import mean_interval


def main(words: Sequence[str]) -> None:
    seeds, runs = seeds_and_runs("learning", __doc__, words)
    print("default run, gold on 200 held-out prompts")
    trials = run_trials([Job((), seed, runs / f"default-{seed}") for seed in seeds])
    gains = [t.heldout[-1] - t.heldout[0] for t in trials]
    mean = mean_interval(gains)
    print(f"\n{'seed':>6} {'SFT':>7} {'end':>7} {'gain':>7}")
    for t, gain in zip(trials, gains, strict=True):
        print(f"{t.seed:>6} {t.heldout[0]:>7.3f} {t.heldout[-1]:>7.3f} {gain:>+7.3f}")
    better = sum(gain > 0 for gain in gains)
    print(
        f"\nabove SFT in {better} of {len(gains)} seeds; mean gain {mean.value:+.3f}, "
        f"95% interval [{mean.low:+.3f}, {mean.high:+.3f}]"
    )
    keep(
        "learns",
        {
            "seeds": list(seeds),
            "above_sft": better,
            "gain": {"mean": mean.value, "low": mean.low, "high": mean.high, "by_seed": gains},
            "trials": [asdict(t) for t in trials],
        },
    )
    rounds = list(range(len(trials[0].heldout)))
    keep_figure(
        "learns",
        [
            ChartSpec(
                title="Gold on held-out prompts",
                subtitle="The truth, which the run never sees. Round 0 is the reference.",
                unit="gold score",
                x_label="round",
                series=tuple(Series(f"seed {t.seed}", rounds, t.heldout) for t in trials),
            ),
            ChartSpec(
                title="Proxy",
                subtitle="What the reward ensemble says, in standard deviations of the reference.",
                unit="standardised score",
                x_label="round",
                series=tuple(Series(f"seed {t.seed}", rounds[1:], by_round(t, t.proxy)) for t in trials),
            ),
        ],
    )
