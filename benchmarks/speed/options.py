"""What every kind that measures time shares: its options, the cores it may use, and where its result goes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import RESULTS, made_by, parser_of, write
from benchmarks.speed.measure import matmul_peak
from holdfast.errors import HoldfastError


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

    def peak(self) -> float:
        """The matrix-product peak of the cores in use, in FLOP/s; roughly, where only a quick look is wanted."""
        return matmul_peak(self.cores, size=128) if self.quick else matmul_peak(self.cores)

    def made_by(self) -> dict[str, Any]:
        """The command, the versions, the machine and its matrix-product peak on the cores in use."""
        return made_by() | {
            "cores": self.cores,
            "turns": self.turns,
            "peak_gflops": round(self.peak() / 1e9, 1),
            "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", ""),
        }

    def say(self, sentence: str) -> None:
        """What is going on, for whoever waits."""
        print(sentence, file=sys.stderr, flush=True)


def parser_with_places(kind: str, about: str | None, kept: str) -> argparse.ArgumentParser:
    """A parser with the options of every kind that measures time; `kept` says what --work holds."""
    parser = parser_of(kind, about)
    parser.add_argument(
        "--out", type=Path, default=RESULTS, metavar="DIR", help="where the results go (benchmarks/results)"
    )
    parser.add_argument("--work", type=Path, default=Path(".bench"), metavar="DIR", help=f"{kept} (.bench)")
    parser.add_argument("--quick", action="store_true", help="a toy of it: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def parser_with_turns(kind: str, about: str | None) -> argparse.ArgumentParser:
    """The same for a kind that measures its sides in turns."""
    parser = parser_with_places(kind, about, "models and environments, kept")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="measurements of each side (5)")
    parser.add_argument("--cores", type=int, metavar="N", help="cores to work on (all that this process may use)")
    return parser


def settings_of(kind: str, args: argparse.Namespace) -> Settings:
    """Refuse what cannot work, before anything is written."""
    turns, cores, allowed = getattr(args, "turns", 1), getattr(args, "cores", None), len(allowed_cores())
    if turns < 1:
        raise HoldfastError(f"--turns is {turns}; measure at least 1 turn, 5 for a result to be trusted.")
    cores = allowed if cores is None else cores
    if not 1 <= cores <= allowed:
        raise HoldfastError(
            f"--cores is {cores}, but this process may use {allowed}; give a number from 1 to {allowed}."
        )
    if not args.out.is_dir():
        raise HoldfastError(f"--out {args.out} is not a directory; make it first or name another.")
    if args.work.exists() and not args.work.is_dir():
        raise HoldfastError(f"--work {args.work} is a file; name a directory, which may be new.")
    # Absolute, because the drivers are processes of their own.
    return Settings(kind, 1 if args.quick else turns, cores, args.out, args.work.absolute(), args.json, args.quick)


def allowed_cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Keep this process, all its threads and every process started meanwhile to the first `count` cores it may use."""
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
    """Write the JSON with what it was made by and on."""
    document = {"made_by": settings.made_by(), **result}
    write(settings.file, document)
    return document
