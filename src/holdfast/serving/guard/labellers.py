"""Who answers the audits of a server's trainings: people, a judge, both, or a file of the owner's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.config import Config
from holdfast.errors import OwnCodeError
from holdfast.own_code import load_own
from holdfast.people.label_weights import LabellerWeights
from holdfast.people.team import MODES, TeamLabeller
from holdfast.preferences.labeller import Labeller, labeller_of
from holdfast.preferences.store import PreferenceStore


@dataclass(frozen=True)
class Answering:
    """A labeller, and what is to be done when people have answered."""

    labeller: Labeller
    after_people: Callable[[], None] = lambda: None


def check_labeller(spec: str, config: Config) -> None:
    """Refuse at the start what could label nothing."""
    if spec not in MODES:
        labeller_in(spec)
    else:
        TeamLabeller(spec, config)


def open_labeller(
    config: Config,
    store: PreferenceStore,
    run: str,
    hold: Callable[[str, int, int], None],
    stop_requested: Callable[[], bool],
    event: Callable[..., None],
) -> Answering:
    """The labeller of one training; people answer on the training's own page."""
    spec = config.world.labeller
    if spec not in MODES:
        return Answering(labeller_in(spec))
    team = TeamLabeller(spec, config)
    team.connect(store, run, hold, stop_requested, event)
    weights = LabellerWeights(store, run, config.people.unreliable)

    def look() -> None:
        if changed := weights.update():
            event("label_quality", changed=changed, unreliable=config.people.unreliable)

    return Answering(team, look)


def labeller_in(spec: str) -> Labeller:
    """A function of (prompt, a, b), or a class with a name and label(), as `FILE.py:NAME`."""
    found: Any = load_own(spec, "--labeller", MODES, "function")
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise OwnCodeError(f"{spec} cannot be made", error) from error
    return labeller_of(found)
