"""Texts for patterns, as Python's re judges them."""

from __future__ import annotations

import re

import pytest
from benchmarks.system.made_schemas import PATTERNS, patterns
from hypothesis import given, settings

from holdfast.grammar.examples import example, examples_of
from holdfast.grammar.form import form_of


@pytest.mark.parametrize("pattern", [*PATTERNS, r"\w+@\w+\.com", "(?:x|yz)+", "a{3,}", "[^a0 ]", r"[^\w]", "(?i)ABC"])
def test_an_example_matches(pattern: str) -> None:
    assert re.search(pattern, example(pattern))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(patterns())
def test_an_example_of_any_pattern_matches(pattern: str) -> None:
    assert re.fullmatch(pattern, example(pattern))


def test_the_examples_of_a_grammar() -> None:
    schema = {"anyOf": [{"type": "string", "pattern": "cat"}, {"items": {"pattern": "^[0-9]{2}$"}}, {"pattern": "("}]}
    for written, texts in ((schema, ["cat", "00"]), ("regex:b+", ["b"]), ("choices:x|y", [])):
        form = form_of(written)
        assert form is not None
        assert examples_of(form) == texts
