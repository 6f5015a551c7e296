"""A world made of a user's own files: prompts, demonstrations, preferences. It knows no truth."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.config.schema import DataConfig
from holdfast.data.formats import read_demonstrations, read_prompts
from holdfast.data.splits import split
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Prompt
from holdfast.preferences.comparison import Demonstration
from holdfast.preferences.labeller import Labeller
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
        prompts = list(dict.fromkeys(read_prompts(data.prompts)))
        notes = []
        if data.heldout_prompts:
            self._heldout = list(dict.fromkeys(read_prompts(data.heldout_prompts)))
            apart = set(self._heldout)
            self._prompts = [p for p in prompts if p not in apart]
            if len(self._prompts) < len(prompts):
                notes.append(
                    f"{len(prompts) - len(self._prompts):,} of {len(prompts):,} prompts are held out and do not train."
                )
        else:
            self._prompts, self._heldout = split(prompts, data.heldout_share)
            apart = set(self._heldout)
        shown = read_demonstrations(data.demonstrations) if data.demonstrations else []
        # Held-out prompts train nothing, and that includes imitation.
        self._demonstrations = [d for d in shown if d.prompt not in apart]
        if taken_out := len(shown) - len(self._demonstrations):
            notes.append(f"{taken_out:,} of {len(shown):,} demonstrations answer held-out prompts and are left out.")
        self.notes = tuple(notes)

    def prompts(self) -> Sequence[Prompt]:
        return self._prompts

    def heldout_prompts(self) -> Sequence[Prompt]:
        return self._heldout

    def demonstrations(self) -> Sequence[Demonstration]:
        return self._demonstrations

    def labeller(self, settings: LabellerSettings) -> Labeller | None:
        return None
