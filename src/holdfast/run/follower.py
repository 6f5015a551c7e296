"""What the processes other than the first do: hold the same models, and do their share when process 0 says so.

    gather -> agree -> build the same models -> receive -> work -> receive -> ... -> end

A follower has the loop's objects, because models are built in one place, but never runs the loop: its store, tracker
and checkpoints stay empty in a directory that goes when it ends.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from holdfast.checkpoint.store import CheckpointStore
from holdfast.config import Config
from holdfast.config.schema import SFTConfig
from holdfast.errors import HoldfastError
from holdfast.models.batches import MicroBatch, take_rows
from holdfast.models.sharding import close, copy_in, full, whole
from holdfast.parallel.cores import CORES
from holdfast.parallel.processes import PROCESSES, Message
from holdfast.preferences.pair import Pair
from holdfast.preferences.store import PreferenceStore
from holdfast.reward.training import FitSettings, fit_with
from holdfast.rollout.sampler import Rollout, Sampling, sample_with
from holdfast.run.build import build_loop, imitator
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import Ingredients
from holdfast.run.loop import OnlineLoop
from holdfast.track.progress import Silent
from holdfast.track.tracker import Tracker
from holdfast.train.optimiser import optimiser_snapshot, restore_optimiser
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
    with tempfile.TemporaryDirectory(prefix="holdfast-follower-") as scratch, ExitStack() as resources:
        follower = Follower(ingredients, RunDirectory.create(Path(scratch) / "run", ingredients.config, {}), resources)
        while (message := PROCESSES.receive()).work != "end":
            if message.work == "wait":
                continue
            try:
                with PROCESSES.joined():
                    WORK[message.work](follower, message)
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
    run: RunDirectory
    resources: ExitStack
    loop: OnlineLoop | None = None
    imitating: Imitator | None = None

    @property
    def here(self) -> OnlineLoop:
        assert self.loop is not None, "process 0 begins with `build`"
        return self.loop

    def only(self, message: Message) -> Any:
        """The model that the work is about."""
        (name,) = message.models
        return PROCESSES.models[name]


def prepare_imitator(follower: Follower, message: Message) -> None:
    imitator(follower.ingredients)


def begin_imitating(follower: Follower, message: Message) -> None:
    config = SFTConfig(**message.document["sft"])
    follower.imitating = Imitator(follower.only(message), config, *message.document["limits"])


def imitate(follower: Follower, message: Message) -> None:
    assert follower.imitating is not None
    follower.imitating.update(**message.document)


def build(follower: Follower, message: Message) -> None:
    """The same models as process 0 has, from the same weights of the reference."""
    ingredients, run = follower.ingredients, follower.run
    follower.imitating = None
    ingredients.lm.to(getattr(torch, ingredients.config.policy.dtype)).load_state_dict(dict(message.tensors))
    tracker = Tracker(run.path)
    follower.resources.callback(tracker.close)
    store = follower.resources.enter_context(PreferenceStore.open(f"sqlite:///{run.path / 'run.db'}"))
    follower.loop = build_loop(
        ingredients, run, ingredients.lm, store, tracker, CheckpointStore(run.checkpoints), Silent(), (), lambda: False
    )


def sample(follower: Follower, message: Message) -> None:
    given, policy = message.document, follower.only(message)
    sampling = Sampling(**given["sampling"])
    with whole(policy):
        sample_with(policy, given["prompts"], sampling, given["eos_id"], given["pad_id"], message.tensors["uniform"])


def values(follower: Follower, message: Message) -> None:
    given, model = message.document, follower.only(message)
    shape = len(given["responses"]), max(map(len, given["responses"]))
    with whole(model):
        values_of(model, shape, _batches(follower, given), given["temperature"])


def score(follower: Follower, message: Message) -> None:
    models: list[Any] = [PROCESSES.models[name] for name in message.models]
    follower.here.rewarding.ensemble.score_with(models, **message.document)


def fit(follower: Follower, message: Message) -> None:
    given, ensemble = message.document, follower.here.rewarding.ensemble
    ensemble.bonus_scale = given["bonus_scale"]
    pairs = [Pair(*fields) for fields in given["pairs"]]
    settings = FitSettings(**given["settings"])
    fit_with(ensemble, pairs, settings, follower.here.config.reward, given["seeds"], Silent())


def learn(follower: Follower, message: Message) -> None:
    given, tensors = message.document, message.tensors
    rollout = Rollout(
        given["prompts"], given["responses"], tensors["logprobs"], None, tensors["mask"], given["finished"]
    )
    experience = Experience(
        rollout, tensors["reference"], tensors["values"], tensors["advantages"], tensors["returns"], tensors["kl"],
        tensors["rewards"],
    )  # fmt: skip
    rng = torch.Generator()
    rng.set_state(tensors["rng"])
    follower.here.ppo.learn(experience, _batches(follower, given), given["beta"], given["lr"], rng)


def put(follower: Follower, message: Message) -> None:
    copy_in(follower.only(message), message.tensors)


def put_optimiser(follower: Follower, message: Message) -> None:
    restore_optimiser(follower.here.ppo.optimiser, message.tensors, message.document)


def give_state(follower: Follower, message: Message) -> None:
    for tensor in follower.only(message).state_dict().values():
        full(tensor)


def give_optimiser(follower: Follower, message: Message) -> None:
    optimiser_snapshot(follower.here.ppo.optimiser, whole=True)


def open_up(follower: Follower, message: Message) -> None:
    whole(follower.only(message)).__enter__()


def close_again(follower: Follower, message: Message) -> None:
    close(follower.only(message))


def _batches(follower: Follower, given: Any) -> list[MicroBatch]:
    device = follower.here.policy.device
    return [take_rows(given["prompts"], given["responses"], rows, given["pad_id"], device) for rows in given["groups"]]


WORK: dict[str, Callable[[Follower, Message], None]] = {
    "imitator": prepare_imitator,
    "begin imitating": begin_imitating,
    "imitate": imitate,
    "build": build,
    "sample": sample,
    "values": values,
    "score": score,
    "fit": fit,
    "learn": learn,
    "put": put,
    "put optimiser": put_optimiser,
    "state": give_state,
    "optimiser": give_optimiser,
    "open": open_up,
    "close": close_again,
}
