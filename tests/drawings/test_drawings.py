"""Drawings by name: which a run has, and that nothing an answer holds becomes markup or goes wrong."""

import re
import time
import xml.etree.ElementTree as ET
from typing import get_args

import pytest

from holdfast.config.schema import WorldConfig
from holdfast.config.section import settings_of
from holdfast.drawings.picture import AnswerPicture, Undrawn
from holdfast.drawings.registry import DRAWINGS, chosen, drawing_of, own_drawing, picture_of, terminal_of
from holdfast.errors import HoldfastError
from holdfast.report.page import picture
from hostile_answers import HOSTILE

ELEMENTS = {"svg", "rect", "path", "text", "title", "desc", "line", "circle", "g"}
ATTRIBUTES = {
    "class", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "d", "rx", "id", "width", "height", "viewBox", "role",
    "aria-label", "aria-labelledby", "font-size", "text-anchor", "data-frame", "data-axis", "data-name", "data-values",
}  # fmt: skip


def test_the_setting_has_every_drawing() -> None:
    assert set(get_args(settings_of(WorldConfig)["drawing"].annotation)) == {"", "none", *DRAWINGS}


def test_the_setting_goes_before_the_worlds_own() -> None:
    assert chosen("", "boxes") == "boxes"
    assert chosen("curve", "boxes") == "curve"
    assert chosen("none", "boxes") == chosen("", "") == ""
    assert drawing_of({"drawing": "boxes", "settings": {"world.drawing": '""'}}) == "boxes"
    assert drawing_of({"drawing": "boxes", "settings": {"world.drawing": '"none"'}}) == ""
    assert drawing_of({"settings": {"world.drawing": '"curve"'}}) == "curve"
    assert drawing_of({"drawing": "<script>"}) == drawing_of({}) == drawing_of({"settings": 3}) == ""


def test_a_world_with_a_drawing_that_there_is_not_is_refused() -> None:
    class Odd:
        name = "odd"
        drawing = "oils"

    with pytest.raises(HoldfastError, match="world odd says drawing = 'oils', and there is boxes and curve"):
        own_drawing(Odd())
    assert own_drawing(object()) == ""


@pytest.mark.parametrize("name", DRAWINGS)
def test_hostile_answers_are_drawn_safely_or_not_at_all(name: str) -> None:
    drawn = 0
    for answer in HOSTILE:
        began = time.monotonic()
        shown, printed = picture_of(name, answer, answer), terminal_of(name, answer, answer)
        assert time.monotonic() - began < 2.0
        if isinstance(shown, AnswerPicture):
            drawn += 1
            for element in ET.fromstring(shown.svg).iter():
                assert element.tag.removeprefix("{http://www.w3.org/2000/svg}") in ELEMENTS
                assert element.attrib.keys() <= ATTRIBUTES
            assert "nan" not in re.sub(r">[^<]*<|\"[^\"]*[a-z]{4}[^\"]*\"", "", shown.svg)
            assert len(shown.svg) < 200_000
        else:
            assert isinstance(shown, Undrawn)
            assert re.fullmatch(r"It cannot be drawn: [^.]+(\.\d+[^.]*)?\.", shown.sentence)
            assert printed == shown.sentence
        assert all(char.isprintable() or char == "\n" for char in printed)
        page = str(picture(shown))
        assert "<script" not in page
        assert len(page) < 200_000
    assert drawn > 1


def test_the_page_has_the_picture_its_legend_and_its_notes() -> None:
    shown = picture_of("boxes", '[{"type":"<b>","x":13,"y":0,"w":1,"h":1}]')
    page = str(picture(shown))
    assert page.startswith('<figure class="drawing boxes"><svg ')
    assert "&lt;b&gt;</span>" in page
    assert "<span>Beyond the grid: &lt;b&gt;.</span>" in page
    assert str(picture(picture_of("boxes", "<i>"))) == (
        '<p class="none undrawn">It cannot be drawn: it is not JSON, or not to its end.</p>'
    )
    assert str(picture(picture_of("", "[]"))) == ""
