"""The layers of a chart, back to front, and where each of them goes."""

import html
import math
from collections.abc import Sequence
from itertools import pairwise

from holdfast.charts import axes
from holdfast.charts.spec import BUCKETS, MARKER_ORDER, ChartSpec, Extent, Plot, Series, Span
from holdfast.charts.style import DASHES, PALETTE_SIZE
from holdfast.text import format_limit, format_value, visible

SMALL = 11.0  # the font size of everything but the title
PADDING = 14.0
LEFT = 56.0
LINE_HEIGHT = 15.0
LABEL_GAP = 15.0
BOTTOM = 36.0
MOST_ROUNDS = 60  # more stripes than this are a pattern and not a count
MOST_WHISKERS = 60  # more intervals than this are drawn as one band
HATCH = 7.0  # between the strokes of a span


# ---- where things go


def _subtitle_lines(spec: ChartSpec) -> list[str]:
    return axes.wrap(visible(spec.subtitle), SMALL, spec.width - 2 * PADDING)


def header_height(spec: ChartSpec) -> float:
    """The space above the plot: title, subtitle, and a row for the unit and the labels of the markers."""
    height = 38.0 + LINE_HEIGHT * len(_subtitle_lines(spec))
    return height + (18.0 if spec.unit or spec.markers else 4.0) + (14.0 if _marker_hits_unit(spec) else 0.0)


def _marker_hits_unit(spec: ChartSpec) -> bool:
    """True if a marker's label would lie on the unit; the unit then gets a row of its own."""
    if not spec.unit:
        return False
    plot = plot_area(spec, 0.0, gutter_width(spec))
    unit_end = PADDING + axes.text_width(visible(spec.unit), SMALL) + 6
    return any(plot.x(m.x) - axes.text_width(visible(m.label), SMALL) / 2 < unit_end for m in spec.markers)


def _extents(series: Sequence[Series]) -> list[Extent]:
    return [one.extent for one in series if one.extent]


def _label(spec: ChartSpec, series: Series, extent: Extent) -> str:
    if series.bare:
        return visible(series.name)
    chosen = series is spec.limit and not spec.percent
    # On a logarithmic axis lines end at values too far apart for the decimals of one to suit the other.
    largest = 0.0 if spec.log_y else max(max(abs(one.low), abs(one.high)) for one in _extents(spec.series))
    value = format_limit(extent.last) if chosen else format_value(extent.last, spec.percent, largest)
    return f"{visible(series.name)} {value}".strip()


def gutter_width(spec: ChartSpec) -> float:
    """How much room the names at the ends of the lines take."""
    if spec.gutter is not None:
        return spec.gutter
    widths = [axes.text_width(_label(spec, one, one.extent), SMALL) for one in spec.lines() if one.extent]
    # A label longer than half the chart would leave no room for the plot; it is cut by the card instead.
    return min(max(widths, default=0.0) + 36.0, spec.width / 2)


def plot_area(spec: ChartSpec, header: float, gutter: float) -> Plot:
    extents = _extents(spec.series)
    x_low, x_high = spec.x_range or (
        min((one.x_low for one in extents), default=0.0),
        max((one.x_high for one in extents), default=1.0),
    )
    if not x_high > x_low:
        x_low, x_high = x_low, x_low + 1.0
    y_low, y_high = _log_y_range(spec) if spec.log_y else _y_range(spec)
    bottom = spec.height - BOTTOM
    right = spec.width - PADDING - gutter
    return Plot(LEFT, min(header, bottom - 20), right, bottom, x_low, x_high, y_low, y_high, spec.log_x, spec.log_y)


def _y_range(spec: ChartSpec) -> tuple[float, float]:
    if spec.y_range:
        return spec.y_range
    values = [edge for one in _extents(spec.lines()) for edge in (one.low, one.high)]
    if spec.band and spec.band.edges:
        values += spec.band.edges
    values += [edge for one in spec.series for _, *edges in one.intervals for edge in edges]
    if spec.from_zero:
        values.append(0.0)
    low, high = min(values, default=0.0), max(values, default=1.0)
    if not high > low:
        room = abs(high) * 0.1 or 1.0
        low, high = low - (0.0 if spec.from_zero and low == 0 else room), high + room
    room = 0.06 * (high - low)
    return (low if spec.from_zero and low == 0 else low - room), high + room


def _log_y_range(spec: ChartSpec) -> tuple[float, float]:
    extents = _extents(spec.lines())
    low, high = min((one.low for one in extents), default=1.0), max((one.high for one in extents), default=10.0)
    room = max(high / low, 2.0) ** 0.06
    return low / room, high * room


# ---- layers, back to front


def panel(spec: ChartSpec, plot: Plot, inline: bool) -> str:
    layers = [
        _header(spec, plot),
        _rounds(spec, plot),
        _spans(spec, plot),
        _grid_lines(spec, plot),
        _x_axis(spec, plot),
        _band(spec, plot),
        _markers(spec, plot),
        _limit(spec, plot, inline),
        *(_line(spec, plot, index, inline) for index in range(len(spec.series))),
        _end_labels(spec, plot),
    ]
    if not spec.has_data():
        middle = (plot.left + plot.right) / 2, (plot.top + plot.bottom) / 2
        layers.append(_text(*middle, "No values recorded.", "tick", "middle"))
    return "\n".join(layer for layer in layers if layer)


def _header(spec: ChartSpec, plot: Plot) -> str:
    parts = [_text(PADDING, 25, visible(spec.title), "title")]
    for index, line in enumerate(_subtitle_lines(spec)):
        parts.append(_text(PADDING, 43 + index * LINE_HEIGHT, line, "subtitle"))
    if spec.unit:
        y = plot.top - (22 if _marker_hits_unit(spec) else 8)
        parts.append(_text(PADDING, y, visible(spec.unit), "unit"))
    return "".join(parts)


def _rounds(spec: ChartSpec, plot: Plot) -> str:
    """Every second round has a faint background, so that rounds can be counted without lines to read."""
    starts = sorted({min(max(x, plot.x_low), plot.x_high) for x in spec.rounds})
    if len(starts) > MOST_ROUNDS:
        return ""
    edges = [*starts, plot.x_high]
    parts = []
    for left, right in list(pairwise(edges))[1::2]:
        x, width = plot.x(left), plot.x(right) - plot.x(left)
        parts.append(
            f'<rect class="round" x="{px(x)}" y="{px(plot.top)}" width="{px(width)}" '
            f'height="{px(plot.bottom - plot.top)}"/>'
        )
    return "".join(parts)


def _spans(spec: ChartSpec, plot: Plot) -> str:
    """What was taken back is tinted and hatched: the tint alone would not show in print or to every eye."""
    return "".join(_span(span, plot) for span in spec.spans)


def _span(span: Span, plot: Plot) -> str:
    left, right = (plot.x(min(max(x, plot.x_low), plot.x_high)) for x in (span.start, span.stop))
    height = plot.bottom - plot.top
    if not right > left:
        return ""
    strokes = []
    # Strokes rise at 45 degrees on one grid for all spans of the plot; each is cut where it would leave its own.
    foot = plot.left + HATCH * math.ceil((left - height - plot.left) / HATCH)
    while foot < right:
        start, end = max(foot, left), min(foot + height, right)
        if end > start:
            strokes.append(f"M{px(start)} {px(plot.bottom - start + foot)}L{px(end)} {px(plot.bottom - end + foot)}")
        foot += HATCH
    return (
        f'<rect class="undone" x="{px(left)}" y="{px(plot.top)}" width="{px(right - left)}" height="{px(height)}"/>'
        f'<path class="hatch" d="{"".join(strokes)}"/>'
    )


def _grid_lines(spec: ChartSpec, plot: Plot) -> str:
    parts = []
    room = max(2, round((plot.bottom - plot.top) / 38))
    if spec.log_y:
        ticks = axes.log_ticks(plot.y_low, plot.y_high, room)
        labels = [axes.log_label(tick) for tick in ticks]
    else:
        ticks = axes.nice_ticks(plot.y_low, plot.y_high, room)
        labels = axes.tick_labels(ticks, spec.percent)
    for tick, label in zip(ticks, labels, strict=True):
        y = px(plot.y(tick))
        parts.append(f'<line class="grid" x1="{px(plot.left)}" x2="{px(plot.right)}" y1="{y}" y2="{y}"/>')
        parts.append(_text(plot.left - 8, plot.y(tick) + 4, label, "tick", "end"))
    return "".join(parts)


def _x_axis(spec: ChartSpec, plot: Plot) -> str:
    base, low = px(plot.bottom), plot.bottom + 17
    parts = [f'<line class="axis" x1="{px(plot.left)}" x2="{px(plot.right)}" y1="{base}" y2="{base}"/>']
    room = max(2, round((plot.right - plot.left) / 60))
    if spec.x_names:
        ticks = [float(place) for place in range(len(spec.x_names))]
        labels = [visible(name) for name in spec.x_names]
    elif spec.log_x:
        ticks = axes.log_ticks(plot.x_low, plot.x_high, room)
        labels = [axes.log_label(tick) for tick in ticks]
    else:
        ticks = axes.nice_ticks(plot.x_low, plot.x_high, room, _counts(spec))
        labels = axes.tick_labels(ticks, spec.x_percent, spec.x_prefix)
    free_from = plot.right + 10
    for tick, label in zip(ticks, labels, strict=True):
        x = px(plot.x(tick))
        parts.append(f'<line class="axis" x1="{x}" x2="{x}" y1="{base}" y2="{px(plot.bottom + 4)}"/>')
        parts.append(_text(plot.x(tick), low, label, "tick", "middle"))
        free_from = max(free_from, plot.x(tick) + axes.text_width(label, SMALL) / 2 + 8)
    parts.append(_text(free_from, low, visible(spec.x_label), "unit"))
    return "".join(parts)


def _counts(spec: ChartSpec) -> bool:
    """Whether the x axis counts something, so that no tick may lie between two whole numbers."""
    return not spec.x_percent and all(one.whole for one in _extents(spec.series))


def _band(spec: ChartSpec, plot: Plot) -> str:
    rows = spec.band.known if spec.band else []
    if spec.band is None or len(rows) < 2:
        return ""
    rows = rows[:: math.ceil(len(rows) / (2 * BUCKETS))]
    return f'<path class="band f{spec.band.colour % PALETTE_SIZE}" d="{_outline(rows, plot)}"/>'


def _outline(rows: Sequence[tuple[float, float, float]], plot: Plot) -> str:
    """Along the upper edge and back along the lower one."""
    edge = [(x, high) for x, _, high in rows] + [(x, low) for x, low, _ in reversed(rows)]
    path = "L".join(f"{px(plot.x(x))} {px(plot.y(y))}" for x, y in edge)
    return f"M{path}Z"


def _markers(spec: ChartSpec, plot: Plot) -> str:
    parts = []
    taken: list[tuple[float, float]] = []
    inside = [marker for marker in spec.markers if plot.x_low <= marker.x <= plot.x_high]
    for marker in sorted(inside, key=lambda marker: (MARKER_ORDER.index(marker.kind), marker.x)):
        x, label = plot.x(marker.x), visible(marker.label)
        look = "" if marker.kind == "plain" else f" {marker.kind}"
        line = f'x1="{px(x)}" x2="{px(x)}" y1="{px(plot.top - 5)}" y2="{px(plot.bottom)}"'
        parts.append(f'<line class="marker{look}" {line}/>')
        half = axes.text_width(label, SMALL) / 2
        if all(x - half >= right + 3 or x + half + 3 <= left for left, right in taken):
            parts.append(_text(x, plot.top - 8, label, f"marker-label{look}", "middle"))
            taken.append((x - half, x + half))
    return "".join(parts)


def _limit(spec: ChartSpec, plot: Plot, inline: bool) -> str:
    if spec.limit is None or not spec.limit.extent:
        return ""
    points = [(x, y) for x, y in spec.limit.drawn if y is not None and math.isfinite(y)]
    if len(points) == 1:
        points.append((plot.x_high, points[0][1]))
    path = _path(_stepped(points), plot)
    return f'<g class="series"{_values(spec, spec.limit, inline)}><path class="limit" d="{path}"/></g>'


def _line(spec: ChartSpec, plot: Plot, index: int, inline: bool) -> str:
    series = spec.series[index]
    if not series.extent:
        return ""
    colour, dash = _look(spec, index)
    raw = series.drawn
    shapes = [_intervals(series, plot, colour)]
    if series.smooth > 1:
        shapes.append(f'<path class="line raw c{colour}" d="{_path(raw, plot)}"/>')
        shapes.append(f'<path class="line c{colour}"{dash} d="{_path(series.mean, plot)}"/>')
    elif not series.apart:
        shapes.append(f'<path class="line c{colour}"{dash} d="{_path(raw, plot)}"/>')
    if series.dots or series.apart or series.extent.count == 1:
        shapes += [
            f'<circle class="dot f{colour}" cx="{px(plot.x(x))}" cy="{px(plot.y(y))}" r="2.6"/>'
            for x, y in raw
            if y is not None and math.isfinite(y)
        ]
    return f'<g class="series"{_values(spec, series, inline)}>{"".join(shapes)}</g>'


def _intervals(series: Series, plot: Plot, colour: int) -> str:
    """A whisker at each value; of very many a band."""
    rows = series.intervals
    if len(rows) > MOST_WHISKERS:
        return f'<path class="band f{colour}" d="{_outline(rows, plot)}"/>'
    places = [(plot.x(x), px(plot.y(low)), px(plot.y(high))) for x, low, high in rows]
    shapes = [f"M{px(x)} {low}V{high}M{px(x - 3)} {low}h6M{px(x - 3)} {high}h6" for x, low, high in places]
    return f'<path class="whisker c{colour}" d="{"".join(shapes)}"/>' if shapes else ""


def _look(spec: ChartSpec, index: int) -> tuple[int, str]:
    colour = spec.series[index].colour
    dash = DASHES[index % len(DASHES)]
    return (index if colour is None else colour) % PALETTE_SIZE, f' stroke-dasharray="{dash}"' if dash else ""


def _end_labels(spec: ChartSpec, plot: Plot) -> str:
    """Name each line where it ends; labels keep clear of each other and a thin lead joins label and line."""
    ends: list[tuple[str, str, float, float]] = []
    for index, series in enumerate(spec.lines()):
        if series.extent is None or series.end is None:
            continue
        if index < len(spec.series):
            colour, dash = _look(spec, index)
            look = f'class="line c{colour}"{dash}'
        else:
            look = 'class="limit"'
        if label := _label(spec, series, series.extent):
            ends.append((label, look, plot.x(series.extent.last_x), plot.y(series.end)))
    places = axes.spread_labels([y for *_, y in ends], LABEL_GAP, plot.top + 4, plot.bottom - 2)
    parts = []
    for (label, look, x, y), place in zip(ends, places, strict=True):
        start, end = plot.right + 10, plot.right + 26
        if abs(place - y) > 3 or plot.right - x > 12:
            lead = f"M{px(x + 4)} {px(y)}L{px(max(x + 4, plot.right + 1))} {px(y)}L{px(start - 2)} {px(place)}"
            parts.append(f'<path class="lead" d="{lead}"/>')
        parts.append(f'<line {look} x1="{px(start)}" x2="{px(end)}" y1="{px(place)}" y2="{px(place)}"/>')
        parts.append(_text(end + 5, place + 4, label, "label"))
    return "".join(parts)


# ---- small pieces of SVG


def px(value: float) -> str:
    """A length in the SVG, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def _text(x: float, y: float, text: str, kind: str, anchor: str = "") -> str:
    at = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="{kind}" x="{px(x)}" y="{px(y)}"{at}>{html.escape(text)}</text>'


def _path(points: Sequence[axes.Point], plot: Plot) -> str:
    """A path that is lifted over gaps."""
    parts = []
    pen = "M"
    for x, y in points:
        if y is None or not math.isfinite(y):
            pen = "M"
            continue
        parts.append(f"{pen}{px(plot.x(x))} {px(plot.y(y))}")
        pen = "L"
    return "".join(parts)


def _stepped(points: Sequence[axes.Point]) -> list[axes.Point]:
    corners = [(after[0], before[1]) for before, after in pairwise(points)]
    return [point for pair in zip(points, [*corners, points[-1]], strict=True) for point in pair]


def _values(spec: ChartSpec, series: Series, inline: bool) -> str:
    """The values that the page's hover reads, as "x y text" joined by semicolons."""
    if not inline:
        return ""
    ends = {x: (low, high) for x, low, high in series.intervals}
    rows = ";".join(
        f"{x:.10g} {y:.6g} {format_value(y, spec.percent)}{_between(spec, ends.get(x))}"
        for x, y in series.drawn
        if y is not None and math.isfinite(y)
    )
    name = html.escape(visible(series.name) or visible(spec.title))
    return f' data-name="{name}" data-values="{rows}"'


def _between(spec: ChartSpec, ends: tuple[float, float] | None) -> str:
    if ends is None:
        return ""
    low, high = (format_value(end, spec.percent) for end in ends)
    return f" ({low} to {high})"
