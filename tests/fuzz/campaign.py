"""Fuzzing: input after input from a seeded generator, each of which has to be used or refused in a sentence.

python tests/fuzz/campaign.py TARGET --seconds 60 --seed 0 --failures DIR     prints what came of it as JSON
python tests/fuzz/campaign.py TARGET --seed 0 --only 17 --failures DIR        the one input, again

A failure is an exception that is no sentence, a server error, an input that takes longer than its target allows, a file
written where nothing may be written, or other results than before without a word. `python -m benchmarks fuzz` runs
campaigns side by side.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

for folder in (Path(__file__).parent, Path(__file__).parents[1]):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from sentences import Wrong  # noqa: E402

# Each is a module beside this one with `open_target(work)`.
TARGETS = ("config", "data", "run", "requests", "replies", "drawings", "grammars")
KEPT_OF_A_KIND = 3
# What one input may make the process ask for on top of what it has.
MEMORY = 6 << 30


class Target(Protocol):
    """Something that reads what it is given."""

    seconds: float  # that an input may take

    def attempt(self, rng: random.Random, place: Path) -> str:
        """Make an input in `place`, try it, and say in a word what came of it; raises where that is a failure."""
        ...


class Hung(BaseException):
    """Not an Exception, so that nothing on the way takes it for a refusal."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hung(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def campaign(name: str, seconds: float, seed: int, failures: Path, only: int | None = None) -> dict[str, Any]:
    """Try inputs for so long, or one; what came of them, with each kind of failure and where its input lies."""
    outcomes: Counter[str] = Counter()
    kinds: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as directory:
        work = Path(directory)
        target: Target = importlib.import_module(f"fuzz_{name}").open_target(work)
        began = time.monotonic()
        for number in [only] if only is not None else itertools.count():
            if only is None and time.monotonic() - began > seconds:
                break
            place = work / "input"
            place.mkdir()
            try:
                with limited(target.seconds):
                    outcomes[target.attempt(random.Random(f"{name}/{seed}/{number}"), place)] += 1
            except (Exception, Hung, SystemExit) as error:  # noqa: BLE001
                outcomes["FAILED"] += 1
                _keep(kinds, error, number, place, failures / f"{name}-{seed}-{number}")
            shutil.rmtree(place, ignore_errors=True)
    spent = time.monotonic() - began
    return {
        "target": name, "seed": seed, "inputs": sum(outcomes.values()), "seconds": round(spent, 1),
        "outcomes": dict(outcomes.most_common()), "failures": list(kinds.values()),
    }  # fmt: skip


def _keep(kinds: dict[str, dict[str, Any]], error: BaseException, number: int, place: Path, where: Path) -> None:
    """Note a failure; the first few of a kind stay on the disk with their input."""
    kind = f"{type(error).__name__} {_origin(error)}" + (f": {error}" if isinstance(error, Wrong) else "")
    entry = kinds.setdefault(kind, {"kind": kind, "count": 0, "says": str(error)[:300], "inputs": []})
    entry["count"] += 1
    if len(entry["inputs"]) < KEPT_OF_A_KIND:
        shutil.rmtree(where, ignore_errors=True)
        shutil.copytree(place, where, symlinks=True, ignore_dangling_symlinks=True)
        (where / "traceback.txt").write_text(
            "".join(traceback.format_exception(error)), encoding="utf-8", errors="replace"
        )
        entry["inputs"].append({"number": number, "kept": str(where)})


def _origin(error: BaseException) -> str:
    """The last frame of ours on the way to it, or where a deeper one was."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/holdfast/" in frame.filename]
    frame = (ours or frames)[-1]
    name = frame.filename.rpartition("/holdfast/")[2] if ours else Path(frame.filename).name
    return f"{name}:{frame.name}"


def _spare_the_machine() -> None:
    """An input that asks for all memory gets an error instead of the machine."""
    size = (
        int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        if Path("/proc").exists()
        else 0
    )
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if size and hard == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY + (8 << 30), hard))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one input")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="where their inputs are kept")
    args = parser.parse_args()
    _spare_the_machine()
    result = campaign(args.target, args.seconds, args.seed, args.failures, args.only)
    print(json.dumps(result))
    return 1 if result["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
