"""A report and a resume against the number of steps in the run.

A small real run is put together as the program does it, and then made long: every file gets the rows, the ledger the
entries and the store the labels that so many steps would have left, through the same objects that write them in a run.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch

from benchmarks.growth.process import Once, Preparation, Stopwatch
from benchmarks.growth.store import BATCH, answers, comparisons
from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.store import CheckpointStore
from holdfast.config import load_config
from holdfast.lab.observer import GoldObserver
from holdfast.models.prompt import Prompt
from holdfast.report.page import write_report
from holdfast.reward.ensemble import KEEP_ALL
from holdfast.run.build import assemble
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import gather
from holdfast.run.loop import OnlineLoop
from holdfast.run.observer import Answer
from holdfast.track.metrics import REGISTRY
from holdfast.track.progress import Silent
from holdfast.worlds.registry import load_task, load_world

STEPS_PER_ROUND = 10
LABELS_PER_ROUND = 8
SETTINGS = (
    "world.options={prompts = 64, demonstrations = 64, heldout = 16}",
    "policy.hidden=16", "policy.layers=1", "policy.heads=2", "policy.feed_forward=32", "policy.context=96",
    "sft.epochs=1", "rollout.max_new_tokens=12", "reward.members=2", "reward.initial_comparisons=24",
    "reward.epochs=1", "reward.standardise_samples=16", "run.threads=1", "guard.mode=off",
    f"run.steps_per_round={STEPS_PER_ROUND}", "run.rounds=1000000000",
)  # fmt: skip


def open_run(directory: Path) -> AbstractContextManager[OnlineLoop]:
    """The run in the directory as `holdfast resume` opens it, or a new one."""
    path = directory / "run"
    run = RunDirectory.open(path) if path.exists() else RunDirectory.create(path, load_config(None, SETTINGS), {})
    config = run.config()
    ingredients = gather(config, load_task(config, load_world(config)))
    observer = GoldObserver(_made_up, run.gold_file, ingredients.task.heldout_prompts)
    return assemble(ingredients, run, Silent(), [observer])


def _made_up(prompt: Prompt, response: str, finished: bool) -> float:
    return len(response) / 100


def grow(loop: OnlineLoop, steps: int) -> None:
    """Leave behind what a run of so many steps would, and a checkpoint at its end."""
    rng = random.Random(steps)
    for start in range(0, LABELS_PER_ROUND * steps // STEPS_PER_ROUND, BATCH):
        fresh = comparisons(start, start + BATCH)
        loop.collector.store.add_comparisons(fresh)
        loop.collector.store.add_labels(answers(fresh))
    for step in range(1, steps + 1):
        number = 1 + (step - 1) // STEPS_PER_ROUND
        if (step - 1) % STEPS_PER_ROUND == 0:
            _begin_round(loop, step - 1, number)
        _one_step(loop, step, number, rng)
        if step % STEPS_PER_ROUND == 0:
            _end_round(loop, step, number, rng)
    loop.position.round, loop.position.step = 1 + steps // STEPS_PER_ROUND, steps
    loop.commit(f"round-{steps // STEPS_PER_ROUND:04d}")


def _begin_round(loop: OnlineLoop, step: int, number: int) -> None:
    labels = {"comparisons": LABELS_PER_ROUND, "labels": LABELS_PER_ROUND, "repeats": 0}
    loop.journal.tracker.event(step, number, "labels_collected", **labels)
    loop.journal.tracker.event(
        step, number, "refresh", reason="1 round since the last refresh", version=number + 1,
        labels=LABELS_PER_ROUND * number, trained_on=3 * LABELS_PER_ROUND, loss=0.5, train_accuracy=0.8,
        holdout_accuracy=0.7, held_out=50, accepted=True, in_use=number + 1, gate_reason="passed every check",
    )  # fmt: skip


def _one_step(loop: OnlineLoop, step: int, number: int, rng: random.Random) -> None:
    kl, spent = 6 * (1 - math.exp(-step / 500)) + rng.gauss(0, 0.2), abs(rng.gauss(0.1, 0.03))
    loop.ledger.record(step, number, spent, kl)
    values = {name: rng.gauss(1.0, 0.1) for name in REGISTRY} | {"response/unfinished": 0.1}
    values |= {"objective/kl": kl, "objective/kl_step": spent, "control/kl_target": 6.0 + step // 1000}
    loop.journal.tracker.metrics(step, number, values)
    loop.journal.tracker.timing(step, number, sample=rng.uniform(1, 2), score=0.25, update=rng.uniform(2, 3))
    loop.audience.after_step(step, number, ["question"], [_answer(rng)])


def _end_round(loop: OnlineLoop, step: int, number: int, rng: random.Random) -> None:
    loop.journal.tracker.event(step, number, "round_finished", kl=6.0, kl_round=1.0)
    for index, prompt in enumerate(loop.showcase.prompts):
        loop.journal.tracker.sample(
            step, number, prompt_index=index, prompt=str(prompt), response=_answer(rng).text, finished=True, score=0.5
        )

    def answer(prompts: Sequence[Prompt], seed: int) -> list[Answer]:
        return [_answer(rng) for _ in prompts]

    loop.audience.after_samples(step, number, loop.showcase.prompts, answer(loop.showcase.prompts, 0))
    loop.audience.after_round(step, number, answer)


def _answer(rng: random.Random) -> Answer:
    return Answer("we serve breakfast in the bar " * rng.randrange(1, 5), True)


@contextmanager
def make(directory: Path, n: int) -> Preparation:
    """The run itself; what it costs to make is not a figure of interest."""
    with open_run(directory) as loop:
        yield Once(lambda: grow(loop, n))


@contextmanager
def report(directory: Path, n: int) -> Preparation:
    out = directory / "report.html"

    def work() -> dict[str, float]:
        write_report(directory / "run", out)
        return {"bytes": out.stat().st_size}

    yield work


@contextmanager
def resume(directory: Path, n: int) -> Preparation:
    """From the run directory to the moment before the first step."""

    def work() -> None:
        with open_run(directory):
            pass

    yield work


@contextmanager
def restore(directory: Path, n: int) -> Preparation:
    """The part of a resume that deals with what the run has left: verify, read, put back, cut the files."""
    with open_run(directory) as loop:
        yield lambda: loop.resume(loop.checkpoints.load_newest(loop.state.check))


@contextmanager
def account(directory: Path, n: int) -> Preparation:
    """What a step writes down about itself: ledger, metrics, timings."""
    rng, steps = random.Random(0), itertools.count(n + 1)
    with open_run(directory) as loop:

        def work() -> None:
            step = next(steps)
            number = 1 + (step - 1) // STEPS_PER_ROUND
            _one_step(loop, step, number, rng)
            loop.ledger.round_total(number)
            loop.ledger.since(step - STEPS_PER_ROUND)
            float(loop.ledger.spent)

        yield work


@contextmanager
def commit(directory: Path, n: int) -> Preparation:
    """A checkpoint."""
    with open_run(directory) as loop:
        yield lambda: loop.commit(f"round-{n // STEPS_PER_ROUND:04d}")


@contextmanager
def save_version(directory: Path, n: int) -> Preparation:
    """One more version of the ensemble where there are n, none of which is ever removed."""
    store = CheckpointStore(directory / "rewards", KEEP_ALL)
    snapshot = Snapshot({"member-0": {"weight": torch.zeros(4)}}, {"ensemble": {"version": 1}})
    for number in range(n):
        store.save(f"v{number:05d}", snapshot)
    numbers = itertools.count(n)
    fresh = CheckpointStore(directory / "rewards", KEEP_ALL)
    fresh.save(f"v{next(numbers):05d}", snapshot)

    def work() -> dict[str, float]:
        with Stopwatch() as watch:
            fresh.save(f"v{next(numbers):05d}", snapshot)
            fresh.load(f"v{n // 2:05d}")
        return watch.figures()

    yield work
