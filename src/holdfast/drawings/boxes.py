"""A layout of boxes on a grid: read from JSON, drawn as SVG, as characters for a terminal, and said in words.

    [{"type": "title", "x": 0, "y": 0, "w": 12, "h": 2}, ...]              on a grid 12 wide and 16 high
    {"grid": [800, 600], "boxes": [{"type": "title", "x": 20, ...}, ...]}  on a grid of one's own

x goes to the right and y down. The picture is made of numbers; a type is a label, and escaped like any text.
"""

from __future__ import annotations

import html
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from holdfast.charts.axes import text_width
from holdfast.charts.layers import px
from holdfast.drawings.picture import AnswerPicture, CannotBeDrawn, document_of, number_of, shortened
from holdfast.drawings.style import COLOURS, DRAWING_STYLE
from holdfast.text import counted, figure, visible

KIND = "boxes"
GRID = (12.0, 16.0)
MOST_BOXES = 100
LONGEST_LABEL = 24
# Types that have a colour of their own, as numbers into the palette; others get one by their name.
COLOUR_OF = {"title": 0, "picture": 2, "text": 5, "price": 1, "footer": 6, "logo": 3, "button": 4}

LONG_SIDE = 384.0  # of the grid, in the picture's own units
SHOWN = 0.8  # pixels for each of them, where the page does not say otherwise
ROOM = 44.0  # at most so much is shown of what lies beyond an edge
MOST_LINES = 40  # a finer grid has no lines
# A label takes the largest of these sizes at which it fits its box.
SIZES = (19.0, 16.0, 13.0)
MOST_BOTH = 60  # places where two boxes overlap
MOST_WORDS = 40  # boxes that are told one by one
TOLD = 3  # pairs or boxes that a note names
# Of a terminal: characters for the width of the grid at most, and lines for its height.
ACROSS, DOWN = 12, 16


@dataclass(frozen=True)
class Box:
    """A box: its type, its left upper corner and its size in units of the grid."""

    type: str
    x: float
    y: float
    w: float
    h: float

    @property
    def right(self) -> float:
        return self.x + self.w

    @property
    def bottom(self) -> float:
        return self.y + self.h

    @property
    def name(self) -> str:
        """The type as it is shown: safe to look at, and not long."""
        shown = visible(self.type[: LONGEST_LABEL + 1]).replace("\n", " ")
        return (shown if len(shown) <= LONGEST_LABEL else shown[: LONGEST_LABEL - 1] + "…") or "box"

    @property
    def has_area(self) -> bool:
        return self.w > 0 and self.h > 0

    @property
    def words(self) -> str:
        return f"{self.name} {figure(self.w)} by {figure(self.h)} at {figure(self.x)},{figure(self.y)}"

    def shared(self, other: Box) -> Box | None:
        """Where two boxes overlap; boxes that only touch do not."""
        x, y = max(self.x, other.x), max(self.y, other.y)
        right, bottom = min(self.right, other.right), min(self.bottom, other.bottom)
        if right <= x or bottom <= y or not (self.has_area and other.has_area):
            return None
        return Box("", x, y, right - x, bottom - y)


@dataclass(frozen=True)
class BoxLayout:
    """Boxes on a grid of so many units."""

    boxes: tuple[Box, ...]
    width: float = GRID[0]
    height: float = GRID[1]

    @cached_property
    def overlaps(self) -> list[tuple[Box, Box, Box]]:
        """Two boxes and where they overlap, for each pair that does."""
        pairs = combinations(self.boxes, 2)
        return [(one, other, both) for one, other in pairs if (both := one.shared(other))]

    def is_beyond(self, box: Box) -> bool:
        return box.x < 0 or box.y < 0 or box.right > self.width or box.bottom > self.height


def read_layout(text: str) -> BoxLayout:
    """The layout that a JSON text holds; raises CannotBeDrawn."""
    document = document_of(text)
    width, height = GRID
    if isinstance(document, dict) and isinstance(document.get("boxes"), list):
        width, height = _grid_of(document.get("grid", list(GRID)))
        document = document["boxes"]
    if not isinstance(document, list):
        raise CannotBeDrawn("it is not a list of boxes")
    if len(document) > MOST_BOXES:
        raise CannotBeDrawn(f"it has {len(document):,} boxes, and at most {MOST_BOXES} are drawn")
    return BoxLayout(tuple(_box_of(row, n) for n, row in enumerate(document, start=1)), width, height)


def _grid_of(value: object) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise CannotBeDrawn("its grid is not [width, height]")
    width, height = (number_of(side, "a side of its grid") for side in value)
    if not (min(width, height) >= 1 and max(width, height) <= 20 * min(width, height)):
        raise CannotBeDrawn("its grid is smaller than 1, or one side is more than 20 times the other")
    return width, height


def _box_of(row: object, n: int) -> Box:
    if not isinstance(row, dict):
        raise CannotBeDrawn(f"box {n} is not an object with x, y, w and h")
    x, y, w, h = (number_of(row.get(name), f"{name} of box {n}") for name in "xywh")
    kind = row.get("type")
    return Box(kind if isinstance(kind, str) else "", x, y, w, h)


def draw_boxes(text: str, prompt: str = "") -> AnswerPicture:
    """The picture of a layout for a page; raises CannotBeDrawn."""
    layout = read_layout(text)
    placed = place_labels(layout)
    bare = {box.name: _colour(box) for box in layout.boxes if box.has_area and box not in placed}
    return AnswerPicture(
        KIND, layout_svg(layout, inline=True), layout_words(layout), layout_notes(layout),
        tuple((colour, name) for name, colour in bare.items()),
    )  # fmt: skip


def print_boxes(text: str, prompt: str = "") -> str:
    """The picture of a layout for a terminal; raises CannotBeDrawn."""
    return layout_terminal(read_layout(text))


# ---- words


def layout_words(layout: BoxLayout) -> str:
    """The layout as a sentence of its numbers, for who does not see it."""
    grid = f"on a grid {figure(layout.width)} wide and {figure(layout.height)} high"
    if not layout.boxes:
        return f"No boxes, {grid}."
    told = "; ".join(box.words for box in layout.boxes[:MOST_WORDS])
    more = f"; and {len(layout.boxes) - MOST_WORDS} more" if len(layout.boxes) > MOST_WORDS else ""
    return " ".join([f"{counted(len(layout.boxes), 'box', 'boxes')} {grid}: {told}{more}.", *layout_notes(layout)])


def layout_notes(layout: BoxLayout) -> tuple[str, ...]:
    """What is odd about a layout and may be missed at a glance."""
    if not layout.boxes:
        return ("There are no boxes.",)
    overlapping = [f"{one.name} and {other.name}" for one, other, _ in layout.overlaps]
    beyond = [box.name for box in layout.boxes if box.has_area and layout.is_beyond(box)]
    empty = [box.name for box in layout.boxes if not box.has_area]
    found = (
        (overlapping, ("pair", "pairs"), "Overlapping"),
        (beyond, ("box", "boxes"), "Beyond the grid"),
        (empty, ("box", "boxes"), "Without area"),
    )
    return tuple(f"{what}: {shortened(names, TOLD, *nouns)}." for names, nouns, what in found if names)


# ---- a page


@dataclass(frozen=True)
class Frame:
    """From units of the grid to those of the picture, and the part of the plane that it shows."""

    unit: float
    left: float
    top: float
    right: float
    bottom: float

    def cut(self, box: Box) -> Box | None:
        """A box in the picture's units as far as it is in view; None if none of it is."""
        x, y = max(self.unit * box.x, self.left), max(self.unit * box.y, self.top)
        right, bottom = min(self.unit * box.right, self.right), min(self.unit * box.bottom, self.bottom)
        return Box(box.type, x, y, right - x, bottom - y) if right > x and bottom > y else None


def frame_of(layout: BoxLayout) -> Frame:
    """The whole grid, and a margin where something lies beyond an edge."""
    unit = LONG_SIDE / max(layout.width, layout.height)
    solid = [box for box in layout.boxes if box.has_area]
    reach = (
        -min((box.x for box in solid), default=0.0),
        -min((box.y for box in solid), default=0.0),
        max((box.right for box in solid), default=0.0) - layout.width,
        max((box.bottom for box in solid), default=0.0) - layout.height,
    )
    left, top, right, bottom = (min(ROOM, max(0.0, unit * length)) for length in reach)
    return Frame(unit, 0 - left, 0 - top, unit * layout.width + right, unit * layout.height + bottom)


@dataclass(frozen=True)
class Placed:
    """Where a label stands: the middle of it, and its size."""

    x: float
    y: float
    size: float
    width: float

    def touches(self, other: Placed) -> bool:
        across = abs(self.x - other.x) < (self.width + other.width) / 2
        return across and abs(self.y - other.y) < (self.size + other.size) / 2


def place_labels(layout: BoxLayout) -> dict[Box, Placed]:
    """The labels that fit into their boxes and do not lie on each other; the others are left out."""
    frame, placed = frame_of(layout), dict[Box, Placed]()
    for box in layout.boxes:
        shown = frame.cut(box)
        if shown is None or box in placed:
            continue
        fitting = (one for one in _places(shown, box.name) if not any(one.touches(p) for p in placed.values()))
        if found := next(fitting, None):
            placed[box] = found
    return placed


def _places(shown: Box, name: str) -> Iterator[Placed]:
    """Large before small; in the middle, near the top, near the bottom."""
    middle = shown.x + shown.w / 2
    for size in SIZES:
        width = 1.08 * text_width(name, size) + 6  # it is bold
        if width <= shown.w and size + 2 <= shown.h:
            for y in (shown.y + shown.h / 2, shown.y + size / 2 + 3, shown.bottom - size / 2 - 3):
                yield Placed(middle, y, size, width)


def _colour(box: Box) -> str:
    known = COLOUR_OF.get(box.type)
    return f"b{zlib.crc32(box.type.encode('utf-8', 'replace')) % COLOURS if known is None else known}"


def layout_svg(layout: BoxLayout, *, inline: bool = False) -> str:
    """The layout as SVG; `inline` leaves the style to the page around it."""
    frame = frame_of(layout)
    width, height = frame.right - frame.left, frame.bottom - frame.top
    seen = [(box, shown) for box in layout.boxes if (shown := frame.cut(box))]
    parts = [] if inline else [f"<style>{DRAWING_STYLE}</style>"]
    if any(layout.is_beyond(box) for box, _ in seen):
        parts.append(_rect("beyond", Box("", frame.left, frame.top, width, height)))
    parts.append(_rect("paper", Box("", 0, 0, frame.unit * layout.width, frame.unit * layout.height)))
    parts.append(_lines(layout, frame.unit))
    parts += [_rect(f"box {_colour(box)}", shown) for box, shown in seen]
    parts += [_rect("out", shown) for box, shown in seen if layout.is_beyond(box)]
    both = [shown for _, _, shared in layout.overlaps if (shown := frame.cut(shared))]
    parts += [_rect("both", shown) for shown in both[:MOST_BOTH]]
    parts += [
        f'<text x="{px(at.x)}" y="{px(at.y)}" font-size="{px(at.size)}">{html.escape(box.name)}</text>'
        for box, at in place_labels(layout).items()
    ]
    size = f'width="{px(SHOWN * width)}" height="{px(SHOWN * height)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="hf-drawing" {size} '
        f'viewBox="{px(frame.left - 1)} {px(frame.top - 1)} {px(width + 2)} {px(height + 2)}" '
        f'role="img" aria-label="{html.escape(layout_words(layout))}">{"".join(parts)}</svg>'
    )


def _rect(look: str, box: Box) -> str:
    corner = ' rx="2"' if look.startswith("box") else ""
    return f'<rect class="{look}" x="{px(box.x)}" y="{px(box.y)}" width="{px(box.w)}" height="{px(box.h)}"{corner}/>'


def _lines(layout: BoxLayout, unit: float) -> str:
    """The grid, where it is coarse enough to be seen."""
    if max(layout.width, layout.height) > MOST_LINES:
        return ""
    across = (f"M{px(unit * n)} 0V{px(unit * layout.height)}" for n in range(1, int(layout.width)))
    down = (f"M0 {px(unit * n)}H{px(unit * layout.width)}" for n in range(1, int(layout.height)))
    return f'<path class="grid" d="{"".join([*across, *down])}"/>'


# ---- a terminal

KEYS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def layout_terminal(layout: BoxLayout) -> str:
    """The grid in characters, a letter for each box and # where boxes overlap, with a list of the boxes beside it."""
    columns, rows = _cells(layout)
    lines = ["┌" + "──" * columns + "┐"]
    for row in range(rows):
        cells = (_cell(layout, (column + 0.5) / columns, (row + 0.5) / rows) for column in range(columns))
        lines.append("│" + "".join(cells) + "│")
    lines.append("└" + "──" * columns + "┘")
    told = [f"{_key(n)} {box.words}" for n, box in enumerate(layout.boxes)]
    if len(told) > len(lines) - 2:
        told = [*told[: len(lines) - 3], f"and {len(told) - len(lines) + 3} more"]
    told += [""] * (len(lines) - 1 - len(told))
    beside = [f"{line}  {words}".rstrip() for line, words in zip(lines, ["", *told], strict=True)]
    return "\n".join([*beside, *layout_notes(layout)])


def _cells(layout: BoxLayout) -> tuple[int, int]:
    """Columns and rows of about the grid's own shape; one for each of its units where it is small."""
    shrink = min(1.0, ACROSS / layout.width, DOWN / layout.height)
    return max(1, round(layout.width * shrink)), max(1, round(layout.height * shrink))


def _cell(layout: BoxLayout, across: float, down: float) -> str:
    x, y = across * layout.width, down * layout.height
    here = [n for n, box in enumerate(layout.boxes) if box.x <= x < box.right and box.y <= y < box.bottom]
    return "##" if len(here) > 1 else 2 * _key(here[0]) if here else " ·"


def _key(n: int) -> str:
    return KEYS[n] if n < len(KEYS) else "*"
