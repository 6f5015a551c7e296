"""A cumulative distribution: read from JSON, drawn as SVG, as bars for a terminal, and said in words.

{"p": [0.00, 0.05, ..., 1.00]}                       at the points that the prompt names, or at 1, 2, 3 and so on
{"x": [0, 10, ..., 200], "p": [0.00, 0.05, ..., 1.00]}  at points of its own
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast.charts.chart import line_chart
from holdfast.charts.spec import ChartSpec, Series
from holdfast.drawings.picture import AnswerPicture, CannotBeDrawn, document_of, number_of
from holdfast.text import counted, figure

KIND = "curve"
MOST_POINTS = 200
MOST_WORDS = 40  # points that are told one by one
WIDTH, HEIGHT = 380.0, 240.0
BAR = 40  # characters of a bar from 0 to 1
LONGEST_PROMPT = 20_000  # of which points are read
CLOSEST = 1e-6  # of two points, so that an axis has room for them
LONGEST_GAP = 8  # between two numbers of a list
_NUMBER = re.compile(r"(?<![\d.])-?\d{1,9}(?:\.\d{1,9})?(?![\d.]*\d)")
_BETWEEN = re.compile(r"\s*(?:[,;]|and|[,;]\s*and)?\s*")


@dataclass(frozen=True)
class Curve:
    """The chance of at most x, at each point x from left to right; `named` if the points were."""

    xs: tuple[float, ...]
    ps: tuple[float, ...]
    named: bool = True

    @property
    def notes(self) -> tuple[str, ...]:
        """Why this is no cumulative distribution, if it is none."""
        falls = [x for x, (p, q) in zip(self.xs[1:], pairwise(self.ps), strict=True) if q < p]
        found = [f"It falls at {figure(falls[0])}: it is no cumulative distribution."] if falls else []
        if self.ps[-1] != 1:
            found.append(f"It ends at {self.ps[-1]:g} and not at 1.")
        return tuple(found)

    @property
    def words(self) -> str:
        """The curve as a sentence of its numbers, for who does not see it."""
        pairs = list(zip(self.xs, self.ps, strict=True))
        told = "; ".join(f"{figure(x)}: {p:.2f}" for x, p in pairs[:MOST_WORDS])
        more = f"; and {len(pairs) - MOST_WORDS} more" if len(pairs) > MOST_WORDS else ""
        where = "points" if self.named else "places"
        return " ".join([f"Chance of at most x, at {counted(len(pairs), where[:-1])}: {told}{more}.", *self.notes])


def read_curve(text: str, prompt: str = "") -> Curve:
    """The curve that a JSON text holds, at its own points or those of its prompt; raises CannotBeDrawn."""
    document = document_of(text)
    values = document.get("p") if isinstance(document, dict) else document
    if not isinstance(values, list):
        raise CannotBeDrawn('it has no list of chances under "p"')
    if not 2 <= len(values) <= MOST_POINTS:
        raise CannotBeDrawn(f"it has {counted(len(values), 'chance')}, and between 2 and {MOST_POINTS} are drawn")
    ps = tuple(number_of(value, f"chance {n}") for n, value in enumerate(values, start=1))
    if wrong := next((n for n, p in enumerate(ps, start=1) if not 0 <= p <= 1), 0):
        raise CannotBeDrawn(f"chance {wrong} is {figure(ps[wrong - 1])}, which is not between 0 and 1")
    own = document.get("x") if isinstance(document, dict) else None
    points = points_in(prompt, len(ps)) if own is None else _points_of(own, len(ps))
    return Curve(points or tuple(float(n) for n in range(1, len(ps) + 1)), ps, points is not None)


def _points_of(value: object, count: int) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) != count:
        raise CannotBeDrawn(f'its points under "x" are not {count} numbers')
    points = tuple(number_of(x, f"point {n}") for n, x in enumerate(value, start=1))
    if not _rises(points):
        raise CannotBeDrawn('its points under "x" do not rise')
    return points


def points_in(prompt: str, count: int) -> tuple[float, ...] | None:
    """The last list of so many rising numbers in a prompt: "at 0, 10, 20 and 30"."""
    text = prompt[-LONGEST_PROMPT:]
    lists: list[list[float]] = []
    end = -1
    for found in _NUMBER.finditer(text):
        gap = text[end : found.start()] if 0 <= end >= found.start() - LONGEST_GAP else "apart"
        if not _BETWEEN.fullmatch(gap):
            lists.append([])
        lists[-1].append(float(found[0]))
        end = found.end()
    fitting = [numbers for numbers in lists if len(numbers) == count and _rises(numbers)]
    return tuple(fitting[-1]) if fitting else None


def _rises(points: Sequence[float]) -> bool:
    return all(a + CLOSEST <= b for a, b in pairwise(points))


def draw_curve(text: str, prompt: str = "") -> AnswerPicture:
    """The picture of a curve for a page; raises CannotBeDrawn."""
    curve = read_curve(text, prompt)
    return AnswerPicture(KIND, line_chart(curve_chart(curve), inline=True), curve.words, curve.notes)


def print_curve(text: str, prompt: str = "") -> str:
    """The picture of a curve for a terminal; raises CannotBeDrawn."""
    return curve_terminal(read_curve(text, prompt))


def curve_chart(curve: Curve, other: Curve | None = None, names: tuple[str, str] = ("predicted", "true")) -> ChartSpec:
    """The curve as a chart, with another one to compare it with where there is one."""
    both = [(names[0] if other else "", curve, 0)] + ([(names[1], other, 2)] if other else [])
    lines = [Series(name, one.xs, one.ps, colour, dots=True, bare=True) for name, one, colour in both]
    words = curve.words if other is None else " ".join(f"{name}: {one.words}" for name, one, _ in both)
    return ChartSpec(
        title="Chance of at most x", series=tuple(lines), x_label="x" if curve.named else "point", percent=True,
        y_range=(0.0, 1.0), width=WIDTH, height=HEIGHT, gutter=None if other else 8.0, words=words,
    )  # fmt: skip


def curve_terminal(curve: Curve) -> str:
    """A bar for each point."""
    points = [figure(x) for x in curve.xs]
    width = max(map(len, points))
    bars = (f"{x:>{width}}  {p:.2f}  {'█' * round(BAR * p)}" for x, p in zip(points, curve.ps, strict=True))
    return "\n".join([*(bar.rstrip() for bar in bars), *curve.notes])
