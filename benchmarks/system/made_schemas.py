"""JSON schemas, patterns and choices by hypothesis: what a user might ask answers to be."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "name", "x", "is it", "kind", "né", 'q"t', "tags", "0")
TEXTS = ("", "yes", "no cat", 'say "no"', "a\\b", "café", "x" * 12, "1")
PATTERNS = ("^[a-c]{1,4}$", "^[0-9]{2}:[0-9]{2}$", "cat", "^(yes|no)( .*)?$", "^[A-Z][a-z]*$", r"^\d+(\.\d+)?$")
FORMATS = ("date", "time", "uuid", "ipv4", "email")

Schema = dict[str, Any]


def _bounds(draw: st.DrawFn, low: str, high: str, values: st.SearchStrategy[Any]) -> Schema:
    first, last = sorted((draw(values), draw(values)))
    chosen = draw(st.sampled_from(((), (low,), (high,), (low, high))))
    return {name: value for name, value in ((low, first), (high, last)) if name in chosen}


@st.composite
def numbers(draw: st.DrawFn) -> Schema:
    whole = draw(st.booleans())
    values = st.integers(-1000, 1000) if whole else st.sampled_from((-10.5, -1, -0.25, 0, 0.1, 0.5, 2, 99.99))
    low = draw(st.sampled_from(("minimum", "exclusiveMinimum")))
    high = draw(st.sampled_from(("maximum", "exclusiveMaximum")))
    steps = {"multipleOf": draw(st.sampled_from((2, 3, 10)))} if whole and draw(st.integers(0, 4)) == 0 else {}
    return {"type": "integer" if whole else "number", **_bounds(draw, low, high, values), **steps}


@st.composite
def texts(draw: st.DrawFn) -> Schema:
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return {"type": "string", "pattern": draw(st.sampled_from(PATTERNS))}
    if kind == 1:
        return {"type": "string", "format": draw(st.sampled_from(FORMATS))}
    return {"type": "string", **_bounds(draw, "minLength", "maxLength", st.integers(0, 8))}


def values() -> st.SearchStrategy[Any]:
    plain: st.SearchStrategy[Any] = st.one_of(
        st.sampled_from(TEXTS), st.integers(-99, 99), st.booleans(), st.none(), st.sampled_from((0.5, -1.25))
    )
    return st.one_of(plain, st.lists(plain, max_size=2), st.dictionaries(st.sampled_from(NAMES), plain, max_size=2))


def leaves() -> st.SearchStrategy[Schema]:
    return st.one_of(
        numbers(),
        texts(),
        st.sampled_from(({"type": "boolean"}, {"type": "null"}, {"type": ["string", "null"]})),
        st.builds(lambda chosen: {"enum": chosen}, st.lists(values(), min_size=1, max_size=5, unique_by=json.dumps)),
        st.builds(lambda value: {"const": value}, values()),
    )


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    schema = {"type": "array", "items": draw(inner), **_bounds(draw, "minItems", "maxItems", st.integers(0, 4))}
    if draw(st.integers(0, 4)) == 0:
        schema |= {"prefixItems": draw(st.lists(inner, min_size=1, max_size=2))}
    return schema


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    schema: Schema = {"type": "object", "properties": {name: draw(inner) for name in names}}
    schema["required"] = [name for name in names if draw(st.booleans())]
    others = draw(st.integers(0, 4))
    if others:
        schema["additionalProperties"] = False if others > 1 else draw(inner)
    return schema


def schemas() -> st.SearchStrategy[Schema]:
    """Schemas of what the engine supports, up to a few levels deep."""

    def wider(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
        return st.one_of(
            arrays(inner),
            objects(inner),
            objects(inner),
            st.builds(lambda ways: {"anyOf": ways}, st.lists(inner, min_size=2, max_size=3)),
        )

    tree = st.recursive(leaves(), wider, max_leaves=8)
    return st.one_of(tree, tree, tree, tree.map(_referred), tree.map(_within_itself))


def _referred(part: Schema) -> Schema:
    return {"$defs": {"part": part}, "type": "array", "items": {"$ref": "#/$defs/part"}, "maxItems": 3}


def _within_itself(part: Schema) -> Schema:
    node = {
        "type": "object", "properties": {"value": part, "more": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "required": ["value"], "additionalProperties": False,
    }  # fmt: skip
    return {"$defs": {"node": node}, "$ref": "#/$defs/node"}


PIECES = ("a", "[a-z]", "[0-9]", "cat", r"\d", "(yes|no)", "é", "[^a-z]", ".", " ", r"\.", "x")
TIMES = ("", "", "?", "+", "{2}", "{1,3}", "*")


def patterns() -> st.SearchStrategy[str]:
    """Regular expressions whose meaning Python's `re` and the engine share."""
    piece = st.builds(lambda one, times: f"({one}){times}", st.sampled_from(PIECES), st.sampled_from(TIMES))
    return st.builds("".join, st.lists(piece, min_size=1, max_size=5))


def choices() -> st.SearchStrategy[list[str]]:
    """Texts to choose from, of which one may be the beginning of another."""
    text = st.text(st.sampled_from('ab "\\{}[].*é'), min_size=1, max_size=6).map(str.strip).filter(bool)
    return st.lists(text, min_size=1, max_size=6, unique=True)
