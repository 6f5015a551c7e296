"""One run as a measurement: config in, curves out. Trials run side by side, one core each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev

from holdfast.assembly import assemble, gather
from holdfast.config import load_config
from holdfast.errors import HoldfastError
from holdfast.lab.observer import GoldObserver, gold_of
from holdfast.report.data import read_run
from holdfast.rundir import RunDirectory
from holdfast.track.progress import Silent
from holdfast.worlds.loading import load_task, load_world

# Two-sided 95% points of Student's t for 1 to 30 degrees of freedom.
T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """The curves of one run. `proxy`, `gold` and `kl` have a value per step, `heldout` one per round from 0."""

    seed: int
    steps: list[int]
    proxy: list[float]
    gold: list[float]
    kl: list[float]
    heldout: list[float]
    seconds: float


def run_trial(overrides: Sequence[str], seed: int, path: Path, heldout: int = 200) -> Trial:
    """A whole run in `path`, watched by the gold observer; one that has finished there is read instead."""
    if not finished(path):
        config = load_config(None, [*overrides, f"run.seed={seed}", "run.threads=1"])
        world = load_world(config)
        gold = gold_of(world)
        if gold is None:
            raise HoldfastError(f"The world {world.name} knows no gold score, so there is nothing to measure.")
        ingredients = gather(config, load_task(config, world))
        facts = {"world": world.name, "seed": seed, "policy": config.policy.path or "built in", "key": path.name}
        run = RunDirectory.create(path, config, facts)
        observer = GoldObserver(gold, run.gold_file, ingredients.task.heldout_prompts, heldout)
        assembly = assemble(ingredients, run, Silent(), [observer])
        try:
            assembly.loop.run()
        finally:
            assembly.close()
    return read_trial(path, seed)


def finished(path: Path) -> bool:
    return path.is_dir() and any(event.kind == "run_finished" for event in read_run(path).events)


def read_trial(path: Path, seed: int) -> Trial:
    data = read_run(path)
    gold = dict(data.gold_of("rollout"))
    proxy = data.known("objective/scores")
    return Trial(
        seed=seed,
        steps=[step for step, _ in proxy],
        proxy=[value for _, value in proxy],
        gold=[gold[step] for step, _ in proxy],
        kl=[value for _, value in data.known("objective/kl")],
        heldout=[value for _, value in data.gold_of("heldout")],
        seconds=sum(sum(row.seconds.values()) for row in data.timings),
    )


def run_trials(jobs: Sequence[tuple[Sequence[str], int, Path]], workers: int = 2) -> list[Trial]:
    """Trials in processes of their own, in the order of `jobs`; prints a line as each one ends."""
    os.environ["OMP_NUM_THREADS"] = "1"
    trials: dict[int, Trial] = {}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(run_trial, *job): i for i, job in enumerate(jobs)}
        for future in as_completed(futures):
            i = futures[future]
            trials[i] = future.result()
            t = trials[i]
            print(
                f"  {jobs[i][2].name:<24} gold {t.heldout[0]:+.2f} -> {t.heldout[-1]:+.2f}   "
                f"proxy {t.proxy[0]:+.2f} -> {t.proxy[-1]:+.2f}   KL {t.kl[-1]:.1f}",
                flush=True,
            )
    return [trials[i] for i in range(len(jobs))]


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean with its 95% interval by Student's t; needs at least two values."""
    n = len(values)
    t = T_975[n - 2] if n - 1 <= len(T_975) else 1.96
    half = t * stdev(values) / n**0.5
    return fmean(values), fmean(values) - half, fmean(values) + half


def by_round(values: Sequence[float], rounds: int) -> list[float]:
    """Mean of each of `rounds` equal stretches of a per-step curve."""
    size = len(values) // rounds
    return [fmean(values[i * size : (i + 1) * size]) for i in range(rounds)]
