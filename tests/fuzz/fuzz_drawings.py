"""Drawings: answers that are nearly a layout or a distribution, as pages and terminals draw them."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from mutations import json_bytes, mutated_bytes, mutated_document
from sentences import Wrong

from holdfast.drawings.picture import AnswerPicture, Undrawn
from holdfast.drawings.registry import DRAWINGS, picture_of, terminal_of
from holdfast.report.page import picture

ELEMENTS = {"svg", "rect", "path", "text", "title", "desc", "line", "circle", "g", "figure", "figcaption", "span"}
LARGEST = 500_000
GOOD: dict[str, tuple[Any, ...]] = {
    "boxes": (
        [
            {"type": "title", "x": 0, "y": 0, "w": 12, "h": 2}, {"type": "picture", "x": 1, "y": 3, "w": 5, "h": 6},
            {"type": "logo", "x": 11, "y": 15, "w": 2, "h": 2},
        ],
        {"grid": [800, 600], "boxes": [{"type": "text", "x": 20.5, "y": 30, "w": 100, "h": 40}]},
    ),
    "curve": ({"p": [0.0, 0.25, 0.5, 1.0]}, {"x": [0, 5, 10], "p": [0.1, 0.6, 1.0]}),
}  # fmt: skip
PROMPTS = ("at 0, 5, 10 and 20?", "", "at 1e5, -.5, 3..4", "9" * 30_000, "1, " * 10_000)


class DrawingsTarget:
    """Each answer drawn for a page and for a terminal."""

    seconds = 5.0

    def attempt(self, rng: random.Random, place: Path) -> str:
        name = rng.choice(list(DRAWINGS))
        document = mutated_document(rng, rng.choice(GOOD[name]))
        text = json_bytes(rng, document)
        if rng.random() < 0.2:
            text = mutated_bytes(rng, text)
        answer, prompt = text.decode("utf-8", rng.choice(("replace", "surrogateescape"))), rng.choice(PROMPTS)
        (place / "answer.txt").write_text(json.dumps({"drawing": name, "answer": answer, "prompt": prompt}))
        shown, printed = picture_of(name, answer, prompt), terminal_of(name, answer, prompt)
        page = str(picture(shown))
        if len(page) > LARGEST or not all(char.isprintable() or char == "\n" for char in printed):
            raise Wrong("drawn too large, or with characters that a terminal obeys")
        if isinstance(shown, Undrawn):
            if printed != shown.sentence:
                raise Wrong("a page and a terminal say different things")
            return f"{name}: refused"
        if not isinstance(shown, AnswerPicture):
            raise Wrong("neither drawn nor refused")
        tags = {element.tag.rpartition("}")[2] for element in ET.fromstring(page).iter()}
        if not tags <= ELEMENTS:
            raise Wrong(f"drawn with {', '.join(sorted(tags - ELEMENTS))}")
        return f"{name}: drawn"


def open_target(work: Path) -> DrawingsTarget:
    return DrawingsTarget()
