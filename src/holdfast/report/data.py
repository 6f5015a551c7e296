"""A run directory read into typed rows, while the run may still be writing it.

Files may be absent. The last line of a .jsonl file may be half written and is then left out; any other line
that cannot be read is left out too, and counted in `RunData.notes` so that the page can say so.
"""

import json
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import HoldfastError
from holdfast.events import KINDS, Weight, event_sentence, weight_of
from holdfast.events.sentences import Fields, is_refused
from holdfast.parallel.garbage import collection_paused
from holdfast.report.metrics import MetricTable
from holdfast.text import as_number

JsonRow = dict[str, Any]

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


@dataclass(frozen=True, slots=True)
class SampleRow:
    """The answer to one of the fixed prompts at one step."""

    step: int
    round: int
    prompt_index: int
    prompt: str
    response: str
    finished: bool
    score: float | None
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

    @property
    def squeezed_at(self) -> int | None:
        """The update at which the squeezing effect was first seen, if it was."""
        return next((event.step for event in self.events if event.kind == "squeezing"), None)

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

    def sample_gold(self) -> dict[tuple[int, int], float]:
        """Gold of the fixed prompts' samples by (step, prompt index)."""
        return {
            (row.step, row.prompt_index): row.gold
            for row in self.gold
            if row.split == "samples" and row.prompt_index is not None and row.gold is not None
        }


@collection_paused()
def read_run(run_dir: Path) -> RunData:
    """Read a run directory; refuse one that holds nothing of a run."""
    if not run_dir.is_dir():
        raise HoldfastError(f"There is no run directory at {run_dir}; give the directory that a run wrote.")
    if not any((run_dir / name).is_file() for name in FILES):
        raise HoldfastError(f"{run_dir} holds no run: none of {', '.join(FILES)} is there.")
    notes: list[str] = []
    metrics = MetricTable()
    for step, number, values in rows_of(run_dir / "metrics.jsonl", metric_row, notes):
        metrics.add(step, number, values)
    if count := metrics.taken_back:
        notes.append(
            f"{count} {'step was' if count == 1 else 'steps were'} taken back and done again (a resume); "
            "the charts show the line that was kept."
        )
    return run_data(
        run_dir,
        metrics,
        events=tuple(rows_of(run_dir / "events.jsonl", event_row, notes)),
        measured=tuple(rows_of(run_dir / "gold.jsonl", gold_row, notes)),
        samples=rows_of(run_dir / "samples.jsonl", sample_row, notes),
        timings=rows_of(run_dir / "timings.jsonl", timing_row, notes),
        probes=rows_of(run_dir / "probes.jsonl", _probe, notes),
        notes=notes,
    )


def run_data(
    run_dir: Path,
    metrics: MetricTable,
    events: tuple[EventRow, ...],
    measured: tuple[GoldRow, ...],
    samples: Iterable[SampleRow],
    timings: Iterable[TimingRow],
    probes: Iterable[ProbeRow],
    notes: list[str],
) -> RunData:
    """A run of the rows that were read; those that it took back are left out."""
    manifest = read_manifest(run_dir / "manifest.json", notes)
    gold = lineage(measured, lambda row: (row.step, (row.split, row.prompt_index)))
    return RunData(
        name=str(manifest.get("name") or run_dir.resolve().name),
        config=text_of(run_dir / "config.toml") or "",
        manifest=manifest,
        metrics=metrics,
        events=events,
        gold=gold,
        samples=lineage(samples, lambda row: (row.step, row.prompt_index)),
        timings=lineage(timings, lambda row: (row.step, 0)),
        probes=lineage(probes, lambda row: (row.step, row.stage)),
        gold_undone=measured_again(measured, gold),
        notes=tuple(notes),
    )


Row = TypeVar("Row")


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


# ---- files


def text_of(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HoldfastError(f"Cannot read {path} ({error.strerror}); check its permissions.") from error


def read_manifest(path: Path, notes: list[str]) -> JsonRow:
    text = text_of(path)
    if text is None:
        return {}
    manifest = parse_row(text)
    if manifest is None:
        notes.append("manifest.json could not be read and was left out.")
    return manifest or {}


def parse_row(line: str) -> JsonRow | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def read_row(line: str, read: Callable[[JsonRow], Row]) -> Row | None:
    """A line as a row; None for half a line, or one that is damaged."""
    parsed = parse_row(line)
    try:
        return None if parsed is None else read(parsed)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def rows_of(path: Path, read: Callable[[JsonRow], Row], notes: list[str]) -> Iterator[Row]:
    """The rows of a file one by one, so that a long run is never in memory as text."""
    unread = torn = 0
    for line in _lines(path):
        unread += torn
        row = read_row(line, read)
        # Half a line is not there yet, if it is the last.
        torn = row is None
        if row is not None:
            yield row
    if unread:
        notes.append(
            f"{unread} {'line' if unread == 1 else 'lines'} of {path.name} could not be read "
            f"and {'was' if unread == 1 else 'were'} left out."
        )


def _lines(path: Path) -> Iterator[str]:
    """The lines that are not blank; only a newline ends one, since JSON text may hold other separators."""
    try:
        with path.open("rb") as file:
            for line in file:
                text = line.decode("utf-8", errors="replace")
                if text.strip():
                    yield text
    except FileNotFoundError:
        return
    except OSError as error:
        raise HoldfastError(f"Cannot read {path} ({error.strerror}); check its permissions.") from error


# ---- rows


def metric_row(row: JsonRow) -> tuple[int, int, JsonRow]:
    return int(row.pop("step")), int(row.pop("round", 0)), row


def event_row(row: JsonRow) -> EventRow:
    kind = KINDS[row["event"]]
    fields = {sys.intern(name): value for name, value in row.items() if name not in ("step", "round", "event")}
    if missing := kind.fields.keys() - fields.keys():
        raise KeyError(*missing)
    return EventRow(int(row["step"]), int(row["round"]), kind.name, fields)


def gold_row(row: JsonRow) -> GoldRow:
    return GoldRow(int(row["step"]), sys.intern(row["split"]), as_number(row["gold"]), row.get("prompt_index"))


def sample_row(row: JsonRow) -> SampleRow:
    return SampleRow(
        step=int(row["step"]),
        round=int(row.get("round", 0)),
        prompt_index=int(row["prompt_index"]),
        prompt=sys.intern(row["prompt"]),  # the same few prompts are answered again and again
        response=row["response"],
        finished=bool(row.get("finished", True)),
        score=as_number(row.get("score")),
        spread=as_number(row.get("spread")),
    )


def timing_row(row: JsonRow) -> TimingRow:
    seconds = {sys.intern(name): as_number(value) for name, value in row.items() if name not in ("step", "round")}
    return TimingRow(int(row["step"]), {name: value for name, value in seconds.items() if value is not None})


def _probe(row: JsonRow) -> ProbeRow:
    numbers = {sys.intern(kind): as_number(value) for kind, value in row["logprob"].items()}
    rollout = row.get("rollout")
    return ProbeRow(
        stage=sys.intern(row["stage"]),
        step=int(row["step"]),
        logprob={kind: number for kind, number in numbers.items() if number is not None},
        argmax=as_number(row["argmax"]),
        entropy=as_number(row["entropy"]),
        margin_gain=as_number(row["margin_gain"]),
        positive=_moved(rollout["positive"]) if rollout else None,
        negative=_moved(rollout["negative"]) if rollout else None,
    )


def _moved(tokens: Mapping[str, float | None]) -> float | None:
    before, after = tokens["before"], tokens["after"]
    return None if before is None or after is None else after - before
