"""A Hugging Face sequence-classification model as a reward, with its own tokenizer and chat template, standing still.

    one label            the reward is its logit
    several              model:DIR#LABEL says which: its log-odds against the others, log p / (1 - p), or its logit
                         alone where the config says that labels do not exclude each other

Shapes: B answers of a pass, T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.config.reward_source import MODEL
from holdfast.errors import HoldfastError, first_line
from holdfast.models.batches import group_by_length
from holdfast.models.codec import Codec
from holdfast.models.load import load_classifier
from holdfast.models.policy import context_of
from holdfast.models.prompt import Prompt, messages_of, plain_text
from holdfast.reward.outcome import Unscored
from holdfast.reward.scores import Asked, Scores, scores_of
from holdfast.reward.sources.plain import Nature
from holdfast.text import listed

# A tokenizer that knows of no limit says so by a number like 1e30.
NO_LIMIT = 10**9


@dataclass(frozen=True)
class Encoded:
    """A prompt with its answer as tokens; `parts` says of each whether it is of the first or the second text."""

    tokens: list[int]
    parts: list[int] | None = None


class ModelSource:
    """`model:DIR`, on a device; `max_tokens` are worked on in one pass."""

    # In other company an answer's score may differ in its last bits, and a resumed run has to have the same ones.
    nature = Nature(alone=False)

    def __init__(self, spec: str, device: str, max_tokens: int, setting: str = "reward.source") -> None:
        directory, label = place_of(spec.removeprefix(MODEL))
        self.name = spec
        self._model, self._tokenizer = load_classifier(directory)
        self._model.to(device)
        self._device, self._max_tokens = device, max_tokens
        self._label = _label_of(self._model.config, label, spec, setting)
        limits = [context_of(self._model.config), self._tokenizer.model_max_length]
        self._longest = min((n for n in limits if n is not None and n < NO_LIMIT), default=None)

    def score(self, asked: Asked) -> Scores:
        """Answers of like length in one pass."""
        encoded: list[Encoded | Unscored] = [
            self._encoded(p, a) for p, a in zip(asked.prompts, asked.answers, strict=True)
        ]
        rows = {row: one for row, one in enumerate(encoded) if isinstance(one, Encoded)}
        lengths = [len(rows[row].tokens) if row in rows else 0 for row in range(len(asked))]
        outcomes: list[object] = list(encoded)
        for group in group_by_length(list(rows), lengths, self._max_tokens):
            for row, score in zip(group, self._scores([rows[row] for row in group]), strict=True):
                outcomes[row] = score
        return scores_of(outcomes)

    def close(self) -> None:
        """There is nothing to let go of."""

    def _encoded(self, prompt: Prompt, answer: str) -> Encoded | Unscored:
        try:
            encoded = encoded_with(self._tokenizer, prompt, answer)
        except Exception as error:  # noqa: BLE001 - a template is anyone's code
            return Unscored(f"the reward model's tokenizer refuses it: {first_line(error).rstrip('.')}")
        if self._longest is not None and len(encoded.tokens) > self._longest:
            return Unscored(f"the reward model sees no more than {self._longest} tokens")
        return encoded if encoded.tokens else Unscored("there is no token in it")

    @torch.no_grad()
    def _scores(self, rows: Sequence[Encoded]) -> list[float]:
        pad = self._pad_id(rows)
        if pad is None and len(rows) > 1:
            return [score for row in rows for score in self._scores([row])]
        width = max(len(row.tokens) for row in rows)
        batch = {
            "input_ids": _padded([row.tokens for row in rows], width, pad or 0),
            "attention_mask": _padded([[1] * len(row.tokens) for row in rows], width, 0),
        }
        if all(row.parts is not None for row in rows):
            batch["token_type_ids"] = _padded([row.parts or [] for row in rows], width, 0)
        config = self._model.config.get_text_config()
        before, config.pad_token_id = config.pad_token_id, pad
        try:
            logits = self._model(**{name: ids.to(self._device) for name, ids in batch.items()}).logits
        finally:
            config.pad_token_id = before
        return self._label.read(logits.float().cpu()).tolist()

    def _pad_id(self, rows: Sequence[Encoded]) -> int | None:
        """What stands behind the shorter rows. A model without a padding token finds a row's end by any other that is
        not in it."""
        config = self._model.config.get_text_config()
        if config.pad_token_id is not None:
            return int(config.pad_token_id)
        there = {token for row in rows for token in row.tokens}
        return next((token for token in range(len(self._tokenizer)) if token not in there), None)


@dataclass(frozen=True)
class ReadLabel:
    """Which logit is the reward; `odds`: against the others."""

    index: int
    odds: bool

    def read(self, logits_BL: Tensor) -> Tensor:
        """The reward of each answer."""
        own_B = logits_BL[:, self.index]
        if not self.odds:
            return own_B
        others = [label for label in range(logits_BL.shape[1]) if label != self.index]
        return own_B - logits_BL[:, others].logsumexp(1)


def encoded_with(tokenizer: Any, prompt: Prompt, answer: str) -> Encoded:
    """By the chat template; without one as two texts where the tokenizer marks their border, else one after another."""
    if tokenizer.chat_template is not None:
        turns = [*messages_of(prompt), {"role": "assistant", "content": answer}]
        text = str(tokenizer.apply_chat_template(turns, tokenize=False))
        return Encoded([int(i) for i in tokenizer(text, add_special_tokens=False)["input_ids"]])
    if tokenizer.cls_token_id is not None and tokenizer.sep_token_id is not None:
        both = tokenizer([plain_text(prompt)], [answer])  # as lists, in which an empty answer is a text too
        parts = both.get("token_type_ids")
        return Encoded([int(i) for i in both["input_ids"][0]], None if parts is None else [int(i) for i in parts[0]])
    codec = Codec(tokenizer)
    return Encoded([*codec.encode_prompt(prompt), *codec.encode_response(answer)])


def place_of(path: str) -> tuple[Path, str]:
    """The directory and the label in DIR#LABEL."""
    directory, mark, label = path.rpartition("#")
    return (Path(directory), label) if mark and not Path(path).exists() else (Path(path), "")


def _label_of(config: Any, label: str, spec: str, setting: str) -> ReadLabel:
    names: Mapping[int, str] = {int(index): str(name) for index, name in config.id2label.items()}
    words = listed([names[index] for index in sorted(names)])
    found = next((index for index, name in names.items() if label in (name, str(index))), None)
    if label and found is None:
        raise HoldfastError(f"{setting} = {spec}: the model has no label {label!r}; there is {words}.")
    if found is None and len(names) != 1:
        raise HoldfastError(
            f"{setting} = {spec}: the model has {len(names)} labels ({words}); say which one is the reward, such as "
            f"{spec}#{names[max(names)]}."
        )
    exclusive = config.problem_type in (None, "single_label_classification")
    return ReadLabel(found or 0, len(names) > 1 and exclusive)


def _padded(rows: Sequence[Sequence[int]], width: int, pad: int) -> Tensor:
    return torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows], dtype=torch.long)
