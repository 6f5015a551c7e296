"""A rubric's file: criteria with names, words and weights, as TOML or JSON.

[[criteria]]
name = "cites"
text = "It names a source for every figure."
weight = 2.0
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.documents import json_of, toml_of
from holdfast.errors import HoldfastError

KEYS = ("name", "text", "weight")


@dataclass(frozen=True)
class Criterion:
    """What an answer meets or not; a weight below 0 is for what it should not do."""

    name: str
    text: str
    weight: float = 1.0


def read_rubric(path: Path) -> tuple[Criterion, ...]:
    """The criteria in a file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        document = json_of(text) if path.suffix == ".json" else toml_of(text)
    except FileNotFoundError:
        raise HoldfastError(
            f"There is no rubric {path}; write one with a table [[criteria]] for each criterion."
        ) from None
    except (OSError, ValueError) as error:
        raise HoldfastError(f"The rubric {path} cannot be read: {str(error).rstrip('.')}.") from None
    rows = document.get("criteria") if isinstance(document, dict) else document
    if not isinstance(rows, list) or not rows:
        raise HoldfastError(
            f"The rubric {path} has no criteria; write a table [[criteria]] for each, with name and text."
        )
    criteria = tuple(_criterion(row, f"Criterion {n} of the rubric {path}") for n, row in enumerate(rows, 1))
    names = [one.name for one in criteria]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise HoldfastError(f"The rubric {path} has two criteria called {twice!r}; give each a name of its own.")
    if not any(one.weight > 0 for one in criteria):
        raise HoldfastError(f"The rubric {path} has no criterion with a weight above 0, so nothing is worth anything.")
    return criteria


def _criterion(row: Any, which: str) -> Criterion:
    if not isinstance(row, Mapping):
        raise HoldfastError(f"{which} is no table with name, text and weight.")
    for key in row:
        if key not in KEYS:
            raise HoldfastError(f"{which} has {key!r}, which is not read; a criterion has {', '.join(KEYS)}.")
    for key in ("name", "text"):
        if not isinstance(row.get(key), str) or not row[key].strip():
            raise HoldfastError(f"{which} needs a {key}, a text that is not empty.")
    weight = row.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight) or weight == 0:
        raise HoldfastError(f"{which} has the weight {weight!r}; it has to be a number other than 0.")
    if "/" in row["name"]:
        raise HoldfastError(f"{which} is called {row['name']!r}; take a name without a slash.")
    return Criterion(row["name"].strip(), row["text"].strip(), float(weight))
