"""Texts as words, where the policy's own tokenizer is out of reach: what the guard counts in a trainer over HTTP.

A word gets its number when it is first met, so that different texts never have the same tokens. Nothing is lost: the
tokens of a text, joined, are the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

END = ""  # no text holds it
# A word or a mark with the space before it; any other white space; and of scripts that are written without spaces
# each character by itself.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
PIECES = re.compile(rf" ?(?:[{_UNSPACED}]|(?:(?![{_UNSPACED}])\w)+|[^\w\s])|\s")


class Words:
    """As much of a tokenizer as `Codec` needs, whose vocabulary grows as it reads. Not for several threads."""

    eos_token_id = 0
    pad_token_id = 0
    chat_template = None

    def __init__(self) -> None:
        self._words: list[str] = [END]
        self._ids: dict[str, int] = {END: 0}

    def __len__(self) -> int:
        return len(self._words)

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [self._id_of(word) for word in PIECES.findall(text)]}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return "".join(self._words[i] for i in ids if i or not skip_special_tokens)

    def _id_of(self, word: str) -> int:
        number = self._ids.setdefault(word, len(self._words))
        if number == len(self._words):
            self._words.append(word)
        return number

    def state(self) -> dict[str, Any]:
        return {"words": self._words[1:]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._words = [END, *map(str, state["words"])]
        self._ids = {word: number for number, word in enumerate(self._words)}
