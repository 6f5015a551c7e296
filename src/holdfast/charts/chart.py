"""Line charts as SVG text, with no dependency: one function draws for the report, the docs and the README.

    ChartSpec -> Plot (where data lands on the page) -> layers, back to front -> one <svg>

A chart stands alone as a file: it carries its own style, a card that fits light and dark pages, and a
description for screen readers. Colours are Okabe and Ito's, which stay apart for colour-blind readers;
dashes tell series apart where colour cannot.
"""

import hashlib
import html
from collections.abc import Sequence
from dataclasses import replace

from holdfast.charts.layers import gutter_width, header_height, panel, plot_area, px
from holdfast.charts.spec import Band, ChartSpec, Marker, Plot, Series, Span
from holdfast.charts.style import CHART_STYLE
from holdfast.text import format_value, visible

__all__ = ["Band", "ChartSpec", "Marker", "Series", "Span", "grid", "line_chart"]


def line_chart(spec: ChartSpec, *, inline: bool = False) -> str:
    """Draw one chart; `inline` leaves style and card to the page around it and adds values for its hover."""
    plot = plot_area(spec, header_height(spec), gutter_width(spec))
    body = panel(spec, plot, inline)
    data = _hover_data(spec, plot) if inline else ""
    return _svg(spec.width, spec.height, visible(spec.title), _description(spec), body, data, inline)


def grid(charts: Sequence[ChartSpec], columns: int) -> str:
    """Draw several charts as one figure; plots line up along each row and each column."""
    columns = max(1, min(columns, len(charts)))
    rows = [list(charts[start : start + columns]) for start in range(0, len(charts), columns)]
    widths = [max(row[c].width for row in rows if c < len(row)) for c in range(columns)]
    gutters = [max(gutter_width(row[c]) for row in rows if c < len(row)) for c in range(columns)]
    parts: list[str] = []
    top = 0.0
    for row in rows:
        height = max(spec.height for spec in row)
        header = max(header_height(spec) for spec in row)
        for column, plain in enumerate(row):
            spec = replace(plain, width=widths[column], height=height)
            drawn = panel(spec, plot_area(spec, header, gutters[column]), inline=False)
            parts.append(f'<g transform="translate({px(sum(widths[:column]))} {px(top)})">{drawn}</g>')
        top += height
    title = "; ".join(visible(spec.title) for spec in charts)
    description = " ".join(f"{visible(spec.title)}. {_description(spec)}" for spec in charts)
    return _svg(sum(widths), top, title, description, "\n".join(parts))


def _hover_data(spec: ChartSpec, plot: Plot) -> str:
    """The scales, for the page's script."""
    frame = (plot.left, plot.top, plot.right, plot.bottom, plot.x_low, plot.x_high, plot.y_low, plot.y_high)
    numbers = " ".join(f"{number:.10g}" for number in frame)
    log = " ".join(name for name, is_log in (("x", spec.log_x), ("y", spec.log_y)) if is_log)
    return f' data-frame="{numbers}" data-axis="{html.escape(visible(spec.x_label))}"' + (
        f' data-log="{log}"' if log else ""
    )


def _svg(
    width: float, height: float, title: str, description: str, body: str, data: str = "", inline: bool = False
) -> str:
    # Ids must differ between charts of one page, and must not change from one report of a run to the next.
    key = hashlib.sha256(f"{width} {height} {title} {body}".encode()).hexdigest()[:10]
    card = f'<rect class="card" x="0.5" y="0.5" width="{px(width - 1)}" height="{px(height - 1)}" rx="8"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="hf-chart" viewBox="0 0 {px(width)} {px(height)}" '
        f'width="{px(width)}" height="{px(height)}" role="img" aria-labelledby="t{key} d{key}"{data}>\n'
        f'<title id="t{key}">{html.escape(title)}</title>'
        f'<desc id="d{key}">{html.escape(description)}</desc>\n'
        f"{'' if inline else f'<style>{CHART_STYLE}</style>{card}'}\n{body}\n</svg>"
    )


def _description(spec: ChartSpec) -> str:
    if spec.words:
        return visible(spec.words)
    parts = [visible(spec.subtitle)] if spec.subtitle else []
    for series in spec.lines():
        of = series.extent
        if of is None:
            continue
        first, last, low, high = (format_value(y, spec.percent) for y in (of.first, of.last, of.low, of.high))
        parts.append(
            f"{visible(series.name) or 'Line'}: {of.count} points, from {first} to {last}, "
            f"lowest {low}, highest {high}."
        )
    return " ".join(parts)
