"""A prepared run: reference, labels and version 1 of the ensemble, in about a second."""

from __future__ import annotations

from pathlib import Path

import pytest

import small_run
from holdfast.config import load_config
from holdfast.run.build import assemble
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import gather
from holdfast.track.progress import Silent
from holdfast.worlds.registry import load_task, load_world


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory that has not begun its first round."""
    config = load_config(None, [word for word in small_run.settings(sft__epochs="4") if word != "--set"])
    ingredients = gather(config, load_task(config, load_world(config)))
    run = RunDirectory.create(tmp_path_factory.mktemp("interop") / "run", config, {})
    with assemble(ingredients, run, Silent()):
        pass
    return run.path


@pytest.fixture(scope="session")
def prompts(prepared: Path) -> list[list[dict[str, str]]]:
    """The world's prompts as a conversational dataset has them."""
    world = load_world(RunDirectory.open(prepared).config())
    return [[{"role": "user", "content": str(prompt)}] for prompt in world.prompts()]
