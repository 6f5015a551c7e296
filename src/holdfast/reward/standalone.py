"""A reward ensemble by itself: from texts to scores, without settings, a run or a database.

RewardEnsemble.train(model, pairs) -> members on copies of the model -> .score(prompts, answers)
.save(directory), .load(directory): the same files as a run's rewards/ and `holdfast reward` have
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from holdfast.config import Config
from holdfast.config.schema import RewardConfig
from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec
from holdfast.models.load import load_causal_lm, save_model
from holdfast.models.lora import adapted, lora_of
from holdfast.models.policy import context_of
from holdfast.models.prompt import Prompt
from holdfast.models.reward_model import RewardModel
from holdfast.models.sharding import shard
from holdfast.preferences.comparison import LabelledComparison
from holdfast.preferences.pair import Pair, pairs_of
from holdfast.randomness import derive_seed, generator
from holdfast.reward.aggregate import Aggregation, aggregate
from holdfast.reward.classifier import Classifier, classifier_ensemble
from holdfast.reward.ensemble import Bonus, Ensemble, VersionStore
from holdfast.reward.training import FitSettings, fit_ensemble, is_averaged
from holdfast.track.progress import Progress, Silent

# A prompt, the answer that was preferred and the other one; or a comparison with everybody's labels.
PreferredAnswer = tuple[Prompt, str, str]

# Where an ensemble has the model that it was trained from, beside its versions.
MODEL = "model"


def build_ensemble(
    config: Config, lm: Any, codec: Codec, bonus: Bonus | None = None, members: int | None = None
) -> Ensemble:
    """K members, each with a head of its own, on copies of the reference's trunk or as adapters on the one there is.

    Where members are averaged into one, one is built: all of them are fitted from its weights. `members` is their
    number where the settings do not say it.
    """
    p, lora = config.policy, lora_of(config.policy)

    def member(k: int) -> RewardModel:
        seed = derive_seed(config.run.seed, "reward head", k)
        trunk = adapted(lm.base_model, lora, derive_seed(config.run.seed, "reward adapters", k))
        quiet = p.lora_rank > 0
        model = RewardModel(trunk, seed, p.fast, config.reward.pooling, p.gradient_checkpointing, quiet)
        return shard(model.to(config.run.device))

    return Ensemble(
        [member(k) for k in range(members or (1 if is_averaged(config.reward) else config.reward.members))],
        codec.pad_id,
        config.policy.micro_batch_tokens,
        bonus=bonus,
        patience_seconds=60.0 * config.processes.timeout_minutes,
    )


def load_ensemble(directory: Path, lm: Any, codec: Codec, config: Config, version: int | None = None) -> Ensemble:
    """A version (the one in use) on the model that it was trained from; how it is built, it says itself."""
    versions = VersionStore(directory)
    number = versions.in_use() if version is None else version
    if config.reward.refresh:
        ensemble = classifier_ensemble(config, Classifier.open(config.reward.source), codec)
    else:
        ensemble = build_ensemble(versions.built_with(number, config), lm, codec)
    versions.load_into(ensemble, number)
    return ensemble


@dataclass(frozen=True)
class RewardEnsemble:
    """Reward models that were trained on one set of labels, with the model and the tokenizer that they came from.

    A score is standardised: 0 and 1 are the mean and the standard deviation over the answers that the ensemble was
    standardised on, which are those it was trained on, or the reference's where a run has made it.
    """

    ensemble: Ensemble
    lm: Any
    codec: Codec
    aggregation: Aggregation = "uncertainty"

    def __post_init__(self) -> None:
        if self.aggregation not in (kinds := get_args(Aggregation)):
            raise HoldfastError(f"There is no aggregation {self.aggregation!r}; there are {', '.join(kinds)}.")

    @classmethod
    def train(
        cls,
        model_dir: str | Path,
        pairs: Sequence[PreferredAnswer | LabelledComparison],
        *,
        members: int = 3,
        epochs: int = 2,
        lr: float = 1e-3,
        seed: int = 0,
        aggregation: Aggregation = "uncertainty",
        progress: Progress | None = None,
    ) -> RewardEnsemble:
        """Members on copies of a Hugging Face model, fitted to comparisons of answers."""
        if members < 1 or epochs < 1 or not lr > 0:
            raise HoldfastError(
                f"An ensemble needs members, epochs and a learning rate above 0, not {members}, {epochs} and {lr}."
            )
        lm, codec = load_causal_lm(Path(model_dir))
        config = replace(Config(), reward=RewardConfig(members=members, epochs=epochs, lr=lr, aggregation=aggregation))
        config = replace(config, run=replace(config.run, seed=seed))
        labelled = _labelled(pairs, codec, context_of(lm.config))
        ensemble = build_ensemble(config, lm, codec)
        settings = FitSettings(epochs, lr, config.reward.warmup_steps)
        rng = generator(seed, "reward initial")
        fit_ensemble(ensemble, labelled, settings, config.reward, rng, progress or Silent())
        ensemble.version, ensemble.labels = 1, len(labelled)
        ensemble.standardise(
            [p.prompt for p in labelled for _ in "ab"], [side for p in labelled for side in (p.a, p.b)]
        )
        return cls(ensemble, lm, codec, aggregation)

    @classmethod
    def load(
        cls,
        directory: str | Path,
        model_dir: str | Path | None = None,
        *,
        version: int | None = None,
        aggregation: Aggregation = "uncertainty",
    ) -> RewardEnsemble:
        """What `save` or `holdfast reward` wrote, or a run has: its version in use, or the one that is named.

        `model_dir` is the model that it was trained from, where that is not beside it.
        """
        path = Path(directory)
        rewards = path / "rewards" if (path / "rewards").is_dir() else path
        beside = [rewards / MODEL, *([rewards.with_name("reference")] if rewards.name == "rewards" else [])]
        model = next((place for place in beside if place.is_dir()), None) if model_dir is None else Path(model_dir)
        if model is None:
            VersionStore(rewards).in_use()  # a sentence where there is no ensemble at all
            raise HoldfastError(
                f"{path} holds an ensemble alone; give the model directory that it was trained from as well."
            )
        lm, codec = load_causal_lm(model)
        return cls(load_ensemble(rewards, lm, codec, Config(), version), lm, codec, aggregation)

    def save(self, directory: str | Path) -> None:
        """The ensemble with its model and tokenizer, as `holdfast reward` writes it."""
        VersionStore(Path(directory)).save(self.ensemble)
        save_model(Path(directory) / MODEL, self.lm, self.codec)

    def score(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> list[float]:
        """One score for each answer: what the members say of it, aggregated."""
        scores_KB = self.member_scores(prompts, answers)
        return aggregate(scores_KB, self.aggregation).tolist() if prompts else []

    def claims(self, prompts: Sequence[Prompt], answers: Sequence[str], others: Sequence[str]) -> list[float]:
        """The probability that people prefer the answer to the other one, for each prompt."""
        pairs = _labelled(list(zip(prompts, answers, others, strict=True)), self.codec, context_of(self.lm.config))
        return list(self.ensemble.claims(pairs).tolist())

    def member_scores(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> Tensor:
        """scores_KB: what each member says of each answer."""
        if isinstance(prompts, str) or isinstance(answers, str) or len(prompts) != len(answers):
            raise HoldfastError("Give a list of prompts and a list of as many answers, one to each.")
        if not prompts:
            return torch.zeros(len(self.ensemble.members), 0)
        context = context_of(self.lm.config)
        rows = [
            _encoded(self.codec, p, (a,), context, f"answer {i}")
            for i, (p, a) in enumerate(zip(prompts, answers, strict=True))
        ]
        scores_KB = self.ensemble.scores([prompt for prompt, _ in rows], [answer for _, (answer,) in rows])
        if not bool(torch.isfinite(scores_KB).all()):
            raise HoldfastError("A member of the ensemble gives scores that are not numbers; train it with a lower lr.")
        return scores_KB


def _labelled(pairs: Sequence[PreferredAnswer | LabelledComparison], codec: Codec, context: int | None) -> list[Pair]:
    labelled = []
    for i, item in enumerate(pairs):
        if isinstance(item, LabelledComparison):
            (pair,) = pairs_of(codec, [item])
        elif isinstance(item, tuple) and len(item) == 3:
            prompt, (chosen, rejected) = _encoded(codec, item[0], item[1:], context, f"pair {i}")
            pair = Pair(prompt, chosen, rejected, share_a=1.0, round=0, key=f"pair-{i}")
        else:
            raise HoldfastError(f"Pair {i} is not (prompt, preferred answer, other answer), nor a labelled comparison.")
        labelled.append(pair)
    return labelled


def _encoded(
    codec: Codec, prompt: Prompt, answers: Sequence[str], context: int | None, which: str
) -> tuple[list[int], list[list[int]]]:
    """A prompt and answers to it as tokens."""
    if not prompt or not all(isinstance(answer, str) and answer.strip() for answer in answers):
        raise HoldfastError(f"The prompt or an answer of {which} is empty or no text; leave it out.")
    tokens = codec.encode_prompt(prompt), [codec.encode_response(answer) for answer in answers]
    length = len(tokens[0]) + max(map(len, tokens[1]))
    if context is not None and length > context:
        raise HoldfastError(f"The text of {which} has {length} tokens with its prompt, but the model sees {context}.")
    return tokens
