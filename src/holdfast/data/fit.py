"""What a policy can take: prompts that its chat template takes, and texts that fit its context with an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec
from holdfast.models.prompt import Prompt, plain_text


class BeyondContext(HoldfastError):
    """A text with more tokens than the policy's context has room for."""


@dataclass(frozen=True)
class Room:
    """A policy's tokenizer, its context (None where it has no end), and the longest answer that it may give.

    A run and `holdfast data check` both ask here, so neither takes what the other refuses.
    """

    codec: Codec
    context: int | None = None
    answer_tokens: int = 0

    def __post_init__(self) -> None:
        if self.context is not None and self.context <= self.answer_tokens:
            raise HoldfastError(
                f"rollout.max_new_tokens is {self.answer_tokens}, "
                f"but the model's context is only {self.context} tokens."
            )

    def check_prompt(self, prompt: Prompt) -> None:
        """Refuse a prompt to train on or to measure with that the policy cannot answer."""
        length = len(self.codec.encode_prompt(prompt))
        if self.context is not None and length > (room := self.context - self.answer_tokens):
            raise BeyondContext(
                f"The prompt {plain_text(prompt)[:40]!r} has {length} tokens; with rollout.max_new_tokens = "
                f"{self.answer_tokens} the model's context of {self.context} leaves {room}. "
                "Shorten it or drop it; data.prompt_length leaves such prompts of your own data out."
            )

    def check_answer(self, what: Literal["demonstration", "labelled answer"], prompt: Prompt, text: str) -> None:
        """Refuse a given answer that does not fit behind its prompt."""
        length = len(self.codec.encode_prompt(prompt)) + len(self.codec.encode_response(text))
        if self.context is not None and length > self.context:
            raise BeyondContext(
                f"A {what} to the prompt {plain_text(prompt)[:40]!r} has {length} tokens with it, but the model's "
                f"context is {self.context}. Shorten it or drop it; data.answer_length leaves such out."
            )
