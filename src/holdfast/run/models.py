"""The models of a run: policy, critic and reward members on copies of the reference, or as adapters on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.config import Config
from holdfast.models.codec import Codec
from holdfast.models.lora import adapted, lora_of
from holdfast.models.policy import Policy
from holdfast.models.reward_model import CriticModel
from holdfast.models.sharding import shard
from holdfast.parallel.processes import PROCESSES
from holdfast.randomness import derive_seed
from holdfast.reward.classifier import classifier_ensemble
from holdfast.reward.ensemble import Ensemble
from holdfast.reward.standalone import build_ensemble
from holdfast.run.inputs import Ingredients
from holdfast.train.dpo import OnlineDPO
from holdfast.train.ppo import PPO, PolicyOptimiser
from holdfast.worlds.flaws import flaw_bonus


@dataclass(frozen=True)
class Models:
    """The models of a run in their starting state, and what moves them; every process holds the same ones.

    A run whose reward is given has no ensemble.
    """

    policy: Policy
    reference: Policy
    critic: CriticModel | None
    anchor: Policy | None
    ensemble: Ensemble | None
    optimiser: PolicyOptimiser


def build_models(ingredients: Ingredients, reference_lm: Any) -> Models:
    """The models of a run, named for the other processes; the reference is dealt out last, as the others copy it."""
    config, codec = ingredients.config, ingredients.codec
    valued = config.run.optimiser == "ppo" and config.ppo.advantage == "gae"
    reference = Policy(reference_lm, fast=config.policy.fast)
    fresh_policy = partial(policy_on, config, reference_lm, valued and config.policy.critic == "head")
    policy = fresh_policy()
    critic = critic_on(config, reference_lm) if valued and config.policy.critic == "model" else None
    ensemble = ensemble_of(ingredients, reference_lm)
    anchor = fresh_policy() if config.guard.mode != "off" else None
    members = {f"member-{k}": member for k, member in enumerate(ensemble.members if ensemble else ())}
    PROCESSES.models.clear()
    held = {"policy": policy, "critic": critic, "anchor": anchor, **members}
    PROCESSES.hold({**held, "reference": shard(reference)})
    return Models(policy, reference, critic, anchor, ensemble, optimiser_of(config, policy, critic, codec))


def ensemble_of(ingredients: Ingredients, reference_lm: Any) -> Ensemble | None:
    """The ensemble on copies of the reference, or of one published model; None where the reward is given."""
    config, codec = ingredients.config, ingredients.codec
    if ingredients.given:
        return None
    if ingredients.classifier is not None:
        return classifier_ensemble(config, ingredients.classifier, codec)
    bonus = None if ingredients.flaw is None else flaw_bonus(ingredients.flaw, codec)
    return build_ensemble(config, reference_lm, codec, bonus)


def policy_on(config: Config, reference_lm: Any, value_head: bool = False) -> Policy:
    """The policy at its beginning, equal to the reference: a copy of it, or adapters on its weights."""
    p = config.policy
    lm = adapted(reference_lm, lora_of(p), derive_seed(config.run.seed, "policy adapters"))
    return shard(Policy(lm, value_head, p.fast, p.gradient_checkpointing).to(config.run.device))


def critic_on(config: Config, reference_lm: Any) -> CriticModel:
    """A value function of its own, on a copy of the reference's trunk or as adapters on it."""
    p = config.policy
    trunk = adapted(reference_lm.base_model, lora_of(p), derive_seed(config.run.seed, "critic adapters"))
    return shard(CriticModel(trunk, p.fast, p.gradient_checkpointing).to(config.run.device))


def optimiser_of(config: Config, policy: Policy, critic: CriticModel | None, codec: Codec) -> PolicyOptimiser:
    """What moves the policy in the loop."""
    limits = config.rollout.temperature, config.policy.micro_batch_tokens, codec.pad_id
    if config.run.optimiser == "dpo":
        return OnlineDPO(policy, config.ppo, config.dpo, config.kl, *limits)
    return PPO(policy, critic, config.ppo, config.kl, *limits, config.rollout.max_new_tokens)
