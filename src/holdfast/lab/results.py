"""Carrying an experiment out, and keeping what came of it: one JSON file, from which tables and figures are made."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from glob import escape
from pathlib import Path
from typing import Any

import torch

from holdfast import __version__
from holdfast.charts.chart import ChartSpec, grid
from holdfast.checkpoint.files import write_atomic
from holdfast.config import load_config
from holdfast.documents import json_of
from holdfast.errors import HoldfastError
from holdfast.lab.experiment import Arm, Experiment, Plan, Result, ResultCell, Results
from holdfast.lab.observer import gold_of
from holdfast.lab.runner import Desk, OwnProcess, attempt_trials
from holdfast.lab.trial import Trial, summary
from holdfast.preferences.labeller import PatientLabeller
from holdfast.worlds.registry import load_flaw, load_task, load_world

# Everything small, to see whether an experiment works at all; its figures mean nothing.
QUICK = (
    "run.rounds=3", "run.steps_per_round=2", "world.options={prompts = 64, demonstrations = 64, heldout = 8}",
    "policy.hidden=16", "policy.layers=1", "policy.heads=2", "policy.feed_forward=32", "policy.context=96",
    "policy.micro_batch_tokens=512", "sft.epochs=1", "sft.lr=0.02", "sft.warmup_steps=2", "sft.batch=8",
    "rollout.max_new_tokens=12", "reward.members=2", "reward.initial_comparisons=24", "reward.holdout=0.2",
    "reward.epochs=1", "reward.standardise_samples=16", "preferences.per_round=8", "ppo.batch=8",
    "audit.pairs=4", "audit.more_pairs=8", "audit.budget=60", "guard.baseline_batches=4",
)  # fmt: skip


def check_plan(plan: Plan) -> None:
    """Load the config, the world and the flaw of every kind of trial once, so that a slip is found at the start."""
    seen: set[str] = set()
    for scenario in plan.scenarios:
        for arm in plan.experiment.arms:
            config = load_config(None, [*plan.overrides(arm, scenario), f"run.seed={plan.seeds[0]}"])
            if config.vllm.url:
                raise HoldfastError("Trials run side by side, and one vLLM server has one policy: leave vllm.url out.")
            if config.preferences.url:
                raise HoldfastError(
                    "Every trial keeps its labels apart, in its own directory: leave preferences.url out."
                )
            if (key := repr((config.world, config.flaw))) in seen:
                continue
            seen.add(key)
            world = load_world(config)
            if gold_of(world) is None:
                raise HoldfastError(f"The world {world.name} knows no gold score, so there is nothing to measure.")
            task = load_task(config, world)
            if isinstance(task.labeller, PatientLabeller):
                raise HoldfastError(
                    "Trials would wait for people to answer thousands of comparisons: leave world.labeller out, or "
                    "name a class that answers by itself."
                )
            if config.flaw.name:
                load_flaw(config.flaw.name, config.run.seed, task.demonstrations)


def carry_out(plan: Plan, workers: int, say: Callable[[str], None], desk: Callable[[], Desk] = OwnProcess) -> Results:
    """All trials of a plan; those that need another's figures come after it, and are left out where it failed."""
    trials: dict[ResultCell, Trial] = {}
    failures: list[str] = []
    for later in (False, True):
        cells = [cell for cell in plan.cells(later) if _ready(plan, cell, trials)]
        jobs = [plan.job(cell, trials) for cell in cells]
        # Two arms may come to the same settings; then they are one trial.
        places: dict[Path, int] = {}
        for i, job in enumerate(jobs):
            places.setdefault(job.path, i)
        outcomes = attempt_trials([jobs[i] for i in places.values()], workers, say, desk) if jobs else []
        by_path = {outcome.job.path: outcome for outcome in outcomes}
        for cell, job in zip(cells, jobs, strict=True):
            outcome = by_path[job.path]
            if outcome.trial is None:
                failures.append(f"{job.name}: {outcome.failure}")
            else:
                trials[cell] = outcome.trial
    return Results(
        scenarios=[s.title for s in plan.scenarios],
        arms=[arm.name for arm in plan.experiment.arms],
        seeds=plan.seeds,
        trials=trials,
        failures=failures,
    )


def _ready(plan: Plan, cell: ResultCell, trials: dict[ResultCell, Trial]) -> bool:
    model = plan.experiment.arm(cell.arm).spends_like
    return not model or ResultCell(cell.scenario, model, cell.seed) in trials


def document_of(plan: Plan, results: Results, command: str) -> Result:
    """All that is kept of an experiment."""
    experiment = plan.experiment
    result = plain(experiment.analyse(results))
    return {
        "made_by": {
            "command": command,
            "holdfast": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "experiment": experiment.name,
        "question": experiment.question,
        "seeds": list(plan.seeds),
        "settings": [_without_place(text) for text in (*experiment.settings, *plan.settings)],
        "scenarios": {s.title: [*s.overrides, *(f"{text} (bare alone)" for text in s.bare)] for s in plan.scenarios},
        "arms": {arm.name: arm_document(plan, arm) for arm in experiment.arms},
        "recommendation": experiment.recommend(result),
        "failures": list(results.failures),
        "result": result,
        "trials": [
            {"scenario": cell.scenario, "arm": cell.arm, **summary(trial)} for cell, trial in results.each()
        ],
    }  # fmt: skip


def _without_place(text: str) -> str:
    """A setting without the directories in which a model's own lies."""
    name, _, value = text.partition("=")
    return f"{name}={Path(value.strip(chr(34))).name}" if name == "policy.path" else text


def arm_document(plan: Plan, arm: Arm) -> Result:
    adapted = {} if arm.adapts is None else {s.title: list(plan.overrides(arm, s)) for s in plan.scenarios}
    return {"settings": list(arm.overrides), "words": arm.words} | ({"all_settings": adapted} if adapted else {})


def plain(value: Any) -> Any:
    """As JSON has it, so that what is shown right away is what is shown from the file later."""
    return json.loads(json.dumps(value))


def file_of(label: str, out: Path) -> Path:
    """Where a result is kept."""
    return out / f"lab-{label}.json"


def keep(document: Result, label: str, out: Path) -> Path:
    """Write the JSON, whole or not at all."""
    path = file_of(label, out)
    write_atomic(path, (json.dumps(document, indent=1) + "\n").encode())
    return path


def kept(label: str, out: Path) -> Result:
    """What an earlier run of an experiment left."""
    path = file_of(label, out)
    try:
        document = json_of(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        others = sorted(p.stem.removeprefix("lab-") for p in out.glob(f"lab-{escape(label)}*.json"))
        what = f"there is {', '.join(others)}" if others else "`holdfast lab run` makes one"
        raise HoldfastError(f"There is no result {path}; {what}, or name its directory with --out.") from None
    except (OSError, ValueError) as error:
        raise HoldfastError(f"{path} cannot be read: {error}.") from None
    if not isinstance(document, dict) or not {"experiment", "result", "recommendation", "failures"} <= document.keys():
        raise HoldfastError(f"{path} is not a result of an experiment.")
    return document


def figure_of(experiment: Experiment, result: Result) -> str:
    """The experiment's charts in rows, as SVG."""
    charts = experiment.figure(result) or [ChartSpec(title="No trial to show has ended yet")]
    return grid(charts, columns=experiment.columns)


def keep_figure(experiment: Experiment, result: Result, label: str, out: Path) -> Path:
    """Write the figure beside the result."""
    path = out / f"lab-{label}.svg"
    path.write_text(figure_of(experiment, result), encoding="utf-8")
    return path


def command_of(arguments: Sequence[str]) -> str:
    """The command line without directories and machines: where it was worked out says nothing about the result."""
    words = list(arguments)
    if "--ray" in words:
        at = words.index("--ray")
        addressed = len(words) > at + 1 and not words[at + 1].startswith("-")
        del words[at : at + 1 + addressed]
    for option in ("--out", "--runs"):
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    if "--policy" in words:
        at = words.index("--policy") + 1
        words[at : at + 1] = [Path(word).name for word in words[at : at + 1]]
    return " ".join(["holdfast", *(word for word in words if word != "--json")])
