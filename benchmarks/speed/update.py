"""An epoch of PPO updates, and the share of the matrix-product peak that it reaches.

Updates from 64 answers, with a value head on the policy and with a critic of the policy's size, on 1m and 15m
parameters, at fixed and natural lengths: on the fast path, and on transformers' own (policy.fast = false). The share of
the peak counts the matrix products that forward and backward passes over the real tokens need; padding and everything
else is overhead.

python -m benchmarks update        writes bench-update-Ncore.json
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.speed.cases import SAMPLES, Critic
from benchmarks.speed.flops import least_flops
from benchmarks.speed.measure import Spread, in_turns, ratios
from benchmarks.speed.options import Settings, on_cores, parser_with_turns, publish, settings_of
from benchmarks.speed.ours import Job, config_of, put_together
from benchmarks.speed.workload import workload
from holdfast.cli.tables import show_table

CRITICS: dict[str, Critic] = {"head": "head", "critic": "model"}


def main(words: Sequence[str]) -> None:
    settings = settings_of("update", parser_with_turns("update", __doc__).parse_args(words))
    sizes = ("quick",) if settings.quick else ("1m", "15m")
    with on_cores(settings.cores):
        cases = {
            f"{kind}-{size}-{name}": measure(kind, size, critic, settings)
            for size in sizes
            for kind in ("fixed", "natural")
            for name, critic in CRITICS.items()
        }
        publish(settings, {"samples": SAMPLES, "cases": cases}, lambda: show(cases))


def measure(kind: str, size: str, critic: Critic, settings: Settings) -> dict[str, Any]:
    given = workload(kind, size, SAMPLES, settings.work, settings.say)
    job = Job.on(given, critic=critic)
    paths = {"fast": job, "plain": replace(job, fast=False)}
    sides = {path: put_together(j, config_of(j)) for path, j in paths.items()}
    ours = sides["fast"]
    rollout = ours.sample()
    experience, _ = ours.score(rollout)
    settings.say(f"update {given.name}, {critic}: {settings.turns} turns")
    peaks = [settings.peak()]
    times = in_turns({path: partial(side.update, experience) for path, side in sides.items()}, settings.turns)
    peaks.append(settings.peak())
    lengths = [len(p) + len(r) for p, r in zip(rollout.prompts, rollout.responses, strict=True)]
    needed = least_flops(ours.policy.lm.config, lengths, rollout.lengths)
    if critic == "model":
        needed += least_flops(ours.policy.lm.config, lengths, rollout.lengths, head=False)
    per_epoch = {path: [t / job.epochs for t in taken] for path, taken in times.items()}
    return {
        "parameters": given.parameters,
        "gflop_per_epoch": needed / 1e9,
        "peak_gflops": max(peaks) / 1e9,
        "threads": ours.threads,
        "mean_length": sum(rollout.lengths) / len(rollout.lengths),
        "paths": {
            path: {
                "seconds_per_epoch": vars(Spread.of(taken)),
                "tokens_per_second": sum(rollout.lengths) / Spread.of(taken).median,
                "share_of_peak": vars(Spread.of([needed / (t * max(peaks)) for t in taken])),
            }
            for path, taken in per_epoch.items()
        },
        "ratio": vars(ratios(times["plain"], times["fast"])),
    }


def show(cases: dict[str, Any]) -> None:
    rows = [
        [
            name if path == "fast" else "",
            path,
            str(Spread(**facts["seconds_per_epoch"])),
            f"{facts['tokens_per_second']:.0f}",
            f"{case['gflop_per_epoch'] / facts['seconds_per_epoch']['median']:.1f}",
            f"{facts['share_of_peak']['median']:.0%}",
            str(Spread(**case["ratio"])) if path == "fast" else "",
        ]
        for name, case in cases.items()
        for path, facts in case["paths"].items()
    ]
    columns = ["case", "path", "seconds per epoch", "tokens/s", "GFLOP/s", "of peak", "times as fast"]
    show_table(f"An epoch of updates from {SAMPLES} answers", columns, rows, left=2)
    print("\nof peak: share of the matrix-product peak of the cores in use. Medians [quartiles] of the turns.")
