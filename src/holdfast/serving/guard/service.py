"""All trainings of one server: a directory of its own for each, and one server for a directory."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from holdfast.checkpoint.lock import RunLock
from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.run.directory import OVER_HTTP, RunDirectory
from holdfast.serving.guard.labellers import check_labeller
from holdfast.serving.guard.policy_server import PolicyServer
from holdfast.serving.guard.settings import settings_of
from holdfast.serving.guard.training import Training, make_training
from holdfast.web.security import Refused

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class GuardService:
    """Trainings by their names, which go on where they were when the directory is opened again."""

    def __init__(
        self,
        directory: Path,
        labeller: str = "people",
        config: Config | None = None,
        servers: Mapping[str, PolicyServer] | None = None,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.directory, self._labeller, self._config = directory, labeller, config or Config()
        self._servers, self._say = dict(servers or {}), say
        self._guard = threading.Lock()
        self._files = ExitStack()
        self.trainings: dict[str, Training] = {}
        check_labeller(labeller, self._config)
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HoldfastError(f"The directory {directory} cannot be made ({error.strerror}).") from error
        if (directory / "manifest.json").exists():
            raise HoldfastError(f"{directory} is a run; give the guard's server a directory of its own.")
        self._files.enter_context(RunLock(directory))
        try:
            for path in sorted(directory.glob("*/manifest.json")):
                if NAME.fullmatch(path.parent.name) and RunDirectory(path.parent).trainer == OVER_HTTP:
                    self._open(path.parent)
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Let every training go on."""
        for training in self.trainings.values():
            training.start()

    def close(self) -> None:
        """End all reviews between two questions, and let go of the directory."""
        for training in self.trainings.values():
            training.close()
        self._files.close()

    def begin(self, name: str, document: Mapping[str, Any]) -> bool:
        """A new training, or the one of this name if its settings are the same; whether it is new."""
        if not NAME.fullmatch(name):
            raise Refused(422, f"A training cannot be called {name!r:.60}: up to 64 letters, digits, '.', '_' and '-'.")
        settings = settings_of(document)
        with self._guard:
            if name in self.trainings:
                if self.trainings[name].settings != settings:
                    raise Refused(409, f"There is a training called {name} with other settings; choose another name.")
                return False
            path = self.directory / name
            if path.exists():
                raise Refused(409, f"{name} is the name of something else in the server's directory; choose another.")
            make_training(path, settings, settings.config(self._config, self._labeller))
            self._open(path).start()
        self._say(f"{name}: begun; its page and dashboard: `holdfast serve {path}`")
        return True

    def training(self, name: str) -> Training:
        if name not in self.trainings:
            raise Refused(404, f"There is no training called {name!r:.60}; PUT /trainings/{{name}} begins one.")
        return self.trainings[name]

    def _open(self, path: Path) -> Training:
        self.trainings[path.name] = training = Training(path, self._labeller, self._servers, self._say)
        return training
