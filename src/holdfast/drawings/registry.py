"""Drawings by name, and which of them the answers of a run have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.drawings.boxes import draw_boxes, print_boxes
from holdfast.drawings.curve import draw_curve, print_curve
from holdfast.drawings.picture import AnswerPicture, CannotBeDrawn, Undrawn
from holdfast.errors import HoldfastError

NONE = "none"


@dataclass(frozen=True)
class Drawing:
    """How answers of one kind are drawn: `page` and `terminal` take an answer and its prompt, or raise."""

    page: Callable[[str, str], AnswerPicture]
    terminal: Callable[[str, str], str]


DRAWINGS = {"boxes": Drawing(draw_boxes, print_boxes), "curve": Drawing(draw_curve, print_curve)}


def own_drawing(world: object) -> str:
    """The drawing that a world says its answers have; empty where it says none."""
    name = getattr(world, "drawing", "")
    if name and name not in DRAWINGS:
        raise HoldfastError(
            f"The world {getattr(world, 'name', '')} says drawing = {name!r}, and there is {' and '.join(DRAWINGS)}."
        )
    return str(name)


def chosen(setting: str, own: str) -> str:
    """The drawing by `world.drawing` and by the world: a name in DRAWINGS, or empty for none."""
    name = setting or own
    return name if name in DRAWINGS else ""


def drawing_of(manifest: Mapping[str, Any]) -> str:
    """The drawing of a run by its manifest, which needs no world's code."""
    settings = manifest.get("settings")
    setting = settings.get("world.drawing", "") if isinstance(settings, Mapping) else ""
    return chosen(str(setting).strip("\"'"), str(manifest.get("drawing", "")))


def picture_of(name: str, answer: str, prompt: str = "") -> AnswerPicture | Undrawn | None:
    """An answer's picture, or why it has none; None where answers are not drawn."""
    if name not in DRAWINGS:
        return None
    try:
        return DRAWINGS[name].page(answer, prompt)
    except CannotBeDrawn as error:
        return Undrawn(str(error))


def terminal_of(name: str, answer: str, prompt: str = "") -> str:
    """An answer's picture in characters, or the sentence that says why it has none; empty where none is drawn."""
    if name not in DRAWINGS:
        return ""
    try:
        return DRAWINGS[name].terminal(answer, prompt)
    except CannotBeDrawn as error:
        return Undrawn(str(error)).sentence
