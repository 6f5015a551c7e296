"""The experiments, each in a file of its own: a module with `EXPERIMENT` is one, and nothing else needs an edit."""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from holdfast.errors import HoldfastError
from holdfast.lab.experiment import Experiment


def all_experiments() -> dict[str, Experiment]:
    """Every experiment by name."""
    experiments: dict[str, Experiment] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        loaded = importlib.import_module(f"{__name__}.{module.name}")
        experiment = getattr(loaded, "EXPERIMENT", None)
        if isinstance(experiment, Experiment):
            experiments[experiment.name] = experiment
        for experiment in getattr(loaded, "EXPERIMENTS", ()):
            experiments[experiment.name] = experiment
    return experiments


def experiment_named(name: str) -> Experiment:
    """The experiment of that name, or an error that says which one may be meant."""
    known = all_experiments()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        advice = f"did you mean {close[0]}?" if close else "`holdfast lab list` names them all."
        raise HoldfastError(f"There is no experiment {name!r}; {advice}")
    return known[name]
