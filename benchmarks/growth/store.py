"""The preference store against the number of labels in it.

    grow -> whole-store work (read, export, count) -> one round's work on top (ask, refresh)

Comparisons are as a run makes them: 200 to a round, two answers of 24 tokens each, one label.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.growth.process import Once, Preparation, Stopwatch, Work
from holdfast.data.formats import read_preferences, write_preferences
from holdfast.preferences.comparison import Choice, Comparison, Label, Provenance, Response
from holdfast.preferences.store import PreferenceStore

if TYPE_CHECKING:
    from holdfast.reward.refresher import Refresher

PER_ROUND = 200
BATCH = 1000  # comparisons or labels in one call
TOKENS = 24
PROMPTS = 500
WORDS = ("the", "room", "key", "lift", "bar", "desk", "night", "guest", "quiet", "early", "table", "coffee", "coat")


def comparisons(start: int, stop: int) -> list[Comparison]:
    """Comparisons number `start` to `stop` of a made-up run; the same number is always the same comparison."""
    return [_comparison(number) for number in range(start, stop)]


def _comparison(number: int) -> Comparison:
    rng = random.Random(number)
    round_number = number // PER_ROUND
    origin = Provenance(f"round-{round_number:04d}", round_number, 12345)
    prompt = f"question {number % PROMPTS} about the {WORDS[number % len(WORDS)]}"
    a, b = (_response(rng, origin) for _ in "ab")
    return Comparison(f"scale/r{round_number:05d}-{number % PER_ROUND:05d}", prompt, a, b, round_number)


def _response(rng: random.Random, origin: Provenance) -> Response:
    tokens = tuple(rng.randrange(5, 30_000) for _ in range(TOKENS))
    return Response(" ".join(WORDS[token % len(WORDS)] for token in tokens), origin, tokens)


def answers(items: Sequence[Comparison]) -> list[Label]:
    """Everybody's answer, which depends on the comparison alone."""
    return [
        Label(item.id, "simulated", Choice.A if len(item.a.text) >= len(item.b.text) else Choice.B) for item in items
    ]


def open_store(directory: Path) -> PreferenceStore:
    return PreferenceStore.open(f"sqlite:///{directory / 'run.db'}")


def _in_batches(n: int, add: Callable[[list[Comparison]], object]) -> dict[str, float]:
    """Seconds spent in `add` alone, without the making of what is added."""
    watch = Stopwatch()
    for start in range(0, n, BATCH):
        batch = comparisons(start, min(n, start + BATCH))
        with watch:
            add(batch)
    return watch.figures()


@contextmanager
def add_comparisons(directory: Path, n: int) -> Preparation:
    with open_store(directory) as store:
        yield Once(lambda: _in_batches(n, store.add_comparisons))


@contextmanager
def add_labels(directory: Path, n: int) -> Preparation:
    with open_store(directory) as store:
        yield Once(lambda: _in_batches(n, lambda batch: store.add_labels(answers(batch))))


def reading(read: Callable[[PreferenceStore, int], object]) -> Callable[[Path, int], AbstractContextManager[Work]]:
    """A measurement of something that is read from the store."""

    @contextmanager
    def prepare(directory: Path, n: int) -> Preparation:
        with open_store(directory) as store:
            yield lambda: read(store, n)

    return prepare


labelled = reading(lambda store, n: len(store.labelled()))
unlabelled = reading(lambda store, n: len(store.unlabelled()))
counts = reading(lambda store, n: store.counts())
watermark = reading(lambda store, n: store.watermark())
watermark_of_round = reading(lambda store, n: store.watermark(n // PER_ROUND))


@contextmanager
def export(directory: Path, n: int) -> Preparation:
    out = directory / "labels.jsonl"
    with open_store(directory) as store:

        def work() -> dict[str, float]:
            out.unlink(missing_ok=True)
            write_preferences(out, store.each_labelled())
            return {"bytes": out.stat().st_size}

        yield work


@contextmanager
def read_export(directory: Path, n: int) -> Preparation:
    yield lambda: len(read_preferences(directory / "labels.jsonl"))


class Simulated:
    """A labeller that answers at once."""

    name = "simulated"

    def label(self, comparisons: Sequence[Comparison]) -> Sequence[Label]:
        return answers(comparisons)


@contextmanager
def ask(directory: Path, n: int) -> Preparation:
    from holdfast.preferences.collector import Collector

    nothing: Any = None  # asking samples nothing
    rounds = itertools.count(-(-n // PER_ROUND))
    with open_store(directory) as store:
        collector = Collector("scale", nothing, ("",), store, Simulated(), nothing, nothing, 0)

        def work() -> dict[str, float]:
            start = PER_ROUND * next(rounds)
            fresh = comparisons(start, start + PER_ROUND)
            with Stopwatch() as watch:
                collector.ask(fresh, "growth")
            return watch.figures()

        yield work


def _refreshing(store: PreferenceStore) -> Refresher:
    """As the loop has it, without models: what is measured ends where training begins."""
    from holdfast.config.schema import RefreshConfig, RewardConfig
    from holdfast.models.codec import Codec
    from holdfast.models.tiny import word_tokenizer
    from holdfast.reward.ensemble import Ensemble
    from holdfast.reward.refresher import Refresher
    from holdfast.track.progress import Silent

    nothing: Any = None
    codec = Codec(word_tokenizer([" ".join(WORDS), "question about", *map(str, range(PROMPTS))]))
    return Refresher(Ensemble([], 0, 1), nothing, store, codec, RewardConfig(), RefreshConfig(), (), (), Silent())


def _one_more_round(store: PreferenceStore, refreshing: Refresher, number: int) -> None:
    """Labels that the ensemble does not know yet."""
    refreshing.ensemble.watermark, refreshing.last_round = store.watermark(), number - 1
    fresh = comparisons(PER_ROUND * number, PER_ROUND * (number + 1))
    store.add_comparisons(fresh)
    store.add_labels(answers(fresh))


@contextmanager
def refresh(directory: Path, n: int) -> Preparation:
    """All that a refresh asks of the store, in a run that is under way."""
    from holdfast.randomness import Streams

    rounds = itertools.count(-(-n // PER_ROUND) + 100)
    with open_store(directory) as store:
        refreshing = _refreshing(store)
        refreshing.answered.update()

        def work() -> dict[str, float]:
            number = next(rounds)
            _one_more_round(store, refreshing, number)
            with Stopwatch() as watch:
                refreshing.material(number, Streams(0))
            return watch.figures()

        yield work


@contextmanager
def first_refresh(directory: Path, n: int) -> Preparation:
    """The same right after a resume, when nothing of the store is known yet."""
    from holdfast.randomness import Streams

    number = -(-n // PER_ROUND) + 200
    with open_store(directory) as store:
        refreshing = _refreshing(store)
        _one_more_round(store, refreshing, number)
        yield Once(lambda: refreshing.material(number, Streams(0)))
