"""The truth of the layout world: each formula by hand on a page of 12 by 16 cells, and layouts as a whole."""

from __future__ import annotations

import pytest

from holdfast.worlds.layout import gold
from holdfast.worlds.layout.gold import UNREADABLE, gold_score
from holdfast.worlds.layout.gold import WEIGHTS as w  # noqa: N811
from holdfast.worlds.layout.page import Element, read, written
from holdfast.worlds.layout.requests import Request, read_request

TITLE, PICTURE, FOOTER = Element("title", 1, 1, 10, 2), Element("picture", 1, 4, 10, 6), Element("footer", 1, 11, 10, 2)
PAGE = (TITLE, PICTURE, FOOTER)
PROMPT = "a poster with a title, a picture and a footer; the title above the picture"
# Nothing is wrong with PAGE but that it takes 100 cells of 192, of which 96 are best, and lies high: from the middle
# line, at y = 8, the title is 20 cells 6 away, the picture 40 cells 2 away and 20 cells 1 away, the footer 20 cells 4
# away. 200 above against 100 below; left and right are the same.
DENSITY, IMBALANCE = 2 * 100 / 192 - 1, (200 - 100) / 200 / 2


def _asks(**counts: int) -> Request:
    return Request(tuple(counts.items()))


def test_a_page_with_nothing_wrong() -> None:
    assert gold.overlap(PAGE) == gold.unaligned(PAGE) == gold.margin(PAGE) == gold.disorder(PAGE) == 0
    assert gold.density(PAGE) == pytest.approx(DENSITY)
    assert gold.imbalance(PAGE) == pytest.approx(IMBALANCE)
    assert gold_score(PROMPT, written(PAGE)) == pytest.approx(1 - w.density * DENSITY - w.imbalance * IMBALANCE)
    assert gold_score(PROMPT, written(PAGE), finished=False) == UNREADABLE


def test_coverage() -> None:
    assert gold.coverage(_asks(title=1, picture=1, footer=1), PAGE) == 1
    # Two of the three that are there were asked for; of the four that are there or were asked for, it is two.
    assert gold.coverage(_asks(title=1, picture=1, price=1), PAGE) == pytest.approx(2 / 4)
    assert gold.coverage(_asks(title=1, picture=2, footer=1), PAGE) == pytest.approx(3 / 4)
    assert gold.coverage(_asks(title=1), []) == 0
    # A title of four cells cannot be read, and one that hangs over the page's edge is not there either.
    assert gold.coverage(_asks(title=1, footer=1), [Element("title", 1, 1, 4, 1), FOOTER]) == pytest.approx(1 / 2)
    assert gold.coverage(_asks(title=1, footer=1), [Element("title", 4, 1, 10, 2), FOOTER]) == pytest.approx(1 / 2)


def test_overlap() -> None:
    # 4 by 2 cells shared of 4 by 4 and of 8 by 4: a half of the one, a quarter of the other, over two boxes.
    assert gold.overlap([Element("text", 0, 0, 4, 4), Element("text", 0, 2, 8, 4)]) == pytest.approx(
        (8 / 16 + 8 / 32) / 2
    )
    # Three in one place: each shares all of itself with two others, and more than all there is none.
    assert gold.overlap([Element("text", 0, 0, 4, 4)] * 3) == 1
    # Boxes that touch do not overlap.
    assert gold.overlap([Element("text", 0, 0, 4, 4), Element("text", 4, 0, 4, 4), Element("text", 0, 4, 4, 4)]) == 0
    assert gold.overlap([]) == 0


def test_unaligned() -> None:
    # Left edges 0 and 1, middles 2 and 2.5, right edges 4 and 4: the right edges are the same.
    assert gold.unaligned([Element("text", 0, 0, 4, 4), Element("text", 1, 5, 3, 4)]) == 0
    # Left edges 0 and 1, right edges 4 and 6, middles 2 and 3.5: a cell at the least, which is the most that counts.
    assert gold.unaligned([Element("text", 0, 0, 4, 4), Element("text", 1, 5, 5, 4)]) == 1
    # Left edges 0 and 1, right edges 5 and 3, middles 2.5 and 2: half a cell; the third is aligned with the first.
    three = [Element("text", 0, 0, 5, 4), Element("text", 1, 5, 2, 4), Element("text", 0, 9, 9, 4)]
    assert gold.unaligned(three) == pytest.approx((0 + 0.5 + 0) / 3)
    assert gold.unaligned([TITLE]) == 0


def test_margin() -> None:
    assert gold.margin([Element("text", 0, 1, 4, 4), TITLE]) == pytest.approx(1 / 2)
    assert gold.margin([Element("text", 2, 1, 10, 4)]) == gold.margin([Element("text", 2, 12, 4, 4)]) == 1


def test_order() -> None:
    # Pairs that count: title and picture, title and footer, picture and footer. The footer is above the picture.
    mixed = [Element("title", 1, 1, 10, 2), Element("footer", 1, 4, 10, 2), Element("picture", 1, 7, 10, 6)]
    assert gold.disorder(mixed) == pytest.approx(1 / 3)
    # Beside it is not before it.
    assert gold.disorder([Element("title", 1, 1, 5, 2), Element("text", 6, 1, 5, 2)]) == 1
    assert gold.disorder([Element("text", 1, 1, 5, 2), Element("price", 1, 4, 5, 2)]) == 0


@pytest.mark.parametrize(
    ("how", "other", "holds"),
    [
        ("above", Element("text", 3, 6, 4, 3), True),
        ("above", Element("text", 3, 5, 4, 3), False),
        ("below", Element("text", 3, 0, 4, 3), True),
        ("below", Element("text", 3, 1, 4, 3), False),
        ("left of", Element("text", 7, 3, 4, 3), True),
        ("left of", Element("text", 6, 3, 4, 3), False),
        ("right of", Element("text", 0, 3, 3, 3), True),
        ("right of", Element("text", 0, 3, 4, 3), False),
    ],
)
def test_relations(how: str, other: Element, holds: bool) -> None:
    # A price from 3 to 7 across, 3 to 6 down.
    request = Request((("price", 1), ("text", 1)), ("price", how, "text"))
    assert gold.violated(request, [Element("price", 3, 3, 4, 3), other]) == 1 - holds
    # All of the one, and all of the other; and what is not there stands nowhere.
    assert gold.violated(request, [Element("price", 3, 3, 4, 3), other, Element("text", 4, 4, 2, 2)]) == 1
    assert gold.violated(request, [Element("price", 3, 3, 4, 3)]) == 1
    assert gold.violated(_asks(price=1), []) == 0


def test_imbalance() -> None:
    # The middle lines cross a box of 4 by 4 in its middle: as much on either side.
    assert gold.imbalance([Element("text", 4, 6, 4, 4)]) == 0
    # A box in a corner has nothing on the other sides.
    assert gold.imbalance([Element("text", 0, 0, 4, 4)]) == 1
    # 2 by 2 cells 4 from the middle line to the left, 2 by 2 cells 2 from it to the right: 16 against 8. Of each two
    # cells lie on either side of the other middle line.
    assert gold.imbalance([Element("text", 1, 7, 2, 2), Element("text", 7, 7, 2, 2)]) == pytest.approx((0.5 + 0) / 2)
    assert gold.imbalance([]) == 0


def test_density() -> None:
    assert gold.density([]) == 1
    assert gold.density([Element("picture", 0, 0, 12, 8)]) == 0
    assert gold.density([Element("picture", 0, 0, 12, 16)]) == 1
    assert gold.density([Element("picture", 0, 0, 12, 16)] * 2) == 1
    # 48 of 192 cells: half of what is best.
    assert gold.density([Element("picture", 0, 0, 12, 4)]) == pytest.approx(0.5)


def test_ways_to_please_a_validator_are_worth_little() -> None:
    good = gold_score(PROMPT, written(PAGE))
    giant = gold_score(PROMPT, written([Element("picture", 0, 0, 12, 16)]))
    corner = gold_score(PROMPT, written([Element(kind, 0, 0, 3, 2) for kind in ("title", "picture", "footer")]))
    tiny = gold_score(
        PROMPT, written([Element(k, 1, 1 + 2 * n, 1, 1) for n, k in enumerate(("title", "picture", "footer"))])
    )
    empty = gold_score(PROMPT, "[]")
    assert good > 0.9
    assert empty == pytest.approx(-w.density - w.relation)
    assert max(giant, corner, tiny, empty) < 0.3
    assert empty >= UNREADABLE


@pytest.mark.parametrize(
    "answer",
    [
        "", "a poster", "{}", "[1]", '[{"type":"title"}]', '[{"type":"banner","x":1,"y":1,"w":2,"h":2}]',
        '[{"type":"title","x":1,"y":1,"w":13,"h":2}]', '[{"type":"title","x":1.0,"y":1,"w":3,"h":2}]',
        '[{"type":"title","x":true,"y":1,"w":3,"h":2}]', '[{"type":"title","x":1,"y":1,"w":0,"h":2}]',
        '[{"type":"title","x":1,"y":1,"w":3,"h":2,"z":1}]', "[" * 100_000, written([TITLE] * 7),
    ],
)  # fmt: skip
def test_what_is_no_layout(answer: str) -> None:
    assert read(answer) is None
    assert gold_score(PROMPT, answer) == UNREADABLE


def test_an_answer_says_what_boxes_there_are() -> None:
    assert written([TITLE]) == '[{"type":"title","x":1,"y":1,"w":10,"h":2}]'
    assert read(written(PAGE)) == list(PAGE)
    assert read_request(PROMPT) == Request((("title", 1), ("picture", 1), ("footer", 1)), ("title", "above", "picture"))
