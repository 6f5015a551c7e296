"""Colours and type of the charts: Okabe and Ito's palette, for a light and for a dark page.

Colours are written out, not kept in CSS variables: SVG viewers outside browsers do not know variables.
"""

# Okabe and Ito (2008), "Color Universal Design": the hues are theirs; on white the pale ones are a little
# darker and on black the dim ones a little brighter, so that every line has a contrast of at least 3 to 1.
LIGHT = ("#0072b2", "#d55e00", "#009e73", "#b65c93", "#c98500", "#3f96c8")
DARK = ("#56b4e9", "#f0803c", "#2bbd92", "#d995bd", "#e69f00", "#f0e442")
PALETTE_SIZE = len(LIGHT)
DASHES = ("", "7 3", "2 3", "9 3 2 3")

_SHAPE = """
.hf-chart text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif;
  font-size: 11px; font-variant-numeric: tabular-nums; }
.hf-chart .title { font-size: 14px; font-weight: 600; }
.hf-chart .marker-label { font-size: 10.5px; font-weight: 600; }
.hf-chart .grid, .hf-chart .axis { stroke-width: 1; }
.hf-chart .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.hf-chart .raw { stroke-width: 1; stroke-opacity: 0.3; stroke-dasharray: none; }
.hf-chart .band { fill-opacity: 0.13; }
.hf-chart .marker { stroke-width: 1; stroke-dasharray: 3 3; }
.hf-chart .marker.alarm { stroke-width: 1.5; stroke-dasharray: none; }
.hf-chart .marker.refused { stroke-dasharray: 1 3; }
.hf-chart .whisker { fill: none; stroke-width: 1.3; stroke-opacity: 0.75; }
.hf-chart .undone { fill-opacity: 0.07; }
.hf-chart .hatch { fill: none; stroke-width: 1; stroke-opacity: 0.28; }
.hf-chart .limit { fill: none; stroke-width: 1.5; stroke-dasharray: 5 4; }
.hf-chart .lead { fill: none; stroke-width: 0.8; stroke-dasharray: 1 2; }
"""


def _colours(
    card: str, edge: str, ink: str, muted: str, grid: str, stripe: str, alarm: str, palette: tuple[str, ...]
) -> str:
    rules = [
        f".hf-chart .card {{ fill: {card}; stroke: {edge}; }}",
        f".hf-chart .title, .hf-chart .label {{ fill: {ink}; }}",
        f".hf-chart .subtitle, .hf-chart .tick, .hf-chart .unit {{ fill: {muted}; }}",
        f".hf-chart .marker-label {{ fill: {muted}; }}",
        f".hf-chart .grid {{ stroke: {grid}; }}",
        f".hf-chart .axis, .hf-chart .marker, .hf-chart .lead {{ stroke: {muted}; }}",
        f".hf-chart .limit {{ stroke: {ink}; }}",
        f".hf-chart .round {{ fill: {stripe}; }}",
        f".hf-chart .marker.alarm, .hf-chart .hatch {{ stroke: {alarm}; }}",
        f".hf-chart .marker-label.alarm, .hf-chart .undone {{ fill: {alarm}; }}",
    ]
    for index, colour in enumerate(palette):
        rules.append(f".hf-chart .c{index} {{ stroke: {colour}; }} .hf-chart .f{index} {{ fill: {colour}; }}")
    return "\n".join(rules)


_LIGHT_RULES = _colours("#ffffff", "#e4e2dc", "#1f2328", "#5f6670", "#e9e8e4", "#f6f5f1", "#b34700", LIGHT)
_DARK_RULES = _colours("#1a1e24", "#2c323a", "#e6e8ea", "#9da5ae", "#2c323a", "#1f242b", "#f0803c", DARK)

CHART_STYLE = f"{_SHAPE}{_LIGHT_RULES}\n@media screen and (prefers-color-scheme: dark) {{\n{_DARK_RULES}\n}}\n"
