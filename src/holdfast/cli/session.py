"""Starting and resuming runs for the verbs that do: run, resume, ppo."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from holdfast.assembly import Ingredients, assemble, build_ensemble, gather
from holdfast.checkpoint.lock import RunLock
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli.watching import StopRequest, Watch
from holdfast.config import Config
from holdfast.config.schema import PPOConfig
from holdfast.errors import HoldfastError, Interrupted
from holdfast.lab.observer import GoldObserver, gold_of
from holdfast.report.data import read_run
from holdfast.report.page import write_report
from holdfast.reward.ensemble import VersionStore
from holdfast.rundir import RunDirectory, refuse_occupied
from holdfast.worlds.loading import load_task, load_world
from holdfast.worlds.protocol import World


def new_run(
    config: Config, runs: Path, name: str | None, as_json: bool = False, ensemble_from: Path | None = None
) -> int:
    """Check everything, then make the run directory, then work. Nothing is written before all checks have passed."""
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise HoldfastError(f"--name {name!r} is not a plain name; use letters, digits, dots, dashes and underscores.")
    world = load_world(config)
    path = runs / (name or free_name(runs, f"{Path(world.name).name}-{config.run.seed}"))
    refuse_occupied(path)
    ingredients = gather(config, load_task(config, world), ensemble_given=ensemble_from is not None)
    facts = {"world": world.name, "seed": config.run.seed, "policy": config.policy.path or "built in"}
    # Ids decide held-out labels and a simulated labeller's slips, so equal seeds need equal ids, whatever the name.
    # In a database that several runs share, ids have to differ.
    facts["key"] = path.name if config.preferences.url else f"{Path(world.name).name}-{config.run.seed}"
    if ensemble_from is not None:
        # Loaded once before anything is written, and kept in mind for a run that is cut short before it has its copy.
        VersionStore(ensemble_from).load_newest_into(build_ensemble(config, ingredients.lm, ingredients.codec))
        facts["ensemble"] = str(ensemble_from.resolve())
    facts["threads"] = ingredients.threads
    run = RunDirectory.create(path, config, facts)
    return work_on(run, ingredients, world, as_json, ensemble_from)


def resume_run(run: RunDirectory, as_json: bool = False) -> int:
    """Go on from the newest complete checkpoint, or with the preparation where there is none yet."""
    config = run.config()
    world = load_world(config)
    # The reference in the run directory is the policy's starting point once it exists.
    directory = run.reference if run.reference.is_dir() else None
    given = run.manifest().get("ensemble")
    ingredients = gather(
        config,
        load_task(config, world),
        directory,
        ensemble_given=run.rewards.is_dir() or given is not None,
        threads=int(run.manifest().get("threads", 0)),
        labels_stored=not CheckpointStore(run.checkpoints).is_empty(),
    )
    return work_on(run, ingredients, world, as_json, Path(given) if given else None)


def work_on(
    run: RunDirectory, ingredients: Ingredients, world: World, as_json: bool, ensemble_from: Path | None
) -> int:
    gold = gold_of(world)
    observers = [GoldObserver(gold, run.gold_file, ingredients.task.heldout_prompts)] if gold else []
    # Paths are printed as they are: not wrapped, so that they can be copied, and not read for markup.
    console = Console(highlight=False, quiet=as_json, soft_wrap=True, markup=False)
    console.print(f"run directory {run.path}")
    for note in notes(ingredients):
        print(f"note: {note}", file=sys.stderr)
    with RunLock(run.path), StopRequest() as stop:
        watch = Watch(stop)
        try:
            assembly = assemble(ingredients, run, watch, observers, stop, ensemble_from)
            try:
                assembly.loop.run()
            finally:
                assembly.close()
        except Interrupted:
            raise Interrupted(f"`holdfast resume {run.path}` goes on from here.") from None
        finally:
            watch.finish()
        write_report(run.path)
    show_result(run, console, as_json)
    return 0


def notes(ingredients: Ingredients) -> list[str]:
    """What a person should know before the work begins."""
    config = ingredients.config
    found = []
    if config.policy.path and config.ppo.lr == PPOConfig().lr:
        found.append(
            "The default learning rates suit the small built-in model; for a pretrained one set sft.lr, reward.lr, "
            "refresh.lr and ppo.lr (see the README)."
        )
    if ingredients.task.labeller is None:
        found.append(
            "There is no labeller, so no new labels come in and the ensemble stands still; world.labeller names one."
        )
    return found


def free_name(runs: Path, stem: str) -> str:
    """`stem`, or the first of stem-2, stem-3, ... that is not taken."""
    number = 1
    while (runs / (name := stem if number == 1 else f"{stem}-{number}")).exists():
        number += 1
    return name


def show_result(run: RunDirectory, console: Console, as_json: bool) -> None:
    """The figures that matter, before and after."""
    data = read_run(run.path)
    figures: dict[str, dict[str, float]] = {}
    for label, metric in (
        ("proxy (ensemble score)", "objective/scores"),
        ("KL to reference", "objective/kl"),
        ("answer length", "response/length_mean"),
    ):
        if known := data.known(metric):
            figures[label] = {"start": known[0][1], "end": known[-1][1]}
    if heldout := data.gold_of("heldout"):
        figures["gold on held-out prompts"] = {"start": heldout[0][1], "end": heldout[-1][1]}
    if as_json:
        print(json.dumps({"run": str(run.path), "report": str(run.report_file), "figures": figures}))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("start", justify="right")
    table.add_column("end", justify="right")
    for label, pair in figures.items():
        table.add_row(label, f"{pair['start']:.2f}", f"{pair['end']:.2f}")
    console.print(table)
    console.print(f"\nreport   {run.report_file}   (open it in a browser)")
    console.print(f"export   holdfast export {run.path} DIRECTORY")
