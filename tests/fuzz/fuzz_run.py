"""Run directories: one file or two of a run damaged, and every verb that reads a run let loose on it.

Nothing may be silent. Where `resume` goes on, the run ends as the unbroken one did, or something has been said: a
sentence, an event, a finding of `doctor`. What only reads writes nothing.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mutations import json_bytes, mutated_bytes, mutated_document
from sentences import Said, Wrong, refused, told

import small_run
from holdfast.errors import HoldfastError
from holdfast.run.directory import RunDirectory
from holdfast.run.loop import OnlineLoop
from holdfast.serving.versions import open_run

# Locks say who holds a run, and SQLite keeps its own beside a database that is read.
ASIDE = ("run.lock", "run.db.lock", "run.db-wal", "run.db-shm")
# Written for people to look at and never read again by a run: when these change, nothing that a run has come to does.
FOR_PEOPLE = ("report.html", "timings.jsonl", "samples.jsonl", "probes.jsonl")
# Events of a run that was only ended and resumed.
USUAL = {"resumed", "run_finished"}


class RunTarget:
    """A finished run and one that was killed in its third round."""

    seconds = 60.0

    def __init__(self, work: Path) -> None:
        finished = small_run.run(work / "finished")
        self.result = small_run.result_of(finished)
        self.bases = {"finished": finished, "killed": _killed(work / "killed")}
        self.usual_events = {name: len(small_run.events_of(base)) for name, base in self.bases.items()}

    def attempt(self, rng: random.Random, place: Path) -> str:
        kind = rng.choice(("finished", "killed", "killed"))
        run = place / "runs" / small_run.NAME
        shutil.copytree(self.bases[kind], run, copy_function=shutil.copy2)
        done = [damage(rng, run) for _ in range(rng.choice((1, 1, 1, 2)))]
        (place / "damage.json").write_text(json.dumps({"run": kind, "damage": done}, default=str))
        doctor = self._readers(rng, run, place)
        if rng.random() < 0.1:
            told(["rollback", str(run), rng.choice(("round-0001", "round-0002", "round-0000"))])
            told(["resume", str(run)], allowed=(0, 2, 3))
            return "rolled back"
        resumed = told(["resume", str(run)], allowed=(0, 2, 3))
        return self._judged(run, doctor, resumed, done)

    def _readers(self, rng: random.Random, run: Path, place: Path) -> Said:
        """The verbs that only look; each leaves the directory as it is."""
        doctor = self._looks(run, "doctor", lambda: told(["doctor", str(run)]))
        self._looks(run, "report", lambda: told(["report", str(run), "--out", str(place / "page.html")]))
        self._looks(run, "export", lambda: told(["export", str(run), str(place / "model")]))
        self._looks(run, "export --labels", lambda: told(["export", str(run), "--labels", str(place / "l.jsonl")]))
        self._looks(run, "rollback", lambda: told(["rollback", str(run)]))
        self._looks(run, "serve-reward", lambda: _served(run))
        return doctor

    def _looks(self, run: Path, verb: str, work: Callable[[], Any]) -> Any:
        # Whoever opens the database of a killed run to read labels folds SQLite's log into it; doctor does not.
        aside = ASIDE if verb == "doctor" else (*ASIDE, "run.db")
        before = small_run.tree_of(run, but_not=aside)
        result = work()
        after = small_run.tree_of(run, but_not=aside)
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        if changed:
            raise Wrong(f"`holdfast {verb}` has written {', '.join(map(_class, changed))}")
        return result

    def _judged(self, run: Path, doctor: Said, resumed: Said, done: list[dict[str, str]]) -> str:
        files = ", ".join(sorted({_class(one["file"]) for one in done}))
        if resumed.code == 2:
            if doctor.code == 0:
                raise Wrong(f"doctor finds nothing and resume refuses ({files}): {_shape(resumed.err)}")
            return "refused"
        try:
            differ = small_run.differences(small_run.result_of(run), self.result)
        except (HoldfastError, OSError, ValueError, LookupError) as error:
            differ = [f"unreadable: {type(error).__name__}"]
        differ = [name for name in differ if name not in FOR_PEOPLE]
        if not differ:
            return "the same" if doctor.code == 0 else "the same, and doctor speaks of it"
        if doctor.code == 0 and not self._said(run, resumed):
            raise Wrong(f"{files} damaged; other results without a word: {', '.join(differ[:4])}")
        return "other results, and told"

    def _said(self, run: Path, resumed: Said) -> bool:
        kinds = {str(event.get("event")) for event in _events(run) if isinstance(event, dict)}
        return bool(kinds & {"checkpoint_skipped", "config_changed", "reference_resealed", "logs_changed"}) or (
            "holdfast: " in resumed.err or "note: " in resumed.err
        )


def damage(rng: random.Random, run: Path) -> dict[str, str]:
    """Change one file of a run in one way; says which and how."""
    classes: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(run.rglob("*")):
        if path.is_file() and not path.is_symlink():
            classes[_class(str(path.relative_to(run)))].append(path)
    file = rng.choice(classes[rng.choice(sorted(classes))])
    how = rng.choice([way for way in WAYS if _fits(way, file)])
    WAYS[how](rng, file)
    return {"file": str(file.relative_to(run)), "how": how}


def _fits(way: str, file: Path) -> bool:
    if way == "document":
        return file.suffix == ".json"
    if way == "row":
        return file.suffix == ".jsonl" and file.stat().st_size > 0
    return way != "number" or file.suffix in (".toml", ".json", ".jsonl")


def _document(rng: random.Random, file: Path) -> None:
    try:
        document = json.loads(file.read_bytes())
    except ValueError:
        return
    file.write_bytes(json_bytes(rng, mutated_document(rng, document)))


def _row(rng: random.Random, file: Path) -> None:
    lines = file.read_bytes().splitlines()
    at = rng.randrange(len(lines))
    try:
        lines[at] = json_bytes(rng, mutated_document(rng, json.loads(lines[at])))
    except ValueError:
        lines[at] = b"{"
    file.write_bytes(b"\n".join(lines) + b"\n")


def _number(rng: random.Random, file: Path) -> None:
    """One digit becomes another: the file still reads well."""
    text = file.read_bytes()
    places = [match.start() for match in re.finditer(rb"[1-9]", text)]
    if places:
        at = rng.choice(places)
        file.write_bytes(
            text[:at] + rng.choice([b"%d" % n for n in range(1, 10) if n != int(text[at : at + 1])]) + text[at + 1 :]
        )


def _exchange(rng: random.Random, file: Path) -> None:
    others = [path for path in file.parent.parent.rglob(f"*{file.suffix}") if path.is_file() and path != file]
    if others:
        other = rng.choice(others)
        mine, theirs = file.read_bytes(), other.read_bytes()
        file.write_bytes(theirs)
        other.write_bytes(mine)


def _directory(rng: random.Random, file: Path) -> None:
    file.unlink()
    file.mkdir()


def _link(rng: random.Random, file: Path) -> None:
    file.unlink()
    file.symlink_to(rng.choice(("/dev/null", "nowhere", "/etc/hostname", ".")))


WAYS: dict[str, Callable[[random.Random, Path], Any]] = {
    "bytes": lambda rng, file: file.write_bytes(mutated_bytes(rng, file.read_bytes())),
    "bytes again": lambda rng, file: file.write_bytes(mutated_bytes(rng, file.read_bytes())),
    "document": _document,
    "row": _row,
    "number": _number,
    "gone": lambda rng, file: file.unlink(),
    "exchanged": _exchange,
    "a directory": _directory,
    "a link": _link,
    "a stranger beside it": lambda rng, file: file.with_name(f"{file.name}.bak").write_bytes(b"x"),
}


def _class(file: str) -> str:
    """A file's name without the numbers in it."""
    return re.sub(r"\d+", "N", file)


def _shape(sentence: str) -> str:
    """A sentence without what differs from case to case."""
    return re.sub(r"(/\S+|\d+|'[^']*')", "_", " ".join(sentence.split()))[-110:]


def _events(run: Path) -> list[Any]:
    events = []
    for line in (run / "events.jsonl").read_bytes().splitlines() if (run / "events.jsonl").is_file() else []:
        try:
            events.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    return events


def _served(run: Path) -> str:
    try:
        source = open_run(run)
        source.load(source.in_use())
    except HoldfastError as refusal:
        return refused(refusal)
    return "served"


def _killed(runs: Path) -> Path:
    """A run whose process dies after the refresh of round 3."""
    child = os.fork()
    if child == 0:
        whole, calls = OnlineLoop.refresh_if_due, [0]

        def dies(loop: OnlineLoop, *args: Any) -> Any:
            result = whole(loop, *args)
            calls[0] += 1
            if calls[0] == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        OnlineLoop.refresh_if_due = dies  # type: ignore[method-assign]
        told(small_run.run_arguments(runs))
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    return RunDirectory.open(runs / small_run.NAME).path


def open_target(work: Path) -> RunTarget:
    return RunTarget(work)
