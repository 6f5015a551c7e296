"""Starting and resuming for the verbs that do: run, resume, ppo, dpo, pipeline. `Run` and `Pipeline` do the work."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import fill

from holdfast.checkpoint.lock import RunLock
from holdfast.cli.tables import show_table
from holdfast.cli.terminal import watching
from holdfast.config import Config
from holdfast.data.splits import Lengths
from holdfast.errors import HoldfastError, Interrupted
from holdfast.lab.observer import GoldObserver, gold_of, scores_of
from holdfast.models.prompt import Prompt
from holdfast.report.data import read_run
from holdfast.report.delivered import delivered
from holdfast.report.page import write_report
from holdfast.report.pipeline_page import ledger_table, write_pipeline_report
from holdfast.report.rounds import summary
from holdfast.report.words import given_tiles, guard_lines, members_left, result_lines
from holdfast.run.build import ONLINE, RunKind
from holdfast.run.directory import RunDirectory, refuse_occupied
from holdfast.run.inputs import Ingredients, gather
from holdfast.run.observer import Answer, Observer
from holdfast.run.run import Run, check_name, free_name
from holdfast.stages.dpo_run import DPO
from holdfast.stages.pipeline import Pipeline, check_pipeline
from holdfast.text import visible
from holdfast.worlds.protocol import Task, World
from holdfast.worlds.registry import load_task, load_world

# The exit code of a run that the guard has stopped.
STOPPED = 3


def new_run(
    config: Config,
    runs: Path,
    name: str | None,
    as_json: bool = False,
    ensemble_from: Path | None = None,
    stage: RunKind = ONLINE,
) -> int:
    """Check everything, then make the run directory, then work. Nothing is written before all checks have passed."""
    return work_on(Run.create_below(runs, name, config, ensemble=ensemble_from, observe=observe, stage=stage), as_json)


def resume_run(run: RunDirectory, changed: bool, rounds: int | None, as_json: bool = False) -> int:
    """Go on from the newest complete checkpoint, or with the preparation where there is none yet."""
    stages = (ONLINE, DPO)
    return work_on(Run.open(run.path, observe=observe, stages=stages, changed=changed, rounds=rounds), as_json)


def observe(world: World, ingredients: Ingredients, run: RunDirectory) -> Sequence[Observer]:
    """Where the truth of a world is known, somebody writes it down beside the run."""
    gold = gold_of(world)
    return [GoldObserver(gold, run.gold_file, ingredients.task.heldout_prompts)] if gold else []


def work_on(run: Run, as_json: bool) -> int:
    """Train to the end, and say what came of it."""
    if run.prepare() is None:
        run.train()
        return 0
    tell(f"run directory {run.path}", as_json)
    with watching() as watch:
        finished = run.train(watch, watch.stop)
        run.report()
    show_result(run.directory, as_json)
    if not finished:
        print(
            "holdfast: The guard has stopped the run at its last good policy and asks: see "
            f"{run.directory.report_file}, then `holdfast resume {run.path}` lets it go on, or "
            f"`holdfast export {run.path} DIRECTORY` takes that policy.",
            file=sys.stderr,
        )
    return 0 if finished else STOPPED


def tell_notes(task: Task) -> None:
    """What is left out of the data, and why."""
    for note in task.notes:
        print(f"note: {note}", file=sys.stderr)


def tell(line: str, as_json: bool) -> None:
    """Print a line for people; where a program reads, there is nothing but the result."""
    if not as_json:
        print(line, flush=True)


def show_result(run: RunDirectory, as_json: bool) -> None:
    """The figures that matter, before and after, and what the guard came to."""
    data = read_run(run.path)
    guard, policy = summary(data), delivered(data)
    if as_json:
        figures = {label: figure.record() for label, figure in policy.figures.items()}
        document = {"run": str(run.path), "report": str(run.report_file), "delivered": policy.record()}
        print(json.dumps({**document, "figures": figures, **({"guard": asdict(guard)} if guard else {})}))
        return
    print(f"{'':<26}{'start':>6} {'end':>6}")
    for label, figure in policy.figures.items():
        print(f"{label:<26}{figure.start:>z6.2f} {figure.end:>z6.2f}  {figure.over}".rstrip())
    members = members_left(data)
    told = [] if members is None else [("reward members", f"{members[0]}; {members[1]}")]
    told += [(tile.label.lower(), f"{tile.value}: {tile.note}") for tile in given_tiles(data)]
    for label, words in (*result_lines(policy), *guard_lines(guard, policy), *told):
        print(fill(visible(words), 80, initial_indent=f"{label:<26}", subsequent_indent=" " * 26))
    print(f"\nreport   {run.report_file}   (open it in a browser)")
    print(f"export   holdfast export {run.path} DIRECTORY")


# ---- pipelines


def new_pipeline(config: Config, runs: Path, name: str | None, as_json: bool = False) -> int:
    """Check everything, then make the directory, then work."""
    check_name(name)
    world = load_world(config)
    path = runs / (name or free_name(runs, f"{Path(world.name).name}-pipeline-{config.run.seed}"))
    refuse_occupied(path)
    task = load_task(config, world)
    check_pipeline(config, task)
    ingredients = gather(config, task, ensemble_given=True)
    facts = {"world": world.name, "seed": config.run.seed, "policy": config.policy.path or "built in"}
    run = RunDirectory.create(path, config, {**facts, "stage": "pipeline", "threads": ingredients.threads})
    run.keep_left_out(ingredients.task.left_out)
    tell_notes(ingredients.task)
    return work_on_pipeline(run, config, world, ingredients.task, as_json)


def resume_pipeline(run: RunDirectory, changed: bool, rounds: int | None, as_json: bool = False) -> int:
    """Go on with the stages that have not ended."""
    if rounds is not None:
        raise HoldfastError(f"{run.path} is a pipeline, which has no rounds to add to; leave --rounds out.")
    config = run.written_config()
    if not changed:
        run.refuse_changes(run.changes(config))
    world = load_world(config)
    task = load_task(config, world)
    if Lengths.of(config.data).limited:  # the tokenizer says what is too long, so it is loaded with its model
        task = gather(config, task, ensemble_given=True, labels_stored=True).task
    return work_on_pipeline(run, config, world, task, as_json)


def work_on_pipeline(run: RunDirectory, config: Config, world: World, task: Task, as_json: bool) -> int:
    gold, threads = gold_of(world), int(run.manifest()["threads"])

    def truth(prompts: Sequence[Prompt], answers: Sequence[Answer]) -> list[float]:
        assert gold is not None
        return scores_of(gold, prompts, answers)

    def observe(stage: RunDirectory) -> Sequence[Observer]:
        return [GoldObserver(gold, stage.gold_file, task.heldout_prompts)] if gold else []

    tell(f"pipeline directory {run.path}", as_json)
    with RunLock(run.path), watching() as watch:
        run.adopt(config)
        pipeline = Pipeline(run, config, task, watch, threads, truth if gold else None, observe, watch.stop)
        try:
            ledger = pipeline.run()
        except Interrupted:
            raise Interrupted(f"`holdfast resume {run.path}` goes on from here.") from None
        for stage in sorted((run.path / "stages").iterdir()):
            write_report(stage)
        write_pipeline_report(run.path)
    if as_json:
        print(json.dumps({"run": str(run.path), "report": str(run.report_file), "ledger": ledger}))
        return 0
    show_table("", *ledger_table(ledger), 2)
    print("KL is to SFT, in nats per answer; intervals are of 95% over held-out prompts.")
    print(f"\nreport   {run.report_file}   (open it in a browser)")
    return 0
