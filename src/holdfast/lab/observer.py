"""The only reader of gold: it watches the loop and writes what is true to files the loop never opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from holdfast.errors import OwnCodeError
from holdfast.models.prompt import Prompt
from holdfast.run.observer import Answer
from holdfast.track.sinks import JsonlFile, mark_logs, read_rows, rewind_logs
from holdfast.worlds.protocol import World

# Held-out prompts are answered with draws of the observer's own, the same ones after every round.
OBSERVER_SEED = 20_221_019
PAIRS_FILE = "pairs.jsonl"
# Answers of the policy to each held-out prompt that a reward ensemble is measured on.
ANSWERS = 4

AnswerPrompts = Callable[[Sequence[Prompt], int], Sequence[Answer]]


class Gold(Protocol):
    """The truth about an answer."""

    def __call__(self, prompt: Prompt, response: str, finished: bool) -> float: ...


def gold_of(world: World) -> Gold | None:
    """A world's gold score, where it knows one."""
    return getattr(world, "gold", None)


def scores_of(gold: Gold, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> list[float]:
    """The gold of each answer; a world that fails is the user's to mend."""
    try:
        return [gold(p, a.text, a.finished) for p, a in zip(prompts, answers, strict=True)]
    except Exception as error:  # the world may be the user's own code
        raise OwnCodeError("The world's gold failed", error) from error


class GoldObserver:
    """Scores each step's answers and, after every round, answers to held-out prompts, into gold.jsonl.

    The held-out answers themselves go to `said`, where that is given.
    """

    def __init__(
        self,
        gold: Gold,
        path: Path,
        heldout: Sequence[Prompt],
        heldout_count: int = 100,
        answers: int = 1,
        said: Path | None = None,
    ) -> None:
        self._gold, self._rows = gold, JsonlFile(path)
        self._said = None if said is None else JsonlFile(said)
        self._logs = [self._rows, *([] if self._said is None else [self._said])]
        # Each prompt as often as it is to be answered: a mean over more answers is a quieter one.
        self.heldout = list(heldout[:heldout_count]) * answers

    def after_step(self, step: int, round: int, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None:
        gold = fmean(scores_of(self._gold, prompts, answers))
        self._rows.append({"step": step, "round": round, "split": "rollout", "gold": gold})

    def after_samples(self, step: int, round: int, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None:
        for i, score in enumerate(scores_of(self._gold, prompts, answers)):
            row = {"step": step, "round": round, "split": "samples", "prompt_index": i, "gold": score}
            self._rows.append(row)

    def after_round(self, step: int, round: int, answer: AnswerPrompts) -> None:
        answers = self._measure(step, round, answer, "heldout")
        if self._said is not None:
            texts, finished = [a.text for a in answers], [a.finished for a in answers]
            self._said.append({"step": step, "round": round, "texts": texts, "finished": finished})

    def after_run(self, step: int, round: int, answer: AnswerPrompts) -> None:
        """The policy that the run delivers, whichever round it comes from."""
        self._measure(step, round, answer, "delivered")

    def mark(self, places: dict[str, Any]) -> None:
        mark_logs(self._logs, places)

    def rewind(self, places: Mapping[str, Any]) -> None:
        rewind_logs(self._logs, places)

    def close(self) -> None:
        for log in self._logs:
            log.close()

    def _measure(self, step: int, round: int, answer: AnswerPrompts, split: str) -> Sequence[Answer]:
        if not self.heldout:
            return []
        answers = answer(self.heldout, OBSERVER_SEED)
        scores = scores_of(self._gold, self.heldout, answers)
        figures = {"gold": fmean(scores), "answers": len(scores)}
        self._rows.append({"step": step, "round": round, "split": split, **figures})
        return answers


def answers_by_round(said: Path) -> dict[int, list[Answer]]:
    """The held-out answers of every round that an observer has kept."""
    return {
        int(row["round"]): [Answer(*each) for each in zip(row["texts"], row["finished"], strict=True)]
        for row in read_rows(said)
    }


class PairObserver:
    """After every round, several answers to each held-out prompt with their gold: what an ensemble is measured on.

    Nobody trains on these, and they are the present policy's, so they say how right a version is where it is used.
    """

    def __init__(self, gold: Gold, path: Path, heldout: Sequence[Prompt]) -> None:
        self._gold, self._rows, self._heldout = gold, JsonlFile(path), list(heldout)

    def after_step(self, step: int, round: int, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None:
        return

    def after_samples(self, step: int, round: int, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None:
        return

    def after_round(self, step: int, round: int, answer: AnswerPrompts) -> None:
        drawn = [answer(self._heldout, OBSERVER_SEED + 1 + n) for n in range(ANSWERS)]
        golds = [scores_of(self._gold, self._heldout, answers) for answers in drawn]
        for i in range(len(self._heldout)):
            rows = [
                {"text": answers[i].text, "finished": answers[i].finished, "gold": gold[i]}
                for answers, gold in zip(drawn, golds, strict=True)
            ]
            self._rows.append({"step": step, "round": round, "prompt_index": i, "answers": rows})

    def mark(self, places: dict[str, Any]) -> None:
        mark_logs([self._rows], places)

    def rewind(self, places: Mapping[str, Any]) -> None:
        rewind_logs([self._rows], places)

    def close(self) -> None:
        self._rows.close()
