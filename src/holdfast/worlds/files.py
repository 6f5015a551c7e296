"""A world made of a user's own files: prompts, demonstrations, preferences. It knows no truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from holdfast.config.schema import DataConfig
from holdfast.errors import HoldfastError
from holdfast.preferences.formats import read_demonstrations, read_prompts
from holdfast.preferences.types import Demonstration, Labeller, Prompt
from holdfast.randomness import generator
from holdfast.worlds.protocol import LabellerSettings


class Files:
    """Prompts and demonstrations from disk; comparisons are answered by `world.labeller` or were imported."""

    name = "files"

    def __init__(self, seed: int, data: DataConfig) -> None:
        if not data.prompts:
            raise HoldfastError(
                'world.name = "files" needs prompts: set data.prompts to a .jsonl, .parquet or .txt file.'
            )
        prompts = list(dict.fromkeys(read_prompts(Path(data.prompts))))
        if data.heldout_prompts:
            self._heldout = list(read_prompts(Path(data.heldout_prompts)))
        else:
            order = torch.randperm(len(prompts), generator=generator(seed, "held-out prompts")).tolist()
            held = sorted(order[: len(prompts) // 10])
            self._heldout = [prompts[i] for i in held]
        known = set(self._heldout)
        self._prompts = [p for p in prompts if p not in known]
        self._demonstrations = list(read_demonstrations(Path(data.demonstrations))) if data.demonstrations else []

    def prompts(self) -> Sequence[Prompt]:
        return self._prompts

    def heldout_prompts(self) -> Sequence[Prompt]:
        return self._heldout

    def demonstrations(self) -> Sequence[Demonstration]:
        return self._demonstrations

    def labeller(self, settings: LabellerSettings) -> Labeller | None:
        return None
