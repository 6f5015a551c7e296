"""The newest verdict of each training in a directory, by its events; whoever writes them may be at work or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.report.data import RunFollower
from holdfast.run.directory import RunDirectory


def verdicts_in(directory: Path) -> dict[str, dict[str, Any] | None]:
    """By the name of the training; None where none has been reached yet."""
    places = (
        [directory]
        if (directory / "manifest.json").is_file()
        else sorted(path.parent for path in directory.glob("*/manifest.json") if not path.parent.name.startswith("."))
    )
    found: dict[str, dict[str, Any] | None] = {}
    for place in places:
        RunDirectory.open(place)
        events = [event for event in RunFollower(place).read().events if event.kind == "verdict"]
        found[place.name] = (
            None
            if not events
            else {
                "round": events[-1].round,
                "level": events[-1].fields["level"],
                "sentence": events[-1].fields["sentence"],
            }
        )
    if not found:
        raise HoldfastError(f"There is no training in {directory}.")
    return found
