"""What a run is, as each of its checkpoints keeps it: settings, the facts of its making, checksums of its reference.

What is in the run directory is held against it when the run is opened, so that nothing goes on with other settings or
another identity unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.config import is_free_setting
from holdfast.errors import HoldfastError

SETTINGS = "settings"
# In a manifest beside the facts: the settings, what the work has cost so far, which grows, and its own checksum.
BESIDE = (SETTINGS, "seconds", "peak_memory", "seal")
# Changes that a sentence names; the rest are counted.
NAMED = 4


@dataclass(frozen=True)
class Seal:
    """What the newest complete checkpoint of a run, `checkpoint`, says of the run."""

    checkpoint: str
    settings: Mapping[str, str]
    facts: Mapping[str, Any]
    reference: Mapping[str, str]


@dataclass(frozen=True)
class SettingChange:
    """A setting that is not as it was, both values as TOML writes them; a value that is not there is empty."""

    name: str
    before: str
    after: str

    @property
    def words(self) -> str:
        return f"{self.name} is {self.after or 'missing'} and was {self.before or 'not there'}"


def changed_settings(before: Mapping[str, str], after: Mapping[str, str]) -> list[SettingChange]:
    """The settings in which two runs differ, but for those that no result depends on."""
    names = [name for name in dict.fromkeys([*after, *before]) if before.get(name) != after.get(name)]
    return [
        SettingChange(name, before.get(name, ""), after.get(name, ""))
        for name in names
        if name not in after or not is_free_setting(name)
    ]


def change_words(changes: Sequence[SettingChange]) -> str:
    """The changes in a clause: the first few by name, the rest by number."""
    words = [change.words for change in changes[:NAMED]]
    if len(changes) > NAMED:
        words.append(f"{len(changes) - NAMED} more differ")
    return "; ".join(words)


def facts_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What was fixed when a run was made, out of its manifest."""
    return {name: value for name, value in manifest.items() if name not in BESIDE}


def check_facts(file: object, facts: Mapping[str, Any], seal: Seal, remedy: str) -> None:
    """Refuse facts that are not those of the run's newest checkpoint: they belong to another run."""
    for name in dict.fromkeys([*seal.facts, *facts]):
        if facts.get(name) != seal.facts.get(name):
            raise HoldfastError(
                f"{file} is not this run's: its {name} is {facts.get(name)!r}, but {seal.checkpoint} was saved with "
                f"{seal.facts.get(name)!r}; {remedy}"
            )
