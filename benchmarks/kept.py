"""Where results are kept, with the command and the versions that made them."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from holdfast import __version__
from holdfast.charts.chart import ChartSpec, grid

RESULTS = Path(__file__).parent / "results"


def seeds_and_runs(name: str, words: str | None) -> tuple[range, Path]:
    """What a benchmark over seeds is told on the command line: which ones, and where its runs are kept."""
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--runs", type=Path, help="keep the runs here; finished ones are not run again")
    args = parser.parse_args()
    runs = args.runs or Path(tempfile.mkdtemp(prefix=f"holdfast-{name}-"))
    return range(args.first_seed, args.first_seed + args.seeds), runs


def keep(name: str, result: Mapping[str, object]) -> None:
    """Write results/NAME.json."""
    arguments = sys.argv[1:]
    for option in ("--runs", "--work"):  # where things are kept on somebody's disk says nothing about the result
        if option in arguments:
            at = arguments.index(option)
            del arguments[at : at + 2]
    made_by = {
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *arguments]),
        "holdfast": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"made_by": made_by, **result}, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(f"\nkept in benchmarks/results/{name}.json")


def keep_figure(name: str, charts: Sequence[ChartSpec], columns: int | None = None) -> None:
    """Write results/NAME.svg, the charts side by side, or in rows of `columns`."""
    (RESULTS / f"{name}.svg").write_text(grid(charts, columns=columns or len(charts)), encoding="utf-8")
