"""Our iteration and TRL's in turns, on the same model, prompts, samples and epochs.

Cases are ppo-KIND-SIZE, grpo-natural-SIZE and rloo-natural-SIZE; KIND is fixed (no answer ends before 48 tokens) or
natural (answers of a fine-tuned model, at most 64 tokens), SIZE is 1m or 15m parameters, or deep: 15m in five narrower
layers instead of two. An iteration is 64 answers sampled, scored by reference and reward model, and 4 epochs of
updates. PPO is measured with a value head on the policy and with a critic of the policy's size, which is what TRL has.

A peer runs in an environment of its own, made with pip in --work the first time, and with whichever number of threads
suits it better. Fewer rows at once (--peer-rows) take it as long, in less memory. Cases that are left out by --only
stay in the JSON as they were.

python -m benchmarks peers         writes bench-peers-Ncore.json
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from benchmarks.speed.cases import CASES, GROUP, PEER, SAMPLES, Case, Critic
from benchmarks.speed.comparison import compare, show
from benchmarks.speed.line import Driver
from benchmarks.speed.measure import best_threads, in_turns
from benchmarks.speed.options import Settings, keep, on_cores, parser_with_turns, publish, settings_of
from benchmarks.speed.ours import Job, command_of
from benchmarks.speed.workload import workload
from benchmarks.trl.environments import QUIET, driver_command, peer_environment, peer_variables
from holdfast.errors import HoldfastError


def main(words: Sequence[str]) -> None:
    parser = parser_with_turns("peers", __doc__)
    parser.add_argument(
        "--peer-rows", type=int, default=SAMPLES, metavar="N", help=f"rows that TRL trains on at once ({SAMPLES}: all)"
    )
    parser.add_argument("--only", metavar="CASE,...", help="some of the cases; a beginning stands for all that have it")
    args = parser.parse_args(words)
    settings = settings_of("peers", args)
    cases = chosen(args.only, settings.quick)
    if args.peer_rows < 1 or SAMPLES % args.peer_rows:
        raise HoldfastError(f"--peer-rows is {args.peer_rows}; give a number that divides {SAMPLES}.")
    kept: dict[str, Any] = {}
    if args.only and settings.file.is_file():
        kept = json.loads(settings.file.read_text()).get("cases", {})
    with on_cores(settings.cores):
        for case in cases:
            kept[case.name] = {"made_by": settings.made_by(), **measure(case, settings, args.peer_rows)}
            keep(settings, {"cases": kept})  # so that a case that fails does not take the ones before it along
        publish(settings, {"cases": kept}, lambda: show(kept))


def chosen(only: str | None, quick: bool) -> list[Case]:
    cases = [Case(c.algorithm, c.kind, "quick") for c in CASES if c.size == "1m"] if quick else list(CASES)
    if only is None:
        return cases
    wanted = [word.strip() for word in only.split(",") if word.strip()]
    for word in wanted:
        if not any(case.name.startswith(word) for case in cases):
            raise HoldfastError(f"There is no case {word!r}; --only takes {', '.join(c.name for c in cases)}.")
    return [case for case in cases if any(case.name.startswith(word) for word in wanted)]


def measure(case: Case, settings: Settings, rows: int) -> dict[str, Any]:
    """Start all sides, warm them up, and let them take turns."""
    group = 1 if case.algorithm == "ppo" else GROUP
    python, versions = peer_environment(case.peer, settings.work, settings.say)
    given = workload(case.kind, case.size, SAMPLES // group, settings.work, settings.say)
    settings.say(f"{case.name}: {settings.turns} turns")

    def job(critic: Critic) -> Job:
        return Job.on(given, algorithm=case.algorithm, critic=critic, samples_per_prompt=group, rows=rows)

    commands = {side: command_of(job(critic)) for side, critic in case.ours.items()}
    commands[PEER] = driver_command(python, "ppo" if case.algorithm == "ppo" else "group", asdict(job("model")))
    logs = settings.work / "logs"
    with ExitStack() as stack:
        drivers = {
            side: stack.enter_context(Driver(side, command, logs / f"{case.name}-{side}.log", variables(side)))
            for side, command in commands.items()
        }
        peer = drivers[PEER]
        threads = best_threads(settings.cores, peer.use_threads, lambda: peer.go().seconds)
        peaks = [settings.peak()]
        in_turns({side: driver.go for side, driver in drivers.items()}, settings.turns, clock=lambda go: go().seconds)
        peaks.append(settings.peak())
        for driver in drivers.values():
            del driver.reports[: -settings.turns]  # what was only warming up
    return compare(case, job("model"), drivers, max(peaks)) | {"peer_threads": threads, "peer_versions": versions}


def variables(side: str) -> dict[str, str]:
    """Nothing is fetched while the clock runs; a peer has what its own users have, not what suits Holdfast."""
    return peer_variables() if side == PEER else {**os.environ, **QUIET}
