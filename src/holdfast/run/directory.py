"""A run directory: where everything about one run lives, and how to tell it from any other directory."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from holdfast import __version__
from holdfast.checkpoint.files import (
    check_sums,
    read_json,
    read_sealed_json,
    sums_of,
    write_atomic,
    write_json_atomic,
    write_sealed_json,
)
from holdfast.checkpoint.store import CheckpointStore
from holdfast.checkpoint.transaction import DOCUMENT
from holdfast.config import Config, config_of_texts, config_toml, is_free_setting, load_config, setting_texts
from holdfast.errors import HoldfastError, OwnCodeError
from holdfast.people.reasons import ReasonCount, read_reasons
from holdfast.people.requests import RequestStore
from holdfast.preferences.inspection import rollback_waiting
from holdfast.preferences.store import PreferenceStore
from holdfast.report.tail import Tail
from holdfast.run.seal import SETTINGS, Seal, SettingChange, change_words, changed_settings, check_facts, facts_of
from holdfast.track.tracker import METRICS_FILE

FORMAT = 2
# In a manifest: the trainer of somebody else's whose guard has this directory.
TRAINER = "trainer"
# That trainer, where `holdfast guard serve` guards it.
OVER_HTTP = "trainer over HTTP"
# What the user's own code has raised, one whole traceback after the other.
FAILURES = "failures.txt"
LONGEST_TRACEBACK = 1 << 20


@dataclass(frozen=True)
class RunDirectory:
    """runs/NAME with its files; `create` for a new one, `open` for one that exists."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config_file(self) -> Path:
        return self.path / "config.toml"

    @property
    def manifest_file(self) -> Path:
        return self.path / "manifest.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def rewards(self) -> Path:
        return self.path / "rewards"

    @property
    def reference(self) -> Path:
        return self.path / "reference"

    @property
    def gold_file(self) -> Path:
        return self.path / "gold.jsonl"

    @property
    def left_out_file(self) -> Path:
        return self.path / "left-out.jsonl"

    @property
    def report_file(self) -> Path:
        return self.path / "report.html"

    def database_url(self, config: Config) -> str:
        return config.preferences.url or f"sqlite:///{self.database_file}"

    @property
    def database_file(self) -> Path:
        """The run's own label store, where the settings name no other."""
        return self.path / "run.db"

    def open_store(self, config: Config) -> PreferenceStore:
        """The run's labels. A run with a checkpoint has had a database, and is not given an empty one in its place."""
        return PreferenceStore.open(self.database_url(config), create=CheckpointStore(self.checkpoints).is_empty())

    def rollback_waiting(self) -> str | None:
        """Where the run goes back to before it goes on, if that was asked for and is not done yet."""
        config = self.config()
        url = make_url(self.database_url(config))
        document: Any = CheckpointStore(self.checkpoints).newest_document(DOCUMENT)
        done = 0 if document is None else int(document.get("owner", {}).get("last", 0))
        if url.get_backend_name() == "sqlite":
            return rollback_waiting(Path(url.database or ""), self.key, done)
        try:
            with self.open_store(config) as store:
                asked = RequestStore(store.database, self.key).pending()
        except HoldfastError:  # whoever only reads the run is not kept from it
            return None
        goals = [one.arguments["checkpoint"] for one in asked if one.action == "rollback" and one.id > done]
        return goals[-1] if goals else None

    def notes(self) -> list[str]:
        """What a reader of the run's report should know beside what its rows tell."""
        goal = self.rollback_waiting()
        return [] if goal is None else [f"A rollback to {goal} is waiting; `holdfast resume {self.path}` does it."]

    def reasons(self) -> tuple[ReasonCount, ...]:
        """Why people answered as they did, where they are asked for reasons."""
        config = self.config()
        if not config.people.reasons:
            return ()
        with suppress(HoldfastError), self.open_store(config) as store:  # who only reads is not kept from the rest
            return read_reasons(store.database, self.key)
        return ()

    @classmethod
    def create(cls, path: Path, config: Config, facts: Mapping[str, Any]) -> RunDirectory:
        """Make a new run directory; one that holds anything is refused."""
        run = cls(path)
        refuse_occupied(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            write_atomic(run.config_file, config_toml(config).encode())
            run._write_manifest(
                {
                    "holdfast_run": FORMAT,
                    "holdfast_version": __version__,
                    "name": path.name,
                    "started": datetime.now(UTC).isoformat(timespec="seconds"),
                    **facts,
                    SETTINGS: setting_texts(config),
                }
            )
        except OSError as error:
            raise HoldfastError(f"The run directory {path} cannot be written: {error.strerror}.") from error
        except HoldfastError:
            # Settings without a manifest are no run, and would be in the way of the next try.
            run.config_file.unlink(missing_ok=True)
            raise
        return run

    def keep_left_out(self, lines: Sequence[str]) -> None:
        """Write down which rows of the data could not be used, and why, if there are any."""
        if lines:
            write_atomic(self.left_out_file, "".join(f"{line}\n" for line in lines).encode())

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing run directory; any other is refused, and so is one whose manifest is of another run."""
        run = cls(path)
        if not path.is_dir():
            raise HoldfastError(f"There is no run directory {path}; `holdfast run` makes one.")
        if strange := run.strange():
            raise HoldfastError(f"{strange[0]} is neither a file nor a directory; remove it.")
        facts, seal = run.facts(), run.sealed()
        if seal is not None:
            check_facts(run.manifest_file, facts, seal, run._again(run.manifest_file, seal.checkpoint))
        return run

    def strange(self) -> list[Path]:
        """Pipes and devices in it: to read one may never end, so where there is one nothing is read."""
        found = sorted(self.path.rglob("*"))
        return [one for one in found if one.exists() and not (one.is_file() or one.is_dir())]

    def sealed(self) -> Seal | None:
        """What the run's newest complete checkpoint says of it; None before there is one."""
        newest = CheckpointStore(self.checkpoints).newest_owner()
        return Seal(newest[0], **newest[1]) if newest is not None and newest[1] else None

    def seal(self) -> dict[str, Any]:
        """What a checkpoint keeps of the run, as it is now."""
        sums = read_json(self.reference_file) if self.reference_file.is_file() else {}
        return {SETTINGS: self.manifest()[SETTINGS], "facts": self.facts(), "reference": sums}

    def manifest(self) -> dict[str, Any]:
        """The facts of the run's making, its settings, its cost; a lost one as the newest checkpoint has it."""
        if not self.manifest_file.exists():
            seal = self.sealed()
            if seal is None:
                raise HoldfastError(f"{self.path} is not a run directory: it has no manifest.json.")
            return {**seal.facts, SETTINGS: dict(seal.settings)}
        document = None
        try:
            document = read_json(self.manifest_file)
            sealed = read_sealed_json(self.manifest_file)
        except HoldfastError as error:
            if isinstance(document, dict) and document.get("holdfast_run", FORMAT) != FORMAT:
                raise HoldfastError(
                    f"{self.path} was not made by this version of Holdfast: it is left alone."
                ) from None
            seal = self.sealed()
            if seal is None:
                raise HoldfastError(f"{str(error).removesuffix('.')}; bring it back or start a new run.") from None
            remedy = self._again(self.manifest_file, seal.checkpoint)
            if isinstance(document, dict):
                check_facts(self.manifest_file, facts_of(document), seal, remedy)
            raise HoldfastError(f"{str(error).removesuffix('.')}; {remedy}") from None
        return sealed

    def facts(self) -> dict[str, Any]:
        """What was fixed when the run was made."""
        return facts_of(self.manifest())

    def _again(self, file: Path, checkpoint: str) -> str:
        return f"remove {file.name}, and `holdfast resume {self.path}` writes it again as {checkpoint} has it."

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        write_sealed_json(self.manifest_file, manifest)

    def record_effort(self, seconds: float, peak_memory: int) -> None:
        """Add to the manifest what the work has cost: seconds over all sittings, the most bytes of memory of any."""
        manifest = self.manifest()
        manifest["seconds"] = round(float(manifest.get("seconds", 0.0)) + seconds, 1)
        manifest["peak_memory"] = max(int(manifest.get("peak_memory", 0)), peak_memory)
        self._write_manifest(manifest)

    @contextmanager
    def keeping_failures(self) -> Iterator[None]:
        """Where the user's own code fails, keep the whole traceback here and say where it is."""
        try:
            yield
        except OwnCodeError as failure:
            file = self.path / FAILURES
            now = datetime.now(UTC).isoformat(timespec="seconds")
            whole = "".join(traceback.format_exception(failure.error))[:LONGEST_TRACEBACK]
            told = f"The whole traceback is in {file}."
            try:
                # A link would have somebody else's file written to.
                descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
                with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as failures:
                    failures.write(f"{now} {failure.what}\n{whole}\n")
            except OSError as error:
                told = f"The whole traceback could not be written to {file} ({error.strerror})."
            raise failure.followed_by(
                f"{told}\nMend it, and go on with `holdfast resume {self.path}`."
            ) from failure.error

    # ---- settings

    def config(self) -> Config:
        """The settings that the run has: as they were sealed, and those that are free to change as in config.toml."""
        texts = dict(self.manifest()[SETTINGS])
        with suppress(HoldfastError):  # whoever only reads the run is not kept from it; resume says what is wrong
            written = setting_texts(load_config(self.config_file))
            texts |= {name: text for name, text in written.items() if is_free_setting(name)}
        return config_of_texts(texts)

    def written_config(self) -> Config:
        """The settings as config.toml has them now; where that is lost, those that the run has."""
        if not self.config_file.exists():
            return config_of_texts(self.manifest()[SETTINGS])
        try:
            return load_config(self.config_file)
        except HoldfastError as error:
            raise HoldfastError(
                f"{str(error).removesuffix('.')}; mend {self.config_file}, or remove it, and `holdfast resume "
                f"{self.path}` writes it again with the settings that the run has."
            ) from error

    def changes(self, config: Config) -> list[SettingChange]:
        """In what these settings are not those that the run has."""
        return changed_settings(self.manifest()[SETTINGS], setting_texts(config))

    def refuse_changes(self, changes: Sequence[SettingChange]) -> None:
        """Refuse to go on with changed settings that nobody has agreed to."""
        if changes:
            raise HoldfastError(
                f"{self.config_file} has other settings than the run: {change_words(changes)}. Put that back, or "
                f"`holdfast resume {self.path} --changed` goes on with it as it is."
            )

    def adopt(self, config: Config) -> list[str]:
        """Make these the run's settings, durably, and write lost files again; names of those.

        A config.toml that says the same is left as it is, with whatever its owner has written beside the settings.
        """
        lost = [file.name for file in (self.config_file, self.manifest_file) if not file.exists()]
        manifest, texts = self.manifest(), setting_texts(config)
        if manifest[SETTINGS] != texts or self.manifest_file.name in lost:
            self._write_manifest({**manifest, SETTINGS: texts})
        if self.config_file.name in lost or load_config(self.config_file) != config:
            write_atomic(self.config_file, config_toml(config).encode())
        return lost

    # ---- the reference

    @property
    def reference_file(self) -> Path:
        return self.path / "reference.json"

    def seal_reference(self) -> None:
        """Write down the checksums of a new reference, which every KL is measured against."""
        write_json_atomic(self.reference_file, sums_of(self.reference))

    def keep_reference_sealed(self) -> None:
        """Of a reference that is there: its checksums as the newest checkpoint has them; before one, as it is now."""
        if (seal := self.sealed()) is not None:
            write_json_atomic(self.reference_file, seal.reference)
        elif not self.reference_file.is_file():
            self.seal_reference()

    def check_reference(self) -> None:
        """Refuse a reference with a file that is changed, missing or added; without any checksums yet it passes."""
        seal = self.sealed()
        if seal is None and not (self.reference_file.is_file() and self.reference.is_dir()):
            return
        sums = seal.reference if seal else read_json(self.reference_file)
        check_sums(self.reference, sums, "so KL would be measured against something else")

    # ---- the checkpoints

    def check_checkpoints(self) -> None:
        """Refuse a run that has made steps and has no checkpoint: it would begin anew, and its rows be taken back.

        One is saved before the first step, so they are lost. Those of somebody else's trainer are its own.
        """
        if self.trainer:
            return
        rows = Tail(self.path / METRICS_FILE, lambda row: int(row["step"]))
        if CheckpointStore(self.checkpoints).is_empty() and any(rows.more()):
            raise HoldfastError(
                f"{self.checkpoints} has no checkpoint, and {self.path} has made steps: bring its checkpoints back, or "
                "start a new run."
            )

    def refuse_trainers(self) -> None:
        """Refuse the guard of somebody else's trainer, which goes on and back by that trainer alone."""
        if trainer := self.trainer:
            how = "go on with that, with resume_from_checkpoint=True"
            if trainer == OVER_HTTP:
                how = f"`holdfast guard serve {self.path.parent}` goes on with it"
            raise HoldfastError(f"{self.path} is the guard of a {trainer}; {how}.")

    @property
    def trainer(self) -> str:
        """The trainer of somebody else's whose guard this is; empty for a run of ours."""
        return str(self.manifest().get(TRAINER, ""))

    @property
    def key(self) -> str:
        """What comparison ids begin with. It is fixed when the run is made, so a run may be moved and renamed."""
        return str(self.manifest().get("key", self.name))


def refuse_occupied(path: Path) -> None:
    """A run directory is never shared or overwritten silently."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        what = "holds a run already" if (path / "manifest.json").exists() else "is not empty"
        advice = f"`holdfast resume {path}` goes on with it, or " if (path / "manifest.json").exists() else ""
        raise HoldfastError(f"{path} {what}; {advice}choose another --name.")
