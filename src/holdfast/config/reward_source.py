"""What `reward.source` and `reward.parts` may say: the kinds of sources, and several of them in one reward."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from holdfast.errors import HoldfastError

Kind = Literal["function", "model", "judge", "rubric", "service", "structure"]
Normalise = Literal["none", "group", "batch"]

MODEL = "model:"
# How far an answer is what a JSON schema asks for.
VALID, COVERAGE = "valid:", "coverage:"


@dataclass(frozen=True)
class RewardPart:
    """One of several sources: how much it counts, and by what its scores are divided.

    With a `gate` it is no term of the sum: an answer that it scores no higher than that has no part in the sum.
    """

    name: str
    source: str
    weight: float = 1.0
    gate: float | None = None
    normalise: Normalise = "none"


def kind_of(source: str, setting: str = "reward.source") -> Kind:
    """What a source is, by how it is written."""
    path, colon, name = source.rpartition(":")
    if source.startswith(("http://", "https://")):
        return "service"
    if source.startswith(MODEL) and source != MODEL:
        return "model"
    if source.startswith((VALID, COVERAGE)) and (source.endswith(".json") or ":column:" in source):
        return "structure"
    if colon and path.endswith(".py") and name:
        return "function"
    if source == "judge":
        return "judge"
    if source.endswith((".toml", ".json")):
        return "rubric"
    raise HoldfastError(
        f"{setting} is {source!r}; it has to be path/to/file.py:name, model:DIR, judge, a rubric's file (.toml or "
        ".json), valid:SCHEMA.json, coverage:SCHEMA.json, or a service's address that begins with http:// or https://."
    )


def parts_of(table: Mapping[str, Any]) -> tuple[RewardPart, ...]:
    """The parts of a reward, as `reward.parts` has them."""
    parts = tuple(_part(name, values) for name, values in table.items())
    if parts and all(part.gate is not None for part in parts):
        raise HoldfastError(
            "reward.parts has gates alone, which say what gets nothing; give it a part that is no gate as well."
        )
    return parts


def _part(name: str, values: Any) -> RewardPart:
    where = f"reward.parts.{name}"
    if not name or "/" in name:
        raise HoldfastError(f"reward.parts names a part {name!r}; give it a name without a slash.")
    if not isinstance(values, Mapping):
        raise HoldfastError(f'{where} has to be a table, such as {{source = "my_reward.py:score", weight = 1.0}}.')
    known = ("source", "weight", "gate", "normalise")
    for key in values:
        if key not in known:
            raise HoldfastError(f"There is no setting {where}.{key}; a part has {', '.join(known)}.")
    source, weight, gate = values.get("source"), values.get("weight", 1.0), values.get("gate", False)
    normalise = values.get("normalise", "none")
    if not isinstance(source, str) or not source:
        raise HoldfastError(f"{where}.source has to say what scores answers, such as my_reward.py:score.")
    if not _is_number(weight) or weight == 0:
        raise HoldfastError(f"{where}.weight is {weight!r}; it has to be a number other than 0.")
    if not (isinstance(gate, bool) or _is_number(gate)):
        raise HoldfastError(f"{where}.gate is {gate!r}; it has to be true, false, or the score that has to be passed.")
    if normalise not in get_args(Normalise):
        raise HoldfastError(
            f"{where}.normalise is {normalise!r}; it has to be one of {', '.join(get_args(Normalise))}."
        )
    if gate is False:
        return RewardPart(name, source, float(weight), None, normalise)
    for key in ("weight", "normalise"):
        if key in values:
            raise HoldfastError(f"{where}.{key} is not read of a gate, which is passed or not; leave it out.")
    return RewardPart(name, source, gate=0.0 if gate is True else float(gate))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
