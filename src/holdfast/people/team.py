"""The run's side of the labelling page: comparisons go into the queue, and the run waits for people.

    gather -> queue -> people answer in the browser -> labels in the store -> the run goes on
           -> judge, for its share of the training comparisons, and as a second opinion on audits and some others

Nothing of a wait is in memory alone: ids follow from the round, the queue has when it was asked, and labels are in the
store. A run that is stopped or killed while it waits asks the same again after a resume and finds what has come in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from sqlalchemy import insert, select

from holdfast.config import Config
from holdfast.data.formats import read_preferences
from holdfast.errors import HoldfastError, Interrupted
from holdfast.people.batches import asked_for
from holdfast.people.instructions import read_instructions
from holdfast.people.judge import JudgeLabeller
from holdfast.people.queue import LabelQueue, opinions_on
from holdfast.preferences.comparison import Choice, Comparison, Label, LabelledComparison, Purpose
from holdfast.preferences.people_schema import opinions
from holdfast.preferences.records import select_in
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import place_of
from holdfast.text import counted

Mode = Literal["people", "judge", "people+judge"]
MODES: tuple[Mode, ...] = ("people", "judge", "people+judge")
JUDGED_AT_ONCE = 32
# How often a waiting run looks for answers.
POLL_SECONDS = 1.0
# Share of a batch that has to be answered to go on after people.timeout_minutes: the rest can be missed, more cannot.
ENOUGH_ANSWERED = 0.8
# Share of people's comparisons that the judge answers too, to be measured and not used.
SECOND_SHARE = 0.1


class TeamLabeller:
    """People, a judge, or both, as one labeller. `connect` gives it the store before it is asked anything."""

    _store: PreferenceStore
    _queue: LabelQueue

    def __init__(self, mode: Mode, config: Config) -> None:
        self.name: str = mode
        self.called = "the judge" if mode == "judge" else "people"  # where there are people, audits are theirs
        self._people = config.people
        self._share = {"people": 0.0, "judge": 1.0, "people+judge": config.judge.share}[mode]
        self.seconded = mode == "people+judge"
        self._second = SECOND_SHARE if self.seconded else 0.0
        self._only_judge = mode == "judge"
        self._judge = None if mode == "people" else JudgeLabeller(config.judge)
        self._known = read_preferences(config.people.checks) if config.people.checks else []
        if not self._only_judge:
            read_instructions(
                config.people.instructions
            )  # so that one that cannot be read is said before anybody waits
        self._sleep: Callable[[float], None] = time.sleep

    def connect(
        self,
        store: PreferenceStore,
        run: str,
        hold: Callable[[str, int, int], None],
        stop_requested: Callable[[], bool],
        event: Callable[..., None],
    ) -> None:
        """Where answers are stored, whom to tell about waiting, and who may end it."""
        self._store, self._queue = store, LabelQueue(store.database, run, self._people)
        self._hold, self._stop_requested, self._event = hold, stop_requested, event
        checks = [check_of(run, n, item) for n, item in enumerate(self._known)]
        if checks:
            store.add_comparisons([item for item, _ in checks])
            self._queue.put_checks(checks)

    def label(self, comparisons: Sequence[Comparison]) -> Sequence[Label]:
        """Not in one call: people answer in their own time, and `gather` waits for them."""
        raise HoldfastError("People answer in the queue of a run; only `holdfast run` can wait for them.")

    def answers_to(self, comparison_id: str, purpose: Purpose) -> int:
        return 1 if self._is_judged(comparison_id, purpose) else opinions_on(comparison_id, self._people.overlap)

    def gather(self, comparisons: Sequence[Comparison], claims: Sequence[float | None], reason: str) -> None:
        """Put comparisons into the queue, let the judge do its share, and wait for people."""
        answered = self._store.answered([c.id for c in comparisons])
        judged = [c for c in comparisons if self._is_judged(c.id, c.purpose)]
        theirs = [(c, x) for c, x in zip(comparisons, claims, strict=True) if not self._is_judged(c.id, c.purpose)]
        began, batch = time.time(), ""
        if theirs and any(c.id not in answered for c, _ in theirs):
            batch, began = self._put(theirs, reason)
        self._have_judged([c for c in judged if c.id not in answered])
        # About audits it is asked for all pairs, once people have answered.
        seconds = [c for c, _ in theirs if c.purpose != "audit" and place_of(f"second {c.id}") < self._second]
        self._have_seconded(seconds)
        if batch:
            self._wait([c for c, _ in theirs], batch, began, reason)

    def second(self, comparisons: Sequence[Comparison]) -> Mapping[str, Choice]:
        """What the judge says of them, asked where it has not been."""
        self._have_seconded(comparisons)
        return self._opinions_on(comparisons) if self.seconded else {}

    def ask_again(self, comparisons: Sequence[Comparison]) -> Mapping[str, Choice]:
        """What the judge says of them now; nothing of it is kept."""
        parts = self._asked_judge(comparisons) if self.seconded else ()
        return {label.comparison_id: label.choice for labels in parts for label in labels}

    def _is_judged(self, comparison_id: str, purpose: Purpose) -> bool:
        """Audits are people's, where there are any."""
        if purpose == "audit" and not self._only_judge:
            return False
        return place_of(f"judge {comparison_id}") < self._share

    def _put(self, theirs: Sequence[tuple[Comparison, float | None]], reason: str) -> tuple[str, float]:
        batch = theirs[0][0].id
        # The run waits for one batch at a time. Another that is open was asked for before it was cut, and is not now.
        for other in self._queue.waiting():
            if other.name != batch:
                self._queue.close(other.name)
        began = self._queue.put(batch, [c for c, _ in theirs], [claim for _, claim in theirs], reason)
        return batch, began

    def _have_judged(self, comparisons: Sequence[Comparison]) -> None:
        """The judge's own labels, stored as they come, so that none is paid for twice."""
        for part in self._in_parts(comparisons, "the judge's answers"):
            assert self._judge is not None
            self._store.add_labels(self._judge.label(part))

    def _have_seconded(self, comparisons: Sequence[Comparison]) -> None:
        """What the judge thinks of comparisons that people answer: kept beside the labels, never among them."""
        if not comparisons:
            return
        known, now = self._opinions_on(comparisons), time.time()
        for labels in self._asked_judge([c for c in comparisons if c.id not in known]):
            rows = [
                {"comparison_id": x.comparison_id, "choice": x.choice.value, "labeller": x.labeller, "created_at": now}
                for x in labels
            ]
            with self._store.database.write() as connection:
                connection.execute(insert(opinions), rows)

    def _asked_judge(self, comparisons: Sequence[Comparison]) -> Iterator[Sequence[Label]]:
        """The judge's answers, part by part; without it the run goes on, and an event says so."""
        assert self._judge is not None
        for part in self._in_parts(comparisons, "the judge's second opinions"):
            try:
                labels = self._judge.label(part)
            except HoldfastError as error:
                self._hold("", 1, 1)
                self._event("second_opinions_missing", comparisons=len(part), reason=str(error))
                return
            if labels:
                yield labels

    def _opinions_on(self, comparisons: Sequence[Comparison]) -> dict[str, Choice]:
        """What the judge has said of these."""
        assert self._judge is not None
        query = select(opinions.c.comparison_id, opinions.c.choice).where(opinions.c.labeller == self._judge.name)
        with self._store.database.read() as connection:
            rows = select_in(connection, query, opinions.c.comparison_id, [c.id for c in comparisons])
            return {key: Choice(choice) for key, choice in rows}

    def _in_parts(self, comparisons: Sequence[Comparison], words: str) -> Iterator[Sequence[Comparison]]:
        """Parts of a size to ask about at once, with a bar; between two of them the user may stop."""
        for start in range(0, len(comparisons), JUDGED_AT_ONCE):
            self._stop_if_asked()
            self._hold(f"waiting for {words}", start, len(comparisons))
            yield comparisons[start : start + JUDGED_AT_ONCE]
        if comparisons:
            self._hold("", 1, 1)

    def _wait(self, asked: Sequence[Comparison], batch: str, began: float, reason: str) -> None:
        """Until every comparison is answered or left out, or until the time is up."""
        ids, purpose = [c.id for c in asked], asked_for(c.purpose for c in asked)
        words = "waiting for people (`holdfast serve`)"
        self._event("waiting", purpose=purpose, comparisons=len(ids), batch=batch, reason=reason)
        while True:
            answered, progress = len(self._store.answered(ids)), self._queue.batch(batch)
            dropped = progress.dropped if progress else 0
            self._hold(words, min(answered + dropped, len(ids) - 1), len(ids))
            if answered + dropped >= len(ids):
                one, several = "was left out, since people skipped it", "were left out, since people skipped them"
                ending = counted(dropped, one, several) if dropped else "all are answered"
                break
            if self._people.timeout_minutes and time.time() - began >= 60.0 * self._people.timeout_minutes:
                ending = self._time_is_up(answered, len(ids))
                break
            self._stop_if_asked()
            self._sleep(POLL_SECONDS)
        self._hold(words, 1, 1)
        self._queue.close(batch)
        self._event("waited", purpose=purpose, comparisons=len(ids), answered=answered, reason=ending, batch=batch)

    def _time_is_up(self, answered: int, asked: int) -> str:
        wait = self._people.timeout_minutes
        minutes = f"{wait:g} minute{'' if wait == 1 else 's'}"
        if answered < ENOUGH_ANSWERED * asked:
            self._hold("", 1, 1)
            raise HoldfastError(
                f"After {minutes} people have answered {answered} of {asked} comparisons, fewer than "
                f"{ENOUGH_ANSWERED:.0%}; have more answered with `holdfast serve`, then resume the run."
            )
        return f"{minutes} {'was' if wait == 1 else 'were'} over"

    def _stop_if_asked(self) -> None:
        if self._stop_requested():
            raise Interrupted


def check_of(run: str, number: int, known: LabelledComparison) -> tuple[Comparison, Choice]:
    """A check item under an id of the run's own, and its answer: the first side in every other one."""
    item, share = known.comparison, known.share_a
    choice = Choice.A if share > 0.5 else Choice.B if share < 0.5 else Choice.TIE
    if number % 2:
        item, choice = item.swap(), choice.swap()
    return Comparison(f"{run}/check-{number:05d}", item.prompt, item.a, item.b, 0, "check", run), choice
