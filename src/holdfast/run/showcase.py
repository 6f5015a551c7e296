"""The same prompts answered again and again, so that people and observers see what becomes of the policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.models.prompt import Prompt, plain_text
from holdfast.randomness import generator
from holdfast.reward.source import Reward
from holdfast.run.answers import Answers
from holdfast.run.journal import Journal
from holdfast.run.observer import Audience


@dataclass(frozen=True)
class Showcase:
    """Answers to the fixed prompts, drawn with the same random numbers every time."""

    prompts: Sequence[Prompt]
    seed: int
    answers: Answers
    reward: Reward
    journal: Journal
    audience: Audience

    def show(self) -> None:
        """Answer the fixed prompts, write that down, and let observers measure."""
        at, round = self.journal.position, self.journal.position.round_shown
        if self.prompts:
            ids = [self.answers.codec.encode_prompt(p) for p in self.prompts]
            rollout = self.answers.sample(self.answers.policy, ids, generator(self.seed, "fixed samples"))
            scores_KB, texts = self.reward.score(rollout), self.answers.texts(rollout)
            means, spreads = scores_KB.mean(0).tolist(), scores_KB.std(0, unbiased=False).tolist()
            figures = [(m, s) if math.isfinite(m) else (None, None) for m, s in zip(means, spreads, strict=True)]
            for i, (prompt, answer) in enumerate(zip(self.prompts, texts, strict=True)):
                self.journal.tracker.sample(
                    at.step, round, prompt_index=i, prompt=plain_text(prompt),
                    response=answer.text, finished=answer.finished, score=figures[i][0], spread=figures[i][1],
                )  # fmt: skip
            self.audience.after_samples(at.step, round, self.prompts, texts)
        self.observe()

    def observe(self) -> None:
        """Let observers measure the policy as it is now."""
        at = self.journal.position
        self.audience.after_round(at.step, at.round_shown, self.answers.answer)
