"""Starting and resuming runs for the verbs that do: run, resume, ppo."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from holdfast.checkpoint.lock import RunLock
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli.terminal import StopRequest, Watch
from holdfast.config import Config
from holdfast.config.schema import AuditConfig, DPOConfig, PPOConfig
from holdfast.errors import HoldfastError, Interrupted
from holdfast.guard.lines import interval, share
from holdfast.guard.review import KINDS
from holdfast.lab.observer import GoldObserver, gold_of
from holdfast.parallel.processes import PROCESSES, world_size
from holdfast.report.data import read_run
from holdfast.report.page import write_report
from holdfast.report.rounds import Summary, summary
from holdfast.report.undone import kept_curve, kept_gold
from holdfast.reward.ensemble import VersionStore
from holdfast.reward.standalone import build_ensemble
from holdfast.run.build import assemble
from holdfast.run.directory import RunDirectory, refuse_occupied
from holdfast.run.follower import agreed, follow, join_processes
from holdfast.run.inputs import Ingredients, check_server, gather
from holdfast.run.observer import Observer
from holdfast.stages.dpo_run import assemble_dpo, check_dpo
from holdfast.text import counted, visible
from holdfast.track.memory import peak_memory
from holdfast.worlds.loading import load_task, load_world
from holdfast.worlds.protocol import Task, World

# What a manifest calls a run of DPO; a run of the loop has no such word.
DPO = "dpo"
PIPELINE = "pipeline"
# Weights above which a model is not the built-in one.
SMALL = 5_000_000
# The exit code of a run that the guard has stopped.
STOPPED = 3


def new_run(
    config: Config, runs: Path, name: str | None, as_json: bool = False, ensemble_from: Path | None = None
) -> int:
    """Check everything, then make the run directory, then work. Nothing is written before all checks have passed."""
    given, config = config, join_processes(config)

    def gathered() -> tuple[World, Ingredients]:
        world = load_world(config)
        return world, gather(config, load_task(config, world), ensemble_given=ensemble_from is not None)

    if not PROCESSES.main:
        return follow(lambda: gathered()[1])

    def checked() -> tuple[Path, World, Ingredients]:
        check_name(name)
        path = runs / (name or free_name(runs, f"{Path(load_world(config).name).name}-{config.run.seed}"))
        refuse_occupied(path)
        world, ingredients = gathered()
        check_server(ingredients)
        return path, world, ingredients

    with leading():
        path, world, ingredients = agreed(checked)
        run = created(given, path, world, ingredients, ensemble_from)
        return work_on(run, ingredients, world, as_json, ensemble_from)


@contextmanager
def leading() -> Iterator[None]:
    """Process 0's part of a run; the others, if there are any, may go when it is over."""
    try:
        yield
    finally:
        PROCESSES.end()


def created(
    given: Config, path: Path, world: World, ingredients: Ingredients, ensemble_from: Path | None
) -> RunDirectory:
    """The directory of a new run, with the settings as they were given and the facts that a resumed run needs."""
    config = ingredients.config
    facts = {"world": world.name, "seed": config.run.seed, "policy": config.policy.path or "built in"}
    # Ids decide held-out labels and a simulated labeller's slips, so equal seeds need equal ids, whatever the name.
    # In a database that several runs share, ids have to differ.
    facts["key"] = path.name if config.preferences.url else f"{Path(world.name).name}-{config.run.seed}"
    if ensemble_from is not None:
        # Loaded once before anything is written, and kept in mind for a run that is cut short before it has its copy.
        VersionStore(ensemble_from).load_in_use_into(build_ensemble(config, ingredients.lm, ingredients.codec))
        facts["ensemble"] = str(ensemble_from.resolve())
    facts["threads"], facts["processes"] = ingredients.threads, PROCESSES.world
    return RunDirectory.create(path, given, facts)


def new_dpo_run(config: Config, runs: Path, name: str | None, as_json: bool = False) -> int:
    """The same for DPO on labelled pairs."""
    check_name(name)
    world = load_world(config)
    path = runs / (name or free_name(runs, f"{Path(world.name).name}-dpo-{config.run.seed}"))
    refuse_occupied(path)
    task = load_task(config, world)
    ingredients = gather(config, task, ensemble_given=True)
    check_dpo(config, task, len(ingredients.imported))
    facts = {"world": world.name, "seed": config.run.seed, "policy": config.policy.path, "stage": DPO}
    facts["key"] = path.name if config.preferences.url else f"{Path(world.name).name}-{config.run.seed}"
    run = RunDirectory.create(path, config, {**facts, "threads": ingredients.threads})
    return work_on(run, ingredients, world, as_json, None)


def check_name(name: str | None) -> None:
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise HoldfastError(f"--name {name!r} is not a plain name; use letters, digits, dots, dashes and underscores.")


def resume_run(run: RunDirectory, as_json: bool = False) -> int:
    """Go on from the newest complete checkpoint, or with the preparation where there is none yet."""
    manifest = run.manifest()
    if manifest.get("pipeline"):
        raise HoldfastError(f"{run.path} is a stage of a pipeline; `holdfast resume {run.path.parent.parent}` goes on.")
    if manifest.get("stage") == DPO:
        refuse_several("A run of `holdfast dpo`")
    config = join_processes(run.config())
    # The reference in the run directory is the policy's starting point once it exists.
    directory = run.reference if run.reference.is_dir() else None
    given = manifest.get("ensemble")

    def gathered() -> tuple[World, Ingredients]:
        world = load_world(config)
        return world, gather(
            config,
            load_task(config, world),
            directory,
            ensemble_given=run.rewards.is_dir() or given is not None or manifest.get("stage") == DPO,
            threads=int(manifest.get("threads", 0)),
            labels_stored=not CheckpointStore(run.checkpoints).is_empty(),
        )

    if not PROCESSES.main:
        return follow(lambda: gathered()[1])

    def checked() -> tuple[World, Ingredients]:
        world, ingredients = gathered()
        if manifest.get("stage") != DPO:
            check_server(ingredients)
        return world, ingredients

    with leading():
        world, ingredients = agreed(checked)
        return work_on(run, ingredients, world, as_json, Path(given) if given else None)


def refuse_several(what: str) -> None:
    """For work that one process does: started as several, each would do all of it."""
    if world_size() > 1:
        raise HoldfastError(f"{what} works in one process; start it without torchrun or accelerate launch.")


def work_on(
    run: RunDirectory, ingredients: Ingredients, world: World, as_json: bool, ensemble_from: Path | None
) -> int:
    PROCESSES.run = str(run.path)
    gold = gold_of(world)
    observers = [GoldObserver(gold, run.gold_file, ingredients.task.heldout_prompts)] if gold else []
    # Paths are printed as they are: not wrapped, so that they can be copied, and not read for markup.
    console = Console(highlight=False, quiet=as_json, soft_wrap=True, markup=False)
    console.print(f"run directory {run.path}")
    with RunLock(run.path), StopRequest() as stop:
        tell_notes(ingredients.task)
        for note in dpo_notes(ingredients) if run.manifest().get("stage") == DPO else notes(ingredients):
            print(f"note: {note}", file=sys.stderr)
        watch = Watch(stop)
        begun = time.monotonic()
        try:
            stopped = carry_on(ingredients, run, watch, observers, stop, ensemble_from)
        except Interrupted:
            raise Interrupted(f"`holdfast resume {run.path}` goes on from here.") from None
        finally:
            watch.finish()
            if watch.worked:
                run.record_effort(time.monotonic() - begun, most_memory())
        write_report(run.path)
    show_result(run, console, as_json)
    if stopped:
        print(
            f"holdfast: The guard has stopped the run at its last good policy and asks: see {run.report_file}, then "
            f"`holdfast resume {run.path}` lets it go on, or `holdfast export {run.path} DIRECTORY` takes that policy.",
            file=sys.stderr,
        )
    return STOPPED if stopped else 0


def carry_on(
    ingredients: Ingredients,
    run: RunDirectory,
    watch: Watch,
    observers: Sequence[Observer],
    stop: StopRequest,
    ensemble_from: Path | None,
) -> bool:
    """The run's work, whichever stage it is, to its end; returns whether the guard has stopped it."""
    if run.manifest().get("stage") == DPO:
        dpo = assemble_dpo(ingredients, run, watch, observers, stop)
        try:
            dpo.loop.run()
        finally:
            dpo.close()
        return False
    assembly = assemble(ingredients, run, watch, observers, stop, ensemble_from)
    try:
        assembly.loop.run()
        return assembly.loop.stopped
    finally:
        assembly.close()


def tell_notes(task: Task) -> None:
    """What is left out of the data, and why."""
    for note in task.notes:
        print(f"note: {note}", file=sys.stderr)


def most_memory() -> int:
    """The most memory the run has held at once, in bytes: of this process, or of the GPU where that is more."""
    on_gpu = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return max(peak_memory(), on_gpu)


def dpo_notes(ingredients: Ingredients) -> list[str]:
    """What a person should know before DPO begins."""
    weights = sum(p.numel() for p in ingredients.lm.parameters())
    if ingredients.config.dpo.lr == DPOConfig().lr and weights > SMALL:
        return ["The default dpo.lr suits the small built-in model; for a pretrained one something near 5e-7 is usual."]
    return []


def notes(ingredients: Ingredients) -> list[str]:
    """What a person should know before the work begins."""
    config = ingredients.config
    found = []
    if PROCESSES.sharded:
        found.append("processes.strategy = fsdp2 takes the plain path of the models, as with policy.fast = false.")
    if config.policy.path and config.ppo.lr == PPOConfig().lr:
        found.append(
            "The default learning rates suit the small built-in model; for a pretrained one set sft.lr, reward.lr, "
            "refresh.lr and ppo.lr (see the README)."
        )
    guard, audit, rounds = config.guard, config.audit, config.run.rounds
    if ingredients.task.labeller is None:
        found.append(
            "There is no labeller, so no new labels come in and the ensemble stands still; world.labeller names one."
        )
        if guard.mode != "off":
            found.append(
                "Without a labeller nobody answers audits: the guard has its signals only, and cannot convict."
            )
    elif guard.mode == "advise":
        found.append("The guard only advises: it says what it would do, and does nothing (guard.mode).")
    elif guard.mode == "off":
        found.append("The guard is off (guard.mode): nobody checks whether the reward still means anything.")
    if guard.mode != "off" and ingredients.task.labeller is not None and (lasts := rounds_audited(audit)) < rounds:
        found.append(
            f"The budget of {audit.budget:,} audit labels lasts for about {lasts:,} of {rounds:,} rounds; "
            "raise audit.budget or lower audit.pairs."
        )
    return found


def rounds_audited(audit: AuditConfig) -> int:
    """For how many rounds the budget of audit labels lasts if none of them is suspicious."""
    # Until there is a last good policy only the reference is asked about, so it lasts a little longer than this.
    return audit.budget // (KINDS * audit.pairs) if audit.pairs else audit.budget


def free_name(runs: Path, stem: str) -> str:
    """`stem`, or the first of stem-2, stem-3, ... that is not taken."""
    number = 1
    while (runs / (name := stem if number == 1 else f"{stem}-{number}")).exists():
        number += 1
    return name


def guard_lines(guard: Summary | None) -> list[tuple[str, str]]:
    """The guard's part of the result, a line each."""
    if guard is None:
        return []
    back = counted(guard.rollbacks, "rollback") if guard.rollbacks else "no rollback"
    found = [("verdict", f"{guard.verdict or 'none'}; {back}")]
    for label, rate in (("people vs reference", guard.reference), ("people vs last good", guard.anchor)):
        if rate is not None:
            notes = [interval(rate), "" if rate.pairs is None else counted(rate.pairs, "pair")]
            claimed = "" if rate.claimed is None else f"; the ensemble claims {share(rate.claimed)}"
            found.append((label, f"{share(rate.rate)} ({', '.join(note for note in notes if note)}){claimed}"))
    left = "" if guard.audit_labels_left is None else f"; {guard.audit_labels_left:,} left for audits"
    again = f" and {guard.repeats:,} asked again" if guard.repeats else ""
    found.append(("labels spent", f"{guard.labels:,}, of which {guard.audit_labels:,} in audits{again}{left}"))
    return found


def show_result(run: RunDirectory, console: Console, as_json: bool) -> None:
    """The figures that matter, before and after, and what the guard came to."""
    data = read_run(run.path)
    guard = summary(data)
    figures: dict[str, dict[str, float]] = {}
    for label, metric in (
        ("proxy (ensemble score)", "objective/scores"),
        ("KL to reference", "objective/kl"),
        ("answer length", "response/length_mean"),
        ("right about pairs", "rewards/accuracies"),
        ("right about held-out pairs", "rewards/heldout_accuracies"),
    ):
        # Where all was undone, what was undone is still better than nothing to see.
        if known := kept_curve(data, metric) or data.known(metric):
            figures[label] = {"start": known[0][1], "end": known[-1][1]}
    if heldout := kept_gold(data, "heldout"):
        figures["gold on held-out prompts"] = {"start": heldout[0][1], "end": heldout[-1][1]}
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
