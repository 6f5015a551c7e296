"""Events by themselves, for what no small run comes to: whole, as every event is that a run writes."""

from __future__ import annotations

from types import NoneType
from typing import get_args

from holdfast.events import KINDS

_EMPTY: dict[object, object] = {str: "", int: 0, float: 0.0, bool: True, list: [], NoneType: None}


def fields_of(kind: str, **fields: object) -> dict[str, object]:
    """All fields of a kind: these, and nothing in the others."""
    hints = {name: get_args(hint) or (hint,) for name, hint in KINDS[kind].fields.items()}
    return {name: _EMPTY.get(parts[-1], {}) for name, parts in hints.items()} | fields
