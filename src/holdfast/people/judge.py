"""A model that answers comparisons as a labeller."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from holdfast.config.schema import JudgeConfig
from holdfast.errors import HoldfastError
from holdfast.preferences.comparison import Choice, Comparison, Label
from holdfast.preferences.judge_model import JudgeModel


class JudgeLabeller:
    """Answers comparisons by asking a model; its name as a labeller is judge:MODEL."""

    called = "the judge"

    def __init__(self, config: JudgeConfig, sleep: Callable[[float], None] = time.sleep) -> None:
        self._model = JudgeModel(config, sleep)
        self.name = self._model.name

    def label(self, comparisons: Sequence[Comparison]) -> list[Label]:
        """The answers that could be had; an error where more than half of the questions failed."""
        with ThreadPoolExecutor(self._model.config.parallel) as pool:
            answers = list(pool.map(self._answer, comparisons))
        failures = [answer for answer in answers if isinstance(answer, HoldfastError)]
        if 2 * len(failures) > len(answers):
            raise HoldfastError(f"{len(failures)} of {len(answers)} questions to the judge failed: {failures[-1]}")
        return [
            Label(item.id, self.name, answer)
            for item, answer in zip(comparisons, answers, strict=True)
            if isinstance(answer, Choice)
        ]

    def _answer(self, item: Comparison) -> Choice | HoldfastError:
        try:
            return self._model.prefers(item.prompt, item.a.text, item.b.text)
        except HoldfastError as error:
            return error
