"""A run directory looked at file by file, without changing anything: `holdfast doctor RUN`.

Broken is where `holdfast resume` would refuse, or go on without something that the run had. Nothing is opened for
writing, made, locked or run: a run directory may come from anywhere.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from holdfast.checkpoint.files import TEMPORARY_PREFIX, Written, check_sums, read_json, read_sealed_json
from holdfast.checkpoint.lock import LOCK_FILE, is_locked
from holdfast.checkpoint.store import PINS_FILE, CheckpointStore
from holdfast.checkpoint.transaction import DOCUMENT
from holdfast.errors import HoldfastError, first_line
from holdfast.grammar.form import file_of
from holdfast.preferences.inspection import inspect_database, inspect_lock
from holdfast.report.tail import Tail
from holdfast.reward.ensemble import VersionStore, version_name
from holdfast.run.directory import RunDirectory
from holdfast.run.findings import Finding
from holdfast.run.given import source_files
from holdfast.run.probes import SET_FILE
from holdfast.run.seal import change_words
from holdfast.text import counted
from holdfast.track.sinks import check_log, read_rows
from holdfast.track.tracker import PROBES_FILE

Check = Callable[[RunDirectory], Iterator[Finding]]

# What reading a file that may hold anything ends in; that it cannot be read is the finding.
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, SQLAlchemyError)

MATCHES = "every file matches its checksum"
# Logs that no checkpoint counts on and no resume reads.
FOR_PEOPLE = ("timings.jsonl",)
# What else lies in a run directory, and is made again or only read by people.
KNOWN = frozenset(
    {
        "begun.json", "checkpoints", "config.toml", "events.jsonl", "failures.txt", "gold.jsonl", "heldout.jsonl",
        "kept", "ledger.jsonl", "left-out.jsonl", "manifest.json", "metrics.jsonl", "model", "pairs.jsonl",
        "probes.json", "probes.jsonl", "reference", "reference.json", "report.html", "rewards", "run.db", "run.db-shm",
        "run.db-wal", "run.db.lock", "run.lock", "samples.jsonl", "served", "stage.json", "stages", "tensorboard",
        "timings.jsonl", "trackio", "trial.json", "wandb",
    }
)  # fmt: skip


def inspect_run(path: Path) -> Iterator[Finding]:
    """What there is to say of a run directory; every check speaks, whatever the others come to."""
    run = RunDirectory(path)
    if not path.is_dir():
        raise HoldfastError(f"There is no run directory {path}; `holdfast run` makes one.")
    if strange := run.strange():
        for one in strange:
            yield Finding("broken", str(one.relative_to(path)), "neither a file nor a directory; remove it")
        return
    if not run.manifest_file.exists() and run.sealed() is None:
        raise HoldfastError(f"{path} is not a run directory: it has no manifest.json.")
    damaged = False
    for what, check in CHECKS.items():
        if damaged and what in BY_MANIFEST:
            yield Finding("note", what, f"not checked: {MANIFEST} is damaged")
            continue
        for found in _speaking(what, run, check):
            damaged |= found.what == MANIFEST and found.state == "broken"
            yield found
    if (path / "stages").is_dir():
        for stage in sorted((path / "stages").iterdir()):
            yield from _of_stage(stage)


def _of_stage(stage: Path) -> Iterator[Finding]:
    try:
        for found in inspect_run(stage):
            yield Finding(found.state, f"{stage.name}: {found.what}", found.detail)
    except HoldfastError as error:
        yield Finding("broken", stage.name, str(error))


def _speaking(what: str, run: RunDirectory, check: Check) -> Iterator[Finding]:
    try:
        yield from check(run)
    except HoldfastError as error:
        yield Finding("broken", what, str(error))
    except UNREADABLE as error:
        yield Finding("broken", what, f"cannot be read ({_reason(error)})")


def _reason(error: Exception) -> str:
    """Why a file cannot be read, for people: what the system says, or that it holds something else."""
    if isinstance(error, OSError):
        return error.strerror or first_line(error)
    return first_line(error) if isinstance(error, SQLAlchemyError) else "it does not hold what a run writes there"


def manifest(run: RunDirectory) -> Iterator[Finding]:
    if not run.manifest_file.exists():
        yield Finding("note", "manifest.json", f"missing; `holdfast resume {run.path}` writes it again")
        return
    RunDirectory.open(run.path)
    yield Finding("ok", "manifest.json", f"key {run.key}, matches its checksum and the newest checkpoint")


def settings(run: RunDirectory) -> Iterator[Finding]:
    if not run.config_file.exists():
        yield Finding("note", "config.toml", f"missing; `holdfast resume {run.path}` writes it again")
        return
    if changes := run.changes(run.written_config()):
        advice = f"put that back, or `holdfast resume {run.path} --changed` goes on with it"
        yield Finding("broken", "config.toml", f"not the run's settings: {change_words(changes)}; {advice}")
    else:
        yield Finding("ok", "config.toml", "the settings that the run has")


def lock(run: RunDirectory) -> Iterator[Finding]:
    path = run.path / LOCK_FILE
    if path.is_symlink() or (path.exists() and not stat.S_ISREG(path.stat().st_mode)):
        yield Finding("broken", LOCK_FILE, "not a plain file, so the run cannot be locked; remove it")
    elif path.exists() and is_locked(run.path):
        yield Finding("note", LOCK_FILE, "a process is at work in the run, so what is read here may be half written")
    else:
        yield Finding("ok", LOCK_FILE, "free")


def reference(run: RunDirectory) -> Iterator[Finding]:
    seal = run.sealed()
    if seal is None and not run.reference.is_dir():
        yield Finding("note", "reference", "not there yet")
        return
    if run.reference_file.exists() and not run.reference_file.is_file():
        yield Finding("broken", "reference.json", "not a file; move it away")
    elif not run.reference_file.is_file():
        yield Finding("note", "reference.json", f"missing; `holdfast resume {run.path}` writes it again")
    elif seal is not None and not _equals(run.reference_file, dict(seal.reference)):
        yield Finding("note", "reference.json", f"damaged; `holdfast resume {run.path}` writes it again")
    else:
        yield Finding("ok", "reference.json", "the checksums of the reference")
    run.check_reference()
    count = counted(sum(1 for _ in run.reference.iterdir()), "file")
    yield Finding("ok", "reference", f"{count}, weights and tokenizer, {MATCHES}")


def _equals(file: Path, document: object) -> bool:
    try:
        return bool(read_json(file) == document)
    except HoldfastError:
        return False


def checkpoints(run: RunDirectory) -> Iterator[Finding]:
    store = CheckpointStore(run.checkpoints)
    yield from _stored(store, "checkpoint")
    if store.is_empty():
        run.check_checkpoints()
        yield Finding("note", "checkpoints", "none yet")
        return
    yield from _speaking(PINS_FILE, run, partial(_pins, store=store))


def _pins(run: RunDirectory, store: CheckpointStore) -> Iterator[Finding]:
    """What is pinned, beside the last good checkpoint that the newest sound one names."""
    document: Any = store.newest_document(DOCUMENT) or {}
    good, pinned = document.get("review", {}).get("good", {}).get("name", ""), store.pinned
    named = sorted(pinned | ({good} if good else set()))
    if lost := [name for name in named if name not in store.names()]:
        yield Finding("broken", PINS_FILE, f"the last good checkpoint, {lost[0]}, is not there any more")
    elif good and good not in pinned:
        state = f"names {', '.join(sorted(pinned))}" if pinned else "missing"
        again = f"the run's last good checkpoint is {good}, and `holdfast resume {run.path}` writes it again"
        yield Finding("note", PINS_FILE, f"{state}; {again}")
    else:
        yield Finding("ok", PINS_FILE, f"the last good checkpoint: {', '.join(named) or 'none'}")


def rewards(run: RunDirectory) -> Iterator[Finding]:
    for found in _stored(CheckpointStore(run.rewards), "reward version"):
        ours = VERSION.fullmatch(found.what.rpartition(" ")[2])
        yield found if ours else Finding("note", found.what, "not a version of the ensemble; left alone")
    # What was made after the newest checkpoint is made again.
    place = _places(run).get("events.jsonl", {"size": 0})

    def version_made(row: dict[str, Any]) -> int:
        return int(row["version"]) if row["event"] in VERSIONS_OF else 0

    made = set(Tail(run.path / "events.jsonl", version_made, limit=place["size"]).all()) - {0}
    for number in sorted(made - set(VersionStore(run.rewards).numbers())):
        if not (run.rewards / version_name(number)).is_dir():
            yield Finding("broken", f"reward version {version_name(number)}", "missing, and the run has made it")


VERSION = re.compile(r"v\d{3,}")
VERSIONS_OF = ("ensemble_trained", "refresh")


def reward(run: RunDirectory) -> Iterator[Finding]:
    """The files of a reward that is given, without which no step can be taken."""
    config = run.config().reward
    for place in source_files(config) if config.given else ():
        if place.is_file():
            yield Finding("ok", f"reward {place.name}", "there")
        else:
            yield Finding("broken", f"reward {place.name}", f"missing: {place}; bring it back")


def grammar(run: RunDirectory) -> Iterator[Finding]:
    """The file of a grammar, without which no answer can be sampled."""
    place = file_of(run.config().rollout.grammar)
    if place is not None and place.is_file():
        yield Finding("ok", f"grammar {place.name}", "there")
    elif place is not None:
        yield Finding("broken", f"grammar {place.name}", f"missing: {place}; bring it back")


def kept(run: RunDirectory) -> Iterator[Finding]:
    yield from _stored(CheckpointStore(run.path / "kept"), "kept")


def _stored(store: CheckpointStore, what: str) -> Iterator[Finding]:
    for name, fault in store.faults().items():
        yield Finding("broken" if fault else "ok", f"{what} {name}", fault or MATCHES)


def logs(run: RunDirectory) -> Iterator[Finding]:
    """The rows that the newest checkpoint counts on, byte for byte, and that all others are rows."""
    places = _places(run)
    for name in sorted({*places, *(path.name for path in run.path.glob("*.jsonl"))}):
        yield from _speaking(name, run, partial(_log, name=name, place=places.get(name)))


def _places(run: RunDirectory) -> dict[str, Any]:
    """How far the newest checkpoint knows each log to have come."""
    document: Any = CheckpointStore(run.checkpoints).newest_document(DOCUMENT)
    return {} if document is None else {**document["files"], **document["audience"]}


def _log(run: RunDirectory, name: str, place: Mapping[str, Any] | None) -> Iterator[Finding]:
    path = run.path / name
    if path.is_symlink():
        yield Finding("broken", name, "a link, and a run writes to no other place; put the file itself here")
        return
    if place is not None and place["size"] == 0 and not path.exists():
        yield Finding("note", name, "missing; it was empty")
        return
    if place is not None:
        check_log(path, Written(**place))
    try:
        rows = counted(sum(1 for _ in read_rows(path)), "row")
    except HoldfastError:
        # A resume cuts off what was written after the checkpoint.
        if place is None and name not in FOR_PEOPLE:
            raise
        yield Finding("note", name, "a row cannot be read; no checkpoint counts on it, and a resume goes on")
        return
    yield Finding("ok", name, f"{rows}, as the newest checkpoint counts on" if place else rows)


def database(run: RunDirectory) -> Iterator[Finding]:
    config = run.config()
    url = make_url(run.database_url(config))
    if url.get_backend_name() != "sqlite":
        name = url.set(query={}).render_as_string(hide_password=True)
        yield Finding("note", "labels", f"in {name}, a database on a server, which is not looked into here")
        return
    document: Any = CheckpointStore(run.checkpoints).newest_document(DOCUMENT)
    path = Path(url.database or "")
    if document is None and not path.exists():
        yield Finding("note", "labels", "not there yet")
        return
    known = {} if document is None else document.get("collector", {})
    counts = inspect_database(path, int(known.get("watermark", 0)), str(known.get("labels", "")))
    yield Finding("ok", "labels", f"{counts.labels:,} on {counted(counts.comparisons, 'comparison')}")
    if (goal := run.rollback_waiting()) is not None:
        yield Finding("note", "rollback", f"to {goal} is waiting; `holdfast resume {run.path}` does it")
    inspect_lock(path)
    yield Finding("ok", f"{path.name}.lock", "a lock of the store")


def probe_set(run: RunDirectory) -> Iterator[Finding]:
    path, rows = run.path / SET_FILE, run.path / PROBES_FILE
    if path.is_file():
        read_sealed_json(path)
        yield Finding("ok", SET_FILE, "matches its checksum")
    elif run.config().probes.every and rows.is_file() and rows.stat().st_size:
        yield Finding("broken", SET_FILE, "missing, and the answers that were probed so far are in it; bring it back")


def stage(run: RunDirectory) -> Iterator[Finding]:
    for name in ("begun.json", "stage.json"):
        if (run.path / name).is_file():
            ended = read_sealed_json(run.path / name)
            yield Finding("ok", name, "matches its checksum")
            if name == "stage.json":
                check_sums(run.path / "model", ended["model"], "and later stages go on from it")
                if ended["model"]:
                    yield Finding("ok", "model", MATCHES)


def others(run: RunDirectory) -> Iterator[Finding]:
    for path in sorted(run.path.iterdir()):
        if path.name.startswith(TEMPORARY_PREFIX):
            yield Finding("note", path.name, "left over from a write that was cut; it may be removed")
        elif path == run.report_file and path.is_dir():
            yield Finding("broken", path.name, "a directory, so the report cannot be written; move it away")
        elif path.name not in KNOWN:
            yield Finding("note", path.name, "not a file of a run; left alone")


MANIFEST = "manifest.json"
# What is looked at by the settings that the run has, which are in its manifest.
BY_MANIFEST = ("config.toml", "labels", "reward", "grammar", SET_FILE)

CHECKS: dict[str, Check] = {
    MANIFEST: manifest,
    "config.toml": settings,
    LOCK_FILE: lock,
    "reference": reference,
    "checkpoints": checkpoints,
    "rewards": rewards,
    "reward": reward,
    "grammar": grammar,
    "kept": kept,
    "logs": logs,
    "labels": database,
    SET_FILE: probe_set,
    "stage": stage,
    "other files": others,
}
