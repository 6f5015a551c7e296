"""`holdfast bench iteration`: where the time and the memory of one of our steps go."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from holdfast.bench.cases import SAMPLES
from holdfast.bench.drivers.wire import PHASES
from holdfast.bench.options import Settings, add_kind, on_cores, publish, settings_of

DETAILS = f"""\
One step of {SAMPLES} answers by phase: that of the default run (its own model, three reward models, 3 epochs of 2
minibatches), and that of `holdfast bench peers` (one reward model, 4 epochs) on 1m and 15m parameters. Each case has a
process of its own, whose peak memory is reported. Then the default step with five reward models and with one, in
turns."""

FEW, MANY = 1, 5


def add(kinds: Any) -> None:
    add_kind(kinds, "iteration", work, "measure one of our steps by phase", DETAILS)


def work(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    names = ["natural-quick"] if settings.quick else ["natural-default"]
    if not settings.quick:
        names += [f"{kind}-{size}" for size in ("1m", "15m") for kind in ("natural", "fixed")]
    with on_cores(settings.cores):
        cases = {name: measure(name, settings) for name in names}
        members = measure_members(names[0], settings)
        publish(settings, {"samples": SAMPLES, "cases": cases, "members": members}, lambda: show(cases, members))
    return 0


def measure_members(name: str, settings: Settings) -> dict[str, Any]:
    """The default step with many reward models against the same with few, turn by turn."""
    from contextlib import ExitStack

    from holdfast.bench.line import Driver
    from holdfast.bench.measure import in_turns, ratios
    from holdfast.bench.ours import Job, command_of
    from holdfast.bench.workload import workload
    from holdfast.config import Config

    kind, _, size = name.partition("-")
    given = workload(kind, size, SAMPLES, settings.work, settings.say)
    job = Job(str(given.directory), given.prompts, given.new_tokens, given.ends).with_defaults(Config())
    settings.say(f"iteration {name}: {MANY} reward models against {FEW}, {settings.turns} turns")
    with ExitStack() as stack:
        drivers = {
            count: stack.enter_context(
                Driver(
                    f"{count} reward models",
                    command_of(replace(job, members=count)),
                    settings.work / "logs" / f"iteration-{name}-{count}.log",
                )
            )
            for count in (FEW, MANY)
        }
        sides = {str(count): driver.go for count, driver in drivers.items()}
        times = in_turns(sides, settings.turns, clock=lambda go: float(go().seconds))
    return {"seconds": times, "ratio": vars(ratios(times[str(MANY)], times[str(FEW)]))}


def measure(name: str, settings: Settings) -> dict[str, Any]:
    from holdfast.bench.line import Driver
    from holdfast.bench.measure import Spread
    from holdfast.bench.ours import Job, command_of
    from holdfast.bench.workload import workload
    from holdfast.config import Config

    kind, _, size = name.partition("-")
    given = workload(kind, size, SAMPLES, settings.work, settings.say)
    job = Job(str(given.directory), given.prompts, given.new_tokens, given.ends)
    if size == "default":
        job = job.with_defaults(Config())
    settings.say(f"iteration {name}: {settings.turns} turns")
    with Driver("ours", command_of(job), settings.work / "logs" / f"iteration-{name}.log") as driver:
        driver.go()
        reports = [driver.go() for _ in range(settings.turns)]
        facts = driver.facts
    return {
        "parameters": given.parameters,
        "seconds": vars(Spread.of([r.seconds for r in reports])),
        "phases": {p: vars(Spread.of([r.phases[p] for r in reports])) for p in PHASES},
        "tokens_per_second": Spread.of([r.response_tokens / r.seconds for r in reports]).median,
        "mean_length": sum(r.response_tokens for r in reports) / sum(r.samples for r in reports),
        "threads": facts["threads"],
        "memory": {
            "imported": facts["memory_imported"],
            "loaded": facts["memory_loaded"],
            "peak": reports[-1].peak_memory,
        },
    }


def show(cases: dict[str, Any], members: dict[str, Any]) -> None:
    from holdfast.bench.measure import Spread
    from holdfast.bench.tables import mebibytes, show_table

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
