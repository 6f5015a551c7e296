"""The config files in examples/ are read as they stand."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from holdfast.config import Config, load_config

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("*.toml")), ids=lambda file: f"{file.parent.name}-{file.name}")
def test_an_example_is_a_config(file: Path) -> None:
    assert load_config(file) != Config()


def test_the_bare_run_differs_in_what_holdfast_adds_alone() -> None:
    full, bare = (load_config(EXAMPLES / name) for name in ("smollm2.toml", "smollm2-bare.toml"))
    different = {
        f"{section.name}.{item.name}"
        for section in fields(Config)
        for item in fields(getattr(full, section.name))
        if getattr(getattr(full, section.name), item.name) != getattr(getattr(bare, section.name), item.name)
    }
    allowed = ("reward.members", "refresh.", "preferences.per_round", "kl.", "guard.", "audit.", "gate.")
    assert different
    assert [name for name in different if not name.startswith(allowed)] == []
    assert (bare.reward.members, bare.kl.controller, bare.kl.beta, bare.guard.mode) == (1, "fixed", 0.05, "off")
    assert (bare.refresh.every_rounds, bare.refresh.on_miscalibration) == (0, False)
