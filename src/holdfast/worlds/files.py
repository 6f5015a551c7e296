"""A world made of a user's own files: prompts, demonstrations, preferences. It knows no truth."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.config.schema import DataConfig
from holdfast.errors import HoldfastError
from holdfast.preferences.formats import read_demonstrations, read_prompts
from holdfast.preferences.splits import split
from holdfast.preferences.types import Demonstration, Labeller, Prompt
from holdfast.worlds.protocol import LabellerSettings


class Files:
    """Prompts and demonstrations from disk; comparisons are answered by `world.labeller` or were imported."""

    name = "files"

    def __init__(self, data: DataConfig) -> None:
        if not data.prompts:
            raise HoldfastError(
                'world.name = "files" needs prompts: set data.prompts to a .jsonl, .parquet or .txt file, '
                "a directory that datasets saved, or hub:owner/name."
            )
        if data.heldout_prompts:
            self._heldout = list(dict.fromkeys(read_prompts(data.heldout_prompts)))
            apart = set(self._heldout)
            self._prompts = [p for p in dict.fromkeys(read_prompts(data.prompts)) if p not in apart]
        else:
            self._prompts, self._heldout = split(read_prompts(data.prompts), data.heldout_share)
            apart = set(self._heldout)
        given = read_demonstrations(data.demonstrations) if data.demonstrations else []
        self._demonstrations = [d for d in given if d.prompt not in apart]
        taken_out = len(given) - len(self._demonstrations)
        # Held-out prompts train nothing, and that includes imitation.
        told = f"{taken_out:,} of {len(given):,} demonstrations answer held-out prompts and are left out."
        self.notes = (told,) if taken_out else ()

    def prompts(self) -> Sequence[Prompt]:
        return self._prompts

    def heldout_prompts(self) -> Sequence[Prompt]:
        return self._heldout

    def demonstrations(self) -> Sequence[Demonstration]:
        return self._demonstrations

    def labeller(self, settings: LabellerSettings) -> Labeller | None:
        return None
