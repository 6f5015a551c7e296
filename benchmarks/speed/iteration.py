"""Where the time and the memory of one of our steps go.

One step of 64 answers by phase: that of the default run (its own model, three reward models, 3 epochs of 2
minibatches), and that of `python -m benchmarks peers` (one reward model, 4 epochs) on 1m and 15m parameters. Each case
has a process of its own, whose peak memory is reported. Then the default step with five reward models and with one, in
turns, in this process.

python -m benchmarks iteration     writes bench-iteration-Ncore.json
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.speed.cases import SAMPLES
from benchmarks.speed.comparison import driver_memory, mean_length, mebibytes
from benchmarks.speed.line import Driver
from benchmarks.speed.measure import Spread, in_turns, ratios
from benchmarks.speed.options import Settings, on_cores, parser_with_turns, publish, settings_of
from benchmarks.speed.ours import Job, command_of, config_of, put_together
from benchmarks.speed.wire import PHASES
from benchmarks.speed.workload import Workload, workload
from holdfast.cli.tables import show_table
from holdfast.config import Config

FEW, MANY = 1, 5


def main(words: Sequence[str]) -> None:
    settings = settings_of("iteration", parser_with_turns("iteration", __doc__).parse_args(words))
    names = ["natural-quick"] if settings.quick else ["natural-default"]
    if not settings.quick:
        names += [f"{kind}-{size}" for size in ("1m", "15m") for kind in ("natural", "fixed")]
    with on_cores(settings.cores):
        cases = {name: measure(name, settings) for name in names}
        members = measure_members(names[0], settings)
        publish(settings, {"samples": SAMPLES, "cases": cases, "members": members}, lambda: show(cases, members))


def workload_named(name: str, settings: Settings) -> Workload:
    kind, _, size = name.partition("-")
    return workload(kind, size, SAMPLES, settings.work, settings.say)


def measure_members(name: str, settings: Settings) -> dict[str, Any]:
    """The default step with many reward models against the same with few, turn by turn."""
    job = Job.on(workload_named(name, settings)).with_defaults(Config())
    jobs = {str(count): replace(job, members=count) for count in (FEW, MANY)}
    sides = {count: put_together(side, config_of(side)).step for count, side in jobs.items()}
    settings.say(f"iteration {name}: {MANY} reward models against {FEW}, {settings.turns} turns")
    times = in_turns(sides, settings.turns)
    return {"seconds": times, "ratio": vars(ratios(times[str(MANY)], times[str(FEW)]))}


def measure(name: str, settings: Settings) -> dict[str, Any]:
    given = workload_named(name, settings)
    job = Job.on(given)
    if name.endswith("-default"):
        job = job.with_defaults(Config())
    settings.say(f"iteration {name}: {settings.turns} turns")
    with Driver("ours", command_of(job), settings.work / "logs" / f"iteration-{name}.log") as driver:
        driver.go()
        del driver.reports[:]  # what was only warming up
        reports = [driver.go() for _ in range(settings.turns)]
    return {
        "parameters": given.parameters,
        "seconds": vars(Spread.of([r.seconds for r in reports])),
        "phases": {p: vars(Spread.of([r.phases[p] for r in reports])) for p in PHASES},
        "tokens_per_second": Spread.of([r.response_tokens / r.seconds for r in reports]).median,
        "mean_length": mean_length(reports),
        "threads": driver.facts["threads"],
        "memory": driver_memory(driver),
    }


def show(cases: dict[str, Any], members: dict[str, Any]) -> None:
    rows = []
    for name, case in cases.items():
        total = sum(case["phases"][p]["median"] for p in PHASES)
        rows.append(
            [
                name,
                str(Spread(**case["seconds"])),
                *(f"{case['phases'][p]['median']:.2f} {case['phases'][p]['median'] / total:4.0%}" for p in PHASES),
                f"{case['tokens_per_second']:.0f}",
                f"{case['mean_length']:.1f}",
                mebibytes(case["memory"]),
            ]
        )
    columns = ["case", "seconds", *PHASES, "tokens/s", "tokens", "MiB"]
    show_table(f"A step of {SAMPLES} answers", columns, rows)
    print("\ntokens: mean answer. MiB: peak of the process, and what of it came after imports.")
    print("Medians [quartiles] of the turns.")
    print(
        f"\nThe default step with {MANY} reward models takes {Spread(**members['ratio'])} times as long as with {FEW}."
    )
