"""Which probes a run has: the set that its data allows, kept in the run directory, and a prober for a stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.models.batches import MicroBatch
from holdfast.models.codec import Codec
from holdfast.models.policy import Policy
from holdfast.models.sharding import opened
from holdfast.preferences.comparison import PreferencePair
from holdfast.preferences.store import PreferenceStore
from holdfast.probes.probe import read_rollout
from holdfast.probes.probe_set import ProbeSet, build_set, demonstration_pairs, labelled_pairs
from holdfast.probes.prober import Answering, Prober
from holdfast.randomness import generator
from holdfast.run.answers import run_answers
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import Ingredients
from holdfast.run.journal import Position
from holdfast.track.tracker import PROBES_FILE, Tracker
from holdfast.train.ppo import Experience, response_values

SET_FILE = "probes.json"


def probe_set(
    config: Config, run: RunDirectory, codec: Codec, context: int | None, pairs: Sequence[PreferencePair]
) -> ProbeSet | None:
    """The run's set, built now if it is not there yet; None without probes, or without answers to build it of."""
    if config.probes.every == 0:
        return None
    path = run.path / SET_FILE
    if path.is_file():
        return ProbeSet.load(path)
    if (run.path / PROBES_FILE).is_file() and (run.path / PROBES_FILE).stat().st_size and run.sealed() is not None:
        raise HoldfastError(f"{path} is missing, and the answers that were probed so far are in it; bring it back.")
    if len(pairs) < 2:
        return None
    probes = build_set(pairs, codec, config.run.seed, config.probes.prompts, context)
    probes.save(path)
    return probes


def prober_of(
    config: Config, run: RunDirectory, codec: Codec, tracker: Tracker, stage: str, probes: ProbeSet | None
) -> Prober | None:
    """A prober for one stage; a run that is resumed has it recall its rows once the log is back at the checkpoint."""
    if probes is None:
        return None
    return Prober(
        stage, run.path / SET_FILE, probes, config.probes.every, tracker, codec.pad_id, config.policy.micro_batch_tokens
    )


def data_prober(
    ingredients: Ingredients, run: RunDirectory, tracker: Tracker, stage: str, context: int | None,
    store: PreferenceStore | None = None,
) -> Prober | None:  # fmt: skip
    """A prober of the set that the run has, or of one from its data: labelled comparisons, else demonstrations.

    With nothing else the first labels in the store will do.
    """
    config, codec = ingredients.config, ingredients.codec
    if config.probes.every == 0:
        return None
    pairs = labelled_pairs(ingredients.imported) or demonstration_pairs(
        ingredients.task.demonstrations, config.run.seed, config.probes.prompts
    )
    if not pairs and store is not None:
        pairs = labelled_pairs(store.labelled(up_to_round=0))
    return prober_of(config, run, codec, tracker, stage, probe_set(config, run, codec, context, pairs))


def while_imitating(
    prober: Prober | None, policy: Policy, ingredients: Ingredients, demonstrations: int
) -> Callable[[int], None]:
    """Probe before the first update of a fine-tuning; returns what to do after each of them."""
    if prober is None:
        return lambda update: None
    prober.rows = []  # fine-tuning always begins anew
    prober.begin(policy, own_answers(ingredients, prober.stage))
    config = ingredients.config
    last = config.sft.epochs * -(-demonstrations // config.sft.batch)

    def after_update(update: int) -> None:
        if prober.due(update) or update == last:
            prober.probe(policy, update, 0)

    return after_update


def own_answers(ingredients: Ingredients, stage: str) -> Answering:
    """How a policy answers the probes' prompts when a stage begins; always the same for the same policy."""

    def answer(policy: Policy, prompts: list[list[int]]) -> list[list[int]]:
        rng = generator(ingredients.config.run.seed, "probe answers", stage)
        return run_answers(ingredients, policy, Position()).sample(policy, prompts, rng, counted=False).responses

    return answer


def probe_step(
    prober: Prober, policy: Policy, experience: Experience, batches: list[MicroBatch], temperature: float, at: Any
) -> None:
    """A probe after a step of the loop, with what the step did to its own answers."""
    rollout = experience.rollout
    after_BT = response_values(policy, rollout, batches, temperature)
    with opened(policy):
        own = read_rollout(policy, batches, rollout.logprobs_BT, after_BT, experience.advantages_BT, rollout.mask_BT)
    prober.probe(policy, at.step, at.round, {"rollout": own})
