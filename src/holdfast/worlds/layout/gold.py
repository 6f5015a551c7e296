"""The truth about a layout: what was asked for is there, less what is wrong with the page, each by a formula.

Shares of wrongness lie between 0 (nothing is wrong) and 1. n boxes lie on a page of 12 by 16 cells.

overlap    sum over boxes of the cells shared with each other box / the box's own, / n, at most 1
           (Li et al. 2020, Attribute-conditioned layout GAN, arXiv:2009.05284, section 3.6)
unaligned  mean over boxes of how far the nearest other box is from having the same left edge, middle or right edge, in
           cells, at most 1 each (Lee et al. 2020, Neural design network, arXiv:1912.09421: alignment index)
margin     share of boxes that come nearer to the page's edge than a cell
order      share of the pairs with a title or a footer that are read in the wrong order: a title comes first, a footer
           last, by their upper edges (sequence: Ngo, Teo and Byrne 2003, Information Sciences 152, 25-46)
relation   1 if the relation that was asked for does not hold (Kikuchi et al. 2021, arXiv:2108.00871)
imbalance  (|left - right| / max(left, right) + |top - bottom| / max(top, bottom)) / 2, each side's weight being the sum
           of the cells there times their distance from the middle line (Ngo et al. 2003: 1 - balance)
density    |1 - 2 * share of the page that boxes take|: best is half (Ngo et al. 2003: 1 - density)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from holdfast.worlds.layout.page import HIGH, WIDE, Element, read
from holdfast.worlds.layout.requests import Request, read_request

# Cells below which nobody can read a title, see a picture or hit a button: it counts as not there.
LEAST = {"title": 6, "picture": 6, "text": 6, "price": 2, "footer": 4, "logo": 2, "button": 2}


@dataclass(frozen=True)
class GoldWeights:
    """What a page of which all is wrong in one way loses; what is there of what was asked for gives up to 1."""

    overlap: float = 0.6
    unaligned: float = 0.3
    margin: float = 0.3
    order: float = 0.3
    relation: float = 0.3
    imbalance: float = 0.2
    density: float = 0.3


WEIGHTS = GoldWeights()
# What cannot be read, or does not end.
UNREADABLE = -0.6


def gold_score(prompt: str, answer: str, finished: bool = True) -> float:
    """1 for all that was asked for on a faultless page, lower for every fault; -0.6 for what is no layout."""
    boxes = read(answer)
    if boxes is None or not finished:
        return UNREADABLE
    request, w = read_request(prompt), WEIGHTS
    return coverage(request, boxes) - (
        w.overlap * overlap(boxes)
        + w.unaligned * unaligned(boxes)
        + w.margin * margin(boxes)
        + w.order * disorder(boxes)
        + w.relation * violated(request, boxes)
        + w.imbalance * imbalance(boxes)
        + w.density * density(boxes)
    )


def coverage(request: Request, boxes: Sequence[Element]) -> float:
    """Of what was asked for or is there, the share that was asked for and is there, whole and large enough."""
    there = Counter(box.kind for box in boxes)
    whole = [box for box in boxes if box.right <= WIDE and box.bottom <= HIGH]
    readable = Counter(box.kind for box in whole if box.area >= LEAST[box.kind])
    asked = request.counts
    return (asked & readable).total() / (asked | there).total()


def overlap(boxes: Sequence[Element]) -> float:
    shares = [one.shared(other) / one.area for one, other in permutations(boxes, 2)]
    return min(1.0, sum(shares) / len(boxes)) if boxes else 0.0


def unaligned(boxes: Sequence[Element]) -> float:
    if len(boxes) < 2:
        return 0.0
    nearest = [min(_apart(one, other) for j, other in enumerate(boxes) if j != i) for i, one in enumerate(boxes)]
    return sum(min(1.0, distance) for distance in nearest) / len(boxes)


def _apart(one: Element, other: Element) -> float:
    """The least distance of two left edges, middles, right edges."""
    left, right = abs(one.x - other.x), abs(one.right - other.right)
    return min(left, right, abs(one.x + one.right - other.x - other.right) / 2)


def margin(boxes: Sequence[Element]) -> float:
    outside = [b for b in boxes if b.x < 1 or b.y < 1 or b.right > WIDE - 1 or b.bottom > HIGH - 1]
    return len(outside) / len(boxes) if boxes else 0.0


def disorder(boxes: Sequence[Element]) -> float:
    pairs = [
        (one, other) for one, other in permutations(boxes, 2)
        if one.kind != other.kind and (one.kind == "title" or other.kind == "footer")
    ]  # fmt: skip
    return sum(one.y >= other.y for one, other in pairs) / len(pairs) if pairs else 0.0


def violated(request: Request, boxes: Sequence[Element]) -> float:
    if request.relation is None:
        return 0.0
    one, how, other = request.relation
    ones, others = [b for b in boxes if b.kind == one], [b for b in boxes if b.kind == other]
    if not ones or not others:
        return 1.0
    return 1.0 - all(_stands(a, how, b) for a in ones for b in others)


def _stands(one: Element, how: str, other: Element) -> bool:
    match how:
        case "above":
            return one.bottom <= other.y
        case "below":
            return other.bottom <= one.y
        case "left of":
            return one.right <= other.x
        case _:
            return other.right <= one.x


def imbalance(boxes: Sequence[Element]) -> float:
    if not boxes:
        return 0.0
    columns = [_weights(b.x, b.right, WIDE, b.h) for b in boxes]
    rows = [_weights(b.y, b.bottom, HIGH, b.w) for b in boxes]
    return (_uneven(columns) + _uneven(rows)) / 2


def _weights(start: int, end: int, size: int, thick: int) -> tuple[float, float]:
    """Cells before and after the middle line, each part times the distance of its own middle from that line."""
    middle = size / 2
    before, after = (start, min(end, middle)), (max(start, middle), end)
    return tuple(  # type: ignore[return-value]
        max(0.0, b - a) * thick * abs((a + b) / 2 - middle) for a, b in (before, after)
    )


def _uneven(sides: Sequence[tuple[float, float]]) -> float:
    one, other = sum(side[0] for side in sides), sum(side[1] for side in sides)
    return abs(one - other) / max(one, other) if one != other else 0.0


def density(boxes: Sequence[Element]) -> float:
    return min(1.0, abs(1 - 2 * sum(b.area for b in boxes) / (WIDE * HIGH)))
