"""What is measured against what, and how fast each of it grows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import linear_regression
from typing import Any

# Above this a curve needs a sentence: n log n over three decades is steeper than 1, and noise adds to it.
STEEP = 1.15


@dataclass(frozen=True)
class Measurement:
    """One curve: `function` is module:name below benchmarks.growth; `why` says what makes it steep, if it is."""

    kind: str  # what --only calls it; none for what the others need first
    name: str
    function: str
    meaning: str
    panel: str = ""  # the chart it is drawn in
    why: str = ""


@dataclass(frozen=True)
class Area:
    """Measurements that share an axis and, at each of its sizes, a directory."""

    name: str
    title: str
    x: str
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    measurements: tuple[Measurement, ...]


@dataclass
class Curve:
    """The figures of a measurement over the sizes; seconds are on the clock, processor seconds are its own."""

    measurement: Measurement
    n: list[int] = field(default_factory=list)
    figures: dict[str, list[float]] = field(default_factory=dict)

    def add(self, n: int, figures: dict[str, float]) -> None:
        self.n.append(n)
        for name, value in figures.items():
            self.figures.setdefault(name, []).append(value)

    def exponents(self) -> dict[str, float | None]:
        """Of time by processor seconds, which other work on the machine does not stretch; of memory; of its own."""
        names = {"processor": "time", "seconds": None}
        return {
            names.get(name) or name: exponent(self.n, values)
            for name, values in self.figures.items()
            if names.get(name, name) is not None
        }

    def note(self) -> str:
        """A sentence for what is steep."""
        steep = {name: e for name, e in self.exponents().items() if e is not None and e > STEEP}
        if not steep:
            return ""
        grown = " and ".join(f"{name} grows as n^{e:.2f}" for name, e in steep.items())
        return f"{self.measurement.name}: {grown}. {self.measurement.why or 'The cause is not known.'}"


@dataclass(frozen=True)
class Found:
    """The curves of an area, and the command and machine that measured the newest of them."""

    area: Area
    curves: list[Curve]
    made_by: dict[str, Any]


def shown(curves: Sequence[Curve]) -> list[Curve]:
    """Without what the others only need first."""
    return [curve for curve in curves if curve.measurement.panel]


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float | None:
    """The slope of log value against log size over the upper half of the sizes, by least squares."""
    upper = len(sizes) // 2 if len(sizes) > 2 else 0
    known = [(n, v) for n, v in zip(sizes[upper:], values[upper:], strict=True) if v > 0]
    if len(known) < 2:
        return None
    return linear_regression([math.log(n) for n, _ in known], [math.log(v) for _, v in known]).slope


_BY_HASH = "Answers are found by hash, all over a file that outgrows the caches of machine and database."

STORE = Area(
    "store",
    "The store of comparisons and labels",
    "labels",
    (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
    (200, 400),
    (
        Measurement(
            "store",
            "add comparisons",
            "store:add_comparisons",
            "all of them, a thousand at a time",
            "whole",
            "Answers are kept under a hash: the larger the store, the more pages a batch of them changes, until each "
            "answer costs a page of its own.",
        ),
        Measurement("store", "add labels", "store:add_labels", "one each, a thousand at a time", "whole"),
        Measurement("store", "labelled()", "store:labelled", "comparisons and labels", "whole", _BY_HASH),
        Measurement("store", "unlabelled()", "store:unlabelled", "what nobody has answered: nothing", "whole"),
        Measurement("store", "counts()", "store:counts", "comparisons and labels", "whole"),
        Measurement("store", "export", "store:export", "all labels as JSONL", "whole", _BY_HASH),
        Measurement("store", "import", "store:read_export", "that file read back", "whole"),
        Measurement("store", "watermark()", "store:watermark", "the newest label", "round"),
        Measurement("store", "watermark(round)", "store:watermark_of_round", "the same up to a round", "round"),
        Measurement("store", "ask", "store:ask", "200 comparisons stored and answered", "round"),
        Measurement("store", "refresh", "store:refresh", "what a version trains on and is measured on", "round"),
        Measurement("store", "first refresh", "store:first_refresh", "the same right after a resume", "round"),
    ),
)
RUN = Area(
    "run",
    "A run directory",
    "steps",
    (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000),
    (20, 60),
    (
        Measurement("", "make", "run:make", "the directory itself"),
        Measurement("report", "report", "run:report", "report.html", "report"),
        Measurement("resume", "resume", "run:resume", "from the run directory to the first step", "resume"),
        Measurement("resume", "restore", "run:restore", "verify a checkpoint and go back to it", "resume"),
        Measurement("resume", "commit", "run:commit", "write a checkpoint", "resume"),
        Measurement("resume", "account", "run:account", "what a step writes down about itself", "resume"),
    ),
)
VERSIONS = Area(
    "versions",
    "Versions of the reward ensemble, all of which are kept",
    "versions",
    (10, 30, 100, 300, 1_000),
    (2, 4),
    (Measurement("resume", "save and load", "run:save_version", "one more, and one of before", "versions"),),
)


def _step(name: str, x: str, sizes: tuple[int, ...], quick: tuple[int, ...], why: str = "") -> Area:
    measurement = Measurement("iteration", "a step", f"step:by_{name}", "sample, score, update", name, why)
    return Area(f"iteration-{name}", f"A step against {x}", x, sizes, quick, (measurement,))


STEPS = (
    _step("batch", "answers in a batch", (8, 16, 32, 64, 128, 256), (2, 4)),
    _step(
        "length",
        "tokens in an answer",
        (16, 32, 64, 128, 256),
        (4, 8),
        "Attention compares every token with all before it, and its share grows with the length.",
    ),
    _step("parameters", "parameters", (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000), (20_000, 40_000)),
    _step("members", "reward models", (1, 2, 4, 8, 16), (1, 2)),
)
AREAS = (STORE, RUN, VERSIONS, *STEPS)
KINDS = ("store", "report", "resume", "iteration")
