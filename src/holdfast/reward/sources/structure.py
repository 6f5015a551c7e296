"""Rewards for structure, by a JSON schema: whether an answer is valid, and how much of what the schema names it says.

    valid       1 for an answer that is JSON and what the schema asks for, as jsonschema judges it; else 0
    coverage    0 for an empty value, a text without a character, null, nothing at all;
                of an object the mean over the properties that the schema names, 0 for one that is not there;
                of an array the mean over its items; 1 for anything else that is there. 0 where it is not valid

What is valid is easily empty: a validator alone is fooled by the shortest answer that passes. So `valid` tells of the
coverage as well, without paying for it, and the guard can say of answers that people do not grant that they are valid,
and empty.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from holdfast.config.reward_source import VALID
from holdfast.documents import json_of
from holdfast.errors import HoldfastError
from holdfast.grammar.form import COLUMN, form_of
from holdfast.reward.outcome import OneScore, Unscored
from holdfast.reward.scores import Asked, Columns, Scores, scores_of
from holdfast.reward.sources.plain import Nature

INSTALL = "pip install 'holdfast-rl[structured]'"
# How often a schema may refer to another part of itself on the way to one value.
DEEPEST = 32

Schema = Mapping[str, Any]


class StructureSource:
    """`valid:FILE.json` or `coverage:FILE.json`; with `column:NAME` in place of the file each row has its schema."""

    nature = Nature()

    def __init__(self, spec: str, setting: str = "reward.source") -> None:
        if importlib.util.find_spec("jsonschema") is None:
            raise HoldfastError(f"{setting} = {spec} needs the package jsonschema; `{INSTALL}` brings it.")
        what, _, where = spec.partition(":")
        self.name, self._pays, self._setting = spec, f"{what}:", setting
        self._column = where.removeprefix(COLUMN) if where.startswith(COLUMN) else ""
        self._schemas: dict[str, Schema | str] = {}
        self._own = None if self._column else self._schema(where)
        if isinstance(self._own, str):
            raise HoldfastError(self._own)

    def score(self, asked: Asked) -> Scores:
        """Each answer by its schema; one whose row has no schema has no score."""
        outcomes = [self._one(answer, asked.columns_of(row)) for row, answer in enumerate(asked.answers)]
        return scores_of(outcomes, {self._pays.removesuffix(":"): 1.0})

    def _one(self, answer: str, columns: Columns) -> OneScore | Unscored:
        schema = self._own or self._schema(columns.get(self._column))
        if isinstance(schema, str):
            return Unscored(schema.rstrip("."))
        valid, covered = judged(schema, answer)
        if self._pays == VALID:
            return OneScore(float(valid), {"valid": float(valid), "coverage": covered})
        return OneScore(covered, {"coverage": covered})

    def _schema(self, written: object) -> Schema | str:
        """A schema, or a sentence that says why there is none."""
        key = written if isinstance(written, str) else json.dumps(written, sort_keys=True, default=str)
        if key not in self._schemas:
            self._schemas[key] = self._read(written)
        return self._schemas[key]

    def _read(self, written: object) -> Schema | str:
        from jsonschema import Draft202012Validator, SchemaError

        where = f"the column {self._column}" if self._column else self._setting
        try:
            form = form_of(written, where)
        except HoldfastError as error:
            return str(error)
        if form is None or form.kind != "schema":
            return f"{self.name} judges by a JSON schema, and {where} has none."
        schema: Schema = json_of(form.text)
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            return f"{form.name} is no JSON schema: {error.message.rstrip('.')}."
        return schema

    def close(self) -> None:
        """Nothing is open."""


def judged(schema: Schema, answer: str) -> tuple[bool, float]:
    """Whether an answer is valid, and how much of the schema it covers."""
    from jsonschema import Draft202012Validator

    try:
        value = json_of(answer)
        valid = bool(Draft202012Validator(schema).is_valid(value))
    except (ValueError, RecursionError):
        return False, 0.0
    return (True, coverage(schema, value)) if valid else (False, 0.0)


def coverage(schema: Schema, value: Any, whole: Schema | None = None, depth: int = 0) -> float:
    """The share of what a schema names that is there and not empty, of a valid value."""
    whole = schema if whole is None else whole
    if value is None or value in ([], {}) or (isinstance(value, str) and not value.strip()):
        return 0.0
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return 1.0
    if isinstance(schema.get("$ref"), str):
        return coverage(_referred(schema["$ref"], whole), value, whole, depth + 1)
    ways = next((schema[key] for key in ("anyOf", "oneOf", "allOf") if isinstance(schema.get(key), list)), None)
    if ways and "properties" not in schema and "items" not in schema:
        # Which of them was meant is not known: the one that has most of it.
        return max(coverage(way, value, whole, depth + 1) for way in ways)
    if isinstance(value, dict):
        named = schema.get("properties")
        if not isinstance(named, Mapping) or not named:
            return 1.0
        return fmean(coverage(part, value.get(name), whole, depth + 1) for name, part in named.items())
    if isinstance(value, list):
        return fmean(coverage(part, item, whole, depth + 1) for part, item in _items(schema, value))
    return 1.0


def _items(schema: Schema, value: Sequence[Any]) -> list[tuple[Schema, Any]]:
    """The items of an array, each with the schema that is for it."""
    first, rest = schema.get("prefixItems", []), schema.get("items", {})
    return [(first[place] if place < len(first) else rest, item) for place, item in enumerate(value)]


def _referred(reference: str, whole: Schema) -> Schema:
    """The part of a schema that #/a/b names; nothing where it names something elsewhere."""
    part: Any = whole
    for name in reference.removeprefix("#").split("/")[1:]:
        part = part.get(name.replace("~1", "/").replace("~0", "~"), {}) if isinstance(part, Mapping) else {}
    return part if isinstance(part, Mapping) and reference.startswith("#") else {}
