"""`holdfast bench update`: an epoch of PPO updates, and the share of the matrix-product peak that it reaches."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.bench.cases import SAMPLES, Critic
from holdfast.bench.options import Settings, add_kind, on_cores, publish, settings_of

CRITICS: dict[str, Critic] = {"head": "head", "critic": "model"}

DETAILS = f"""\
Updates from {SAMPLES} answers, with a value head on the policy and with a critic of the policy's size, on 1m and 15m
parameters, at fixed and natural lengths. The share of the peak counts the matrix products that forward and backward
passes over the real tokens need; padding and everything else is overhead."""


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
    import torch

    from holdfast.bench.flops import model_flops
    from holdfast.bench.machine import peak
    from holdfast.bench.measure import Spread, in_turns
    from holdfast.bench.ours import Job, config_of, put_together
    from holdfast.bench.workload import workload

    given = workload(kind, size, SAMPLES, settings.work, settings.say)
    job = Job(str(given.directory), given.prompts, given.new_tokens, given.ends, critic=critic)
    ours = put_together(job, config_of(job))
    rollout = ours.sample()
    experience, _ = ours.score(rollout)
    settings.say(f"update {given.name}, {critic}: {settings.turns} turns")
    peaks = [peak(settings)]
    taken = in_turns({"ours": lambda: ours.update(experience)}, settings.turns)["ours"]
    peaks.append(peak(settings))
    lengths = [len(p) + len(r) for p, r in zip(rollout.prompts, rollout.responses, strict=True)]
    needed = model_flops(ours.policy.lm.config, lengths, rollout.lengths)
    if critic == "model":
        needed += model_flops(ours.policy.lm.config, lengths, [])
    epochs = [t / job.epochs for t in taken]
    return {
        "parameters": given.parameters,
        "seconds_per_epoch": vars(Spread.of(epochs)),
        "tokens_per_second": sum(rollout.lengths) / Spread.of(epochs).median,
        "gflop_per_epoch": needed / 1e9,
        "peak_gflops": max(peaks) / 1e9,
        "share_of_peak": vars(Spread.of([needed / (t * max(peaks)) for t in epochs])),
        "threads": torch.get_num_threads(),
        "mean_length": sum(rollout.lengths) / len(rollout.lengths),
    }


def show(cases: dict[str, Any]) -> None:
    from holdfast.bench.measure import Spread
    from holdfast.bench.tables import show_table

    rows = [
        [
            name,
            str(Spread(**case["seconds_per_epoch"])),
            f"{case['tokens_per_second']:.0f}",
            f"{case['gflop_per_epoch']:.1f}",
            f"{case['gflop_per_epoch'] / case['seconds_per_epoch']['median']:.1f}",
            f"{case['share_of_peak']['median']:.0%}",
            f"{case['threads']}",
        ]
        for name, case in cases.items()
    ]
    columns = ["case", "seconds per epoch", "tokens/s", "GFLOP", "GFLOP/s", "of peak", "threads"]
    show_table(f"An epoch of updates from {SAMPLES} answers", columns, rows)
    print("\nof peak: share of the matrix-product peak of the cores in use. Medians [quartiles] of the turns.")
