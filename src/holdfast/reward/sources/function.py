"""A reward function of the user's, in worker processes, or in this one where it is given as it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.models.prompt import as_sent
from holdfast.reward.outcome import OneScore, Unscored
from holdfast.reward.scores import Asked, Scores, scores_of
from holdfast.reward.sources.call import Call, Question
from holdfast.reward.sources.plain import Nature
from holdfast.reward.sources.workers import Allowance, Workers


class FunctionSource:
    """`path/to/file.py:name`: whatever it does, it does in processes of its own that can be killed."""

    def __init__(self, spec: str, allowance: Allowance, setting: str = "reward.source") -> None:
        path, _, name = spec.rpartition(":")
        self.name = f"{Path(path).name}:{name}"
        self._workers = Workers(spec, setting, allowance)
        self.nature = nature_of(self._workers.taken.batched)

    def score(self, asked: Asked) -> Scores:
        """Of all answers in one call, or of each in a call of its own."""
        columns = self._workers.taken.columns
        rows, outcomes = list[int](), list[OneScore | Unscored](Unscored("") for _ in range(len(asked)))
        questions = []
        for row in range(len(asked)):
            given = {k: v for k, v in asked.columns_of(row).items() if columns is None or k in columns}
            if why := _no_json(given):
                outcomes[row] = Unscored(why)
                continue
            rows.append(row)
            questions.append([as_sent(asked.prompts[row]), asked.answers[row], given])
        if rows:
            batches = [questions] if self._workers.taken.batched else [[question] for question in questions]
            given_by_row = [one for batch in self._workers.ask(batches) for one in batch]
            for row, outcome in zip(rows, given_by_row, strict=True):
                outcomes[row] = outcome
        return scores_of(outcomes)

    def close(self) -> None:
        self._workers.close()


class CallableSource:
    """A function of this process as a reward source, called as `path/to/file.py:name` would be.

    Nothing holds it: one that hangs hangs whoever asks.
    """

    def __init__(self, function: Callable[..., Any], name: str = "") -> None:
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self._call = Call.of(function, self.name)
        self.nature = nature_of(self._call.batched)

    def score(self, asked: Asked) -> Scores:
        """Of all answers in one call, or of one after the other."""
        questions = [
            Question(as_sent(prompt), answer, asked.columns_of(row))
            for row, (prompt, answer) in enumerate(zip(asked.prompts, asked.answers, strict=True))
        ]
        batches: Sequence[Sequence[Question]] = [questions] if self._call.batched else [[one] for one in questions]
        return scores_of([outcome for batch in batches for outcome in self._call.outcomes_now(batch)])

    def close(self) -> None:
        """There is nothing to let go of."""


def nature_of(batched: bool) -> Nature:
    """Of a whole batch a function may make anything."""
    return Nature(alone=not batched)


def _no_json(columns: dict[str, Any]) -> str:
    """What is in the way of handing columns to another process."""
    for name, value in columns.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            return f"the column {name!r} holds {type(value).__name__}, which cannot be handed to the reward's process"
    return ""
