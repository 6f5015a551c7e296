"""A published reward model as an ensemble of one member, so that new labels can move it behind the gate.

    tokens of the policy -> text -> the model's own chat template and tokens -> its trunk -> its own head, last token

Everything else, versions, gate, claims and standardising, is the ensemble's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast.config import Config
from holdfast.config.reward_source import MODEL
from holdfast.errors import HoldfastError
from holdfast.models.codec import MOST_KEPT, Codec
from holdfast.models.load import load_classifier
from holdfast.models.lora import adapted, lora_of
from holdfast.models.policy import context_of
from holdfast.models.reward_model import Pooling, RewardModel
from holdfast.models.sharding import shard
from holdfast.randomness import derive_seed
from holdfast.reward.ensemble import Ensemble, OwnTokens
from holdfast.reward.sources.model import encoded_with, place_of

POOLING: Pooling = "last"


@dataclass(frozen=True)
class Classifier:
    """A sequence-classification model with one label that a linear head reads from the last token's state."""

    directory: Path
    model: Any
    tokenizer: Any

    @classmethod
    def open(cls, source: str) -> Classifier:
        """`model:DIR`; what cannot be fine-tuned as a member of an ensemble is refused."""
        directory = directory_of(source)
        model, tokenizer = load_classifier(directory)
        head = getattr(model, "score", None)
        if not isinstance(head, nn.Linear) or head.out_features != 1:
            raise HoldfastError(
                f"reward.refresh needs a model with one label that a linear head reads from the last token, such as a "
                f"LlamaForSequenceClassification; {directory} is a {type(model).__name__} with "
                f"{model.config.num_labels} label(s): leave reward.refresh out, and it stands still."
            )
        return cls(directory, model, tokenizer)

    @property
    def pad_id(self) -> int:
        """What stands behind the shorter rows of a pass; a causal model does not see it."""
        known = (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id)
        return next((int(token) for token in known if token is not None), 0)

    def member(self, config: Config) -> RewardModel:
        """The model as a member: its own trunk, or adapters on it, and its own head."""
        p = config.policy
        trunk = adapted(self.model.base_model, lora_of(p), derive_seed(config.run.seed, "reward adapters", 0))
        member = RewardModel(trunk, 0, p.fast, POOLING, p.gradient_checkpointing)
        with torch.no_grad():
            member.head.weight.copy_(self.model.score.weight)
            if self.model.score.bias is not None:
                member.head.bias.copy_(self.model.score.bias)
        return shard(member.to(config.run.device))

    def reading(self, codec: Codec) -> OwnTokens:
        """From prompt and answer in the policy's tokens to the model's own; what is too long loses its beginning."""
        codec.remember_prompts()
        limits = [context_of(self.model.config), self.tokenizer.model_max_length]
        longest = min(n for n in limits if n is not None)

        @lru_cache(MOST_KEPT)
        def whole(prompt: tuple[int, ...], response: tuple[int, ...]) -> list[int]:
            return encoded_with(self.tokenizer, codec.prompt_of(prompt), codec.decode(response)).tokens[-longest:]

        return lambda prompt, response: whole(tuple(prompt), tuple(response))


def directory_of(source: str) -> Path:
    """The directory in model:DIR or model:DIR#LABEL."""
    return place_of(source.removeprefix(MODEL))[0]


def classifier_ensemble(config: Config, classifier: Classifier, codec: Codec) -> Ensemble:
    """The ensemble whose one member it is."""
    return Ensemble(
        [classifier.member(config)],
        classifier.pad_id,
        config.policy.micro_batch_tokens,
        patience_seconds=60.0 * config.processes.timeout_minutes,
        own_tokens=classifier.reading(codec),
    )
