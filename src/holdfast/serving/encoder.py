"""From what a trainer sends to the tokens that the ensemble scores.

messages           the chat template of the ensemble's own tokenizer
plain text         the same, as one message of the user
rendered text      text that has gone through a chat template already: its tokens as they stand
query              prompt and answer in one text, as OpenRLHF sends them: the prompt is taken off its beginning
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from jinja2 import TemplateError

from holdfast.errors import HoldfastError, first_line
from holdfast.models.codec import Codec
from holdfast.models.prompt import Prompt
from holdfast.web.security import Refused

Prompts = Literal["auto", "plain", "rendered"]

# A text that no template changes and no conversation holds.
_MARK = "holdfast-mark"


@dataclass(frozen=True, slots=True)
class AnswerToScore:
    """One answer to be scored. With `whole` the text begins with the prompt, and may end with an end token."""

    prompt: Prompt
    text: str
    whole: bool = False
    may_be_empty: bool = False
    columns: Mapping[str, Any] = field(default_factory=dict)  # what a reward that is given may read beside the prompt


@dataclass(frozen=True)
class Encoder:
    """Reads texts with the ensemble's tokenizer; `context` is the longest that the ensemble can see."""

    codec: Codec
    context: int | None
    prompts: Prompts = "auto"

    @cached_property
    def tail(self) -> str:
        """What the chat template puts between the last message and the answer; empty where there is no template."""
        if self.codec.tokenizer.chat_template is None:
            return ""
        text = self._render(_MARK)
        return text[text.rindex(_MARK) + len(_MARK) :] if _MARK in text else ""

    def encode(self, asked: AnswerToScore, place: int) -> tuple[list[int], list[int]]:
        """Prompt and answer as tokens; what cannot be scored is refused in a sentence that says which it is."""
        which = f"answer {place}"
        text = self.answer_of(asked, which) if asked.whole else asked.text
        text = self._without_end(text)
        if not text.strip() and not asked.may_be_empty:
            raise Refused(422, f"The text of {which} is empty, so there is nothing to score.")
        if not asked.prompt:
            raise Refused(422, f"The prompt of {which} is empty; send what was asked.")
        prompt_ids, response_ids = self._prompt_ids(asked.prompt, which), self.codec.encode_response(text)
        length = len(prompt_ids) + len(response_ids)
        if self.context is not None and length > self.context:
            raise Refused(
                422, f"{which.capitalize()} has {length} tokens with its prompt, but the ensemble sees {self.context}."
            )
        return prompt_ids, response_ids

    def answer_of(self, asked: AnswerToScore, which: str) -> str:
        """The answer in a text that begins with its prompt."""
        prompt, query = asked.prompt, asked.text
        if isinstance(prompt, str):
            if prompt and query.startswith(prompt):
                return query[len(prompt) :]
            # Tokens that are decoded again may come with other spaces than they went in.
            end = after(query, prompt)
            if end is not None:
                return query[end:].lstrip()
            tail = self.tail.strip()
            if tail and prompt.count(tail) == 1 and tail in query:
                # A trainer cuts a prompt that is too long at its beginning; its end is still there.
                return query.split(tail, 1)[1].lstrip()
        raise Refused(
            422, f"The query of {which} does not begin with its prompt, so the answer cannot be told from it."
        )

    def _prompt_ids(self, prompt: Prompt, which: str) -> list[int]:
        try:
            if isinstance(prompt, str) and self._is_rendered(prompt):
                ids = self.codec.tokenizer(prompt, add_special_tokens=False)["input_ids"]
                if not ids:
                    raise Refused(422, f"The prompt of {which} has no tokens; send what was asked.")
                return [int(i) for i in ids]
            return self.codec.encode_prompt(prompt)
        except HoldfastError as error:
            raise Refused(422, str(error)) from error
        except (TypeError, ValueError, KeyError, TemplateError) as error:
            # A chat template may refuse roles, or their order.
            raise Refused(422, f"The prompt of {which} cannot be read: {first_line(error)}") from error

    def _is_rendered(self, prompt: str) -> bool:
        """Whether a text has been through a chat template: told, or seen by what stands before every answer."""
        if self.prompts != "auto":
            return self.prompts == "rendered"
        tail = self.tail.strip()
        return bool(tail) and tail in prompt

    def _without_end(self, text: str) -> str:
        """The text without end tokens: the codec adds the one that belongs there."""
        ends = [token for token in (self.codec.tokenizer.eos_token, self.codec.tokenizer.pad_token) if token]
        while True:
            bare = text.rstrip()
            end = next((token for token in ends if bare.endswith(token)), None)
            if end is None:
                return text
            text = bare[: -len(end)]

    def _render(self, content: str) -> str:
        messages = [{"role": "user", "content": content}]
        tokenizer: Any = self.codec.tokenizer
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def after(query: str, prompt: str) -> int | None:
    """Where a text goes on after its beginning, spaces left aside; None where it begins with something else."""
    at = 0
    for piece in prompt.split():
        for letter in piece:
            while at < len(query) and query[at].isspace():
                at += 1
            if at >= len(query) or query[at] != letter:
                return None
            at += 1
    return at if at else None
