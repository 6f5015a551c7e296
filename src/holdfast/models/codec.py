"""Text to tokens and back, in the words of a model's own tokenizer and chat template."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from holdfast.errors import HoldfastError, first_line
from holdfast.models.prompt import Prompt, messages_of, plain_text

# Prompts whose tokens are kept.
MOST_KEPT = 1 << 12


class Codec:
    """Encodes prompts (through the chat template where there is one) and responses (with EOS at the end)."""

    def __init__(self, tokenizer: Any) -> None:
        if tokenizer.eos_token_id is None:
            raise HoldfastError(
                "The tokenizer has no end-of-sequence token, so answers could never end; "
                "set eos_token in its tokenizer_config.json."
            )
        self.tokenizer = tokenizer
        self.eos_id: int = int(tokenizer.eos_token_id)
        self.pad_id: int = self.eos_id if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
        self.vocabulary: int = len(tokenizer)
        # A run asks for the same prompts again and again, and a tokenizer takes longer than a look-up.
        self._encoded = lru_cache(MOST_KEPT)(self._encode_prompt)
        self._prompts: dict[tuple[int, ...], Prompt] | None = None

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        """Everything that stands before the first token of the answer."""
        ids = list(self._encoded(prompt))
        if self._prompts is not None:
            self._prompts.setdefault(tuple(ids), prompt)
        return ids

    def remember_prompts(self) -> None:
        """Know from here on which prompt tokens are of, for a model that reads in another tokenizer's words."""
        self._prompts = {} if self._prompts is None else self._prompts

    def prompt_of(self, ids: Sequence[int]) -> Prompt:
        """The prompt whose tokens these are, the first of those that are the same to the model; else what they say."""
        known = (self._prompts or {}).get(tuple(ids))
        return self.decode(ids) if known is None else known

    def _encode_prompt(self, prompt: Prompt) -> list[int]:
        if self.tokenizer.chat_template is None:
            text = plain_text(prompt)
            ids = self.tokenizer(text if text.endswith((" ", "\n")) else text + "\n")["input_ids"]
            # Some tokenizers close every text with EOS; an answer has to start before the end.
            while ids and ids[-1] == self.eos_id:
                ids = ids[:-1]
        else:
            text = self._templated(prompt)
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if not ids:
            raise HoldfastError(f"The prompt {plain_text(prompt)[:60]!r} has no tokens; remove it.")
        return [int(i) for i in ids]

    def _templated(self, prompt: Prompt) -> str:
        turns = messages_of(prompt)
        try:
            return str(self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # a template is anyone's code, and many refuse what they do not expect
            raise HoldfastError(
                f"The tokenizer's chat template refuses the prompt {plain_text(prompt)[:40]!r}: {first_line(error)}"
            ) from error

    def encode_response(self, text: str) -> list[int]:
        """The tokens of a whole answer, EOS included."""
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return [*(int(i) for i in ids), self.eos_id]

    def decode(self, ids: Sequence[int]) -> str:
        """The text a person reads: special tokens left out."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True)).strip()
