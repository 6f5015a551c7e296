"""A run directory read into typed rows, while the run may still be writing it.

Files may be absent. The last line of a .jsonl file may be half written and is then not there yet; any other line that
cannot be read is left out, and counted in `RunData.notes` so that the page can say so.
"""

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from holdfast.checkpoint.files import read_json
from holdfast.errors import HoldfastError
from holdfast.events import KINDS, Weight, event_sentence, weight_of
from holdfast.events.sentences import Fields, is_refused
from holdfast.parallel.garbage import collection_paused
from holdfast.people.reasons import ReasonCount
from holdfast.report.metrics import MetricTable
from holdfast.report.tail import JsonRow, Row, Tail
from holdfast.text import as_number, counted

FILES = (
    "config.toml",
    "manifest.json",
    "metrics.jsonl",
    "events.jsonl",
    "gold.jsonl",
    "samples.jsonl",
    "timings.jsonl",
    "probes.jsonl",
)


@dataclass(frozen=True, slots=True)
class EventRow:
    """Something that happened, with its own fields."""

    step: int
    round: int
    kind: str
    fields: Fields

    @property
    def when(self) -> str:
        """ "step 1,200, round 3"."""
        return f"step {self.step:,}, round {self.round:,}"

    @property
    def text(self) -> str:
        """What happened, in a sentence."""
        return event_sentence(self.kind, self.fields)

    @property
    def weight(self) -> Weight:
        """main, minor or alarm."""
        return weight_of(self.kind, self.fields)

    @property
    def refused(self) -> bool:
        """Whether this is a refresh that the gate refused."""
        return is_refused(self.kind, self.fields)


@dataclass(frozen=True, slots=True)
class GoldRow:
    """The truth as the lab's observer saw it: of a split's mean, or of one fixed prompt's sample."""

    step: int
    split: str
    gold: float | None
    prompt_index: int | None
    answers: int | None = None


@dataclass(frozen=True, slots=True)
class SampleRow:
    """The answer to one of the fixed prompts at one step."""

    step: int
    round: int
    prompt_index: int
    prompt: str
    response: str
    finished: bool
    score: float | None = None
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class TimingRow:
    """Seconds that each phase of one step took."""

    step: int
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """How likely the model found fixed answers at one moment of a stage; see probes.jsonl.

    `positive` and `negative` are what a step's update did to the log-probs of tokens by their advantage's sign.
    """

    stage: str
    step: int
    logprob: Mapping[str, float]
    argmax: float | None
    entropy: float | None
    margin_gain: float | None
    positive: float | None = None
    negative: float | None = None


@dataclass(frozen=True)
class RunData:
    """All that the report shows of a run."""

    name: str
    config: str
    manifest: JsonRow
    metrics: MetricTable
    events: tuple[EventRow, ...]
    gold: tuple[GoldRow, ...]
    samples: tuple[SampleRow, ...]
    timings: tuple[TimingRow, ...]
    notes: tuple[str, ...]
    gold_undone: tuple[GoldRow, ...] = ()  # held-out gold of a policy that was taken back, where it was measured again
    probes: tuple[ProbeRow, ...] = ()
    reasons: tuple[ReasonCount, ...] = ()  # why people answered as they did, where they were asked
    settings_changed: tuple[EventRow, ...] = ()  # of the whole run, also where the rest ends earlier

    @property
    def squeezed_at(self) -> int | None:
        """The update at which the squeezing effect was first seen, if it was."""
        return next((event.step for event in self.happened("squeezing")), None)

    def happened(self, *kinds: str) -> list[EventRow]:
        """The events of these kinds, in order."""
        return [event for event in self.events if event.kind in kinds]

    @property
    def given_reward(self) -> str:
        """What scores the answers where that is no ensemble; empty where it is one."""
        return next((str(event.fields["reward"]) for event in reversed(self.happened("standardised"))), "")

    @property
    def refused(self) -> list[EventRow]:
        """The refreshes that the gate refused."""
        return [event for event in self.events if event.refused]

    @property
    def refreshes(self) -> list[EventRow]:
        """The refreshes that the gate let through, one per ensemble version: a resumed run may have written one twice.

        After a rollback versions may be numbered again, and then each counts.
        """
        by_version: dict[tuple[int, int], EventRow] = {}
        rollbacks = 0
        for event in self.happened("rollback", "refresh"):
            rollbacks += event.kind == "rollback"
            if event.kind == "refresh" and not event.refused:
                key = event.fields["version"], rollbacks
                by_version.pop(key, None)
                by_version[key] = event
        return list(by_version.values())

    def metric(self, name: str) -> tuple[list[float], list[float | None]]:
        """The steps and the values of a metric; a step without a value has None."""
        return self.metrics.places, self.metrics.column(name)

    def known(self, name: str) -> list[tuple[int, float]]:
        """The (step, value) pairs of a metric, without the steps that have no value."""
        pairs = zip(self.metrics.steps, self.metrics.column(name), strict=True)
        return [(step, value) for step, value in pairs if value is not None]

    def gold_of(self, split: str) -> list[tuple[int, float]]:
        """The (step, gold) pairs of a split."""
        return [(row.step, row.gold) for row in self.gold if row.split == split and row.gold is not None]

    @property
    def heldout_answers(self) -> int | None:
        """How many answers each mean of held-out gold is of, where that was written down."""
        return next((row.answers for row in reversed(self.gold) if row.split == "heldout"), None)

    def sample_gold(self) -> dict[tuple[int, int], float]:
        """Gold of the fixed prompts' samples by (step, prompt index)."""
        return {
            (row.step, row.prompt_index): row.gold
            for row in self.gold
            if row.split == "samples" and row.prompt_index is not None and row.gold is not None
        }


def lineage(rows: Iterable[Row], key: Callable[[Row], tuple[int, Hashable]]) -> tuple[Row, ...]:
    """The rows that still count: a row at step s takes back all earlier rows of its own kind at s or later.

    `key` gives a row's step and kind. A resumed or rolled-back run writes steps again that it wrote before.
    """
    lines: dict[Hashable, list[tuple[int, Row]]] = {}
    for row in rows:
        step, kind = key(row)
        line = lines.setdefault(kind, [])
        while line and line[-1][0] >= step:
            line.pop()
        line.append((step, row))
    return tuple(row for _, row in sorted((pair for line in lines.values() for pair in line), key=itemgetter(0)))


def measured_again(measured: Sequence[GoldRow], kept: Sequence[GoldRow]) -> tuple[GoldRow, ...]:
    """Held-out gold that gave way to a later value of the same step: after a rollback the older policy is measured."""
    steps = {row.step for row in kept if row.split == "heldout"}
    stay = {id(row) for row in kept}
    gone = [row for row in measured if row.split == "heldout" and id(row) not in stay and row.step in steps]
    return lineage(gone, lambda row: (row.step, row.split))


# ---- rows


def metric_row(row: JsonRow) -> tuple[int, int, JsonRow]:
    return int(row.pop("step")), int(row.pop("round", 0)), row


def event_row(row: JsonRow) -> EventRow:
    kind = KINDS[row["event"]]
    fields = {sys.intern(name): value for name, value in row.items() if name not in ("step", "round", "event")}
    if missing := kind.fields.keys() - fields.keys():
        raise KeyError(*missing)
    types = {**kind.fields, **kind.optional}
    for name, value in fields.items():
        # A number that was none is written as null.
        if value is not None and name in types and not isinstance(value, types[name]):
            raise TypeError(name)
    event_sentence(kind.name, fields)  # what cannot be said is not shown
    return EventRow(int(row["step"]), int(row["round"]), kind.name, fields)


def gold_row(row: JsonRow) -> GoldRow:
    gold, index, answers = as_number(row["gold"]), row.get("prompt_index"), row.get("answers")
    return GoldRow(int(row["step"]), sys.intern(row["split"]), gold, index, answers)


def sample_row(row: JsonRow) -> SampleRow:
    if not isinstance(row["response"], str):
        raise TypeError("response")
    # The same few prompts are answered again and again.
    return SampleRow(**row | {"prompt": sys.intern(row["prompt"])})


def timing_row(row: JsonRow) -> TimingRow:
    seconds = {sys.intern(name): float(value) for name, value in row.items() if name not in ("step", "round", "time")}
    return TimingRow(int(row["step"]), seconds)


def probe_row(row: JsonRow) -> ProbeRow:
    moved = row.get("rollout")
    return ProbeRow(
        stage=sys.intern(row["stage"]),
        step=row["step"],
        logprob={sys.intern(kind): value for kind, value in row["logprob"].items() if value is not None},
        argmax=row["argmax"],
        entropy=row["entropy"],
        margin_gain=row["margin_gain"],
        positive=_moved(moved["positive"]) if moved else None,
        negative=_moved(moved["negative"]) if moved else None,
    )


def _moved(tokens: Mapping[str, float | None]) -> float | None:
    before, after = tokens["before"], tokens["after"]
    return None if before is None or after is None else after - before


# ---- a run


class RunFollower:
    """Keeps a run's data in memory and adds to it what the run writes; files with a `limit` end after so many bytes."""

    def __init__(self, run_dir: Path, limits: Mapping[str, int] | None = None) -> None:
        self.run_dir, self._limits = run_dir, dict(limits or {})
        self._begin()

    def _begin(self) -> None:
        self._table = MetricTable()
        self._metrics = Tail(self.run_dir / "metrics.jsonl", metric_row)
        self._events = Tail(self.run_dir / "events.jsonl", event_row)
        self._gold = Tail(self.run_dir / "gold.jsonl", gold_row)
        self._samples = Tail(self.run_dir / "samples.jsonl", sample_row)
        self._timings = Tail(self.run_dir / "timings.jsonl", timing_row)
        self._probes = Tail(self.run_dir / "probes.jsonl", probe_row)
        self._tails: tuple[Tail[Any], ...] = (
            self._metrics, self._events, self._gold, self._samples, self._timings, self._probes,
        )  # fmt: skip
        for tail in self._tails:
            tail.limit = self._limits.get(tail.path.name)

    def sizes(self) -> tuple[int, ...]:
        """What changes when there is something new."""
        return tuple(tail.size() for tail in self._tails)

    @collection_paused()
    def read(self) -> RunData:
        """The run as it is now, without the rows that it took back."""
        if any(tail.was_cut() for tail in self._tails):
            self._begin()
        for step, number, values in self._metrics.more():
            self._table.add(step, number, values)
        measured, manifest, config = self._gold.all(), self.run_dir / "manifest.json", self.run_dir / "config.toml"
        gold = lineage(measured, lambda row: (row.step, (row.split, row.prompt_index)))
        facts = read_json(manifest) if manifest.is_file() else {}
        return RunData(
            name=_name(self.run_dir.resolve().name, facts),
            config=config.read_text("utf-8", "replace") if config.is_file() else "",
            manifest=facts,
            metrics=self._table.copy(),  # whoever looks at it must not see it grow
            events=tuple(self._events.all()),
            gold=gold,
            samples=lineage(self._samples.all(), lambda row: (row.step, row.prompt_index)),
            timings=lineage(self._timings.all(), lambda row: (row.step, 0)),
            probes=lineage(self._probes.all(), lambda row: (row.step, row.stage)),
            gold_undone=measured_again(measured, gold),
            settings_changed=tuple(event for event in self._events.all() if event.kind == "setting_changed"),
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        """What a reader should know of how the files were read."""
        if count := self._table.taken_back:
            words = f"{counted(count, 'step was', 'steps were')} taken back and done again (a resume)"
            yield f"{words}; the charts show the line that was kept."
        for tail in self._tails:
            if count := tail.unread:
                one, several = (f"{lines} of {tail.path.name} could not be read and" for lines in ("line", "lines"))
                yield f"{counted(count, f'{one} was', f'{several} were')} left out."


def _name(directory: str, facts: Mapping[str, Any]) -> str:
    """What a run is called: as its directory is, and in a copy or one that was renamed also as it began."""
    first = facts.get("name", directory)
    return directory if first == directory else f"{directory} (begun as {first})"


def read_run(run_dir: Path, limits: Mapping[str, int] | None = None) -> RunData:
    """Read a run directory; refuse one that holds nothing of a run.

    With `limits`, which a checkpoint holds, the run is read as it was then; rows after its last step do not count.
    """
    if not run_dir.is_dir():
        raise HoldfastError(f"There is no run directory at {run_dir}; give the directory that a run wrote.")
    if not any((run_dir / name).is_file() for name in FILES):
        raise HoldfastError(f"{run_dir} holds no run: none of {', '.join(FILES)} is there.")
    run = RunFollower(run_dir, limits).read()
    if limits is None:
        return run
    last = run.metrics.steps[-1] if run.metrics else 0
    # The manifest has the settings of today; what they were is in the changes since.
    events = Tail(run_dir / "events.jsonl", event_row).all()
    return replace(
        run,
        gold=tuple(row for row in run.gold if row.step <= last),
        timings=(),
        settings_changed=tuple(event for event in events if event.kind == "setting_changed"),
    )
