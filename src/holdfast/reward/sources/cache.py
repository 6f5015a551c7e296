"""A reward source that is not asked twice about the same answer to the same prompt with the same columns."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict

from holdfast.models.prompt import as_sent
from holdfast.reward.outcome import OneScore, Unscored
from holdfast.reward.scores import Asked, Scores, scores_of
from holdfast.reward.sources.plain import PlainSource

# Scores that are kept; the one that was not wanted for the longest time goes first.
MOST_KEPT = 1 << 16


class CachedSource:
    """Keeps scores by text, where an answer's score depends on its text alone; what had no score is asked again."""

    def __init__(self, source: PlainSource) -> None:
        self.name, self.nature, self._source = source.name, source.nature, source
        self._kept: OrderedDict[bytes, OneScore] = OrderedDict()
        self._weights: dict[str, float] = {}
        self._lock = threading.Lock()

    def score(self, asked: Asked) -> Scores:
        """From what is kept, and of each other text once by the source."""
        if not self.nature.alone:
            return self._source.score(asked)
        keys = [_key(asked, row) for row in range(len(asked))]
        with self._lock:
            known: dict[bytes, OneScore | Unscored] = {key: self._kept[key] for key in keys if key in self._kept}
        first: dict[bytes, int] = {}
        for row, key in enumerate(keys):
            if key not in known:
                first.setdefault(key, row)
        new = list(first.values())
        if new:
            scores = self._source.score(asked.among(new))
            self._weights |= scores.weights
            known |= {keys[row]: outcome for row, outcome in zip(new, outcomes_of(scores), strict=True)}
        with self._lock:
            for key, outcome in known.items():
                if isinstance(outcome, OneScore):
                    self._kept[key] = outcome
                    self._kept.move_to_end(key)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return scores_of([known[key] for key in keys], self._weights)

    def close(self) -> None:
        self._source.close()


def outcomes_of(scores: Scores) -> list[OneScore | Unscored]:
    """The score of each answer by itself."""
    totals = scores.total_B.tolist()
    parts = {name: values_B.tolist() for name, values_B in scores.components.items()}
    return [
        Unscored(scores.unscored[row])
        if row in scores.unscored
        else OneScore(total, {name: values[row] for name, values in parts.items() if values[row] == values[row]})
        for row, total in enumerate(totals)
    ]


def _key(asked: Asked, row: int) -> bytes:
    known = [as_sent(asked.prompts[row]), asked.answers[row], asked.columns_of(row)]
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=repr).encode()).digest()
