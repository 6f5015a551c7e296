"""`holdfast bench update`: an epoch of PPO updates, and the share of the matrix-product peak that it reaches."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.bench.cases import SAMPLES, Critic
from holdfast.bench.options import Settings, add_kind, on_cores, publish, settings_of

CRITICS: dict[str, Critic] = {"head": "head", "critic": "model"}

DETAILS = f"""\
Updates from {SAMPLES} answers, with a value head on the policy and with a critic of the policy's size, on 1m and 15m
parameters, at fixed and natural lengths: on the fast path, and on transformers' own (policy.fast = false). The share of
the peak counts the matrix products that forward and backward passes over the real tokens need; padding and everything
else is overhead."""


def add(kinds: Any) -> None:
    add_kind(kinds, "update", work, "measure PPO updates against the matrix-product peak", DETAILS)


def work(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    sizes = ("quick",) if settings.quick else ("1m", "15m")
    with on_cores(settings.cores):
        cases = {
            f"{kind}-{size}-{name}": measure(kind, size, critic, settings)
            for size in sizes
            for kind in ("fixed", "natural")
            for name, critic in CRITICS.items()
        }
        publish(settings, {"samples": SAMPLES, "cases": cases}, lambda: show(cases))
    return 0


def measure(kind: str, size: str, critic: Critic, settings: Settings) -> dict[str, Any]:
    from holdfast.bench.flops import least_flops
    from holdfast.bench.machine import peak
    from holdfast.bench.measure import Spread, in_turns, ratios
    from holdfast.bench.ours import Job, config_of, put_together
    from holdfast.bench.workload import workload

    given = workload(kind, size, SAMPLES, settings.work, settings.say)
    job = Job(str(given.directory), given.prompts, given.new_tokens, given.ends, critic=critic)
    paths = {"fast": job, "plain": replace(job, fast=False)}
    sides = {path: put_together(j, config_of(j)) for path, j in paths.items()}
    ours = sides["fast"]
    rollout = ours.sample()
    experience, _ = ours.score(rollout)
    settings.say(f"update {given.name}, {critic}: {settings.turns} turns")
    peaks = [peak(settings)]
    times = in_turns({path: partial(side.update, experience) for path, side in sides.items()}, settings.turns)
    peaks.append(peak(settings))
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
    from holdfast.bench.measure import Spread
    from holdfast.bench.tables import show_table

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
