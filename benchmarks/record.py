"""What a result is kept with, where it is kept, and the options of benchmarks over seeds."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from holdfast import __version__
from holdfast.charts.chart import ChartSpec, grid
from holdfast.checkpoint.files import write_atomic

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PACKAGES = ("torch", "transformers", "numpy")
# Where things lie on somebody's disk says nothing about a result.
DIRECTORIES = ("--out", "--work", "--runs")


def parser_of(kind: str, words: str | None) -> argparse.ArgumentParser:
    """A kind's parser, whose help is what its module says of itself."""
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks {kind}".rstrip(),
        description=words,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def seeds_and_runs(kind: str, about: str | None, words: Sequence[str], seeds: int = 5) -> tuple[range, Path]:
    """What a benchmark over seeds is told on the command line: which ones, and where its runs are kept."""
    parser = parser_of(kind, about)
    parser.add_argument("--seeds", type=int, default=seeds, help=f"how many ({seeds})")
    parser.add_argument("--first-seed", type=int, default=1000, help="the first (1000; those below are for tuning)")
    parser.add_argument("--runs", type=Path, help="keep the runs here; finished ones are not run again")
    args = parser.parse_args(words)
    runs = args.runs or Path(tempfile.mkdtemp(prefix=f"holdfast-{kind}-"))
    return range(args.first_seed, args.first_seed + args.seeds), runs


def made_by() -> dict[str, Any]:
    """The command, the versions and the processor that a result comes from."""
    return {
        "command": command(sys.argv[1:]),
        "holdfast": __version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "cpu": cpu_name(),
    }


def command(arguments: Sequence[str]) -> str:
    """The command line without directories."""
    words = list(arguments)
    for option in DIRECTORIES:
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    return " ".join(["python -m benchmarks", *words])


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.is_file()
        else []
    )
    return names[0] if names else platform.processor() or platform.machine()


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Write a result, whole or not at all."""
    write_atomic(path, (json.dumps(document, indent=1) + "\n").encode())


def keep(name: str, result: Mapping[str, object]) -> None:
    """Write results/NAME.json."""
    write(RESULTS / f"{name}.json", {"made_by": made_by(), **result})
    print(f"\nkept in benchmarks/results/{name}.json")


def keep_figure(name: str, charts: Sequence[ChartSpec], columns: int | None = None) -> None:
    """Write results/NAME.svg, the charts side by side, or in rows of `columns`."""
    write_atomic(RESULTS / f"{name}.svg", grid(charts, columns=columns or len(charts)).encode())


def smoothed(values: Sequence[float], window: int = 5) -> list[float]:
    """Means over the last so many steps, so that noise makes no peak."""
    return [fmean(values[max(0, i - window + 1) : i + 1]) for i in range(len(values))]
