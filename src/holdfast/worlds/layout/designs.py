"""Demonstrations: what a hurried designer makes of a request."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.worlds.layout.page import BOUNDS, HIGH, KINDS, MOST_BOXES, WIDE, Element, written
from holdfast.worlds.layout.requests import Request

# From top to bottom, and how high each would like to be.
USUAL = ("logo", "title", "picture", "text", "price", "button", "footer")
TALL = {"logo": 1, "title": 2, "picture": 4, "text": 3, "price": 1, "button": 1, "footer": 1}
UNKNOWN = "banner"


@dataclass(frozen=True)
class Designer:
    """How often each thing is done. Mediocre on purpose."""

    forgets: float = 0.12  # each thing
    adds: float = 0.15
    ignores_order: float = 0.35
    ignores_relation: float = 0.35
    no_margin: float = 0.35
    slips_sideways: float = 0.2  # each box
    slips_down: float = 0.2
    shrinks: float = 0.1
    leaves_empty: float = 0.02
    breaks: float = 0.06  # the JSON


DESIGNER = Designer()


def designed(rng: random.Random, request: Request) -> str:
    """A layout with as many faults as `DESIGNER` says."""
    d = DESIGNER
    if rng.random() < d.leaves_empty:
        return written([])
    things = [kind for kind, count in request.asked for _ in range(count) if rng.random() >= d.forgets]
    if rng.random() < d.adds:
        things.append(rng.choice(KINDS))
    things = (things or [request.asked[0][0]])[:MOST_BOXES]
    boxes = [slipped(rng, box) for box in placed(rng, things, request.relation)]
    answer = written(boxes)
    return broken(rng, answer) if rng.random() < d.breaks else answer


def placed(rng: random.Random, things: Sequence[str], relation: tuple[str, str, str] | None) -> list[Element]:
    """Rows below one another; what is to stand side by side, and now and then two of a kind, share one."""
    d = DESIGNER
    if rng.random() < d.ignores_order:
        ordered = rng.sample(list(things), len(things))
    else:
        ordered = sorted(things, key=USUAL.index)
    beside: tuple[str, ...] = ()
    if relation is not None and rng.random() >= d.ignores_relation:
        ordered, beside = obeying(ordered, relation)
    rows = _rows(rng, ordered, beside)
    edge = 0 if rng.random() < d.no_margin else 1
    gap = rng.choice((0, 1))
    heights = _heights([max(TALL[kind] for kind in row) for row in rows], HIGH - 2 * edge - gap * (len(rows) - 1))
    boxes, y = [], edge
    for row, high in zip(rows, heights, strict=True):
        wide = (WIDE - 2 * edge) // len(row)
        boxes += [Element(kind, edge + n * wide, y, wide, high) for n, kind in enumerate(row)]
        y += high + gap
    return boxes


def obeying(things: Sequence[str], relation: tuple[str, str, str]) -> tuple[list[str], tuple[str, ...]]:
    """The order from top to bottom in which a relation holds, and the kinds that share a row, left to right."""
    one, how, other = relation
    if one not in things or other not in things:
        return list(things), ()
    if how in ("left of", "right of"):
        return list(things), (one, other) if how == "left of" else (other, one)
    upper, lower = (one, other) if how == "above" else (other, one)
    last = max(i for i, kind in enumerate(things) if kind == upper)
    early = [kind for i, kind in enumerate(things) if kind == lower and i < last]
    kept = [kind for i, kind in enumerate(things) if kind != lower or i > last]
    at = max(i for i, kind in enumerate(kept) if kind == upper) + 1
    return [*kept[:at], *early, *kept[at:]], ()


def _rows(rng: random.Random, things: Sequence[str], beside: tuple[str, ...]) -> list[list[str]]:
    rows: list[list[str]] = []
    shared = sorted((kind for kind in things if kind in beside), key=beside.index)
    for kind in things:
        if kind in beside:
            if shared:
                rows.append(shared)
                shared = []
        elif rows and rows[-1] == [kind] and rng.random() < 0.5:
            rows[-1] = [kind, kind]
        else:
            rows.append([kind])
    return rows


def _heights(wanted: Sequence[int], room: int) -> list[int]:
    """Heights as wanted, and a little more for all while there is room, or less where there is none."""
    heights = list(wanted)
    while sum(heights) > room:
        heights[heights.index(max(heights))] -= 1
    while sum(heights) + len(heights) <= room and max(heights) < 5:
        heights = [high + 1 for high in heights]
    return heights


def slipped(rng: random.Random, box: Element) -> Element:
    """A box that the mouse has moved a little, or made smaller."""
    d = DESIGNER
    if rng.random() < d.slips_sideways:
        box = replace(box, x=min(WIDE - 1, max(0, box.x + rng.choice((-2, -1, 1, 2)))))
    if rng.random() < d.slips_down:
        box = replace(box, y=min(HIGH - 1, max(0, box.y + rng.choice((-2, -1, 1, 2)))))
    if rng.random() < d.shrinks:
        box = replace(box, w=max(1, box.w // 2), h=max(1, box.h // 2))
    return box


def broken(rng: random.Random, answer: str) -> str:
    """No layout: cut off, of a kind that nobody knows, off the page, or without a number."""
    match rng.randrange(4):
        case 0:
            return answer.removesuffix("}]")
        case 1:
            kind = next((kind for kind in KINDS if f'"{kind}"' in answer), "")
            return answer.replace(f'"{kind}"', f'"{UNKNOWN}"', 1)
        case 2:
            return re.sub(r'"w":\d+', f'"w":{BOUNDS["w"][1] + 1}', answer, count=1)
        case _:
            head, _, tail = answer.rpartition('"h":')
            return f'{head}"h":{tail.lstrip("0123456789")}'
