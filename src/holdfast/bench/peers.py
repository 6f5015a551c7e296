"""`holdfast bench peers`: our iteration and TRL's in turns, on the same model, prompts, samples and epochs."""

from __future__ import annotations

import argparse
import json
import os
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.bench.cases import CASES, GROUP, PEER, SAMPLES, Case, Critic
from holdfast.bench.options import Settings, add_kind, keep, on_cores, publish, settings_of
from holdfast.errors import HoldfastError

DETAILS = f"""\
Cases are ppo-KIND-SIZE, grpo-natural-SIZE and rloo-natural-SIZE; KIND is fixed (no answer ends before 48 tokens) or
natural (answers of a fine-tuned model, at most 64 tokens), SIZE is 1m or 15m parameters, or deep: 15m in five narrower
layers instead of two. An iteration is {SAMPLES} answers sampled, scored by reference and reward model, and 4 epochs of
updates. PPO is measured with a value head on the policy and with a critic of the policy's size, which is what TRL has.

A peer runs in an environment of its own, made with pip in --work the first time, and with whichever number of threads
suits it better. Fewer rows at once (--peer-rows) take it as long, in less memory. Cases that are left out by --only
stay in the JSON as they were."""


def add(kinds: Any) -> None:
    parser = add_kind(kinds, "peers", work, "measure our iteration against TRL's", DETAILS)
    parser.add_argument(
        "--peer-rows", type=int, default=SAMPLES, metavar="N", help=f"rows that TRL trains on at once ({SAMPLES}: all)"
    )
    parser.add_argument("--only", metavar="CASE,...", help="some of the cases; a beginning stands for all that have it")


def work(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    cases = chosen(args.only, settings.quick)
    if args.peer_rows < 1 or SAMPLES % args.peer_rows:
        raise HoldfastError(f"--peer-rows is {args.peer_rows}; give a number that divides {SAMPLES}.")
    from holdfast.bench.comparison import show
    from holdfast.bench.machine import made_by

    kept: dict[str, Any] = {}
    if args.only and settings.file.is_file():
        kept = json.loads(settings.file.read_text()).get("cases", {})
    with on_cores(settings.cores):
        for case in cases:
            kept[case.name] = {"made_by": made_by(settings), **measure(case, settings, args.peer_rows)}
            keep(settings, {"cases": kept})  # so that a case that fails does not take the ones before it along
        publish(settings, {"cases": kept}, lambda: show(kept))
    return 0


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
    from holdfast.bench.comparison import compare
    from holdfast.bench.environments import peer_environment
    from holdfast.bench.line import Driver
    from holdfast.bench.machine import peak
    from holdfast.bench.measure import in_turns
    from holdfast.bench.ours import Job, command_of
    from holdfast.bench.threads import best_threads
    from holdfast.bench.workload import workload

    group = 1 if case.algorithm == "ppo" else GROUP
    python, versions = peer_environment(case.peer, settings.work, settings.say)
    given = workload(case.kind, case.size, SAMPLES // group, settings.work, settings.say)
    settings.say(f"{case.name}: {settings.turns} turns")

    def job(critic: Critic) -> Job:
        return Job(
            str(given.directory), given.prompts, given.new_tokens, given.ends, case.algorithm, critic, group, rows=rows
        )

    script = Path(__file__).parent / "drivers" / ("trl_ppo.py" if case.algorithm == "ppo" else "trl_group.py")
    commands = {side: command_of(job(critic)) for side, critic in case.ours.items()}
    commands[PEER] = [str(python), str(script), json.dumps(asdict(job("model")))]
    logs = settings.work / "logs"
    with ExitStack() as stack:
        drivers = {
            side: stack.enter_context(Driver(side, command, logs / f"{case.name}-{side}.log", environment(side)))
            for side, command in commands.items()
        }
        peer = drivers[PEER]
        threads = best_threads(settings.cores, peer.use_threads, lambda: peer.go().seconds)
        peaks = [peak(settings)]
        in_turns({side: driver.go for side, driver in drivers.items()}, settings.turns, clock=lambda go: go().seconds)
        peaks.append(peak(settings))
        for driver in drivers.values():
            del driver.reports[: -settings.turns]  # what was only warming up
    return compare(case, job("model"), drivers, max(peaks)) | {"peer_threads": threads, "peer_versions": versions}


def environment(side: str) -> dict[str, str]:
    """Nothing is fetched while the clock runs; a peer has what its own users have, not what suits Holdfast."""
    ours = () if side != PEER else ("OMP_WAIT_POLICY", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {**kept, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRL_EXPERIMENTAL_SILENCE": "1"}
