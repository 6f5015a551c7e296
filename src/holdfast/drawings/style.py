"""Colours of the drawings of boxes, for a light and for a dark page: those of the charts and one more."""

from holdfast.charts.style import DARK, LIGHT

# Brown, as far from the charts' hues as they are from each other.
LIGHT_COLOURS = (*LIGHT, "#8a5a44")
DARK_COLOURS = (*DARK, "#c9a28e")
COLOURS = len(LIGHT_COLOURS)

_SHAPE = """
.hf-drawing text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif;
  font-weight: 600; text-anchor: middle; dominant-baseline: central; }
.hf-drawing .paper, .hf-drawing .grid, .hf-drawing .out, .hf-drawing .both { fill: none; stroke-width: 1; }
.hf-drawing .paper { stroke-width: 1.5; }
.hf-drawing .box { fill-opacity: 0.24; stroke-width: 1.8; }
.hf-drawing .out { stroke-dasharray: 5 3; stroke-width: 2; }
.hf-drawing .both { fill-opacity: 0.16; stroke-dasharray: 2 2; }
"""


def _colours(paper: str, beyond: str, edge: str, grid: str, ink: str, alarm: str, palette: tuple[str, ...]) -> str:
    rules = [
        f".hf-drawing .beyond {{ fill: {beyond}; }}",
        f".hf-drawing .paper {{ fill: {paper}; stroke: {edge}; }}",
        f".hf-drawing .grid {{ stroke: {grid}; }}",
        f".hf-drawing text {{ fill: {ink}; }}",
        f".hf-drawing .out, .hf-drawing .both {{ stroke: {alarm}; }} .hf-drawing .both {{ fill: {alarm}; }}",
    ]
    for index, colour in enumerate(palette):
        rules.append(f".hf-drawing .b{index} {{ fill: {colour}; stroke: {colour}; }}")
    return "\n".join(rules)


_LIGHT_RULES = _colours("#ffffff", "#eceae4", "#8d939b", "#ecebe7", "#1f2328", "#b3261e", LIGHT_COLOURS)
_DARK_RULES = _colours("#161a1f", "#262b33", "#7d8590", "#242a31", "#f1f3f5", "#ff8a80", DARK_COLOURS)

DRAWING_STYLE = f"{_SHAPE}{_LIGHT_RULES}\n@media screen and (prefers-color-scheme: dark) {{\n{_DARK_RULES}\n}}\n"
