"""A world made of a user's own files: prompts, demonstrations, preferences. It knows no truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.config.schema import DataConfig
from holdfast.data.formats import read_demonstrations, read_prompt_rows
from holdfast.data.left_out import RowsLeftOut
from holdfast.data.splits import split
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Prompt
from holdfast.preferences.comparison import Demonstration
from holdfast.preferences.labeller import Labeller
from holdfast.text import counted
from holdfast.worlds.protocol import LabellerSettings


class Files:
    """Prompts and demonstrations from disk; comparisons are answered by `world.labeller` or were imported."""

    name = "files"

    def __init__(self, data: DataConfig, given_reward: bool = False) -> None:
        if not data.prompts:
            raise HoldfastError(
                'world.name = "files" needs prompts: set data.prompts to a file (JSON, CSV, Parquet or text), '
                "a directory that datasets saved, or hub:owner/name."
            )
        left_out = RowsLeftOut(data.skip_bad)
        self._columns: dict[Prompt, Mapping[str, Any]] = {}
        self._given_reward = given_reward  # which may read the columns beside a prompt
        notes: list[str] = []
        prompts = self._read(data.prompts, left_out, notes)
        if data.heldout_prompts:
            self._heldout = self._read(data.heldout_prompts, left_out, notes)
            apart = set(self._heldout)
            self._prompts = [p for p in prompts if p not in apart]
            if len(self._prompts) < len(prompts):
                taken = len(prompts) - len(self._prompts)
                stay = "is held out and does not train" if taken == 1 else "are held out and do not train"
                notes.append(f"{taken:,} of {counted(len(prompts), 'prompt')} {stay}.")
        else:
            self._prompts, self._heldout = split(prompts, data.heldout_share)
            apart = set(self._heldout)
        shown = read_demonstrations(data.demonstrations, left_out) if data.demonstrations else []
        # Held-out prompts train nothing, and that includes imitation.
        self._demonstrations = [d for d in shown if d.prompt not in apart]
        if taken_out := len(shown) - len(self._demonstrations):
            stay = "answers a held-out prompt and is" if taken_out == 1 else "answer held-out prompts and are"
            notes.append(f"{taken_out:,} of {counted(len(shown), 'demonstration')} {stay} left out.")
        self.notes, self.left_out = (*left_out.notes, *notes), tuple(left_out.lines)

    def _read(self, source: str, left_out: RowsLeftOut, notes: list[str]) -> list[Prompt]:
        """The prompts of a file, each once; the columns beside them are those of its first row."""
        others = set[Prompt]()
        rows = read_prompt_rows(source, left_out)
        for prompt, columns in rows:
            if self._columns.setdefault(prompt, columns) != columns:
                others.add(prompt)
        if others and self._given_reward:
            again = "comes" if len(others) == 1 else "come"
            notes.append(
                f"{counted(len(others), 'prompt')} of {source} {again} again with other columns; the reward reads "
                "those of the first row."
            )
        return list(dict.fromkeys(prompt for prompt, _ in rows))

    def columns(self) -> Mapping[Prompt, Mapping[str, Any]]:
        return self._columns

    def prompts(self) -> Sequence[Prompt]:
        return self._prompts

    def heldout_prompts(self) -> Sequence[Prompt]:
        return self._heldout

    def demonstrations(self) -> Sequence[Demonstration]:
        return self._demonstrations

    def labeller(self, settings: LabellerSettings) -> Labeller | None:
        return None
