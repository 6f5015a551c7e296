"""An experiment as it suits a world: trials of its size, and the flaws that can be on it."""

from __future__ import annotations

from dataclasses import replace

from holdfast.config import Config
from holdfast.config.schema import WorldConfig
from holdfast.lab.experiment import Experiment, Scenario
from holdfast.lab.scenarios import PLANTED, flaw_scenarios
from holdfast.worlds.protocol import World
from holdfast.worlds.registry import load_world


def fitted(experiment: Experiment, config: Config) -> tuple[Experiment, tuple[str, ...]]:
    """The experiment on the config's world, and that world's own settings, which any others come after."""
    if config.world.name == WorldConfig().name:
        return experiment, ()
    world = load_world(config)
    scenarios = tuple(scenarios_on(world, experiment.scenarios))
    return replace(experiment, scenarios=scenarios), tuple(getattr(world, "lab_settings", ()))


def scenarios_on(world: World, scenarios: tuple[Scenario, ...]) -> list[Scenario]:
    """What an experiment meets on a world.

    One that has flaws of its own has them in the others' place, planted, with no flaw beside them. Without
    demonstrations no flaw is what is looked at: the six built-in ones are set for the built-in world's answers, and one
    of them cannot be without demonstrations. They are there for those who name them.
    """
    flawed, flawless = [s for s in scenarios if s.form], [s for s in scenarios if not s.form]
    if not flawed:
        return flawless
    if own := getattr(world, "flaws", {}):
        planted = [s for name, settings in own.items() for s in own_flaw(name, settings)]
        return [*planted, *(replace(s, aside=s.aside and bool(s.bare)) for s in flawless)]
    if world.demonstrations():
        return list(scenarios)
    return [*(replace(s, aside=False) for s in flawless), *(replace(s, aside=True) for s in flawed)]


def own_flaw(name: str, settings: tuple[str, ...]) -> tuple[Scenario, ...]:
    """A world's own flaw in both forms, by default planted, with the settings that the world has for that."""
    emergent, planted = flaw_scenarios(name, name, PLANTED)
    return emergent, replace(planted, overrides=(*planted.overrides, *settings))
