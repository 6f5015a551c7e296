"""Trials as benchmarks use them: all or none, and DPO as a measurement, a job in, probes and gold out.

Arms of a seed share their reference, labels and draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.checkpoint.files import write_json_atomic
from holdfast.checkpoint.lock import RunLock
from holdfast.config import load_config
from holdfast.errors import HoldfastError
from holdfast.lab.observer import GoldObserver, gold_of
from holdfast.lab.references import shared_reference
from holdfast.lab.runner import attempt_trials
from holdfast.lab.trial import Job, Trial
from holdfast.report.data import read_run
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import gather
from holdfast.stages.dpo_run import assemble_dpo
from holdfast.track.progress import Silent
from holdfast.track.sinks import read_rows
from holdfast.track.tracker import PROBES_FILE
from holdfast.worlds.registry import load_task, load_world

ENDED = "trial.json"


@dataclass(frozen=True)
class DPOJob:
    """A run of DPO to do: settings, seed, and where it and the references live."""

    overrides: Sequence[str]
    seed: int
    path: Path
    references: Path


@dataclass(frozen=True)
class DPOTrial:
    """Probes by update, held-out gold and KL by pass, and the warning of squeezing if there was one."""

    seed: int
    probes: list[dict[str, Any]]
    gold: list[float]
    kl: list[float]
    length: list[float]
    warned: dict[str, Any] | None


def run_dpo_trial(job: DPOJob) -> DPOTrial:
    """A whole run in `job.path`, watched by the gold observer; one that has ended there is read instead."""
    config = load_config(None, [*job.overrides, f"run.seed={job.seed}", "run.threads=1"])
    if not (job.path / ENDED).is_file():
        world = load_world(config)
        gold = gold_of(world)
        if gold is None:
            raise HoldfastError(f"The world {world.name} knows no gold score, so there is nothing to measure.")
        task = load_task(config, world)
        unprobed = replace(config, probes=replace(config.probes, every=0))
        home = shared_reference(unprobed, task, job.references)
        ingredients = gather(config, task, home.reference, ensemble_given=True, threads=1)
        if (job.path / "manifest.json").is_file():
            run = RunDirectory.open(job.path)
        else:
            key = f"{Path(task.name).name}-{job.seed}"
            facts = {"world": task.name, "seed": job.seed, "policy": "built in", "key": key, "stage": "dpo"}
            run = RunDirectory.create(job.path, config, {**facts, "threads": 1})
        with RunLock(run.path):
            observer = GoldObserver(gold, run.gold_file, task.heldout_prompts, len(task.heldout_prompts))
            with assemble_dpo(ingredients, run, Silent(), [observer]) as dpo:
                dpo.run()
            write_json_atomic(run.path / ENDED, {"trial": 1, "seed": job.seed})
    return read_dpo_trial(job.path, job.seed)


def read_dpo_trial(path: Path, seed: int) -> DPOTrial:
    data = read_run(path)
    warnings = [event for event in data.events if event.kind == "squeezing"]
    return DPOTrial(
        seed=seed,
        probes=[row for row in read_rows(path / PROBES_FILE) if row["stage"] == "dpo"],
        gold=[value for _, value in data.gold_of("heldout")],
        kl=[value for _, value in data.known("objective/kl")],
        length=[value for _, value in data.known("response/length_mean")],
        warned={"step": warnings[0].step, **warnings[0].fields} if warnings else None,
    )


def run_trials(jobs: Sequence[Job], workers: int = 2) -> list[Trial]:
    """All jobs, in their order; refuses to go on where one has failed."""
    trials = []
    for outcome in attempt_trials(jobs, workers):
        if outcome.trial is None:
            raise HoldfastError(f"The trial {outcome.job.path.name} failed: {outcome.failure}")
        trials.append(outcome.trial)
    return trials
