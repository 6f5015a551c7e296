"""A guard of each row broken on purpose, in a copy of the source: the row's tests have to see it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.rows import CHECKPOINT, KILLS, PEOPLE, RUN_FAULTS, STORE, SYSTEM, WEB
from benchmarks.faults.suite import has_failed, run_tests
from benchmarks.record import ROOT
from holdfast.errors import HoldfastError

SIDE_BY_SIDE = 2
COPIED = ("src", "tests", "benchmarks", "examples", "pyproject.toml")


@dataclass(frozen=True)
class Mutation:
    """One text of a file below src/holdfast that becomes another, and the tests that have to fail then."""

    row: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "kills", "random streams do not come back from a checkpoint",
        "randomness.py", "    def restore(self, state: Mapping[str, Tensor]) -> None:\n",
        "    def restore(self, state: Mapping[str, Tensor]) -> None:\n        return\n",
        (f"{KILLS}::test_at_most_one_step_is_done_again",),
    ),
    Mutation(
        "power", "the directory is not synced after a rename",
        "checkpoint/store.py", "        sync_directory(self.directory)\n", "        pass\n",
        (f"{STORE}::test_power_loss_at_every_write",),
    ),
    Mutation(
        "power", "files are renamed before their bytes are synced",
        "checkpoint/files.py", "nbytes\n        _fsync(descriptor)\n", "nbytes\n",
        (f"{STORE}::test_power_loss_at_every_write",),
    ),
    Mutation(
        "disk", "a failed save of a checkpoint is not told of",
        "checkpoint/store.py", "raise HoldfastError(\n                f\"Checkpoint {name} could not be written",
        "return self.directory; raise HoldfastError(\n                f\"Checkpoint {name} could not be written",
        (f"{STORE}::test_a_disk_that_fails_at_the_nth_call_for_every_n",),
    ),
    Mutation(
        "damage", "checksums are not compared",
        "checkpoint/manifest.py", "if sha256_of(directory / name) != file.sha256:", "if False:",
        (f"{STORE}::test_any_damaged_file_is_found_and_the_one_before_is_used",),
    ),
    Mutation(
        "lock", "the lock lets a second trainer in",
        "checkpoint/lock.py", "fcntl.LOCK_EX | fcntl.LOCK_NB", "fcntl.LOCK_SH | fcntl.LOCK_NB",
        (f"{CHECKPOINT}/test_run_lock.py",),
    ),
    Mutation(
        "numbers", "numbers that are none pass for numbers",
        "algorithms/finite.py", "    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)\n",
        "    return True\n", ("tests/algorithms/test_finite.py",),
    ),
    Mutation(
        "numbers", "steps are dropped without end",
        "run/learner.py", "at.skipped_in_a_row >= MOST_SKIPPED", "False",
        (f"{RUN_FAULTS}::test_steps_with_bad_scores_are_dropped_and_too_many_end_the_run",),
    ),
    Mutation(
        "member", "a member that cannot be used is left out without a word",
        "reward/ensemble.py", "        self.tell(", "        _ = (",
        ("tests/reward/test_degraded.py",),
    ),
    Mutation(
        "member", "a member that gives every answer the same score is kept",
        "reward/degraded.py", "    return still if len(different) >= DISTINCT else []\n", "    return []\n",
        ("tests/reward/test_degraded.py",),
    ),
    Mutation(
        "labels", "a submission sent again is stored again",
        "people/queue.py", "                return _submitted(known, again=True)\n", "                pass\n",
        (f"{PEOPLE}/test_label_queue.py::test_the_same_submission_again_stores_nothing",),
    ),
    Mutation(
        "labellers", "the gate lets every refresh in",
        "reward/gate.py", "    accept: bool\n", "    accept: bool\n\n    def __post_init__(self) -> None:\n"
        "        object.__setattr__(self, \"accept\", True)\n", ("tests/reward/test_gate_power.py",),
    ),
    Mutation(
        "hacks", "the guard never raises an alarm",
        "guard/verdict.py", "if self.evidence.alarmed and self.report.pairs and", "if False and",
        (f"{SYSTEM}/test_rollback.py::test_the_audit_finds_it_and_the_run_goes_back",),
    ),
    Mutation(
        "texts", "pages print text as HTML",
        "report/page.py", "autoescape=True", "autoescape=False",
        (f"{WEB}/test_browser.py::test_hostile_text_is_shown_as_text",),
    ),
    Mutation(
        "web", "a form needs no token",
        "web/security.py", "if csrf is None or not compare_digest(csrf.encode(), visitor.csrf.encode()):", "if False:",
        (f"{WEB}/test_entering.py::test_a_form_without_its_token_is_refused",),
    ),
    Mutation(
        "pickles", "weights are read by torch.load",
        "checkpoint/tensors.py", "from __future__ import annotations\n",
        "from __future__ import annotations\n\nimport torch as t\n\nread = t.load\n",
        ("tests/test_no_pickle.py",),
    ),
    Mutation(
        "code", "a model directory's code is trusted",
        "models/load.py", "\"trust_remote_code\": False", "\"trust_remote_code\": True",
        ("tests/models/test_no_code_of_a_model.py",),
    ),
    Mutation(
        "settings", "changed settings are not seen",
        "run/seal.py", "if before.get(name) != after.get(name)]", "if False]",
        (f"{SYSTEM}/test_seal.py::test_what_is_not_the_runs_own_is_named_and_refused",),
    ),
    Mutation(
        "settings", "the run's identity is not compared",
        "run/seal.py", "if facts.get(name) != seal.facts.get(name):", "if False:",
        (f"{SYSTEM}/test_seal.py::test_what_is_not_the_runs_own_is_named_and_refused",),
    ),
    Mutation(
        "settings", "the reference's checksums are not compared",
        "checkpoint/files.py", "if not file.is_file() or sha256_of(file) != expected:", "if not file.is_file():",
        (f"{KILLS}::test_a_changed_reference_is_refused",),
    ),
    Mutation(
        "time", "SIGTERM is not listened to",
        "cli/terminal.py", "for number in (signal.SIGINT, signal.SIGTERM):", "for number in (signal.SIGINT,):",
        (f"{KILLS}::test_a_signal_stops_the_run_where_it_can_be_resumed",),
    ),
    Mutation(
        "time", "a database of another schema is opened",
        "preferences/database.py", "if version != SCHEMA_VERSION:", "if False:",
        ("tests/preferences/test_preference_database.py::test_another_schema_is_refused",),
    ),
)  # fmt: skip


def changed(mutation: Mutation, source: str) -> str:
    """The file's text with the mutation; refuses one that does not fit the source any more."""
    if source.count(mutation.old) != 1:
        raise HoldfastError(
            f"The mutation {mutation.what!r} finds its text {source.count(mutation.old)} times in {mutation.file}; "
            "write it anew in benchmarks/faults/mutations.py."
        )
    return source.replace(mutation.old, mutation.new)


def seen_of(mutations: Sequence[Mutation]) -> list[bool]:
    """For each mutation whether a test failed."""
    for mutation in mutations:
        changed(mutation, (ROOT / "src" / "holdfast" / mutation.file).read_text(encoding="utf-8"))
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return list(pool.map(_is_seen, mutations))


def _is_seen(mutation: Mutation) -> bool:
    with tempfile.TemporaryDirectory(prefix="holdfast-mutation-") as directory:
        copy = Path(directory) / "checkout"
        copy.mkdir()
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
            else:
                shutil.copy2(source, copy / name)
        file = copy / "src" / "holdfast" / mutation.file
        file.write_text(changed(mutation, file.read_text(encoding="utf-8")), encoding="utf-8")
        return any(has_failed(case) for case in run_tests(mutation.tests, copy))
