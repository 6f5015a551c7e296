"""Which prompts are held out, and which texts are too short or too long."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from holdfast.config.schema import DataConfig
from holdfast.data.fingerprint import prompt_fingerprint
from holdfast.models.prompt import Prompt
from holdfast.preferences.comparison import Demonstration, LabelledComparison

# From this many prompts on one is held out in any case; with fewer it may be none.
ENOUGH_TO_HOLD_ONE_OUT = 10

Length = Callable[[Prompt], int]


def is_heldout(prompt: Prompt, share: float) -> bool:
    """Whether a prompt is held out. Its hash alone decides: in every file, in every run, whatever else is there."""
    return prompt_fingerprint(prompt) < share * 2**64


def split(prompts: Iterable[Prompt], share: float) -> tuple[list[Prompt], list[Prompt]]:
    """Prompts to train on and prompts held out, each once, in their order."""
    different = list(dict.fromkeys(prompts))
    heldout = [p for p in different if is_heldout(p, share)]
    if not heldout and share > 0 and len(different) >= ENOUGH_TO_HOLD_ONE_OUT:
        heldout = [min(different, key=prompt_fingerprint)]
    apart = set(heldout)
    return [p for p in different if p not in apart], heldout


def characters(text: Prompt) -> int:
    """The characters of a text, or of all turns of a conversation."""
    return len(text) if isinstance(text, str) else sum(len(turn.content) for turn in text)


@dataclass(frozen=True)
class Lengths:
    """The least and the most that prompts and answers may have, in characters or tokens; 0 is no limit."""

    unit: Literal["characters", "tokens"] = "characters"
    prompt: tuple[int, int] = (0, 0)
    answer: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, data: DataConfig) -> Lengths:
        return cls(data.length_unit, data.prompt_length, data.answer_length)

    @property
    def limited(self) -> bool:
        return any(self.prompt + self.answer)

    def wrong(self, what: Literal["prompt", "answer"], length: int) -> str | None:
        """What is wrong with a length, if anything: too_short or too_long."""
        least, most = self.prompt if what == "prompt" else self.answer
        if length < least:
            return "too_short"
        return "too_long" if 0 < most < length else None

    def fits(self, prompt: int, *answers: int) -> bool:
        return self.wrong("prompt", prompt) is None and all(self.wrong("answer", n) is None for n in answers)


@dataclass(frozen=True)
class LengthMeasure:
    """How long prompts and answers are, by somebody's count."""

    prompt: Length = characters
    answer: Callable[[str], int] = len

    def demonstration_fits(self, limits: Lengths, item: Demonstration) -> bool:
        return limits.fits(self.prompt(item.prompt), self.answer(item.response))

    def comparison_fits(self, limits: Lengths, item: LabelledComparison) -> bool:
        pair = item.comparison
        return limits.fits(self.prompt(pair.prompt), self.answer(pair.a.text), self.answer(pair.b.text))
