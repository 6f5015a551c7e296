"""What an inspection has to say of one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One thing looked at: fine, worth knowing, or broken."""

    state: Literal["ok", "note", "broken"]
    what: str
    detail: str
