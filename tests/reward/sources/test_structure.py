"""Validity and coverage of answers by a schema, worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.reward.scores import Asked
from holdfast.reward.sources.structure import StructureSource, coverage, judged

PAGE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "boxes": {"type": "array", "items": {"$ref": "#/$defs/box"}},
        "note": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "fold": {"type": "boolean"},
    },
    "required": ["title"],
    "$defs": {"box": {"type": "object", "properties": {"x": {"type": "integer"}, "label": {"type": "string"}}}},
}


@pytest.mark.parametrize(
    ("value", "covered"),
    [
        ({"title": "A", "boxes": [{"x": 0, "label": "a"}], "note": "n", "fold": False}, 1.0),
        ({"title": "A"}, 1 / 4),
        ({"title": " ", "boxes": [], "note": None}, 0.0),
        # One box has both of its properties, the other one of two: (1 + 1/2) / 2 of the boxes, beside the title.
        ({"title": "A", "boxes": [{"x": 0, "label": "a"}, {"x": 1, "label": ""}]}, (1 + 3 / 4) / 4),
        ({"title": "A", "boxes": [{}]}, 1 / 4),
    ],
)
def test_coverage_by_hand(value: Any, covered: float) -> None:
    assert coverage(PAGE, value) == pytest.approx(covered)
    assert judged(PAGE, json.dumps(value)) == (True, pytest.approx(covered))


def test_coverage_of_other_schemas() -> None:
    assert coverage({"type": "integer"}, 0) == 1.0
    assert coverage({"type": "array"}, []) == 0.0
    assert coverage({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, ["", 1, 2]) == pytest.approx(
        2 / 3
    )
    itself = {"$ref": "#"}
    assert coverage(itself, {"a": 1}) == 1.0


@pytest.mark.parametrize("answer", ["", "[]", '{"title": 7}', "{", '{"title": "A"} and more', "[" * 5000])
def test_what_is_not_valid_covers_nothing(answer: str) -> None:
    assert judged(PAGE, answer) == (False, 0.0)


def test_validity_is_paid_and_coverage_told(tmp_path: Path) -> None:
    file = tmp_path / "page.json"
    file.write_text(json.dumps(PAGE))
    asked = Asked(["q"] * 3, ['{"title": "A"}', '{"title": ""}', "no"])
    valid = StructureSource(f"valid:{file}").score(asked)
    assert valid.total_B.tolist() == [1.0, 1.0, 0.0]
    assert valid.components["valid"].tolist() == [1.0, 1.0, 0.0]
    assert valid.components["coverage"].tolist() == [0.25, 0.0, 0.0]
    assert valid.weights == {"valid": 1.0}
    assert StructureSource(f"coverage:{file}").score(asked).total_B.tolist() == [0.25, 0.0, 0.0]


def test_each_row_has_its_schema() -> None:
    columns = [{"how": {"type": "integer"}}, {"how": '{"type": "string"}'}, {}, {"how": "choices:a|b"}]
    scores = StructureSource("valid:column:how").score(Asked(["q"] * 4, ["7", '"x"', "7", "a"], columns))
    assert scores.total_B[:2].tolist() == [1.0, 1.0]
    assert list(scores.unscored) == [2, 3]
    assert "judges by a JSON schema, and the column how has none" in scores.unscored[3]


@pytest.mark.parametrize(
    ("text", "sentence"), [("{", "is no JSON"), ('{"type": "strin"}', "is no JSON schema: 'strin' is not valid")]
)
def test_a_schema_that_is_none_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(text)
    with pytest.raises(HoldfastError, match=sentence):
        StructureSource(f"valid:{file}")
    with pytest.raises(HoldfastError, match="cannot be read"):
        StructureSource(f"valid:{tmp_path}/missing.json")


def test_without_jsonschema_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(HoldfastError, match="pip install 'holdfast-rl"):
        StructureSource("valid:a.json")
