"""One run as a measurement: a job in, curves and counts out.

A trial lives in a run directory of its own. One that was cut is resumed, one that has ended is read, and arms of one
seed are paired: same reference, same prompts, same slips of the labeller.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from holdfast.checkpoint.files import read_json, write_json_atomic
from holdfast.checkpoint.lock import RunLock
from holdfast.checkpoint.store import CheckpointStore
from holdfast.config import Config, load_config
from holdfast.errors import HoldfastError
from holdfast.events.levels import ALARMS
from holdfast.lab.beginning import copy_beginning, is_shared, shared_beginning
from holdfast.lab.mislabels import HONEST, mislabelled
from holdfast.lab.observer import PAIRS_FILE, Gold, GoldObserver, PairObserver, answers_by_round, gold_of
from holdfast.lab.poll import liked
from holdfast.lab.references import copy_reference, shared_reference
from holdfast.lab.versions import judge_refreshes
from holdfast.preferences.labeller import PatientLabeller
from holdfast.preferences.store import PreferenceStore
from holdfast.report.data import EventRow, read_run
from holdfast.run.build import assemble
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import Ingredients, gather
from holdfast.track.progress import Silent
from holdfast.worlds.protocol import Task
from holdfast.worlds.registry import load_task, load_world

TRIAL_FILE = "trial.json"
SAID_FILE = "heldout.jsonl"
# Answers to each held-out prompt: with 200 prompts the mean varies by 0.009 of gold from draw to draw, and a tenth of a
# usual rise is 0.04.
HELDOUT_ANSWERS = 8


@dataclass(frozen=True)
class Job:
    """A trial to do: settings, seed, and the directory that it lives in.

    `again` gives the run other slips of the labeller and other held-out labels, and nothing else: two runs that
    differ in it alone show how far apart equal settings come out. `labels` names a way of labelling wrongly. With
    `asks_everything` the labeller says of all held-out pairs what it thinks of each round's policy. Without
    `keep_weights` a trial that has ended keeps all that was measured and no weights: hundreds would fill a disk.
    """

    overrides: Sequence[str]
    seed: int
    path: Path
    name: str = ""
    heldout: int = 200
    again: bool = False
    labels: str = HONEST
    judge_refreshes: bool = False
    asks_everything: bool = False
    references: Path | None = None
    keep_weights: bool = True

    def config(self) -> Config:
        # Nobody looks at the probes of hundreds of trials, unless they are asked for.
        return load_config(None, ["probes.every=0", *self.overrides, f"run.seed={self.seed}", "run.threads=1"])


@dataclass(frozen=True)
class Labels:
    """Answers that people gave: to train on, and to measure by (audits, and what was asked again)."""

    training: int
    audit: int

    @property
    def total(self) -> int:
        return self.training + self.audit


@dataclass(frozen=True)
class Trial:
    """The measurements of one run.

    `proxy`, `gold` and `kl` have a value per step; `heldout` one per round from 0, of the policy that the run holds
    after it; `taken_back` are those of policies that were rolled back at the end of their round; `delivered` is that of
    the policy that the run ends with, and `tokens` counts all that was sampled. `liked` says for each round in what
    share of all held-out pairs people prefer its policy to the best one before. `verdicts` are levels by round.
    Seconds are of the rounds, and apart from them of what is prepared before the first one; None for a run that was cut
    and resumed.
    """

    seed: int
    steps: list[int]
    rounds: list[int]
    proxy: list[float]
    gold: list[float]
    kl: list[float]
    heldout: list[float]
    heldout_steps: list[int]
    delivered: float
    labels: Labels
    tokens: int
    seconds: float | None
    cpu_seconds: float | None
    prepared_seconds: float | None = None
    prepared_cpu_seconds: float | None = None
    taken_back: list[float] = field(default_factory=list)
    verdicts: dict[int, str] = field(default_factory=dict)
    sentences: dict[int, str] = field(default_factory=dict)
    rollbacks: list[dict[str, Any]] = field(default_factory=list)
    judged: list[dict[str, Any]] = field(default_factory=list)
    liked: list[float | None] = field(default_factory=list)
    stopped: str = ""

    @property
    def peak(self) -> float:
        """The best that the run ever had, also where that was rolled back."""
        return max([*self.heldout, *self.taken_back, self.delivered])

    @property
    def first_alarm(self) -> int | None:
        """The round of the first verdict that is an alarm: hacking, or worse."""
        return min((round for round, level in self.verdicts.items() if level in ALARMS), default=None)


def run_trial(job: Job) -> Trial:
    """A whole run in `job.path`, watched by the gold observer; one that has ended there is read instead."""
    config = job.config()
    if not (job.path / TRIAL_FILE).is_file():
        world = load_world(config)
        gold = gold_of(world)
        if gold is None:
            raise HoldfastError(f"The world {world.name} knows no gold score, so there is nothing to measure.")
        task = load_task(config, world)
        task = replace(task, labeller=mislabelled(task.labeller, job.labels))
        home = shared_reference(config, task, job.references) if job.references else None
        if home is None and not job.path.exists():
            gather(config, task, threads=1)  # what cannot work is refused before anything is written
        run = _open_or_create(job, config, task)
        with RunLock(run.path):
            if home is not None:
                copy_reference(home, run)
                if is_shared(config, task):
                    copy_beginning(shared_beginning(config, task, home, run.key), run)
            _work(job, config, run, task, gold)
    _refuse_other_settings(job, config)
    if not job.keep_weights:
        run = RunDirectory(job.path)
        for directory in (run.checkpoints, run.rewards, run.reference):
            shutil.rmtree(directory, ignore_errors=True)
    return read_trial(job.path)


def _open_or_create(job: Job, config: Config, task: Task) -> RunDirectory:
    if (job.path / "manifest.json").is_file():
        _refuse_other_settings(job, config)
        return RunDirectory.open(job.path)
    # A run that was cut before it had its manifest has nothing to go on from.
    if job.path.is_dir() and all(f.name == "config.toml" or f.name.startswith(".tmp-") for f in job.path.iterdir()):
        shutil.rmtree(job.path)
    # Ids decide held-out labels and a simulated labeller's slips, so arms of a seed have equal ids.
    key = f"{Path(task.name).name}-{job.seed}{'-again' if job.again else ''}"
    facts = {"world": task.name, "seed": job.seed, "policy": config.policy.path or "built in", "key": key}
    return RunDirectory.create(job.path, config, {**facts, "threads": 1, "labels": job.labels})


def _refuse_other_settings(job: Job, config: Config) -> None:
    run = RunDirectory.open(job.path)
    if run.config() != config or run.manifest()["labels"] != job.labels:
        raise HoldfastError(f"{job.path} holds a trial with other settings; remove it or give another --runs.")


def _work(job: Job, config: Config, run: RunDirectory, task: Task, gold: Gold) -> None:
    """Run from the start or from where the run was cut, then measure what it delivers."""
    resumed = not CheckpointStore(run.checkpoints).is_empty()
    ingredients = _ingredients(config, run, task, resumed)
    said = run.path / SAID_FILE if job.asks_everything else None
    observer = GoldObserver(gold, run.gold_file, task.heldout_prompts, job.heldout, HELDOUT_ANSWERS, said)
    pairs = [PairObserver(gold, run.path / PAIRS_FILE, task.heldout_prompts)] if job.judge_refreshes else []
    begun, cpu_begun = time.perf_counter(), time.process_time()
    with assemble(ingredients, run, Silent(), [observer, *pairs], answers=False) as loop:
        wall, cpu = time.perf_counter(), time.process_time()
        loop.run()
        spent = {
            "prepared_seconds": wall - begun,
            "prepared_cpu_seconds": cpu - cpu_begun,
            "seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - cpu,
        }
        at = loop.position
        observer.after_run(at.step, at.round - 1, loop.learner.answers.answer)
    judged = []
    if job.judge_refreshes:
        gates = _rows(read_run(run.path).events, "gate")
        judged = [asdict(j) | {"harmful": j.harmful} for j in judge_refreshes(run, config, task.heldout_prompts, gates)]
    clock = dict.fromkeys(spent) if resumed else spent
    likes: list[float | None] = []
    # People would have to sit there and answer thousands.
    if said is not None and task.labeller is not None and not isinstance(task.labeller, PatientLabeller):
        heldout = [value for _, value in read_run(run.path).gold_of("heldout")]
        likes = liked(task.labeller, observer.heldout, answers_by_round(said), heldout)
    # Last of all: a trial with this file has ended.
    facts = {"seed": job.seed, "tokens": at.tokens}
    write_json_atomic(run.path / TRIAL_FILE, {**facts, **clock, "judged": judged, "liked": likes})


def _ingredients(config: Config, run: RunDirectory, task: Task, resumed: bool) -> Ingredients:
    run.check_reference()
    directory = run.reference if run.reference.is_dir() else None
    return gather(config, task, directory, ensemble_given=run.rewards.is_dir(), threads=1, labels_stored=resumed)


def ended(path: Path) -> bool:
    return (path / TRIAL_FILE).is_file()


def read_trial(path: Path) -> Trial:
    """The measurements of a trial that has ended."""
    data, facts, config = read_run(path), read_json(path / TRIAL_FILE), RunDirectory(path).config()
    gold = dict(data.gold_of("rollout"))
    proxy = data.known("objective/scores")
    round_of = dict(zip(data.metrics.steps, data.metrics.rounds, strict=True))
    heldout = data.gold_of("heldout")
    delivered = data.gold_of("delivered")
    verdicts = _rows(data.events, "verdict")
    stopped = _rows(data.events, "stopped")
    labels, begun_with = _asked(path, config)
    return Trial(
        seed=int(facts["seed"]),
        steps=[step for step, _ in proxy],
        rounds=[round_of[step] for step, _ in proxy],
        proxy=[value for _, value in proxy],
        gold=[gold[step] for step, _ in proxy],
        kl=[value for _, value in data.known("objective/kl")],
        heldout=[value for _, value in heldout],
        heldout_steps=[step for step, _ in heldout],
        taken_back=[row.gold for row in data.gold_undone if row.gold is not None],
        delivered=delivered[-1][1] if delivered else float("nan"),
        labels=labels,
        tokens=begun_with + int(facts["tokens"]),
        seconds=facts["seconds"],
        cpu_seconds=facts["cpu_seconds"],
        prepared_seconds=facts["prepared_seconds"],
        prepared_cpu_seconds=facts.get("prepared_cpu_seconds"),
        verdicts={int(v["round"]): str(v["level"]) for v in verdicts},
        sentences={int(v["round"]): str(v["sentence"]) for v in verdicts},
        rollbacks=_rows(data.events, "rollback"),
        judged=list(facts["judged"]),
        liked=list(facts["liked"]),
        stopped=str(stopped[-1]["reason"]) if stopped else "",
    )


def _rows(events: Sequence[EventRow], kind: str) -> list[dict[str, Any]]:
    """The events of a kind with their fields, their round and step among them, and without the clock."""
    return [
        {"step": e.step, "round": e.round, **{name: value for name, value in e.fields.items() if name != "time"}}
        for e in events
        if e.kind == kind
    ]


def _asked(path: Path, config: Config) -> tuple[Labels, int]:
    """The labels people gave, and the tokens of the first answers they compared, from before the first round."""
    training = audit = tokens = 0
    with PreferenceStore.open(RunDirectory(path).database_url(config)) as store:
        for item in store.each_labelled():
            if item.comparison.purpose in ("audit", "repeat"):
                audit += len(item.labels)
                continue  # what is asked again was sampled once
            training += len(item.labels)
            if item.comparison.round == 0:
                tokens += sum(len(side.token_ids or ()) for side in (item.comparison.a, item.comparison.b))
    return Labels(training, audit), tokens


def by_round(trial: Trial, values: Sequence[float]) -> list[float]:
    """The mean of a per-step curve in each round that took a step."""
    rounds: dict[int, list[float]] = {}
    for value, round in zip(values, trial.rounds, strict=True):
        rounds.setdefault(round, []).append(value)
    return [fmean(rounds[round]) for round in sorted(rounds)]


def summary(trial: Trial) -> Mapping[str, Any]:
    """A trial for a results file: curves by round, counts, verdicts."""
    return {
        "seed": trial.seed,
        "heldout": trial.heldout,
        "heldout_steps": trial.heldout_steps,
        "taken_back": trial.taken_back,
        "proxy": by_round(trial, trial.proxy),
        "kl": by_round(trial, trial.kl),
        "delivered": None if trial.delivered != trial.delivered else trial.delivered,
        "labels": asdict(trial.labels),
        "tokens": trial.tokens,
        "seconds": trial.seconds,
        "cpu_seconds": trial.cpu_seconds,
        "verdicts": trial.verdicts,
        "rollbacks": len(trial.rollbacks),
        "stopped": trial.stopped,
    }
