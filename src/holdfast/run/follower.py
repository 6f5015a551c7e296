"""What the processes other than the first do: hold the same models, and do their share when process 0 says so.

    gather -> agree -> build the same models -> receive -> work -> receive -> ... -> end

A follower has the loop's objects, because models are built in one place, but never runs the loop: its store, tracker
and checkpoints stay empty in a directory that goes when it ends.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.grammar.grammars import each_grammar
from holdfast.models.batches import MicroBatch, take_rows
from holdfast.models.sharding import close, copy_in, full, whole
from holdfast.parallel.cores import CORES
from holdfast.parallel.processes import PROCESSES
from holdfast.preferences.pair import Pair
from holdfast.reward.ensemble import Ensemble, Tokens
from holdfast.reward.training import FitSettings, fit_with
from holdfast.rollout.sampler import sample_with
from holdfast.rollout.support import Support
from holdfast.run.inputs import Ingredients
from holdfast.run.models import Models, build_models
from holdfast.run.reference import imitator
from holdfast.track.progress import Silent
from holdfast.train.optimiser import OptimiserState
from holdfast.train.ppo import Experience, NonFiniteStep, values_of
from holdfast.train.sft import Imitator

Result = TypeVar("Result")


def join_processes(config: Config) -> Config:
    """Join the other processes of this run, if there are any; returns the settings as they are for this one."""
    on_cpu = config.run.device.partition(":")[0] == "cpu"
    sharded = config.processes.strategy == "fsdp2"
    PROCESSES.start(config.processes.timeout_minutes, on_cpu, sharded)
    if PROCESSES.world == 1:
        return config
    if not on_cpu:
        # One accelerator each; which of those of its machine is the launcher's affair.
        config = replace(config, run=replace(config.run, device=f"{config.run.device}:{PROCESSES.local_rank}"))
    # The packed path reads weights past the modules, where FSDP does not put them together.
    return replace(config, policy=replace(config.policy, fast=False)) if sharded else config


def agreed(check: Callable[[], Result]) -> Result:
    """What a check gives, once it has passed in every process; otherwise all end, and process 0 says why."""
    complaint, result = "", None
    try:
        result = check()
    except HoldfastError as error:
        complaint = str(error)
    PROCESSES.agree(complaint)
    if PROCESSES.sharded:
        # FSDP's gathering of weights is for one thread at a time.
        torch.set_num_threads(max(CORES.workers, torch.get_num_threads()))
        CORES.set_workers(1)
    return result  # type: ignore[return-value]


def follow(gather: Callable[[], Ingredients]) -> int:
    """Follow process 0 to the end of its run."""
    # Whoever stops a run stops process 0, at a point from which it can be resumed; the others help it to get there.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    ingredients = agreed(gather)
    follower = Follower(ingredients)
    while (order := PROCESSES.receive()).work != "end":
        if order.work == "wait":
            continue
        try:
            with PROCESSES.joined():
                WORK[order.work](follower, *(PROCESSES.models[name] for name in order.models), **order.needed)
        except (HoldfastError, NonFiniteStep) as error:
            # Process 0 has met it too, and decides what becomes of it.
            if not getattr(error, "met_by_all", False):
                raise
    PROCESSES.part_ways()
    return 0


@dataclass
class Follower:
    """The models of one process that follows, and what moves them."""

    ingredients: Ingredients
    models: Models | None = None
    imitator: Imitator | None = None

    @property
    def here(self) -> Models:
        assert self.models is not None, "process 0 begins with `build`"
        return self.models

    @property
    def ensemble(self) -> Ensemble:
        assert self.here.ensemble is not None, "only an ensemble is asked and trained together"
        return self.here.ensemble

    def batches(
        self, prompts: Tokens, responses: Tokens, rows: Sequence[list[int]], support: Support | None
    ) -> list[MicroBatch]:
        """The micro-batches that process 0 has cut, by the rows of each."""
        pad_id, device = self.ingredients.codec.pad_id, self.here.policy.device
        return [take_rows(prompts, responses, of_batch, pad_id, device, support) for of_batch in rows]


# Each piece of work is called with the models that it is about, and with what it needs by name.


def prepare_imitator(follower: Follower) -> None:
    imitator(follower.ingredients)


def begin_imitating(follower: Follower, policy: Any, **needed: Any) -> None:
    follower.imitator = Imitator(policy, **needed)


def imitate(follower: Follower, policy: Any, **needed: Any) -> None:
    assert follower.imitator is not None
    follower.imitator.update(**needed)


def build(follower: Follower, weights: dict[str, Tensor]) -> None:
    """The same models as process 0 has, from the same weights of the reference."""
    ingredients = follower.ingredients
    follower.imitator = None
    ingredients.lm.to(getattr(torch, ingredients.config.policy.dtype)).load_state_dict(weights)
    follower.models = build_models(ingredients, ingredients.lm)


def sample(follower: Follower, policy: Any, constrained: bool, **needed: Any) -> None:
    grammars = each_grammar(follower.ingredients.grammars, needed["prompts"]) if constrained else None
    with whole(policy):
        sample_with(policy, **needed, grammars=grammars)


def values(
    follower: Follower, model: Any, prompts: Tokens, responses: Tokens, rows: list[list[int]],
    support: Support | None, temperature: float, truncated: bool,
) -> None:  # fmt: skip
    shape = len(responses), max(map(len, responses))
    with whole(model):
        values_of(model, shape, follower.batches(prompts, responses, rows, support), temperature, truncated)


def score(follower: Follower, *models: Any, **needed: Any) -> None:
    follower.ensemble.score_with(models, **needed)


def fit(
    follower: Follower, *models: Any, pairs: list[Pair], settings: FitSettings, seeds: list[int], bonus_scale: float
) -> None:
    ensemble = follower.ensemble
    ensemble.bonus_scale = bonus_scale
    fit_with(ensemble, pairs, settings, follower.ingredients.config.reward, seeds, Silent())


def learn(follower: Follower, policy: Any, experience: Experience, rows: list[list[int]], **needed: Any) -> None:
    rollout = experience.rollout
    batches = follower.batches(rollout.prompts, rollout.responses, rows, rollout.support)
    follower.here.optimiser.learn(experience, batches, **needed)


def probe(follower: Follower, policy: Any, experience: Experience, rows: list[list[int]], **needed: Any) -> None:
    rollout = experience.rollout
    batches = follower.batches(rollout.prompts, rollout.responses, rows, rollout.support)
    follower.here.optimiser.probe(experience, batches, **needed)


def put(follower: Follower, model: Any, state: dict[str, Tensor]) -> None:
    copy_in(model, state)


def put_optimiser(follower: Follower, state: dict[str, Any]) -> None:
    OptimiserState(follower.here.optimiser.optimiser).restore(state)


def give_state(follower: Follower, model: Any) -> None:
    for tensor in model.state_dict().values():
        full(tensor)


def give_optimiser(follower: Follower) -> None:
    OptimiserState(follower.here.optimiser.optimiser).state()


def open_up(follower: Follower, model: Any) -> None:
    whole(model).__enter__()


def close_again(follower: Follower, model: Any) -> None:
    close(model)


WORK: dict[str, Callable[..., None]] = {
    "imitator": prepare_imitator,
    "begin imitating": begin_imitating,
    "imitate": imitate,
    "build": build,
    "sample": sample,
    "values": values,
    "score": score,
    "fit": fit,
    "learn": learn,
    "probe": probe,
    "put": put,
    "put optimiser": put_optimiser,
    "state": give_state,
    "optimiser": give_optimiser,
    "open": open_up,
    "close": close_again,
}
