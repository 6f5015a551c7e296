"""What an experiment is: scenarios and arms as data, and what is made of their trials.

    scenarios x arms x seeds -> jobs -> trials -> analyse -> result (JSON) -> tables, recommendation, figure

Everything that is shown is made from the result alone, so that tables and figures come again without a run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from holdfast.charts.chart import ChartSpec
from holdfast.checkpoint.files import write_atomic
from holdfast.config import Config, config_toml, load_config
from holdfast.errors import HoldfastError
from holdfast.lab.mislabels import HONEST
from holdfast.lab.references import files_of
from holdfast.lab.trial import Job, Trial
from holdfast.run.demand import label_demand

Result = dict[str, Any]

# Beside the trials of one kind: their config, and what else they depend on.
FACTS = "facts.json"


@dataclass(frozen=True)
class Scenario:
    """Circumstances that all arms meet, whatever they set themselves.

    Of a flaw's two forms the default one is taken unless all are asked for. One that is `aside` is there for those who
    name it, or the `group` that it belongs to. `bare` is what the arm of that name sets besides.
    """

    name: str
    overrides: tuple[str, ...] = ()
    form: str = ""
    default: bool = True
    aside: bool = False
    bare: tuple[str, ...] = ()
    group: str = ""

    @property
    def title(self) -> str:
        return f"{self.name}, {self.form}" if self.form else self.name


@dataclass(frozen=True)
class Arm:
    """One way of running. `spends_like` names an arm whose labels this one gets: at the start, but for those that it
    asks for later.

    An arm that is there for comparison need not be run on every seed: `seeds` is how many at most, from the first on.
    `adapts` makes of all other settings those that follow from them, such as a scenario's onset in shorter rounds.
    `judge_refreshes` and `asks_everything` have the observer measure more (see `Job`).
    """

    name: str
    overrides: tuple[str, ...] = ()
    words: str = ""
    again: bool = False
    labels: str = HONEST
    judge_refreshes: bool = False
    asks_everything: bool = False
    spends_like: str = ""
    seeds: int | None = None
    adapts: Callable[[Config], tuple[str, ...]] | None = None


@dataclass(frozen=True)
class ResultCell:
    """One trial's place in an experiment."""

    scenario: str
    arm: str
    seed: int


@dataclass(frozen=True)
class Results:
    """The trials that have ended, by their place, and the sentences of those that have not."""

    scenarios: Sequence[str]
    arms: Sequence[str]
    seeds: Sequence[int]
    trials: Mapping[ResultCell, Trial]
    failures: Sequence[str] = ()

    def of(self, scenario: str, arm: str) -> list[Trial]:
        """The trials of an arm in a scenario, by seed."""
        cells = [ResultCell(scenario, arm, seed) for seed in self.seeds]
        return [self.trials[cell] for cell in cells if cell in self.trials]

    def paired(self, scenario: str, *arms: str) -> list[tuple[Trial, ...]]:
        """The trials of several arms, for the seeds on which all of them have ended."""
        rows = [[self.trials.get(ResultCell(scenario, arm, seed)) for arm in arms] for seed in self.seeds]
        return [tuple(t for t in row if t is not None) for row in rows if None not in row]

    def each(self) -> Iterable[tuple[ResultCell, Trial]]:
        """All trials in the order of scenarios, arms and seeds."""
        for scenario in self.scenarios:
            for arm in self.arms:
                for seed in self.seeds:
                    if (cell := ResultCell(scenario, arm, seed)) in self.trials:
                        yield cell, self.trials[cell]


@dataclass(frozen=True)
class Table:
    """Rows of texts; the first `left` columns are words."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1


@dataclass(frozen=True)
class Experiment:
    """A question, what is run to answer it, and how the answer is read off."""

    name: str
    question: str
    scenarios: tuple[Scenario, ...]
    arms: tuple[Arm, ...]
    analyse: Callable[[Results], Result]
    tables: Callable[[Result], list[Table]]
    recommend: Callable[[Result], str]
    figure: Callable[[Result], list[ChartSpec]]
    seeds: int = 5
    settings: tuple[str, ...] = ()
    heldout: int = 200
    shares_references: bool = True
    workers: int | None = None
    columns: int = 3

    def chosen(self, forms: str = "default", only: Sequence[str] = ()) -> tuple[Scenario, ...]:
        """The scenarios to run: each flaw in its default form, in both, or in one; `only` names some or a group."""
        names = list(dict.fromkeys(name for s in self.scenarios for name in (s.name, s.group) if name))
        if unknown := [name for name in only if name not in names]:
            raise HoldfastError(f"{self.name} has no scenario {unknown[0]!r}; it has {', '.join(names)}.")
        wanted = [s for s in self.scenarios if (not {s.name, s.group}.isdisjoint(only) if only else not s.aside)]
        found = tuple(
            s for s in wanted if (s.default if forms == "default" else s.form in ("", forms) or forms == "both")
        )
        if not found:
            raise HoldfastError(
                f"{self.name} has {'; '.join(s.title for s in wanted)}, and nothing {forms}; name another of --forms."
            )
        return found

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)


@dataclass(frozen=True)
class Plan:
    """An experiment as it is to be run: which scenarios and seeds, with which further settings, and where."""

    experiment: Experiment
    scenarios: tuple[Scenario, ...]
    seeds: tuple[int, ...]
    runs: Path
    settings: tuple[str, ...] = ()
    keep_weights: bool = False

    def cells(self, later: bool = False) -> list[ResultCell]:
        """What to run first, or what has to wait for another arm's trials. Arms of a seed stand side by side."""
        return [
            ResultCell(scenario.title, arm.name, seed)
            for scenario in self.scenarios
            for number, seed in enumerate(self.seeds)
            # In turns, so that no arm is always the one that runs while the machine is cold.
            for arm in (self.experiment.arms if number % 2 == 0 else self.experiment.arms[::-1])
            if bool(arm.spends_like) == later and (arm.seeds is None or number < arm.seeds)
        ]

    def overrides(self, arm: Arm, scenario: Scenario) -> tuple[str, ...]:
        """All settings of an arm in a scenario, in the order in which they are taken."""
        settings = (*self.experiment.settings, *self.settings, *arm.overrides, *scenario.overrides)
        settings += scenario.bare if arm.name == "bare" else ()
        return settings if arm.adapts is None else (*settings, *arm.adapts(load_config(None, settings)))

    def job(self, cell: ResultCell, trials: Mapping[ResultCell, Trial] | None = None) -> Job:
        """The job of a cell. Equal settings have one directory, whichever experiment asks for them."""
        experiment, arm = self.experiment, self.experiment.arm(cell.arm)
        scenario = next(s for s in self.scenarios if s.title == cell.scenario)
        overrides = self.overrides(arm, scenario)
        if arm.spends_like:
            spent = (trials or {})[ResultCell(cell.scenario, arm.spends_like, cell.seed)].labels.total
            overrides = (*overrides, f"reward.initial_comparisons={first_of(spent, load_config(None, overrides))}")
        config = config_toml(load_config(None, overrides), comments=False)
        facts = (
            config,
            files_of([text.partition("=")[2] for text in overrides]),
            arm.again,
            arm.labels,
            arm.judge_refreshes,
            experiment.heldout,
        )
        return Job(
            overrides=overrides,
            seed=cell.seed,
            path=directory_of(self.runs / "trials", facts) / f"seed-{cell.seed}",
            name=f"{cell.scenario} | {cell.arm} | seed {cell.seed}",
            heldout=experiment.heldout,
            again=arm.again,
            labels=arm.labels,
            judge_refreshes=arm.judge_refreshes,
            asks_everything=arm.asks_everything,
            references=self.runs / "references" if experiment.shares_references else None,
            keep_weights=self.keep_weights,
        )


def first_of(labels: int, config: Config) -> int:
    """How many of so many labels a run without a guard has to begin with, to come to them by its end.

    Never fewer than by its own settings, which only matters where all is too small to mean anything.
    """
    demand = label_demand(config)
    later = demand.total.most - demand.first.most if demand is not None else 0
    return max(labels - later, config.reward.initial_comparisons)


def directory_of(trials: Path, facts: Sequence[Any]) -> Path:
    """Where the trials with these facts are, or will be: a config, and what else a trial depends on."""
    text = json.dumps(facts)
    directory = trials / hashlib.sha256(text.encode()).hexdigest()[:12]
    if not (directory / FACTS).is_file():
        directory.mkdir(parents=True, exist_ok=True)
        write_atomic(directory / FACTS, text.encode())
    return directory


def mean_heldout(trials: Sequence[Trial]) -> dict[str, list[float]]:
    """Held-out gold by round, mean over seeds; as long as the shortest run, so that each point is of all seeds."""
    if not trials:
        return {"steps": [], "gold": []}
    length = min(len(t.heldout) for t in trials)
    return {
        "steps": [float(step) for step in trials[0].heldout_steps[:length]],
        "gold": [fmean(t.heldout[i] for t in trials) for i in range(length)],
    }


def costs(trials: Sequence[Trial]) -> dict[str, float | None]:
    """What an arm spends, mean over its trials; of the seconds the median, since a machine may have stood still."""
    clocked = [t.seconds for t in trials if t.seconds is not None]
    return {
        "trials": len(trials),
        "labels": fmean(t.labels.total for t in trials) if trials else None,
        "audit_labels": fmean(t.labels.audit for t in trials) if trials else None,
        "tokens": fmean(t.tokens for t in trials) if trials else None,
        "seconds": median(clocked) if clocked else None,
    }


def interval(estimate: Result | None, form: str = "+.3f") -> str:
    """The 95% interval of an estimate in a table or a sentence; one value has none."""
    if estimate is None:
        return "-"
    if estimate["count"] == 1:
        return "(one run)"
    return f"[{estimate['low']:{form}}, {estimate['high']:{form}}]"


def side(estimate: Result) -> int:
    """Where the truth is beyond doubt: 1 above zero, -1 below, 0 where that is not clear. One value is never clear."""
    if estimate["count"] == 1:
        return 0
    return int(estimate["low"] > 0) - int(estimate["high"] < 0)


def number(value: float | None, form: str = ".0f") -> str:
    """A figure of a table; a dash where there is none."""
    return "-" if value is None or value != value else format(value, form)
