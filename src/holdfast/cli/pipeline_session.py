"""Starting and resuming pipelines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from holdfast.checkpoint.lock import RunLock
from holdfast.cli.session import tell_notes
from holdfast.cli.tables import show_table
from holdfast.cli.terminal import StopRequest, Watch
from holdfast.config import Config
from holdfast.data.splits import Lengths
from holdfast.errors import Interrupted
from holdfast.lab.observer import GoldObserver, gold_of, scores_of
from holdfast.models.prompt import Prompt
from holdfast.report.page import write_report
from holdfast.report.pipeline_page import ledger_table, write_pipeline_report
from holdfast.run.directory import RunDirectory, refuse_occupied
from holdfast.run.inputs import gather
from holdfast.run.observer import Answer, Observer
from holdfast.run.run import check_name, free_name
from holdfast.stages.pipeline import Pipeline, check_pipeline
from holdfast.worlds.protocol import Task, World
from holdfast.worlds.registry import load_task, load_world

# What a manifest calls a pipeline.
PIPELINE = "pipeline"


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
    run = RunDirectory.create(path, config, {**facts, "stage": PIPELINE, "threads": ingredients.threads})
    tell_notes(ingredients.task)
    return work_on_pipeline(run, config, world, ingredients.task, as_json)


def resume_pipeline(run: RunDirectory, as_json: bool = False) -> int:
    """Go on with the stages that have not ended."""
    config = run.config()
    world = load_world(config)
    task = load_task(config, world)
    if Lengths.of(config.data).limited:  # the tokenizer says what is too long, so it is loaded with its model
        task = gather(config, task, ensemble_given=True, labels_stored=True).task
    return work_on_pipeline(run, config, world, task, as_json)


def work_on_pipeline(run: RunDirectory, config: Config, world: World, task: Task, as_json: bool) -> int:
    gold = gold_of(world)

    def truth(prompts: Sequence[Prompt], answers: Sequence[Answer]) -> list[float]:
        assert gold is not None
        return scores_of(gold, prompts, answers)

    def observe(stage: RunDirectory) -> Sequence[Observer]:
        return [GoldObserver(gold, stage.gold_file, task.heldout_prompts)] if gold else []

    console = Console(highlight=False, quiet=as_json, soft_wrap=True, markup=False)
    console.print(f"pipeline directory {run.path}")
    with RunLock(run.path), StopRequest() as stop:
        watch = Watch(stop)
        pipeline = Pipeline(
            run, config, task, watch, int(run.manifest().get("threads", 0)), truth if gold else None, observe, stop
        )
        try:
            ledger = pipeline.run()
        except Interrupted:
            raise Interrupted(f"`holdfast resume {run.path}` goes on from here.") from None
        finally:
            watch.finish()
        for stage in sorted((run.path / "stages").iterdir()):
            write_report(stage)
        write_pipeline_report(run.path)
    show(run, ledger, console, as_json)
    return 0


def show(run: RunDirectory, ledger: list[dict[str, Any]], console: Console, as_json: bool) -> None:
    """The ledger, a row for each stage."""
    if as_json:
        print(json.dumps({"run": str(run.path), "report": str(run.report_file), "ledger": ledger}))
        return
    show_table("", *ledger_table(ledger), 2)
    console.print("KL is to SFT, in nats per answer; intervals are of 95% over held-out prompts.")
    console.print(f"\nreport   {run.report_file}   (open it in a browser)")
