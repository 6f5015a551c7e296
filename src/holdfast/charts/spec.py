"""What a chart shows: its lines, band, marks, spans and limit, and the scales that carry data onto the page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeGuard

from holdfast.charts import axes

BUCKETS = 300  # more points than a few of these per line cannot be told apart at the widths used


@dataclass(frozen=True)
class Extent:
    """Where a line begins and ends, how far it reaches, and how many points it has."""

    count: int
    first: float
    last: float
    last_x: float
    last_place: int
    low: float
    high: float
    x_low: float
    x_high: float
    whole: bool  # whether every x is a whole number


@dataclass(frozen=True)
class Series:
    """One line. None or NaN in `ys` is a gap; `smooth` > 1 draws the raw values faint under a moving mean.

    `low` and `high`, where given, are the interval around each value. A `bare` line is named at its end without its
    value, since that says nothing: a diagonal, a level to compare with. Values that stand `apart` are dots without a
    line.
    What a chart needs to know of a long line is found once and kept, whatever number of charts shows it.
    """

    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    colour: int | None = None
    smooth: int = 0
    dots: bool = False
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    bare: bool = False
    apart: bool = False

    @cached_property
    def intervals(self) -> list[tuple[float, float, float]]:
        """(x, low, high) where the value and both ends are known, at the places that are drawn."""
        if len(self.low) != len(self.ys) or len(self.high) != len(self.ys):
            return []
        rows = [(self.xs[i], self.low[i], self.ys[i], self.high[i]) for i in self._places]
        return [(x, a, b) for x, a, y, b in rows if _finite(a) and _finite(b) and _finite(y)]

    @cached_property
    def extent(self) -> Extent | None:
        """Of the points that have a finite value; None if no point has."""
        xs, last_place = self.xs, len(self.ys) - 1
        if axes.gapless(self.ys):
            ys = self.ys
        else:
            known = [i for i, y in enumerate(self.ys) if y is not None and math.isfinite(y)]
            last_place = known[-1] if known else -1
            xs, ys = [xs[i] for i in known], [y for y in self.ys if y is not None and math.isfinite(y)]
        if not ys:
            return None
        whole = all(map(float.is_integer, map(float, xs)))
        return Extent(len(ys), ys[0], ys[-1], xs[-1], last_place, min(ys), max(ys), min(xs), max(xs), whole)

    @cached_property
    def drawn(self) -> list[axes.Point]:
        """As many of the points as can be told apart."""
        return [(self.xs[i], self.ys[i]) for i in self._places]

    @property
    def mean(self) -> list[axes.Point]:
        """The moving mean at the places that are drawn."""
        return self._means[:-1]

    @property
    def end(self) -> float | None:
        """The height at which the line ends: of the moving mean, where that is what one sees."""
        if self.extent is None or self.smooth <= 1:
            return None if self.extent is None else self.extent.last
        return self._means[-1][1]

    @cached_property
    def _means(self) -> list[axes.Point]:
        """The moving mean at the places that are drawn and, once more, at the last that is known."""
        places = [*self._places, self.extent.last_place if self.extent else -1]
        values = axes.smooth_at(self.ys, self.smooth, places)
        return [(self.xs[i], value) for i, value in zip(places, values, strict=True)]

    @cached_property
    def _places(self) -> list[int]:
        return axes.thin_places(self.ys, BUCKETS)


@dataclass(frozen=True)
class Band:
    """A shaded region between two lines, for example a mean plus and minus a spread."""

    xs: Sequence[float]
    low: Sequence[float | None]
    high: Sequence[float | None]
    colour: int = 0

    @cached_property
    def known(self) -> list[tuple[float, float, float]]:
        """The places where both edges have a finite value."""
        rows = zip(self.xs, self.low, self.high, strict=True)
        return [(x, a, b) for x, a, b in rows if a is not None and b is not None and math.isfinite(a + b)]

    @cached_property
    def edges(self) -> tuple[float, float] | None:
        """The lowest and the highest value of either line."""
        if not self.known:
            return None
        return min(min(a, b) for _, a, b in self.known), max(max(a, b) for _, a, b in self.known)


MarkerKind = Literal["alarm", "refused", "plain"]
# Where labels would collide the first of these keeps its own.
MARKER_ORDER: tuple[MarkerKind, ...] = ("alarm", "refused", "plain")


@dataclass(frozen=True)
class Marker:
    """A dashed vertical line with a short label above the plot; an alarm's is solid."""

    x: float
    label: str
    kind: MarkerKind = "plain"


@dataclass(frozen=True)
class Span:
    """A stretch of the x axis that was taken back: hatched."""

    start: float
    stop: float


@dataclass(frozen=True)
class ChartSpec:
    """Everything that a chart shows; `subtitle` says how to read it. A logarithmic axis is for values above 0.

    `x_names` stand at 0, 1, 2 and so on where the x axis is of names and not of numbers.
    """

    title: str
    subtitle: str = ""
    unit: str = ""
    series: Sequence[Series] = field(default_factory=tuple)
    x_label: str = "step"
    x_prefix: str = ""
    x_names: Sequence[str] = field(default_factory=tuple)
    band: Band | None = None
    markers: Sequence[Marker] = field(default_factory=tuple)
    spans: Sequence[Span] = field(default_factory=tuple)
    rounds: Sequence[float] = field(default_factory=tuple)
    limit: Series | None = None
    percent: bool = False
    from_zero: bool = False
    log_x: bool = False
    log_y: bool = False
    x_percent: bool = False
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    width: float = 430.0
    height: float = 270.0
    gutter: float | None = None  # room for labels at the line ends; set it to line up plots of several charts
    words: str = ""  # what who does not see it is told instead of where its lines begin and end

    def lines(self) -> list[Series]:
        """The series and, if there is one, the limit."""
        return [*self.series, *([self.limit] if self.limit else [])]

    def has_data(self) -> bool:
        """True if at least one series has a point to draw."""
        return any(series.extent for series in self.series)


@dataclass(frozen=True)
class Plot:
    """The rectangle that data is drawn in, and the two scales onto it."""

    left: float
    top: float
    right: float
    bottom: float
    x_low: float
    x_high: float
    y_low: float
    y_high: float
    log_x: bool = False
    log_y: bool = False

    def x(self, value: float) -> float:
        return self.left + _share(value, self.x_low, self.x_high, self.log_x) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - _share(value, self.y_low, self.y_high, self.log_y) * (self.bottom - self.top)


def _finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _share(value: float, low: float, high: float, log: bool) -> float:
    """How far a value is on the way from low to high."""
    if log:
        value, low, high = math.log10(value), math.log10(low), math.log10(high)
    return (value - low) / (high - low)
