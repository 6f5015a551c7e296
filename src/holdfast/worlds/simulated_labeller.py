"""A simulated labeller: a person who sees the truth through noise and taste."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from holdfast.models.prompt import Prompt, plain_text
from holdfast.preferences.comparison import Choice, Comparison, Label, Response
from holdfast.randomness import place_of
from holdfast.worlds.protocol import LabellerSettings

AnswerValue = Callable[[Prompt, str, bool], float]


class SimulatedLabeller:
    """Prefers a with probability sigmoid((u_a - u_b) / temperature), then flips the answer with probability `noise`.

    u = judgement + taste(prompt, answer). At temperature 0 the better answer always wins before
    the flip; equal answers are a coin toss.
    """

    called = "the simulated labeller"

    def __init__(self, name: str, judgement: AnswerValue, settings: LabellerSettings) -> None:
        self.name = name
        self._judgement = judgement
        self._settings = settings

    def label(self, comparisons: Sequence[Comparison]) -> Sequence[Label]:
        return [Label(c.id, self.name, self._choose(c)) for c in comparisons]

    def _choose(self, comparison: Comparison) -> Choice:
        s = self._settings
        gap = self._utility(comparison.prompt, comparison.a) - self._utility(comparison.prompt, comparison.b)
        # By hash, so that a comparison asked again gets the same answer.
        prefers_a = place_of(f"{s.seed}\x1f{comparison.id}\x1fchoice") < win_probability(gap, s.temperature)
        flipped = place_of(f"{s.seed}\x1f{comparison.id}\x1fflip") < s.noise
        return Choice.A if prefers_a != flipped else Choice.B

    def _utility(self, prompt: Prompt, response: Response) -> float:
        taste = self._settings.taste
        liked = 0.0 if taste is None else taste(plain_text(prompt), response.text)
        return self._judgement(prompt, response.text, response.finished) + liked


def win_probability(gap: float, temperature: float) -> float:
    """sigmoid(gap / temperature), with its limit at temperature 0."""
    if temperature == 0.0 or gap == 0.0:
        return 0.5 if gap == 0.0 else float(gap > 0)
    return 0.5 * (1.0 + math.tanh(0.5 * gap / temperature))
