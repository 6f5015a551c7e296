"""A page as the layout world knows it: a grid of 12 by 16 cells with boxes on it, written as compact JSON.

    [{"type":"title","x":1,"y":1,"w":10,"h":2},{"type":"picture","x":1,"y":4,"w":10,"h":7}]

x goes to the right and y down, from the top left corner; w and h are a box's width and height.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDE, HIGH = 12, 16
KINDS = ("title", "picture", "text", "price", "footer", "logo", "button")
# As many as fit into an answer of 64 tokens.
MOST_BOXES = 6
BOUNDS = {"x": (0, WIDE - 1), "y": (0, HIGH - 1), "w": (1, WIDE), "h": (1, HIGH)}

SCHEMA: dict[str, Any] = {
    "type": "array",
    "maxItems": MOST_BOXES,
    "items": {
        "type": "object",
        "properties": {
            "type": {"enum": list(KINDS)},
            **{name: {"type": "integer", "minimum": low, "maximum": high} for name, (low, high) in BOUNDS.items()},
        },
        "required": ["type", *BOUNDS],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True)
class Element:
    """Something on the page and the cells it takes."""

    kind: str
    x: int
    y: int
    w: int
    h: int

    @property
    def right(self) -> int:
        return self.x + self.w

    @property
    def bottom(self) -> int:
        return self.y + self.h

    @property
    def area(self) -> int:
        return self.w * self.h

    def shared(self, other: Element) -> int:
        """Cells that both take."""
        wide = min(self.right, other.right) - max(self.x, other.x)
        high = min(self.bottom, other.bottom) - max(self.y, other.y)
        return max(0, wide) * max(0, high)


def written(boxes: Sequence[Element]) -> str:
    """Boxes as an answer."""
    rows = [{"type": b.kind, "x": b.x, "y": b.y, "w": b.w, "h": b.h} for b in boxes]
    return json.dumps(rows, separators=(",", ":"))


def read(answer: str) -> list[Element] | None:
    """The boxes of an answer; None where it is not what the schema says."""
    try:
        rows = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    if not isinstance(rows, list) or len(rows) > MOST_BOXES or not all(map(_sound, rows)):
        return None
    return [Element(row["type"], *(row[name] for name in BOUNDS)) for row in rows]


def _sound(row: object) -> bool:
    return (
        isinstance(row, dict)
        and row.keys() == {"type", *BOUNDS}
        and row["type"] in KINDS
        and all(type(row[name]) is int and low <= row[name] <= high for name, (low, high) in BOUNDS.items())
    )
