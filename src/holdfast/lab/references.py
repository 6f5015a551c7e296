"""One reference for all arms of a seed: trained once, by whoever comes first, and copied into every trial.

It is what the run would have trained itself, bit for bit: same texts, same settings, same draws.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from holdfast.config import Config
from holdfast.models.load import write_model_directory
from holdfast.models.prompt import plain_text
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import gather
from holdfast.run.reference import prepare_reference
from holdfast.track.progress import Silent
from holdfast.track.tracker import Tracker
from holdfast.worlds.protocol import Task


def reference_key(config: Config, task: Task) -> str:
    """What a reference follows from, as a name: texts, model, fine-tuning and seed; no setting of the loop."""
    texts = [plain_text(p) for p in (*task.prompts, *task.heldout_prompts)]
    texts += [text for d in task.demonstrations for text in (plain_text(d.prompt), d.response)]
    facts = {
        "seed": config.run.seed,
        "device": config.run.device,
        "policy": asdict(config.policy) | {"critic": ""},  # the critic is built later
        "directory": str(task.policy_directory),
        "sft": asdict(config.sft),
        "texts": hashlib.sha256("\x1f".join(texts).encode()).hexdigest(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def shared_reference(config: Config, task: Task, cache: Path) -> RunDirectory:
    """Where the reference for these settings is; it is trained there if it is not there yet."""
    home = RunDirectory(cache / reference_key(config, task))
    home.path.mkdir(parents=True, exist_ok=True)
    with waiting_for(home.path / "lock"):
        if not home.reference.is_dir():
            ingredients = gather(config, task, threads=1)
            tracker = Tracker(home.path, [])
            try:
                prepare_reference(ingredients, home, tracker, Silent())
            finally:
                tracker.close()
        home.check_reference()
    return home


def copy_reference(home: RunDirectory, run: RunDirectory) -> None:
    """Give a run the reference, as if it had been trained there."""
    if run.reference.is_dir():
        return

    def copy(temporary: Path) -> None:
        for file in sorted(home.reference.iterdir()):
            shutil.copyfile(file, temporary / file.name)

    write_model_directory(run.reference, copy)
    run.seal_reference()


@contextmanager
def waiting_for(lock: Path) -> Iterator[None]:
    """Alone with what the lock file stands for; another process waits. The system frees it if its holder dies."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def files_of(specs: Sequence[str]) -> list[str]:
    """Digests of the files of classes, each named as path/to/file.py:Class, since an edited class is another one."""
    named = [match[1] for spec in specs if (match := re.fullmatch(r"\"?([^\"]+\.py):\w+\"?", spec.strip()))]
    return [hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in named if Path(name).is_file()]
