"""What every kind of benchmark shares: its options, the cores it may use, and where its result goes.

A kind is a module with `add(kinds)`, which registers its parser, and `work(args)`, which measures, writes its JSON
and prints a table. Nothing heavy is imported before `work`, so that other verbs start at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError

RESULTS = Path("benchmarks/results")


@dataclass(frozen=True)
class Settings:
    """The shared options, checked."""

    kind: str
    turns: int
    cores: int
    out: Path
    work: Path
    as_json: bool
    quick: bool

    @property
    def file(self) -> Path:
        """One for each number of cores: results on one and on two stand side by side."""
        return self.out / f"bench-{self.kind}-{self.cores}core.json"

    def say(self, sentence: str) -> None:
        """What is going on, for whoever waits."""
        print(sentence, file=sys.stderr, flush=True)


def add_kind(
    kinds: Any, name: str, work: Callable[[argparse.Namespace], int], summary: str, details: str = ""
) -> argparse.ArgumentParser:
    """A parser with the options that all kinds have."""
    parser: argparse.ArgumentParser = kinds.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=details or None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="measurements of each side (5)")
    parser.add_argument("--cores", type=int, metavar="N", help="cores to work on (all that this process may use)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help=f"where the JSON goes ({RESULTS} if it exists, else here)"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path(".bench"),
        metavar="DIR",
        dest="workspace",
        help="models and environments, kept (.bench)",
    )
    parser.add_argument("--quick", action="store_true", help="a toy model and one turn: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(work=work)
    return parser


def settings_of(args: argparse.Namespace) -> Settings:
    """Refuse what cannot work, before anything is written."""
    if args.turns < 1:
        raise HoldfastError(f"--turns is {args.turns}; measure at least 1 turn, 5 for a result to be trusted.")
    allowed = len(allowed_cores())
    cores = allowed if args.cores is None else args.cores
    if not 1 <= cores <= allowed:
        raise HoldfastError(
            f"--cores is {cores}, but this process may use {allowed}; give a number from 1 to {allowed}."
        )
    out = args.out or (RESULTS if RESULTS.is_dir() else Path())
    if not out.is_dir():
        raise HoldfastError(f"--out {out} is not a directory; make it first or name another.")
    if args.workspace.exists() and not args.workspace.is_dir():
        raise HoldfastError(f"--work {args.workspace} is a file; name a directory, which may be new.")
    turns = 1 if args.quick else args.turns
    # Absolute, because the drivers are processes of their own.
    return Settings(args.kind, turns, cores, out, args.workspace.absolute(), args.json, args.quick)


def allowed_cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Keep this process, all its threads and every process started meanwhile to the first `count` cores it may use."""
    import torch

    before, threads = allowed_cores(), torch.get_num_threads()
    _pin(before[:count])
    torch.set_num_threads(count)
    try:
        yield
    finally:
        _pin(before)
        torch.set_num_threads(threads)


def _pin(cores: list[int]) -> None:
    """Threads that are there already keep their own masks, so each is told."""
    if not hasattr(os, "sched_setaffinity"):
        return
    tasks = Path("/proc/self/task")
    for thread in [int(t.name) for t in tasks.iterdir()] if tasks.is_dir() else [0]:
        try:
            os.sched_setaffinity(thread, cores)
        except ProcessLookupError:
            continue  # it ended meanwhile


def publish(settings: Settings, result: Mapping[str, Any], show: Callable[[], None]) -> None:
    """Keep the result, then print it or its table."""
    document = keep(settings, result)
    if settings.as_json:
        print(json.dumps(document))
    else:
        show()
        print(f"\nkept in {settings.file}")


def keep(settings: Settings, result: Mapping[str, Any]) -> dict[str, Any]:
    """Write the JSON, whole or not at all, with what it was made by and on."""
    from holdfast.bench.machine import made_by

    document = {"made_by": made_by(settings), **result}
    with tempfile.NamedTemporaryFile("w", dir=settings.out, prefix=".tmp-", delete=False, encoding="utf-8") as file:
        file.write(json.dumps(document, indent=1) + "\n")
    Path(file.name).replace(settings.file)
    settings.file.chmod(0o644)
    return document
