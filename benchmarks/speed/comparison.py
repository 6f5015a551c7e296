"""From the reports of all sides of a case to ratios, and to the table that shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from transformers import AutoConfig

from benchmarks.speed.cases import PEER, Case
from benchmarks.speed.flops import FORWARD, model_flops
from benchmarks.speed.line import Driver, Report
from benchmarks.speed.measure import Spread, ratios
from benchmarks.speed.ours import Job
from benchmarks.speed.wire import PHASES
from holdfast.cli.tables import show_table
from holdfast.errors import HoldfastError

# Answers are drawn at random on both sides; further apart than this, an iteration is not the same work.
LENGTHS_AGREE = 0.05


def compare(case: Case, job: Job, drivers: Mapping[str, Driver], peak: float) -> dict[str, Any]:
    """Everything that is known of a case; `ratios` are how many times as fast as TRL each of our sides is."""
    check_equal_work(case.name, drivers)
    config = AutoConfig.from_pretrained(Path(job.directory) / "policy")
    theirs = drivers[PEER].reports
    sides = {name: side_facts(d, flops_of(config, job, case, name), peak) for name, d in drivers.items()}
    return {
        "samples": theirs[0].samples,
        "epochs": job.epochs,
        "minibatches": job.minibatches,
        "new_tokens": job.new_tokens,
        "peer_rows": job.rows,
        "peak_gflops": peak / 1e9,
        "sides": sides,
        "ratios": {name: ratio_facts(drivers[name].reports, theirs) for name in drivers if name != PEER},
    }


def check_equal_work(case: str, drivers: Mapping[str, Driver]) -> None:
    counts = {name: {report.samples for report in driver.reports} for name, driver in drivers.items()}
    if len(set.union(*counts.values())) != 1:
        told = ", ".join(f"{name} {sorted(count)}" for name, count in counts.items())
        raise HoldfastError(f"The sides of {case} did not do the same work: samples are {told}; please report it.")


def mean_length(reports: Sequence[Report]) -> float:
    return sum(r.response_tokens for r in reports) / sum(r.samples for r in reports)


def ratio_facts(ours: Sequence[Report], theirs: Sequence[Report]) -> dict[str, Any]:
    """Ratios of each turn first, then their median. Whole iterations count where both sides' answers are as long."""
    length, their_length = mean_length(ours), mean_length(theirs)
    agree = abs(length / their_length - 1) <= LENGTHS_AGREE
    iteration = ratios([r.seconds for r in theirs], [r.seconds for r in ours])
    per_token = ratios([r.seconds / r.response_tokens for r in theirs], [r.seconds / r.response_tokens for r in ours])
    phases = {p: ratios([r.phases[p] for r in theirs], [r.phases[p] for r in ours]) for p in PHASES}
    return {
        "headline": asdict(iteration if agree else per_token),
        "lengths_agree": agree,
        "iteration": asdict(iteration),
        "per_token": asdict(per_token),
        "phases": {p: asdict(spread) for p, spread in phases.items()},
        "peak_memory": theirs[-1].peak_memory / ours[-1].peak_memory,
    }


def flops_of(config: Any, job: Job, case: Case, side: str) -> Any:
    """The operations that sampling and update of a report need on one side."""
    critic = case.algorithm == "ppo" and case.ours.get(side, "model") == "model"

    def count(report: Report) -> dict[str, float]:
        lengths = [prompt + response for prompt, response in report.lengths]
        responses = [response for _, response in report.lengths]
        trained = model_flops(config, lengths, responses)
        if critic:
            trained += model_flops(config, lengths, [])
        return {"sample": model_flops(config, lengths, responses, FORWARD), "update": job.epochs * trained}

    return count


def side_facts(driver: Driver, flops: Any, peak: float) -> dict[str, Any]:
    reports = driver.reports
    shares = [{p: needed / (r.phases[p] * peak) for p, needed in flops(r).items()} for r in reports]
    return {
        "seconds": asdict(Spread.of([r.seconds for r in reports])),
        # Much less than the clock's on one core means that something else was using it.
        "cpu_seconds": asdict(Spread.of([r.cpu_seconds for r in reports])),
        "phases": {p: median(r.phases[p] for r in reports) for p in PHASES},
        "cpu_phases": {p: median(r.cpu_phases[p] for r in reports) for p in PHASES},
        "share_of_peak": {p: median(s[p] for s in shares) for p in ("sample", "update")},
        "mean_length": mean_length(reports),
        "response_tokens_per_second": median(r.response_tokens / r.seconds for r in reports),
        "threads": driver.facts["threads"],
        "memory": driver_memory(driver),
        "turns": [
            {"seconds": r.seconds, "cpu_seconds": r.cpu_seconds, "phases": dict(r.phases), "tokens": r.response_tokens}
            for r in reports
        ],
    }


def driver_memory(driver: Driver) -> dict[str, int]:
    """Bytes that a driver's process has held at three moments."""
    # Weights are mapped from their file and only counted once they are touched, so `loaded` may miss them.
    return {
        "imported": driver.facts["memory_imported"],
        "loaded": driver.facts["memory_loaded"],
        "peak": driver.reports[-1].peak_memory,
    }


def mebibytes(memory: Mapping[str, int]) -> str:
    """The peak of a process, and what of it came after imports."""
    return f"{memory['peak'] / 2**20:.0f} +{(memory['peak'] - memory['imported']) / 2**20:.0f}"


def show(cases: Mapping[str, Any]) -> None:
    """One row per side; the ratio is TRL's time over ours."""
    rows = []
    for name, case in cases.items():
        for side, facts in case["sides"].items():
            ratio = case["ratios"].get(side)
            share = facts["share_of_peak"]
            rows.append(
                [
                    name if side == next(iter(case["sides"])) else "",
                    side,
                    f"{facts['seconds']['median']:.2f}",
                    *(f"{facts['phases'][p]:.2f}" for p in PHASES),
                    f"{facts['mean_length']:.1f}",
                    f"{share['sample']:.0%} {share['update']:.0%}",
                    mebibytes(facts["memory"]),
                    "" if ratio is None else f"{Spread(**ratio['headline'])}{'' if ratio['lengths_agree'] else '*'}",
                ]
            )
    columns = ["case", "side", "s", *PHASES, "tokens", "of peak", "MiB", "times as fast"]
    show_table("An iteration, in seconds", columns, rows, left=2)
    print("\ntokens: mean answer. of peak: share of the matrix-product peak, sampling and update.")
    print("MiB: peak of the process, and what of it came after imports. times as fast: median [quartiles];")
    print("* by time per answer token, because the sides' answers differ in length by more than 5%.")
