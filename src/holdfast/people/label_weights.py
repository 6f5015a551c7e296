"""Labels as they count: quality read from the store, and a weight for each labeller by the config.

Nothing is deleted. A weight below 1 makes a person's labels count less in the next refresh and in audits, 0 leaves them
out; when the person is found reliable again the weight is 1 again. Every change is kept with its reasons.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Literal

from sqlalchemy import Connection, func, insert, select

from holdfast.people.quality import GivenAnswer, TeamQuality, team_quality
from holdfast.preferences.database import Database
from holdfast.preferences.people_schema import checks, opinions, submissions, weights
from holdfast.preferences.records import watermark
from holdfast.preferences.schema import WITHDRAWN, comparisons, labels, responses
from holdfast.preferences.store import PreferenceStore

Unreliable = Literal["keep", "weigh", "leave_out"]

# The newest answers tell how people work now, and are enough for every test.
MOST_ANSWERS = 20_000
# What a label of an unreliable person counts for people.unreliable = weigh: less than half, so that one honest second
# opinion outweighs it, and not nothing.
UNRELIABLE_WEIGHT = 0.3


def read_quality(database: Database, run: str) -> TeamQuality:
    """What a run's labels, check items and second opinions say about the people who gave them."""
    with database.read() as connection:
        answers = [*_labels(connection, run), *_checks(connection, run), *_opinions(connection, run)]
    return team_quality(answers)


class LabellerWeights:
    """Keeps the weights of a store's labellers in step with what is known of them."""

    def __init__(self, store: PreferenceStore, run: str, unreliable: Unreliable) -> None:
        self._store, self._run = store, run
        self._factor = {"keep": 1.0, "weigh": UNRELIABLE_WEIGHT, "leave_out": 0.0}[unreliable]

    def update(self) -> list[dict[str, Any]]:
        """Look again, and set the weights of the store; what has changed, for an event."""
        quality = read_quality(self._store.database, self._run)
        now = {labeller.name: (self._factor, list(labeller.findings)) for labeller in quality.unreliable}
        before = self._stored()
        changed = [
            {"labeller": name, "weight": weight, "reasons": reasons}
            for name, (weight, reasons) in sorted(now.items())
            if before.get(name, (1.0, []))[0] != weight or bool(before.get(name, (1.0, []))[1]) != bool(reasons)
        ]
        changed += [
            {"labeller": name, "weight": 1.0, "reasons": []}
            for name, (_, reasons) in sorted(before.items())
            if reasons and name not in now
        ]
        if changed:
            self._keep(changed)
        self._store.weights = {name: weight for name, (weight, _) in now.items() if weight != 1.0}
        return changed

    def _stored(self) -> dict[str, tuple[float, list[str]]]:
        query = select(weights).where(weights.c.run == self._run).order_by(weights.c.seq)
        with self._store.database.read() as connection:
            return {row.labeller: (row.weight, row.reasons) for row in connection.execute(query)}

    def _keep(self, changed: list[dict[str, Any]]) -> None:
        with self._store.database.write() as connection:
            more = {"run": self._run, "watermark": watermark(connection), "created_at": time.time()}
            connection.execute(insert(weights), [{**row, **more} for row in changed])


_a, _b = responses.alias("a_side"), responses.alias("b_side")


def _labels(connection: Connection, run: str) -> Iterator[GivenAnswer]:
    """Each labeller's newest answer to each comparison of the run, of the newest that are looked at."""
    # The text is JSON, which is longer than what a person reads by a quote here and there.
    query = (
        select(
            labels.c.seq, labels.c.comparison_id, labels.c.labeller, labels.c.choice, func.length(_a.c.text),
            func.length(_b.c.text), submissions.c.swapped, submissions.c.seconds,
        )
        .join(comparisons, comparisons.c.id == labels.c.comparison_id)
        .join(_a, comparisons.c.a == _a.c.id)
        .join(_b, comparisons.c.b == _b.c.id)
        .outerjoin(
            submissions,
            (submissions.c.comparison_id == labels.c.comparison_id)
            & (submissions.c.labeller == labels.c.labeller)
            & submissions.c.undone_at.is_(None)
            & (submissions.c.answer != "skip"),
        )
        .where(labels.c.comparison_id >= f"{run}/", labels.c.comparison_id < f"{run}0")
        .order_by(labels.c.seq.desc())
        .limit(MOST_ANSWERS)
    )  # fmt: skip
    seen: set[tuple[str, str]] = set()
    for seq, item, labeller, choice, length_a, length_b, swapped, seconds in connection.execute(query):
        if (item, labeller) in seen:
            continue
        seen.add((item, labeller))
        if choice != WITHDRAWN:
            left = None if swapped is None else "b" if swapped else "a"
            yield GivenAnswer(labeller, item, choice, float(seq), left, length_a, length_b, seconds)


def _checks(connection: Connection, run: str) -> Iterator[GivenAnswer]:
    query = (
        select(submissions, checks.c.expected)
        .join(checks, checks.c.comparison_id == submissions.c.comparison_id)
        .where(submissions.c.run == run, submissions.c.purpose == "check", submissions.c.undone_at.is_(None))
        .where(submissions.c.answer != "skip")
        .order_by(submissions.c.seq.desc())
        .limit(MOST_ANSWERS)
    )
    for row in connection.execute(query):
        choice = "tie" if row.answer == "both_bad" else row.answer
        left = "b" if row.swapped else "a"
        yield GivenAnswer(row.labeller, row.comparison_id, choice, float(row.seq), left, expected=row.expected)


def _opinions(connection: Connection, run: str) -> Iterator[GivenAnswer]:
    query = (
        select(opinions)
        .where(opinions.c.comparison_id >= f"{run}/", opinions.c.comparison_id < f"{run}0")
        .order_by(opinions.c.seq.desc())
        .limit(MOST_ANSWERS)
    )
    for row in connection.execute(query):
        yield GivenAnswer(row.labeller, row.comparison_id, row.choice, float(row.seq), measured_only=True)
