"""A running SHA-256 of the labels in a store, by which a checkpoint knows those that it was made with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

# Labels in their order, each with the whole of what was asked; answers are named by the hash of what they are.
SEALED = """
SELECT labels.seq, labels.comparison_id, labels.labeller, labels.choice, labels.ordinal, comparisons.prompt,
       comparisons.a, comparisons.b, comparisons.round, comparisons.purpose, comparisons.run, comparisons.repeats
FROM labels LEFT JOIN comparisons ON comparisons.id = labels.comparison_id
WHERE labels.seq > :after AND labels.seq <= :up_to ORDER BY labels.seq LIMIT :most
"""
PAGE = 10_000

Query = Callable[[dict[str, int]], Iterable[Sequence[Any]]]


class LabelSeal:
    """The SHA-256 of all labels up to `watermark`; it takes those that have come since, and never one twice."""

    def __init__(self) -> None:
        self.watermark = 0
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def take(self, query: Query, up_to: int) -> None:
        """Go on to the label `up_to`; `query` carries out `SEALED`."""
        full = True
        while full:
            rows = [list(row) for row in query({"after": self.watermark, "up_to": up_to, "most": PAGE})]
            for row in rows:
                self._digest.update(json.dumps(row).encode() + b"\n")
            self.watermark, full = (rows[-1][0] if rows else self.watermark), len(rows) == PAGE
