"""A run directory: where everything about one run lives, and how to tell it from any other directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast import __version__
from holdfast.checkpoint.files import (
    read_json,
    sha256_of,
    write_atomic,
    write_json_atomic,
)
from holdfast.config import Config, config_toml, load_config
from holdfast.errors import HoldfastError

FORMAT = 1


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
    def report_file(self) -> Path:
        return self.path / "report.html"

    def database_url(self, config: Config) -> str:
        return config.preferences.url or f"sqlite:///{self.path / 'run.db'}"

    @classmethod
    def create(cls, path: Path, config: Config, facts: Mapping[str, Any]) -> RunDirectory:
        """Make a new run directory; one that holds anything is refused."""
        run = cls(path)
        refuse_occupied(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            write_atomic(run.config_file, config_toml(config).encode())
            manifest = {
                "holdfast_run": FORMAT,
                "holdfast_version": __version__,
                "name": path.name,
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
                **facts,
            }
            write_json_atomic(run.manifest_file, manifest)
        except OSError as error:
            raise HoldfastError(f"The run directory {path} cannot be written: {error.strerror}.") from error
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing run directory; any other directory is refused."""
        run = cls(path)
        if not path.is_dir():
            raise HoldfastError(f"There is no run directory {path}; `holdfast run` makes one.")
        manifest = run.manifest()
        if manifest.get("holdfast_run") != FORMAT:
            raise HoldfastError(f"{path} was not made by this version of Holdfast, so it is left alone.")
        return run

    def manifest(self) -> dict[str, Any]:
        try:
            document = json.loads(self.manifest_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise HoldfastError(f"{self.path} is not a run directory: it has no manifest.json.") from None
        except (OSError, ValueError) as error:
            raise HoldfastError(f"{self.manifest_file} cannot be read: {error}.") from None
        if not isinstance(document, dict):
            raise HoldfastError(f"{self.manifest_file} is not a run's manifest.")
        return document

    def record_effort(self, seconds: float, peak_memory: int) -> None:
        """Add to the manifest what the work has cost: seconds over all sittings, the most bytes of memory of any."""
        manifest = self.manifest()
        manifest["seconds"] = round(float(manifest.get("seconds", 0.0)) + seconds, 1)
        manifest["peak_memory"] = max(int(manifest.get("peak_memory", 0)), peak_memory)
        write_json_atomic(self.manifest_file, manifest)

    def seal_reference(self) -> None:
        """Write down the checksums of the reference, which every KL is measured against."""
        sums = {file.name: sha256_of(file) for file in sorted(self.reference.iterdir())}
        write_json_atomic(self.path / "reference.json", sums)

    def check_reference(self) -> None:
        """Refuse a reference whose files have changed; one cut off before it was sealed is sealed now."""
        sealed = self.path / "reference.json"
        if not sealed.is_file():
            self.seal_reference()
        for name, expected in read_json(sealed).items():
            file = self.reference / name
            if not file.is_file() or sha256_of(file) != expected:
                raise HoldfastError(
                    f"{file} is missing or not as it was written, so KL would be measured against something else; "
                    "bring the file back or start a new run."
                )

    @property
    def key(self) -> str:
        """What comparison ids begin with. It is fixed when the run is made, so a run may be moved and renamed."""
        return str(self.manifest().get("key", self.name))

    def config(self) -> Config:
        return load_config(self.config_file)


def refuse_occupied(path: Path) -> None:
    """A run directory is never shared or overwritten silently."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        what = "holds a run already" if (path / "manifest.json").exists() else "is not empty"
        advice = f"`holdfast resume {path}` goes on with it, or " if (path / "manifest.json").exists() else ""
        raise HoldfastError(f"{path} {what}; {advice}choose another --name.")
