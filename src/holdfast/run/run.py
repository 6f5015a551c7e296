"""A run from Python: create or open it, train round by round, report, export.

run = Run.create("runs/mine", load_config("my-run.toml"))     everything is checked before anything is written
for round in run.rounds(): ...                                or run.train(); resumable after whatever ends it
run.report(); run.export("better")
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from holdfast.checkpoint.lock import RunLock
from holdfast.checkpoint.store import CheckpointStore
from holdfast.config import Config
from holdfast.errors import HoldfastError, Interrupted
from holdfast.guard.review import Outcome, win_rate
from holdfast.parallel.processes import PROCESSES, remedy_of, world_size
from holdfast.preferences.labeller import Labeller, labeller_of
from holdfast.report.page import write_report
from holdfast.reward.ensemble import VersionStore
from holdfast.reward.standalone import build_ensemble
from holdfast.run.build import ONLINE, RunKind
from holdfast.run.demand import NOTHING, RoundsDone, done_of
from holdfast.run.directory import RunDirectory, refuse_occupied
from holdfast.run.export import export_policy
from holdfast.run.follower import agreed, follow, join_processes
from holdfast.run.inputs import Ingredients, gather
from holdfast.run.observer import Observer
from holdfast.text import counted
from holdfast.track.memory import memory_sentence, peak_memory, ran_out
from holdfast.track.progress import Progress, Silent
from holdfast.worlds.protocol import World
from holdfast.worlds.registry import load_task, load_world

# Who watches a run of a world, once its directory is there.
Observe = Callable[[World, Ingredients, RunDirectory], Sequence[Observer]]


@dataclass(frozen=True)
class Round:
    """What a round came to.

    `preferred` is how often the policy was preferred to the reference in `pairs` fresh pairs, and `claimed` how often
    the ensemble said that it would be; None where nobody was asked. Without a guard there is no verdict.
    """

    number: int
    verdict: str | None = None
    sentence: str = ""
    preferred: float | None = None
    claimed: float | None = None
    pairs: int = 0
    rolled_back: bool = False

    @classmethod
    def of(cls, number: int, outcome: Outcome | None) -> Round:
        """A round as its review found it."""
        if outcome is None:
            return cls(number)
        claims = [pair.claim for pair in outcome.audited if pair.against == "reference"]
        return cls(
            number,
            outcome.verdict.level,
            outcome.verdict.sentence,
            win_rate(outcome.audited, "reference"),
            sum(claims) / len(claims) if claims else None,
            len(claims),
            outcome.rolled_back,
        )


def unobserved(world: World, ingredients: Ingredients, directory: RunDirectory) -> Sequence[Observer]:
    """Nobody watches."""
    return ()


def never() -> bool:
    """Nobody asks for a stop."""
    return False


class Run:
    """A run directory and the work in it. `create` makes a new one, `open` takes up one that is there."""

    def __init__(
        self,
        directory: RunDirectory | None,
        stage: RunKind,
        labeller: Labeller | None,
        observe: Observe,
        prepared: tuple[World, Ingredients] | None = None,
        follows: Callable[[], Ingredients] | None = None,
        changed: bool = False,
        rounds: int | None = None,
    ) -> None:
        self._directory, self._stage, self._labeller, self._observe = directory, stage, labeller, observe
        self._prepared, self._follows, self._changed, self._rounds = prepared, follows, changed, rounds
        self._agreed: Config | None = None  # settings to be made the run's own when it goes on

    @classmethod
    def create(
        cls,
        path: str | Path,
        config: Config | None = None,
        *,
        labeller: Labeller | None = None,
        ensemble: str | Path | None = None,
        observe: Observe = unobserved,
        stage: RunKind = ONLINE,
    ) -> Run:
        """A new run directory at `path`. Nothing is written before settings, model and data have been checked.

        `labeller` answers in place of the one that the settings name. `ensemble` is a directory of `holdfast reward`
        whose reward stands at the beginning.
        """
        return cls._new(lambda world: Path(path), config or Config(), labeller, ensemble, observe, stage)

    @classmethod
    def create_below(
        cls,
        runs: Path,
        name: str | None,
        config: Config,
        *,
        ensemble: str | Path | None = None,
        observe: Observe = unobserved,
        stage: RunKind = ONLINE,
    ) -> Run:
        """The same below a directory of runs, under a name or the first one that is free."""

        def place(world: World) -> Path:
            check_name(name)
            words = [Path(world.name).name, *([stage.name] if stage.name else []), str(config.run.seed)]
            return runs / (name or free_name(runs, "-".join(words)))

        return cls._new(place, config, None, ensemble, observe, stage)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        labeller: Labeller | None = None,
        observe: Observe = unobserved,
        stages: Sequence[RunKind] = (ONLINE,),
        changed: bool = False,
        rounds: int | None = None,
    ) -> Run:
        """A run directory that is there, to go on with from its newest complete checkpoint, or to look at.

        It goes on with the settings that it was saved with. Where its config.toml has been `changed`, say so, or it is
        refused. `rounds` is how many there are to be in all, more than before for one that has ended.
        """
        directory = RunDirectory.open(Path(path))
        manifest = directory.manifest()
        kind = str(manifest.get("stage", ""))
        if manifest.get("pipeline"):
            raise HoldfastError(f"{path} is a stage of a pipeline; `holdfast resume {directory.path.parent.parent}`.")
        known = {stage.name: stage for stage in stages}
        if kind not in known:
            raise HoldfastError(f"{path} is a run of `holdfast {kind}`; `holdfast resume {path}` goes on with it.")
        if manifest.get("labeller") and labeller is None:
            raise HoldfastError(
                f"{path} was created in Python with a labeller of its own ({manifest['labeller']}); open it there, "
                "with labeller=."
            )
        given = None if labeller is None else labeller_of(labeller)
        return cls(directory, known[kind], given, observe, changed=changed, rounds=rounds)

    @classmethod
    def _new(
        cls,
        place: Callable[[World], Path],
        settings: Config,
        labeller: Labeller | None,
        ensemble: str | Path | None,
        observe: Observe,
        stage: RunKind,
    ) -> Run:
        if stage.name:
            refuse_several(f"A run of `holdfast {stage.name}`")
        config = join_processes(settings)
        labeller = None if labeller is None else labeller_of(labeller)

        def gathered() -> tuple[World, Ingredients]:
            world = load_world(config)
            task = load_task(config, world)
            task = task if labeller is None else replace(task, labeller=labeller)
            return world, gather(config, task, ensemble_given=ensemble is not None or not stage.needs_ensemble)

        if not PROCESSES.main:
            return cls(None, stage, labeller, observe, follows=lambda: gathered()[1])

        def checked() -> tuple[Path, World, Ingredients]:
            path = place(load_world(config))
            refuse_occupied(path)
            world, ingredients = gathered()
            stage.check(ingredients)
            return path, world, ingredients

        with leading():
            path, world, ingredients = agreed(checked)
            facts = facts_of(path, world, ingredients, stage, labeller, None if ensemble is None else Path(ensemble))
            directory = RunDirectory.create(path, settings, facts)
            directory.keep_left_out(ingredients.task.left_out)
        return cls(directory, stage, labeller, observe, prepared=(world, ingredients))

    @property
    def directory(self) -> RunDirectory:
        """The run's files."""
        assert self._directory is not None, "only process 0 has files"
        return self._directory

    @property
    def path(self) -> Path:
        """Where the run is."""
        return self.directory.path

    def prepare(self) -> Ingredients | None:
        """Load model and data, and check them; `rounds` and `train` do so by themselves. None where one only helps."""
        if self._follows is not None or self._prepared is not None:
            return None if self._prepared is None else self._prepared[1]
        if self._stage.name:
            refuse_several(f"A run of `holdfast {self._stage.name}`")
        self._agreed = self.settings()
        config = join_processes(self._agreed)
        if not PROCESSES.main:
            self._follows = lambda: self._gathered(config)[1]
            return None
        with leading():
            self._prepared = agreed(lambda: self._gathered(config))
        return self._prepared[1]

    def settings(self) -> Config:
        """The settings that the run goes on with; refuses those that differ from what it has, unless that is meant."""
        run, config = self.directory, self.directory.written_config()
        if self._rounds is not None:
            config = with_rounds(run, self._stage, config, self._rounds)
        if not self._changed:
            run.refuse_changes([c for c in run.changes(config) if self._rounds is None or c.name != "run.rounds"])
        return config

    def _gathered(self, config: Config) -> tuple[World, Ingredients]:
        """What an opened run needs; its reference is the policy's starting point once it exists."""
        run, manifest = self.directory, self.directory.manifest()
        if PROCESSES.main:
            run.check_checkpoints()
            run.check_reference()
        world = load_world(config)
        task = load_task(config, world)
        ingredients = gather(
            config,
            task if self._labeller is None else replace(task, labeller=self._labeller),
            run.reference if run.reference.is_dir() else None,
            ensemble_given=run.rewards.is_dir() or "ensemble" in manifest or not self._stage.needs_ensemble,
            threads=int(manifest.get("threads", 0)),
            labels_stored=not CheckpointStore(run.checkpoints).is_empty(),
            rates=manifest.get("rates"),
        )
        if PROCESSES.main:
            self._stage.check(ingredients)
        return world, ingredients

    def rounds(self, progress: Progress | None = None, stop_requested: Callable[[], bool] = never) -> Iterator[Round]:
        """Train round by round. Leaving the loop early is safe: the run is resumed from its last commit."""
        if self._stage.name:
            raise HoldfastError(f"A run of `holdfast {self._stage.name}` has no rounds of its own; use train().")
        with self.loop(progress, stop_requested) as loop:
            if loop is None:
                return
            number = loop.position.round
            for outcome in loop.rounds():
                yield Round.of(number, outcome)
                number = loop.position.round

    def train(self, progress: Progress | None = None, stop_requested: Callable[[], bool] = never) -> bool:
        """Train to the end; False where the guard has stopped the run at its last good policy, and asks."""
        progress = progress or Silent()
        with self.loop(progress, stop_requested) as loop:
            if loop is None:
                return True
            before = loop.position.step
            loop.run()
            stopped = getattr(loop, "stopped", False)
            if loop.position.step == before and not stopped:
                progress.say(f"The run has finished; {self._stage.more.format(run=self.path)}")
            return not stopped

    @contextmanager
    def loop(self, progress: Progress | None = None, stop_requested: Callable[[], bool] = never) -> Iterator[Any]:
        """The assembled loop, to drive by hand; its files are open within the `with`. See `examples/by_hand.py`.

        None in a process that has only helped, once that is over.
        """
        progress = progress or Silent()
        self.prepare()
        if self._prepared is None:
            assert self._follows is not None
            follow(self._follows)
            yield None
            return
        run, ensemble, (world, ingredients) = self.directory, self.directory.manifest().get("ensemble"), self._prepared
        PROCESSES.remedy = remedy_of(str(run.path))
        with leading(), RunLock(run.path), run.keeping_failures():
            begun, worked, failed = time.monotonic(), False, True
            try:
                done = NOTHING if self._stage.name else self._done(ingredients.config)
                for note in [*ingredients.task.notes, *self._stage.notes(ingredients, bool(ensemble), done)]:
                    progress.say(f"note: {note}")
                observers = self._observe(world, ingredients, run)
                options: dict[str, Any] = {"ensemble_from": Path(ensemble)} if ensemble else {}
                options["agreed"] = self._agreed
                assemble = self._stage.assemble
                with assemble(ingredients, run, progress, observers, stop_requested, **options) as loop:
                    worked, self._rounds = True, None  # the rounds are the run's own by now
                    yield loop
                failed = False
            except Interrupted:
                worked = True
                raise Interrupted(f"`holdfast resume {run.path}` goes on from here.") from None
            except (MemoryError, RuntimeError) as error:
                if not ran_out(error):
                    raise
                raise HoldfastError(memory_sentence(error, run.path)) from error
            finally:
                self._prepared = None  # what was gathered has moved; a second sitting begins from the files
                # A disk that is full may be what ended the run; that it cannot be written to again is no news.
                with suppress(HoldfastError, OSError) if failed else nullcontext():
                    if worked:
                        run.record_effort(time.monotonic() - begun, most_memory())
            PROCESSES.end()

    def _done(self, config: Config) -> RoundsDone:
        """What the run has behind it, with what it has asked where there is a budget for that."""
        done = done_of(self.directory)
        stored = config.preferences.url or self.directory.database_file.is_file()
        if not done.prepared or not config.labels.budget or not stored:
            return done
        with self.directory.open_store(config) as store:
            return replace(done, asked=store.count_asked(self.directory.key))

    def report(self) -> Path:
        """Write the report, one HTML file that needs no network; where it is."""
        write_report(self.path, notes=self.directory.notes(), reasons=self.directory.reasons())
        return self.directory.report_file

    def export(
        self, out: str | Path, checkpoint: str | None = None, adapters: bool = False, hub: str | None = None
    ) -> str:
        """Write the policy as a Hugging Face directory with a model card; which checkpoint it is of.

        With `hub`, the name of a repository, it is pushed there too.
        """
        return export_policy(self.directory, Path(out), checkpoint, adapters, hub).checkpoint


def with_rounds(run: RunDirectory, stage: RunKind, config: Config, rounds: int) -> Config:
    """The settings with another number of rounds; refused where the run has done more, or has none."""
    if stage.name:
        raise HoldfastError(f"A run of `holdfast {stage.name}` has no rounds to add to; leave --rounds out.")
    behind = done_of(run)
    done = behind.rounds + behind.collected
    if rounds < done:
        raise HoldfastError(
            f"{run.path} has done {counted(done, 'round')}, so it cannot have {rounds} in all: give --rounds {done} or "
            f"more, or take it back first (`holdfast rollback {run.path}`)."
        )
    return replace(config, run=replace(config.run, rounds=rounds))


@contextmanager
def leading() -> Iterator[None]:
    """Process 0's part of a run; where it fails, the others may go."""
    try:
        yield
    except BaseException:
        PROCESSES.end()
        raise


def facts_of(
    path: Path, world: World, ingredients: Ingredients, stage: RunKind, labeller: Labeller | None, ensemble: Path | None
) -> dict[str, Any]:
    """What a resumed run needs to know beside its settings."""
    config = ingredients.config
    facts: dict[str, Any] = {
        "world": world.name, "seed": config.run.seed, "policy": config.policy.path or "built in",
        "rates": dict(ingredients.chosen.rates or {}),
    }  # fmt: skip
    # Ids decide held-out labels and a simulated labeller's slips, so equal seeds need equal ids, whatever the name.
    # In a database that several runs share, ids have to differ.
    facts["key"] = path.name if config.preferences.url else f"{Path(world.name).name}-{config.run.seed}"
    if ingredients.task.drawing:
        facts["drawing"] = ingredients.task.drawing
    if stage.name:
        facts["stage"] = stage.name
    if labeller is not None:
        facts["labeller"] = labeller.name
    if ensemble is not None and config.reward.given:
        raise HoldfastError("An ensemble and reward.source are both given; leave one of them out.")
    if ensemble is not None:
        # Loaded once before anything is written, and kept in mind for a run that is cut short before it has its copy.
        VersionStore(ensemble).load_in_use_into(build_ensemble(config, ingredients.lm, ingredients.codec))
        facts["ensemble"] = str(ensemble.resolve())
    return {**facts, "threads": ingredients.threads, "processes": PROCESSES.world}


def check_name(name: str | None) -> None:
    """Refuse a name that is not a plain one."""
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise HoldfastError(f"--name {name!r} is not a plain name; use letters, digits, dots, dashes and underscores.")


def free_name(runs: Path, stem: str) -> str:
    """`stem`, or the first of stem-2, stem-3, ... that is not taken."""
    number = 1
    while (runs / (name := stem if number == 1 else f"{stem}-{number}")).exists():
        number += 1
    return name


def refuse_several(what: str) -> None:
    """For work that one process does: started as several, each would do all of it."""
    if world_size() > 1:
        raise HoldfastError(f"{what} works in one process; start it without torchrun or accelerate launch.")


def most_memory() -> int:
    """The most memory the run has held at once, in bytes: of this process, or of the GPU where that is more."""
    on_gpu = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return max(peak_memory(), on_gpu)
