"""Grammars by llguidance: JSON schemas, regular expressions, Lark grammars, choices, in any tokenizer's tokens.

JSON is written without white space between its parts, unless the schema itself says otherwise ("x-guidance").
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
import torch

from holdfast.documents import json_of
from holdfast.errors import HoldfastError
from holdfast.grammar.form import Form
from holdfast.grammar.vocabulary import Vocabulary, packed

INSTALL = "pip install 'holdfast-rl[structured]'"
# From this many tokens on the sets of several answers are computed side by side.
WORTH_SHARING = 4096
# An answer may begin with the space that decoding takes away again.
AFTER_A_SPACE = 'start: " "? @answer'


class Engine:
    """A tokenizer as llguidance knows it; compiles grammars for it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        if importlib.util.find_spec("llguidance") is None:
            raise HoldfastError(f"rollout.grammar needs the package llguidance; `{INSTALL}` brings it.")
        import llguidance

        self.vocabulary = vocabulary
        silent = [i for i, piece in enumerate(vocabulary.pieces) if not piece]
        slices: list[str] | None = None if len(vocabulary) > WORTH_SHARING else []
        wrapper = llguidance.TokenizerWrapper(_Tokens(vocabulary, silent))
        self._tokenizer = llguidance.LLTokenizer(wrapper, eos_token=vocabulary.end, slices=slices)
        self._ordinary = packed([*vocabulary.ids, vocabulary.end], len(vocabulary))

    def start(self, form: Form) -> Matched:
        """An empty answer under a grammar; a sentence where the engine does not have what the grammar asks for."""
        import llguidance

        try:
            grammar = _composed(form) if self.vocabulary.drops_space else _plain(form)
            matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0)
        except ValueError as error:
            raise HoldfastError(f"{form.name} cannot be used: {_reason(str(error))}") from error
        if matcher.is_error():
            raise HoldfastError(f"{form.name} cannot be used: {_reason(matcher.get_error())}")
        # Only a Lark grammar can name special tokens, which decoding leaves out.
        within = self._ordinary if form.kind == "lark" else None
        return Matched(matcher, packed([self.vocabulary.end], len(self.vocabulary)), within)


def _plain(form: Form) -> str:
    from llguidance import LLMatcher, regex_to_lark

    match form.kind:
        case "schema":
            return str(LLMatcher.grammar_from_json_schema(form.text, defaults={"whitespace_flexible": False}))
        case "regex":
            # \d is 0 to 9: what else counts as a digit differs from one Unicode version to the next.
            return str(LLMatcher.grammar_from_lark(f"start: /{regex_to_lark(form.text, 'd')}/"))
        case "choices":
            return str(LLMatcher.grammar_from_regex("|".join(f"({_literal(c)})" for c in json_of(form.text))))
        case _:
            return str(LLMatcher.grammar_from_lark(form.text))


def _composed(form: Form) -> str:
    """The same with a space before it that may be there."""
    plain = _plain(form)
    body = {"lark_grammar": plain} if form.kind in ("lark", "regex") else json.loads(plain)["grammars"][0]
    return json.dumps({"grammars": [{"lark_grammar": AFTER_A_SPACE}, {**body, "name": "answer"}]})


def _literal(text: str) -> str:
    """A regular expression for exactly this text."""
    return "".join(char if char.isalnum() else f"\\x{{{ord(char):x}}}" for char in text)


def _reason(message: str) -> str:
    """What the engine says, in one line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    said = next((line for line in lines if line.startswith("error:")), lines[0] if lines else "no reason is given")
    return re.sub(r"\s+", " ", said.removeprefix("error:")).strip().rstrip(".") + "."


class _Tokens:
    """What llguidance asks of a tokenizer."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, silent: Sequence[int]) -> None:
        self.eos_token_id = vocabulary.end
        # The engine tells special tokens apart by name.
        self.tokens = [piece or f"<|{i}|>".encode() for i, piece in enumerate(vocabulary.pieces)]
        self.special_token_ids = list(silent)
        self._encode = vocabulary.encode

    def __call__(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):
            raise TypeError("texts only")
        return self._encode(text)


@dataclass
class Matched:
    """How far an answer has come, as the engine knows it."""

    matcher: Any
    only_end: bytes  # the set of the end token alone
    within: bytes | None = None

    def copy(self) -> Matched:
        return Matched(self.matcher.deep_copy(), self.only_end, self.within)

    @property
    def width(self) -> int:
        """The bytes of a set."""
        return len(self.only_end)

    def bits(self) -> bytes:
        return self._checked(self.matcher.compute_bitmask()[: len(self.only_end)])

    def _checked(self, bits: bytes) -> bytes:
        """A set without the end that the engine puts where no token leads on, and without special tokens."""
        if bits == self.only_end and not self.matcher.is_accepting():
            return bytes(self.width)
        return bits if self.within is None else _both(bits, self.within)

    @classmethod
    def bits_of(cls, spellers: Sequence[Self]) -> list[bytes]:
        threads = torch.get_num_threads()
        if len(spellers) < 2 or threads < 2 or spellers[0].width * 8 < WORTH_SHARING:
            return [speller.bits() for speller in spellers]
        words = -(-spellers[0].width // 4)
        rows = np.zeros((len(spellers), words), dtype=np.int32)
        asked = [(speller.matcher, place) for place, speller in enumerate(spellers)]
        _executor(threads).unsafe_compute_mask_ptr(asked, rows.ctypes.data, words * 4, len(spellers))
        return [s._checked(row.tobytes()[: s.width]) for row, s in zip(rows, spellers, strict=True)]

    def stretch(self) -> list[int]:
        return list(self.matcher.compute_ff_tokens())

    def take(self, token: int) -> bool:
        return bool(self.matcher.consume_token(token))

    def take_all(self, tokens: Sequence[int]) -> bool:
        return bool(self.matcher.consume_tokens(list(tokens)))

    def fits(self, tokens: Sequence[int]) -> bool:
        return bool(self.matcher.validate_tokens(list(tokens)) == len(tokens))


@lru_cache
def _executor(threads: int) -> Any:
    import llguidance

    return llguidance.LLExecutor(threads)


def _both(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "little") & int.from_bytes(other, "little")).to_bytes(len(one), "little")
