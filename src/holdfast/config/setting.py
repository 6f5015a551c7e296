"""What a setting carries besides its value: its meaning, and its limits."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def setting(
    default: Any, doc: str, *, low: float | None = None, above: float | None = None, high: float | None = None
) -> Any:
    """A field with its documentation and limits: `low` <= value <= `high`, value > `above`."""
    metadata = {"doc": doc, "low": low, "above": above, "high": high}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)
