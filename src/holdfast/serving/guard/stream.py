"""A training's answers in the order in which they came in, cut into steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.models.prompt import Prompt
from holdfast.serving.guard.posts import PostedAnswer, Poster, stored_answers
from holdfast.serving.guard.records import GuardRecords

# More answers than a batch can have.
EVERYTHING = 2**31


@dataclass(frozen=True)
class TrainerMoment:
    """Where the trainer was: its own number of a step and the name of a checkpoint, as it last told them."""

    step: int | None = None
    checkpoint: str | None = None


@dataclass(frozen=True)
class _Placed:
    seq: int
    place: int
    answer: PostedAnswer
    moment: TrainerMoment


class AnswerStream:
    """Steps of `size` answers by one poster. Its state is a place among the stored batches."""

    def __init__(self, records: GuardRecords, of: Poster, size: int) -> None:
        self._records, self._of, self._size = records, of, size
        self._seq, self._taken = 0, 0  # the batch that was gone into last, and how many of its answers were taken
        self._read = 0  # the newest batch that has been looked at
        self._waiting: deque[_Placed] = deque()

    @property
    def place(self) -> int:
        """The batch in which the newest step ended."""
        return self._seq

    def next_step(self) -> tuple[list[PostedAnswer], TrainerMoment] | None:
        """The next whole step, the answers to one prompt side by side; None while there are too few."""
        while len(self._waiting) < self._size:
            page = self._records.batches_after(self._read)
            if not page:
                return None
            for batch in page:
                self._take_in(batch.seq, batch.document)
        step = [self._waiting.popleft() for _ in range(self._size)]
        self._seq, self._taken = step[-1].seq, step[-1].place + 1
        return side_by_side([placed.answer for placed in step]), step[-1].moment

    def _take_in(self, seq: int, document: Mapping[str, Any]) -> None:
        self._read = seq
        if document.get("of", "policy") != self._of:
            return
        moment = TrainerMoment(document.get("step"), document.get("checkpoint"))
        skipped = self._taken if seq == self._seq else 0
        for place, answer in enumerate(stored_answers(document)):
            if place >= skipped:
                self._waiting.append(_Placed(seq, place, answer, moment))

    def skip_to(self, seq: int) -> int:
        """Leave out everything up to a batch; how many answers that were."""
        left_out = 0
        while self._read < seq:
            for batch in self._records.batches_after(self._read):
                self._take_in(batch.seq, batch.document)
        while self._waiting and self._waiting[0].seq <= seq:
            self._waiting.popleft()
            left_out += 1
        if seq >= self._seq:
            self._seq, self._taken = seq, EVERYTHING
        return left_out

    def state(self) -> dict[str, int]:
        return {"seq": self._seq, "taken": self._taken}

    def restore(self, state: Mapping[str, int]) -> None:
        self._seq, self._taken = int(state["seq"]), int(state["taken"])
        self._read = max(0, self._seq - 1)
        self._waiting.clear()


class Evaluation:
    """The policy's answers to all prompts of the audits, the first evaluation after a place among the batches.

    Its batches are known by the trainer's number of the step, if they have one. Of several answers to a prompt the
    first counts.
    """

    def __init__(self, records: GuardRecords, prompts: Sequence[Prompt], after: int) -> None:
        self._records, self._prompts, self._read = records, prompts, after
        self._by_step: dict[int | None, dict[Prompt, PostedAnswer]] = {}

    @property
    def answered(self) -> int:
        """Prompts that have an answer, of the evaluation that has most."""
        return max(map(len, self._by_step.values()), default=0)

    def whole(self) -> dict[Prompt, PostedAnswer] | None:
        """The first evaluation that is complete; None while there is none."""
        while page := self._records.batches_after(self._read):
            for batch in page:
                self._read = batch.seq
                if batch.document.get("of") == "evaluation":
                    known = self._by_step.setdefault(batch.document.get("step"), {})
                    for answer in stored_answers(batch.document):
                        known.setdefault(answer.prompt, answer)
                    if len(known) == len(self._prompts):
                        return known
        return None


def side_by_side(answers: Sequence[PostedAnswer]) -> list[PostedAnswer]:
    """In the order of prompts as each first came: answers that came at the same time come in any order."""
    groups: dict[object, list[PostedAnswer]] = {}
    for answer in answers:
        groups.setdefault(answer.prompt, []).append(answer)
    return [answer for group in groups.values() for answer in group]
