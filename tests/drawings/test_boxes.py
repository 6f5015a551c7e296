"""Layouts: what is read, where it is drawn, what is said of it, and what cannot be drawn."""

import json
import re
import xml.etree.ElementTree as ET

import pytest

from holdfast.drawings.boxes import (
    MOST_BOXES,
    Box,
    BoxLayout,
    draw_boxes,
    layout_notes,
    layout_svg,
    layout_terminal,
    layout_words,
    place_labels,
    read_layout,
)
from holdfast.drawings.picture import CannotBeDrawn

SVG = "{http://www.w3.org/2000/svg}"
TITLE, PICTURE = Box("title", 0, 0, 12, 2), Box("picture", 3, 4, 6, 6)


def rects(svg: str, look: str) -> list[tuple[float, ...]]:
    """x, y, width and height of the rectangles of a class."""
    found = [one for one in ET.fromstring(svg).iter(f"{SVG}rect") if look in one.attrib["class"].split()]
    return [tuple(float(one.attrib[name]) for name in ("x", "y", "width", "height")) for one in found]


def test_a_layout_is_read_with_its_grid() -> None:
    text = '[{"type":"title","x":0,"y":0,"w":12,"h":2},{"type":"picture","x":3,"y":4,"w":6,"h":6}]'
    assert read_layout(text) == BoxLayout((TITLE, PICTURE), 12, 16)
    wide = read_layout('{"grid": [800, 600], "boxes": [{"x": 20.5, "y": 0, "w": 10, "h": 10}]}')
    assert wide == BoxLayout((Box("", 20.5, 0, 10, 10),), 800, 600)


def test_boxes_are_drawn_to_scale_and_in_their_colours() -> None:
    # The long side of 16 units is 384, so a unit is 24.
    svg = layout_svg(BoxLayout((TITLE, PICTURE)))
    assert rects(svg, "b0") == [(0, 0, 288, 48)]
    assert rects(svg, "b2") == [(72, 96, 144, 144)]
    assert rects(svg, "paper") == [(0, 0, 288, 384)]
    assert rects(svg, "beyond") == rects(svg, "out") == rects(svg, "both") == []
    assert [one.text for one in ET.fromstring(svg).iter(f"{SVG}text")] == ["title", "picture"]


def test_overlaps_are_marked_and_named_and_touching_is_none() -> None:
    layout = BoxLayout((Box("picture", 0, 0, 4, 4), Box("price", 2, 3, 4, 4), Box("logo", 4, 0, 2, 3)))
    assert [both for _, _, both in layout.overlaps] == [Box("", 2, 3, 2, 1)]
    assert rects(layout_svg(layout), "both") == [(48, 72, 48, 24)]
    assert layout_notes(layout) == ("Overlapping: picture and price.",)


def test_what_lies_beyond_the_grid_is_shown_as_such_in_a_margin_of_bounded_width() -> None:
    # 14 units are 2 more than the grid's 12, so 48 of the picture's own; at most 44 are shown.
    layout = BoxLayout((Box("logo", 10, 1, 4, 2), Box("title", 0, 0, 10, 1)))
    svg = layout_svg(layout)
    assert rects(svg, "out") == [(240, 24, 92, 48)]
    assert rects(svg, "beyond") == [(0, 0, 332, 384)]
    assert layout_notes(layout) == ("Beyond the grid: logo.",)
    far = BoxLayout((Box("logo", 10_000, 1, 4, 2),))
    assert rects(layout_svg(far), "box") == []  # out of view, and said
    assert layout_notes(far) == ("Beyond the grid: logo.",)


def test_a_box_without_area_is_said_and_not_drawn() -> None:
    layout = BoxLayout((Box("price", 1, 1, 0, 2), Box("logo", 5, 5, -3, 1)))
    assert rects(layout_svg(layout), "box") == []
    assert layout_notes(layout) == ("Without area: price and logo.",)


def test_a_label_fits_its_box_or_is_left_to_the_legend() -> None:
    layout = BoxLayout((Box("title", 0, 0, 12, 2), Box("footer", 0, 5, 1, 1)))
    placed = place_labels(layout)
    assert list(placed) == [layout.boxes[0]]
    assert placed[layout.boxes[0]].size == 19
    picture = draw_boxes(json.dumps([vars(box) for box in layout.boxes]))
    assert picture.legend == (("b6", "footer"),)


def test_labels_do_not_lie_on_each_other() -> None:
    same = [Box(f"text{n}", 0, 0, 4, 4) for n in range(5)]
    placed = list(place_labels(BoxLayout(tuple(same))).values())
    assert len(placed) == 3  # in the middle, near the top, near the bottom
    assert not any(one.touches(other) for one in placed for other in placed if one is not other)


def test_the_words_have_every_number() -> None:
    words = layout_words(BoxLayout((TITLE, Box("logo", 11, 1.5, 2, 1))))
    assert words == (
        "2 boxes on a grid 12 wide and 16 high: title 12 by 2 at 0,0; logo 2 by 1 at 11,1.5. "
        "Overlapping: title and logo. Beyond the grid: logo."
    )
    assert layout_words(BoxLayout(())) == "No boxes, on a grid 12 wide and 16 high."
    drawn = ET.fromstring(layout_svg(BoxLayout((TITLE,))))
    assert drawn.attrib["role"] == "img"
    assert drawn.attrib["aria-label"].startswith("1 box on a grid")


def test_in_a_terminal() -> None:
    lines = layout_terminal(BoxLayout((Box("title", 0, 0, 3, 1), Box("logo", 2, 0, 1, 2)), 4, 3)).split("\n")
    assert lines == [
        "┌────────┐",
        "│AAAA## ·│  A title 3 by 1 at 0,0",
        "│ · ·BB ·│  B logo 1 by 2 at 2,0",
        "│ · · · ·│",
        "└────────┘",
        "Overlapping: title and logo.",
    ]
    many = layout_terminal(BoxLayout(tuple(Box("text", n % 12, n % 16, 1, 1) for n in range(100))))
    assert max(map(len, many.split("\n"))) <= 80
    assert "and 85 more" in many


def test_a_label_is_text_and_never_markup() -> None:
    picture = draw_boxes(json.dumps([{"type": "<b>&\u202e", "x": 0, "y": 0, "w": 12, "h": 2}]))
    assert "&lt;b&gt;&amp;⟨U+202E⟩" in picture.svg
    assert not re.search(r"<(?!/?(svg|rect|path|text)\b)", picture.svg)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the answer is empty"),
        ('[{"x"', "it is not JSON"),
        ("{}", "it is not a list of boxes"),
        ("[3]", "box 1 is not an object"),
        ('[{"x":0,"y":0,"w":1}]', "h of box 1 is not a number"),
        ('[{"x":true,"y":0,"w":1,"h":1}]', "x of box 1 is not a number"),
        ('[{"x":0,"y":NaN,"w":1,"h":1}]', "y of box 1 is no finite number"),
        ('[{"x":0,"y":0,"w":1e7,"h":1}]', "w of box 1 is too large"),
        (json.dumps([{}] * 10_000), f"it has 10,000 boxes, and at most {MOST_BOXES} are drawn"),
        ("[" * 200 + "]" * 200, "it is not JSON"),
        (" " * 1_000_000, "it has 1,000,000 characters"),
        ('{"grid": [1, 100], "boxes": []}', "its grid is smaller than 1"),
        ('{"grid": 12, "boxes": []}', "its grid is not"),
    ],
)
def test_what_cannot_be_drawn_says_why(text: str, why: str) -> None:
    with pytest.raises(CannotBeDrawn, match=why):
        read_layout(text)
