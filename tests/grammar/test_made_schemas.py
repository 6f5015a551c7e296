"""Schemas that hypothesis makes up: what is sampled under them is valid, as jsonschema judges it, and ends in time."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema
import numpy as np
import pytest
from benchmarks.system.made_schemas import patterns, schemas
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers_of_kinds import KINDS, answer

from holdfast.errors import HoldfastError
from holdfast.grammar.grammars import Grammars
from holdfast.models.codec import Codec

ENOUGH, SPARE = 400, 16


@cache
def codec_of_kind(kind: int) -> Codec:
    return KINDS[kind]()


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(schemas(), st.integers(0, len(KINDS) - 1), st.integers(0, 99))
def test_answers_under_any_schema_are_valid_and_end(schema: dict[str, Any], kind: int, seed: int) -> None:
    codec = codec_of_kind(kind)
    try:
        needs = Grammars.of(json.dumps(schema), codec, ENOUGH).needs  # type: ignore[union-attr]
    except HoldfastError as error:
        assert "é" in json.dumps(schema, ensure_ascii=False) or "cannot be used" in str(error)  # noqa: PT017
        return
    room = needs + SPARE
    grammar = Grammars.of(json.dumps(schema), codec, room).of_prompt([5])  # type: ignore[union-attr]
    assert grammar is not None
    for number in range(3):
        tokens = answer(grammar, room, np.random.default_rng([seed, number]))
        assert tokens[-1] == codec.eos_id
        jsonschema.validate(json.loads(codec.tokenizer.decode(tokens, skip_special_tokens=True)), schema)


def test_schemas_are_of_many_kinds() -> None:
    """Or the test above would show little."""
    seen: set[str] = set()

    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(schemas())
    def note(schema: dict[str, Any]) -> None:
        seen.update(name for name in KEYWORDS if f'"{name}"' in json.dumps(schema))

    note()
    assert seen == KEYWORDS


KEYWORDS = {
    "enum", "const", "pattern", "format", "minLength", "maxLength", "minimum", "exclusiveMaximum", "multipleOf",
    "anyOf", "minItems", "maxItems", "prefixItems", "required", "additionalProperties", "$ref",
}  # fmt: skip


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_patterns_of_any_kind_can_be_used(kind: int) -> None:
    codec, used = codec_of_kind(kind), 0

    @settings(max_examples=10, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(patterns())
    def try_one(pattern: str) -> None:
        nonlocal used
        try:
            Grammars.of(f"regex:{pattern}", codec, ENOUGH)
            used += 1
        except HoldfastError as error:
            assert "cannot be met" in str(error)  # noqa: PT017

    try_one()
    assert used > 5
