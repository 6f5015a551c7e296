"""What a chart shows: its lines, band, marks and limit, and the scales that carry data onto the page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Series:
    """One line. None or NaN in `ys` is a gap; `smooth` > 1 draws the raw values faint under a moving mean."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    colour: int | None = None
    smooth: int = 0
    dots: bool = False
    stepped: bool = False

    @cached_property
    def points(self) -> list[tuple[float, float]]:
        """The points that have a finite value."""
        return [(x, y) for x, y in zip(self.xs, self.ys, strict=True) if y is not None and math.isfinite(y)]


@dataclass(frozen=True)
class Band:
    """A shaded region between two lines, for example a mean plus and minus a spread."""

    xs: Sequence[float]
    low: Sequence[float | None]
    high: Sequence[float | None]
    colour: int = 0

    def known(self) -> list[tuple[float, float, float]]:
        """The places where both edges have a finite value."""
        rows = zip(self.xs, self.low, self.high, strict=True)
        return [(x, a, b) for x, a, b in rows if a is not None and b is not None and math.isfinite(a + b)]


@dataclass(frozen=True)
class Marker:
    """A dashed vertical line with a short label above the plot."""

    x: float
    label: str


@dataclass(frozen=True)
class ChartSpec:
    """Everything that a chart shows; `subtitle` says how to read it."""

    title: str
    subtitle: str = ""
    unit: str = ""
    series: Sequence[Series] = field(default_factory=tuple)
    x_label: str = "step"
    x_prefix: str = ""
    band: Band | None = None
    markers: Sequence[Marker] = field(default_factory=tuple)
    rounds: Sequence[float] = field(default_factory=tuple)
    limit: Series | None = None
    percent: bool = False
    from_zero: bool = False
    x_range: tuple[float, float] | None = None
    width: float = 430.0
    height: float = 270.0
    gutter: float | None = None  # room for labels at the line ends; set it to line up plots of several charts

    def lines(self) -> list[Series]:
        """The series and, if there is one, the limit."""
        return [*self.series, *([self.limit] if self.limit else [])]

    def has_data(self) -> bool:
        """True if at least one series has a point to draw."""
        return any(series.points for series in self.series)


@dataclass(frozen=True)
class Plot:
    """The rectangle that data is drawn in, and the two linear scales onto it."""

    left: float
    top: float
    right: float
    bottom: float
    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        return self.left + (value - self.x_low) / (self.x_high - self.x_low) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - (value - self.y_low) / (self.y_high - self.y_low) * (self.bottom - self.top)
