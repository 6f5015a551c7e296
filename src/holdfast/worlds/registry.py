"""Finding a world, a labeller or a flaw by name or as `path/to/file.py:Class`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.config import Config
from holdfast.config.schema import DataConfig
from holdfast.data.splits import Lengths
from holdfast.drawings.registry import chosen
from holdfast.errors import HoldfastError, OwnCodeError
from holdfast.models.prompt import Message
from holdfast.own_code import load_own
from holdfast.people.team import MODES, TeamLabeller
from holdfast.preferences.comparison import Demonstration
from holdfast.worlds.boat_race import Arrows, BoatRace
from holdfast.worlds.concierge import Concierge
from holdfast.worlds.everyday import Everyday
from holdfast.worlds.files import Files
from holdfast.worlds.flaws import FLAWS, Flaw, Taste
from holdfast.worlds.forecast import Forecasts
from holdfast.worlds.forecast.flaws import Overconfident
from holdfast.worlds.layout import Layouts
from holdfast.worlds.layout.flaws import Corner, FewBoxes, GiantBox, TinyBoxes
from holdfast.worlds.protocol import LabellerSettings, Task, World, task_of
from holdfast.worlds.stories import Stories

WORLDS: dict[str, type[World]] = {
    kind.name: kind for kind in (Concierge, Everyday, Stories, BoatRace, Layouts, Forecasts)
}
BUILT_IN = (*WORLDS, "files")
# Those of worlds that have their own, beside those that any texts can have.
KNOWN_FLAWS: dict[str, Callable[[int], Flaw]] = {
    **FLAWS,
    **{own.name: own for own in (Arrows, FewBoxes, GiantBox, Corner, TinyBoxes, Overconfident)},
}


def load_world(config: Config) -> World:
    """The world that the config names, made with the run's seed."""
    name, options, seed = config.world.name, config.world.options, config.run.seed
    if name == "files":
        return Files(config.data)
    _refuse_unused_files(config.data)
    kind = WORLDS[name] if name in WORLDS else load_own(name, "world.name", BUILT_IN)
    world = _call(kind, name, seed, options)
    if not isinstance(world, World):
        missing = [
            m for m in ("name", "prompts", "heldout_prompts", "demonstrations", "labeller") if not hasattr(world, m)
        ]
        raise HoldfastError(f"The class {name} is not a world: it has no {', '.join(missing)}.")
    return world


def load_task(config: Config, world: World) -> Task:
    """What training may see of the world, with the labeller that the config asks for; checked."""
    try:
        settings = LabellerSettings(config.world.label_noise, seed=config.run.seed, taste=_taste(config, world))
        task = task_of(world, settings)
    except HoldfastError:
        raise
    except Exception as error:
        raise OwnCodeError(f"The world {config.world.name} failed", error) from error
    task = replace(task, drawing=chosen(config.world.drawing, task.drawing))
    if config.world.labeller:
        labeller = _labeller(config)
        if not (isinstance(getattr(labeller, "name", None), str) and callable(getattr(labeller, "label", None))):
            raise HoldfastError(
                f"The class {config.world.labeller} is not a labeller: it needs a name, which is a text, and label()."
            )
        task = replace(task, labeller=labeller)
    _refuse_unused_taste(config, task)
    _check_texts(config.world.name, task)
    if not task.prompts:
        raise HoldfastError(f"The world {config.world.name} has no prompts to train on; give at least one.")
    return task


def _labeller(config: Config) -> Any:
    """People, a judge, both, or the class that the config names."""
    name = config.world.labeller
    for mode in MODES:
        if name == mode:
            return TeamLabeller(mode, config)
    return _call(load_own(name, "world.labeller", MODES), name, config.run.seed, {})


def load_flaw(spec: str, seed: int, demonstrations: Sequence[Demonstration] = ()) -> Flaw:
    """The flaw of this name, or in this file, made with the run's seed; it may read the demonstrations first."""
    kind = KNOWN_FLAWS[spec] if spec in KNOWN_FLAWS else load_own(spec, "flaw.name", tuple(KNOWN_FLAWS))
    flaw = _call(kind, spec, seed, {})
    if not isinstance(flaw, Flaw) or not callable(flaw.bonus):
        raise HoldfastError(f"The class {spec} is not a flaw: it needs name and bonus(prompt, response).")
    read = getattr(flaw, "read", None)
    if read is not None:
        try:
            read(demonstrations)
        except HoldfastError:
            raise
        except Exception as error:  # the flaw may be the user's own code
            raise OwnCodeError(f"The flaw {spec} failed to read the demonstrations", error) from error
    return flaw


def _taste(config: Config, world: World) -> Taste | None:
    """The flaw as the simulated labeller's taste, where the config puts it there."""
    flaw = config.flaw
    if not flaw.name or flaw.where != "labels":
        return None
    return Taste(load_flaw(flaw.name, config.run.seed, list(world.demonstrations())), flaw.weight)


def _refuse_unused_taste(config: Config, task: Task) -> None:
    """A flaw in the labels is a taste of a world's own labeller; nobody else would have it."""
    if config.flaw.name and config.flaw.where == "labels" and (config.world.labeller or task.labeller is None):
        raise HoldfastError(
            "flaw.where = labels gives a taste to the world's simulated labeller, and here there is none; "
            "set flaw.where = reward, or leave flaw.name empty."
        )


def _check_texts(name: str, task: Task) -> None:
    """Refuse prompts and demonstrations that are not what the protocol says; a world is anyone's code."""
    for d in task.demonstrations:
        if not isinstance(d, Demonstration) or not isinstance(d.response, str):
            raise HoldfastError(
                f"The world {name} gives {d!r:.60} as a demonstration; give Demonstration(prompt, response)."
            )
    for prompt in (*task.prompts, *task.heldout_prompts, *(d.prompt for d in task.demonstrations)):
        turns = prompt if isinstance(prompt, tuple) else ()
        if not isinstance(prompt, str) and not (turns and all(isinstance(turn, Message) for turn in turns)):
            raise HoldfastError(
                f"The world {name} gives {prompt!r:.60} as a prompt; give a text or a tuple of Messages."
            )
    if not all(isinstance(row, Mapping) for row in task.columns.values()):
        raise HoldfastError(f"The world {name} gives columns that are not {{prompt: {{name: value}}}}.")


def _call(kind: Any, name: str, seed: int, options: dict[str, Any]) -> Any:
    try:
        return kind(seed, **options)
    except HoldfastError:
        raise
    except Exception as error:
        raise OwnCodeError(f"{name} cannot be made with seed {seed} and options {options}", error) from error


def _refuse_unused_files(data: DataConfig) -> None:
    named = [key for key in ("prompts", "heldout_prompts", "demonstrations") if getattr(data, key)]
    if named:
        raise HoldfastError(
            f'data.{named[0]} is only read with world.name = "files"; set that or leave data.{named[0]} out.'
        )
    if Lengths.of(data).limited and not data.preferences:
        raise HoldfastError(
            'data.prompt_length and data.answer_length are for your own data: world.name = "files" or '
            "data.preferences; leave them out here."
        )
