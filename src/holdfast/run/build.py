"""Putting a run together: from a config to a loop that is ready to go.

    Ingredients (nothing written)  ->  run directory  ->  reference  ->  version 1 of the ensemble  ->  OnlineLoop

All checks of the user's input happen in `gather`, before the first byte is written. Each stage that has been
finished is found on disk again, so a run cut short in preparation goes on from there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from holdfast.checkpoint.store import CheckpointStore
from holdfast.config import Config
from holdfast.control.kl import AdaptiveKL, BudgetKL, FixedKL, KLController
from holdfast.control.limit import KLLimit
from holdfast.control.plateau import Plateau
from holdfast.control.policy_mean import PolicyMean
from holdfast.control.schedule import Annealing, LearningRate
from holdfast.control.triggers import RefreshTriggers
from holdfast.guard.auditor import Auditing
from holdfast.guard.bar import planned_bar
from holdfast.guard.guard import Guard
from holdfast.guard.ladder import Ladder
from holdfast.guard.review import Guarding, most_pairs
from holdfast.models.codec import Codec
from holdfast.models.load import load_causal_lm, save_model
from holdfast.models.lora import adapted, is_adapted, lora_of, merge_into_base
from holdfast.models.policy import Policy
from holdfast.models.reward_model import CriticModel
from holdfast.models.sharding import shard, whole_state
from holdfast.parallel.processes import PROCESSES
from holdfast.people.requests import RequestStore
from holdfast.people.team import TeamLabeller
from holdfast.people.weights import LabellerWeights
from holdfast.preferences.collector import Collecting
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import Cursor, Streams, derive_seed, generator
from holdfast.reward.ensemble import Ensemble, VersionStore
from holdfast.reward.refresher import Refresher
from holdfast.reward.scoring import RewardSource
from holdfast.reward.standalone import build_ensemble
from holdfast.rollout.sampler import Rollout, sample
from holdfast.rollout.served import ServedSampler
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import Ingredients
from holdfast.run.loop import Observer, OnlineLoop, sampling_of
from holdfast.run.owner import Obeying
from holdfast.run.probes import data_prober, while_imitating
from holdfast.track.progress import Progress
from holdfast.track.sinks import Sink, open_sinks
from holdfast.track.tracker import Tracker
from holdfast.train.dpo import OnlineDPO
from holdfast.train.ppo import PPO, PolicyOptimiser
from holdfast.train.sft import fine_tune
from holdfast.worlds.flaws import flaw_bonus


@dataclass
class Assembly:
    """A run directory with its open files; `close` when done."""

    run: RunDirectory
    loop: OnlineLoop
    resources: ExitStack

    def close(self) -> None:
        self.resources.close()


def prepare_reference(ingredients: Ingredients, run: RunDirectory, tracker: Tracker, progress: Progress) -> Any:
    """Supervised fine-tuning, or the reference that an earlier attempt has finished."""
    config, task, codec = ingredients.config, ingredients.task, ingredients.codec
    if run.reference.is_dir():
        run.check_reference()
        return load_causal_lm(run.reference, config.policy.dtype)[0].to(config.run.device)
    lm = ingredients.lm
    if config.sft.epochs and task.demonstrations:
        with PROCESSES.joint("imitator"):
            policy = imitator(ingredients)
        prober = data_prober(
            config, run, codec, tracker, "sft", policy.context, ingredients.imported, task.demonstrations
        )
        loss = fine_tune(
            policy,
            codec,
            task.demonstrations,
            config.sft,
            config.policy.micro_batch_tokens,
            generator(config.run.seed, "sft"),
            progress,
            while_imitating(prober, policy, config, codec, sampling_of(config), len(task.demonstrations)),
        )
        take_in(ingredients, policy)
        PROCESSES.models.clear()
        tracker.event(0, 0, "sft_finished", loss=loss, demonstrations=len(task.demonstrations))
    lm.to(getattr(torch, config.policy.dtype))
    save_model(run.reference, lm, codec)
    run.seal_reference()
    return lm


def imitator(ingredients: Ingredients) -> Policy:
    """The model that fine-tuning moves: the given one, adapters on it, or a copy that is dealt out over the processes.

    A fresh model knows nothing yet that adapters could build on, so all of it learns.
    """
    config, lm = ingredients.config, ingredients.lm
    if config.policy.lora_rank and not ingredients.fresh:
        lm = adapted(lm, lora_of(config.policy), derive_seed(config.run.seed, "sft adapters"))
    elif PROCESSES.sharded:
        lm = copy.deepcopy(lm)
    policy = shard(Policy(lm, fast=config.policy.fast, checkpointing=config.policy.gradient_checkpointing))
    PROCESSES.hold({"imitator": policy})
    return policy


def take_in(ingredients: Ingredients, policy: Policy) -> None:
    """Put what an imitator has learnt into the ingredients' own weights, where it did not work on those."""
    if is_adapted(policy.lm):
        merge_into_base(policy.lm)
    elif policy.lm is not ingredients.lm:
        state = whole_state(policy)
        ingredients.lm.load_state_dict({name.removeprefix("lm."): tensor for name, tensor in state.items()})


def hold_models(
    policy: Policy, reference: Policy, critic: CriticModel | None, ensemble: Ensemble, guarding: Guarding[Policy] | None
) -> None:
    """Name the models for the other processes. The reference is dealt out last: the others are copies of it."""
    anchor = None if guarding is None else guarding.anchor
    members = {f"member-{k}": member for k, member in enumerate(ensemble.members)}
    models = {"policy": policy, "critic": critic, "anchor": anchor, "probe": ensemble.probe}
    PROCESSES.models.clear()
    PROCESSES.hold({**models, **members, "reference": shard(reference)})


def assemble(
    ingredients: Ingredients,
    run: RunDirectory,
    progress: Progress,
    observers: Sequence[Observer] = (),
    stop_requested: Callable[[], bool] = lambda: False,
    ensemble_from: Path | None = None,
    answers: bool = True,
) -> Assembly:
    """Prepare what is missing (reference, first ensemble) and build the loop, restored to the newest checkpoint.

    Whoever resumes a run that had stopped to ask has answered, unless nobody does (`answers`).
    """
    config = ingredients.config
    with ExitStack() as stack:
        sinks: list[Sink] = open_sinks(config.track.sinks, run.path, config.track.project, run.name)
        tracker = Tracker(run.path, sinks)
        stack.callback(tracker.close)
        store = stack.enter_context(PreferenceStore.open(run.database_url(config)))
        checkpoints = CheckpointStore(run.checkpoints, keep=config.checkpoint.keep)
        resuming = not checkpoints.is_empty()
        if not resuming:
            start_afresh(tracker, observers, keep_probes=run.reference.is_dir())
        reference_lm = prepare_reference(ingredients, run, tracker, progress)
        with PROCESSES.joint("build", weights=reference_lm.state_dict()):
            loop = build_loop(
                ingredients, run, reference_lm, store, tracker, checkpoints, progress, observers, stop_requested
            )
        connect_people(loop, run)
        if resuming:
            loaded = checkpoints.load_newest(loop.check_restorable)
            loop.restore(loaded, answers)
            for sentence in loaded.skipped:
                loop.event("checkpoint_skipped", reason=sentence)
            loop.event("resumed", checkpoint=loaded.name)
        else:
            first_ensemble(loop, ingredients, reference_lm, ensemble_from)
        loop.prober = data_prober(
            config, run, ingredients.codec, tracker, "ppo" if config.run.optimiser == "ppo" else "online dpo",
            loop.policy.context, ingredients.imported, ingredients.task.demonstrations, store,
        )  # fmt: skip
        return Assembly(run, loop, stack.pop_all())


def connect_people(loop: OnlineLoop, run: RunDirectory) -> None:
    """Where people or a judge answer: give them the store, and look at the quality of what they say."""
    labeller, store = loop.collecting.labeller, loop.collecting.store
    if not isinstance(labeller, TeamLabeller):
        return
    weights = LabellerWeights(store, run.key, loop.config.quality)

    def look() -> None:
        if changed := weights.update():
            loop.event("label_quality", changed=changed, unreliable=loop.config.quality.unreliable)

    labeller.connect(store, run.key, loop.progress.hold, loop.stop_requested, loop.event)
    loop.collecting.after_people = look
    look()


def start_afresh(tracker: Tracker, observers: Sequence[Observer], keep_probes: bool) -> None:
    """Nothing was committed yet: rows of an earlier, cut attempt at preparation go, its events stay.

    Probes of a fine-tuning that has ended stay too, since it will not be done again.
    """
    tracker.rewind({**tracker.offsets(), "metrics": 0, "samples": 0, **({} if keep_probes else {"probes": 0})})
    for observer in observers:
        observer.rewind(-1)


def first_ensemble(loop: OnlineLoop, ingredients: Ingredients, reference_lm: Any, given: Path | None) -> None:
    """Version 1: given, found finished from an earlier attempt, or trained on the first labels."""
    refreshing, collecting = loop.refreshing, loop.collecting
    if given is not None:
        VersionStore(given).load_in_use_into(loop.rewarding.ensemble)
        refreshing.versions.save(loop.rewarding.ensemble)
        return
    if refreshing.versions.numbers():
        refreshing.versions.load_in_use_into(loop.rewarding.ensemble)
        first_repeats(loop)
        return
    if ingredients.imported:
        collecting.store.add_comparisons([item.comparison for item in ingredients.imported])
        collecting.store.add_labels([label for item in ingredients.imported for label in item.labels])
    loop.progress.begin("first comparisons", 1)
    collecting.collect_initial(ingredients.config.reward.initial_comparisons, loop.reference, loop.sample, loop.streams)
    loop.progress.advance()
    outcome = refreshing.first_version(loop.streams)
    loop.tracker.event(
        0, 0, "ensemble_trained", version=outcome.version, labels=outcome.labels, loss=outcome.loss,
        train_accuracy=outcome.train_accuracy, holdout_accuracy=outcome.holdout_accuracy,
    )  # fmt: skip
    first_repeats(loop)


def first_repeats(loop: OnlineLoop) -> None:
    """Ask some of the first comparisons again: what honest people answer, for the gate to compare with."""
    if loop.config.preferences.per_round and loop.collecting.labeller is not None:
        repeats = loop.refreshing.to_repeat(0, loop.streams.seed)
        if repeats:
            loop.collecting.ask(repeats)
            loop.tracker.event(0, 0, "labels_repeated", repeats=len(repeats))


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


def served_sampler(config: Config, run: RunDirectory, codec: Codec) -> ServedSampler | None:
    """Who samples from the policy, where a server does."""
    if not config.vllm.url:
        return None
    weights = Path(config.vllm.weights) if config.vllm.weights else run.path / "served"
    return ServedSampler(
        config.vllm, sampling_of(config), codec.eos_id, codec.pad_id, config.policy.micro_batch_tokens, weights,
        save=lambda directory, lm: save_model(directory, lm, codec),
    )  # fmt: skip


def controller_of(config: Config) -> KLController:
    kl = config.kl
    if kl.controller == "fixed":
        return FixedKL(kl.beta)
    if kl.controller == "adaptive":
        return AdaptiveKL(kl.beta, kl.target, kl.horizon)
    return BudgetKL(kl.beta, kl.budget_start, kl.budget_per_1000_labels, kl.budget_ceiling, kl.horizon)


def optimiser_of(config: Config, policy: Policy, critic: CriticModel | None, codec: Codec) -> PolicyOptimiser:
    """What moves the policy in the loop."""
    limits = config.rollout.temperature, config.policy.micro_batch_tokens, codec.pad_id
    if config.run.optimiser == "dpo":
        return OnlineDPO(policy, config.ppo, config.dpo, config.kl, *limits)
    return PPO(policy, critic, config.ppo, config.kl, *limits)


def guarding_of(
    config: Config, reference: Policy, like_policy: Callable[[], Policy], collecting: Collecting
) -> Guarding[Policy] | None:
    """The guard with its collaborators; None where it is switched off."""
    if config.guard.mode == "off":
        return None
    rounds, audits = config.run.rounds, config.audit
    bar = planned_bar(config.guard.false_alarm, rounds, audits.pairs, most_pairs(audits))
    return Guarding(
        config=config.guard,
        audits=audits,
        seed=config.run.seed,
        guard=Guard(config.guard, rounds, bar),
        auditing=Auditing(collecting, config.audit),
        ladder=Ladder(config.guard),
        reference=reference,
        anchor=like_policy(),
    )


def build_loop(
    ingredients: Ingredients,
    run: RunDirectory,
    reference_lm: Any,
    store: PreferenceStore,
    tracker: Tracker,
    checkpoints: CheckpointStore,
    progress: Progress,
    observers: Sequence[Observer],
    stop_requested: Callable[[], bool],
) -> OnlineLoop:
    """Every collaborator of the loop, in its starting state."""
    config, task, codec = ingredients.config, ingredients.task, ingredients.codec
    seed = config.run.seed
    valued = config.run.optimiser == "ppo" and config.ppo.advantage == "gae"
    with_head = valued and config.policy.critic == "head"
    with_critic = valued and config.policy.critic == "model"
    reference = Policy(reference_lm, fast=config.policy.fast)
    fresh_policy = partial(policy_on, config, reference_lm, with_head)
    policy = fresh_policy()
    critic = critic_on(config, reference_lm) if with_critic else None
    ensemble = build_ensemble(config, reference_lm, codec)
    ensemble.bonus = flaw_bonus(ingredients.flaw, codec) if ingredients.flaw else None

    def reference_answers(prompts: list[list[int]], rng: torch.Generator) -> Rollout:
        return sample(reference, prompts, sampling_of(config), codec.eos_id, codec.pad_id, rng)

    collecting = Collecting(
        run.key, codec, task.prompts, store, task.labeller, ensemble, config.preferences,
        Cursor(len(task.prompts), seed, "collect"),
    )  # fmt: skip
    guarding = guarding_of(config, reference, fresh_policy, collecting)
    hold_models(policy, reference, critic, ensemble, guarding)
    rows = Cursor(len(task.prompts), seed, "standardise").take(config.reward.standardise_samples)
    standard = reference_answers([codec.encode_prompt(task.prompts[i]) for i in rows], generator(seed, "standardise"))
    loop = OnlineLoop(
        config=config,
        codec=codec,
        prompts=task.prompts,
        fixed_prompts=list(task.heldout_prompts[: config.track.samples]),
        policy=policy,
        reference=reference,
        ppo=optimiser_of(config, policy, critic, codec),
        rewarding=RewardSource(ensemble, config.reward, reference_answers, config.flaw),
        collecting=collecting,
        refreshing=Refresher(
            ensemble, VersionStore(run.rewards), store, codec, config.reward, config.refresh,
            standard.prompts, standard.responses, progress, config.gate, run.key,
        ),
        controller=controller_of(config),
        limit=KLLimit(config.kl.hard_limit or None),
        learning_rate=LearningRate(config.ppo.lr, config.ppo.lr_warmup_steps, config.ppo.lr_decay, config.ppo.lr_floor),
        annealing=Annealing(config.ppo.lr_final, config.run.rounds * config.run.steps_per_round),
        averaging=PolicyMean(config.run.rounds, config.run.average),
        plateau=Plateau(config.ppo.plateau_window, config.ppo.plateau_tolerance),
        triggers=RefreshTriggers(
            config.refresh.every_rounds, config.refresh.kl_since, config.refresh.on_plateau, config.refresh.freeze,
            config.refresh.on_miscalibration,
        ),
        streams=Streams(seed),
        tracker=tracker,
        checkpoints=checkpoints,
        progress=progress,
        guarding=guarding,
        obeying=Obeying(RequestStore(store.database, run.key), poll_seconds=config.people.poll_seconds),
        served=served_sampler(config, run, codec),
        observers=observers,
        stop_requested=stop_requested,
    )  # fmt: skip
    # In the rounds the reference's answers are counted with all others.
    loop.rewarding.reference_answers = partial(loop.sample, reference)
    return loop
