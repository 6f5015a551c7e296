"""Grammars: schemas, patterns, Lark grammars and choices that are nearly right, compiled and answered under."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
from mutations import json_bytes, mutated_bytes, mutated_document
from sentences import Wrong, refused

from holdfast.errors import HoldfastError
from holdfast.grammar.grammars import Grammars
from holdfast.models.codec import Codec
from holdfast.models.tiny import piece_tokenizer

ROOM = 48
SCHEMAS: tuple[Any, ...] = (
    {
        "type": "array", "minItems": 1, "maxItems": 4,
        "items": {
            "type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "x": {"type": "integer", "minimum": 0}},
            "required": ["kind"], "additionalProperties": False,
        },
    },
    {"$defs": {"n": {"type": "number", "maximum": 9.5}}, "anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]},
    {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[a-c]+$"},
    {"type": "object", "properties": {"a": {"const": [1, {"b": None}]}}, "required": ["a"], "minProperties": 1},
)  # fmt: skip
PATTERNS = ("[a-z]{2,4}", r"(yes|no)( \d+)?", r"\w+@\w+\.com", "a*b+c?", "[^x]", "(?i)abc", "^x$")
LARK = 'start: item ("," item)*\nitem: NAME "=" /[0-9]{1,3}/\nNAME: "a".."c"\n%ignore " "\n'
CHOICES = ("yes", "no", "may be", "a.b*c", "")


class GrammarsTarget:
    """Each grammar compiled as a run would, and where it can be met answered under with tokens drawn evenly."""

    seconds = 20.0

    def __init__(self) -> None:
        self.codec = Codec(piece_tokenizer(["".join(map(chr, range(32, 127)))], r"[\s\S]"))
        self.prompt = self.codec.encode_prompt("q")

    def attempt(self, rng: random.Random, place: Path) -> str:
        kind = rng.choice(("schema", "schema", "schema", "column", "pattern", "lark", "choices"))
        written, column = self._written(rng, kind, place)
        (place / "grammar.txt").write_text(repr((written, column)), encoding="utf-8", errors="surrogateescape")
        try:
            grammars = Grammars.of(written, self.codec, ROOM, ["q"], {"q": column})
        except HoldfastError as refusal:
            if "\n" in str(refusal):
                raise Wrong("refused in several lines") from refusal
            return f"{kind}: {refused(refusal)}"
        grammar = grammars.of_prompt(self.prompt) if grammars is not None else None
        if grammar is None:
            return f"{kind}: none"
        walk, tokens = grammar.begin(), list[int]()
        draws = np.random.default_rng(rng.getrandbits(32))
        while len(tokens) < ROOM:
            token = int(draws.choice(walk.allowed().nonzero()[:, 0].numpy()))
            walk.take(token)
            tokens.append(token)
            if token == self.codec.eos_id:
                break
        else:
            return f"{kind}: cut"
        form = grammars.form_of_prompt(self.prompt) if grammars is not None else None
        if form is not None and form.kind == "schema":
            self._valid(json.loads(form.text), self.codec.tokenizer.decode(tokens, skip_special_tokens=True))
        return f"{kind}: answered"

    def _valid(self, schema: Any, text: str) -> None:
        """As jsonschema judges it, where that takes the schema for one."""
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except (jsonschema.SchemaError, RecursionError):
            return
        if not jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)):
            raise Wrong("an answer that has ended is not valid")

    def _written(self, rng: random.Random, kind: str, place: Path) -> tuple[str, dict[str, Any]]:
        if kind == "column":
            return "column:how", {"how": mutated_document(rng, rng.choice((*SCHEMAS, ["yes", "no"], "choices:a|b")))}
        if kind == "choices":
            return "choices:" + "|".join(rng.choices(CHOICES, k=rng.randint(0, 4))), {}
        if kind == "pattern":
            return "regex:" + mutated_bytes(rng, rng.choice(PATTERNS).encode()).decode("utf-8", "replace"), {}
        file = place / ("g.lark" if kind == "lark" else "g.json")
        whole = LARK.encode() if kind == "lark" else json_bytes(rng, mutated_document(rng, rng.choice(SCHEMAS)))
        file.write_bytes(mutated_bytes(rng, whole) if kind == "lark" or rng.random() < 0.2 else whole)
        return str(file), {}


def open_target(work: Path) -> GrammarsTarget:
    return GrammarsTarget()
