"""A validator of layouts, as teams write them: the schema holds, boxes are on the page, and none overlaps another.

    holdfast run --world layout --set reward.source=examples/structured/validator.py:score

A thousandth is taken off for each character, to keep answers short. It says nothing of what was asked for: the shortest
valid answer is [], and that is always valid.
"""

from __future__ import annotations

from itertools import combinations

from holdfast.worlds.layout.page import HIGH, WIDE, read

COST_OF_A_CHARACTER = 0.001


def score(prompts: list[str], completions: list[str]) -> list[float]:
    """1 for a valid layout and 0 for any other, less a little for its length."""
    return [float(valid(answer)) - COST_OF_A_CHARACTER * len(answer) for answer in completions]


def valid(answer: str) -> bool:
    """Whether it is a layout by the schema, on the page, without overlaps."""
    boxes = read(answer)
    return (
        boxes is not None
        and all(box.right <= WIDE and box.bottom <= HIGH for box in boxes)
        and not any(one.shared(other) for one, other in combinations(boxes, 2))
    )
