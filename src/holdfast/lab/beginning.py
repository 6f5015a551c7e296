"""One beginning for all arms of a seed that begin alike: the first labels and version 1 of the ensemble.

They are asked for and trained once, by whoever comes first, and copied into every trial. It is what the run would have
come to itself, bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

from holdfast.config import Config
from holdfast.lab.references import copy_reference, files_of, waiting_for
from holdfast.preferences.labeller import PatientLabeller
from holdfast.reward.training import is_averaged
from holdfast.run.build import assemble
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import gather
from holdfast.track.progress import Silent
from holdfast.worlds.protocol import Task

# How members' scores become a reward, which no member's training knows of; but for their weights' mean.
AFTERWARDS = ("aggregation", "shaping", "unfinished_penalty")
DONE = "beginning.json"
# What a trial takes over: labels, the event that tells of the ensemble, and the ensemble.
KEPT = ("run.db", "events.jsonl", "rewards")


def is_shared(config: Config, task: Task) -> bool:
    """Whether a beginning can be copied: not with people, with a database elsewhere, or with labels from files.

    A reward that is given has none: nothing is labelled or trained before the first round.
    """
    simulated = task.labeller is not None and not isinstance(task.labeller, PatientLabeller)
    return simulated and not (config.reward.given or config.preferences.url or config.data.preferences)


def beginning_key(config: Config, key: str) -> str:
    """What a beginning follows from beside the reference, as a name. A flaw of the reward is not seen by who labels."""
    reward = {name: value for name, value in asdict(config.reward).items() if name not in AFTERWARDS}
    flaw = asdict(config.flaw) if config.flaw.where == "labels" else {}
    if is_averaged(config.reward):
        reward["averaged"] = True
    facts: list[object] = [key, reward, flaw, asdict(config.world), asdict(config.rollout), asdict(config.data)]
    # What the files say, where there are any: an edited class may label otherwise.
    facts += files_of([flaw.get("name", ""), config.world.name, config.world.labeller])
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def shared_beginning(config: Config, task: Task, home: RunDirectory, key: str) -> Path:
    """Where the beginning for these settings is, beside its reference; it is made there if it is not there yet."""
    path = home.path / "beginnings" / beginning_key(config, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    with waiting_for(path.with_suffix(".lock")):
        if not (path / DONE).is_file():
            shutil.rmtree(path, ignore_errors=True)
            _make(config, task, home, path, key)
    return path


def _make(config: Config, task: Task, home: RunDirectory, path: Path, key: str) -> None:
    # What is asked again, and everything later, is each trial's own.
    alone = replace(
        config, preferences=replace(config.preferences, per_round=0), guard=replace(config.guard, mode="off")
    )
    run = RunDirectory.create(path, alone, {"key": key})
    copy_reference(home, run)
    with assemble(gather(alone, task, run.reference, threads=1), run, Silent()):
        pass
    (path / DONE).write_text("{}\n")


def copy_beginning(path: Path, run: RunDirectory) -> None:
    """Give a run the beginning, as if it had come to it itself; one that has begun already keeps its own."""
    if run.rewards.is_dir() or (run.path / "run.db").exists():
        return
    # Whole or not at all, and the ensemble last: a run that is cut in between trains its own, on the labels it has.
    for name in KEPT:
        source, target = path / name, run.path / name
        temporary = target.with_name(f".tmp-{name}")
        if source.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.copytree(source, temporary)
        else:
            shutil.copyfile(source, temporary)
        temporary.rename(target)
