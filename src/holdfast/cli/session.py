"""Starting and resuming runs for the verbs that do: run, resume, ppo, dpo. `Run` does the work; here it is shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from holdfast.cli.terminal import StopRequest, Watch
from holdfast.config import Config
from holdfast.lab.observer import GoldObserver, gold_of
from holdfast.report.data import read_run
from holdfast.report.result import guard_lines, result_figures
from holdfast.report.rounds import summary
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import Ingredients
from holdfast.run.observer import Observer
from holdfast.run.run import ONLINE, Run, RunKind
from holdfast.stages.dpo_run import DPO
from holdfast.text import visible
from holdfast.worlds.protocol import Task, World

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


def resume_run(run: RunDirectory, as_json: bool = False) -> int:
    """Go on from the newest complete checkpoint, or with the preparation where there is none yet."""
    return work_on(Run.open(run.path, observe=observe, stages=(ONLINE, DPO)), as_json)


def observe(world: World, ingredients: Ingredients, run: RunDirectory) -> Sequence[Observer]:
    """Where the truth of a world is known, somebody writes it down beside the run."""
    gold = gold_of(world)
    return [GoldObserver(gold, run.gold_file, ingredients.task.heldout_prompts)] if gold else []


def work_on(run: Run, as_json: bool) -> int:
    """Train to the end, and say what came of it."""
    if run.prepare() is None:
        run.train()
        return 0
    # Paths are printed as they are: not wrapped, so that they can be copied, and not read for markup.
    console = Console(highlight=False, quiet=as_json, soft_wrap=True, markup=False)
    console.print(f"run directory {run.path}")
    with StopRequest() as stop:
        watch = Watch(stop)
        try:
            finished = run.train(watch, stop)
        finally:
            watch.finish()
        run.report()
    show_result(run.directory, console, as_json)
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


def show_result(run: RunDirectory, console: Console, as_json: bool) -> None:
    """The figures that matter, before and after, and what the guard came to."""
    data = read_run(run.path)
    guard = summary(data)
    figures = result_figures(data)
    if as_json:
        document = {"run": str(run.path), "report": str(run.report_file), "figures": figures}
        print(json.dumps({**document, **({"guard": asdict(guard)} if guard else {})}))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("start", justify="right")
    table.add_column("end", justify="right")
    for label, pair in figures.items():
        table.add_row(label, f"{pair['start']:z.2f}", f"{pair['end']:z.2f}")
    console.print(table)
    for label, words in guard_lines(guard):
        console.print(f"{label:<24}  {visible(words)}")
    console.print(f"\nreport   {run.report_file}   (open it in a browser)")
    console.print(f"export   holdfast export {run.path} DIRECTORY")
