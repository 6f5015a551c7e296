"""Where two answers differ, word by word, for the eye."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

_PIECES = re.compile(r"\s+|\w+|[^\w\s]")
# Answers that share less than this of their words, by length, are two answers and not one with changes: marking nearly
# all of them says nothing.
LEAST_SHARED = 0.5
# Comparing takes time that grows with the product of the lengths; longer texts are shown without marks.
MOST_PIECES = 1500


@dataclass(frozen=True)
class Piece:
    """A stretch of text that the other answer has too, or not."""

    text: str
    differs: bool


def differences(a: str, b: str) -> tuple[list[Piece], list[Piece]]:
    """Both texts cut into stretches; put together again they are what they were.

    Nothing differs in texts that are not alike enough to be compared word by word.
    """
    left, right = _PIECES.findall(a), _PIECES.findall(b)
    if a == b or max(len(left), len(right)) > MOST_PIECES:
        return [Piece(a, False)], [Piece(b, False)]
    pieces: tuple[list[Piece], list[Piece]] = ([], [])
    steps = SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
    shared = sum(_letters(left[i:j]) for kind, i, j, _, _ in steps if kind == "equal")
    if 2 * shared < LEAST_SHARED * (_letters(left) + _letters(right)):
        return [Piece(a, False)], [Piece(b, False)]
    for kind, i, j, k, m in steps:
        for side, words in ((pieces[0], left[i:j]), (pieces[1], right[k:m])):
            if words:
                side.append(Piece("".join(words), kind != "equal"))
    return pieces


def _letters(pieces: list[str]) -> int:
    """How long pieces are together, without the space between words."""
    return sum(len(piece) for piece in pieces if not piece.isspace())
