"""Where comparisons and labels live: an append-only store on SQLite (the default) or PostgreSQL.

    add_comparisons -> comparisons -> unlabelled -> people -> add_labels -> labels -> labelled -> refresh

Writers take turns, so a label's `seq` grows in the order in which labels became visible. The watermark, the
largest seq, therefore names a set of labels that never changes: `labelled(watermark=w)` is the same now and
after a resume.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Column, Connection, Select, distinct, exists, func, insert, select

from holdfast.errors import HoldfastError
from holdfast.preferences.database import Database
from holdfast.preferences.encoding import response_hash
from holdfast.preferences.schema import NAME_LENGTH, comparisons, labels, responses
from holdfast.preferences.types import Choice, Comparison, Label, LabelledComparison, Provenance, Response

_KEYS_PER_QUERY = 1000  # well under every database's limit of parameters
_RESPONSE_COLUMNS = ("text", "policy_version", "round", "seed", "token_ids", "finished")
_side_a = responses.alias("side_a")
_side_b = responses.alias("side_b")


@dataclass(frozen=True)
class RoundCounts:
    """How much one round holds. `labels` counts every answer, also those that a later answer replaced."""

    comparisons: int
    labelled: int
    labels: int


@dataclass(frozen=True)
class StoreCounts:
    """How much the store holds, in total and per round."""

    comparisons: int
    labelled: int
    labels: int
    by_round: dict[int, RoundCounts]


class PreferenceStore:
    """Comparisons and the labels that people gave them. Nothing in it is ever changed or deleted.

    One store may be used by several threads; a forked process must open its own.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, url: str) -> Self:
        """Open the store at a database URL, such as `sqlite:///run.db`, and create it if it is not there."""
        return cls(Database(url))

    def close(self) -> None:
        """Let go of the database. Closing twice is allowed."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add_comparisons(self, items: Sequence[Comparison]) -> int:
        """Store the comparisons that are not there yet and return how many were new.

        Adding one again does nothing; the same id with another content is an error, and then none are added.
        """
        rows: dict[str, dict[str, Any]] = {}
        sides: dict[str, Response] = {}
        for item in items:
            _check_comparison(item)
            a, b = response_hash(item.a), response_hash(item.b)
            sides[a], sides[b] = item.a, item.b
            row = {"id": item.id, "prompt": item.prompt, "a": a, "b": b, "round": item.round}
            _check_same(rows.setdefault(item.id, row), row)
        with self._database.write() as connection:
            for stored in _select_in(connection, select(comparisons), comparisons.c.id, list(rows)):
                _check_same(dict(stored._mapping), rows.pop(stored.id))
            missing = {key: sides[key] for row in rows.values() for key in (row["a"], row["b"])}
            for (key,) in _select_in(connection, select(responses.c.id), responses.c.id, list(missing)):
                del missing[key]
            _insert(connection, responses, [_response_row(key, side) for key, side in missing.items()])
            _insert(connection, comparisons, list(rows.values()))
        return len(rows)

    def add_labels(self, items: Sequence[Label]) -> int:
        """Store answers and return how many were new; once this returns they survive a crash.

        An answer equal to that labeller's newest answer to the comparison is stored once, however often it is
        sent. A different one is added after it, and the newest counts. Sending a whole list again adds
        nothing, even if a labeller changes their mind within it.
        """
        given: dict[tuple[str, str], list[Choice]] = {}
        for item in items:
            _check_name("comparison id", item.comparison_id, NAME_LENGTH)
            _check_name("labeller", item.labeller, NAME_LENGTH)
            choices = given.setdefault((item.comparison_id, item.labeller), [])
            if not choices or choices[-1] != item.choice:
                choices.append(Choice(item.choice))
        now = datetime.now(UTC)
        rows: list[dict[str, Any]] = []
        with self._database.write() as connection:
            history = _label_history(connection, list(dict.fromkeys(key for key, _ in given)))
            for (comparison_id, labeller), choices in given.items():
                past = history.get((comparison_id, labeller), [])
                for ordinal, choice in enumerate(choices[_overlap(past, choices) :], start=len(past)):
                    rows.append(
                        {
                            "comparison_id": comparison_id,
                            "labeller": labeller,
                            "choice": choice.value,
                            "ordinal": ordinal,
                            "created_at": now,
                        }
                    )
            _insert(connection, labels, rows)
        return len(rows)

    def labelled(self, up_to_round: int | None = None, watermark: int | None = None) -> list[LabelledComparison]:
        """Every answered comparison in order of id, with each labeller's newest answer in order of name.

        `up_to_round` leaves out comparisons of later rounds; `watermark` leaves out labels after that one.
        """
        with self._database.read() as connection:
            # Pinned first, so that a label which arrives between the two queries is in neither.
            last = _watermark(connection) if watermark is None else watermark
            answered = select(labels.c.comparison_id).where(labels.c.seq <= last)
            asked = _comparison_query(up_to_round).where(comparisons.c.id.in_(answered))
            found = [_comparison(row) for row in connection.execute(asked)]
            answers = (
                select(labels.c.comparison_id, labels.c.labeller, labels.c.choice)
                .where(labels.c.seq <= last)
                .order_by(labels.c.comparison_id, labels.c.labeller, labels.c.ordinal)
            )
            if up_to_round is not None:
                answers = answers.join(comparisons).where(comparisons.c.round <= up_to_round)
            newest: dict[str, dict[str, Choice]] = {}
            for comparison_id, labeller, choice in connection.execute(answers):
                newest.setdefault(comparison_id, {})[labeller] = Choice(choice)
        return [
            LabelledComparison(item, tuple(Label(item.id, name, choice) for name, choice in newest[item.id].items()))
            for item in found
        ]

    def unlabelled(
        self, up_to_round: int | None = None, labeller: str | None = None, limit: int | None = None
    ) -> list[Comparison]:
        """The first `limit` comparisons, in order of id, that nobody (or not this labeller) has answered."""
        answer = exists().where(labels.c.comparison_id == comparisons.c.id)
        if labeller is not None:
            _check_name("labeller", labeller, NAME_LENGTH)
            answer = answer.where(labels.c.labeller == labeller)
        query = _comparison_query(up_to_round).where(~answer).limit(limit)
        with self._database.read() as connection:
            return [_comparison(row) for row in connection.execute(query)]

    def watermark(self, up_to_round: int | None = None) -> int:
        """The sequence number of the newest label (of comparisons up to a round), 0 if there is none."""
        with self._database.read() as connection:
            return _watermark(connection, up_to_round)

    def counts(self) -> StoreCounts:
        """How many comparisons, answered comparisons and labels there are, in total and per round."""
        query = (
            select(
                comparisons.c.round,
                func.count(distinct(comparisons.c.id)),
                func.count(distinct(labels.c.comparison_id)),
                func.count(labels.c.seq),
            )
            .select_from(comparisons.outerjoin(labels))
            .group_by(comparisons.c.round)
            .order_by(comparisons.c.round)
        )
        with self._database.read() as connection:
            by_round = {number: RoundCounts(*counts) for number, *counts in connection.execute(query)}
        return StoreCounts(
            comparisons=sum(part.comparisons for part in by_round.values()),
            labelled=sum(part.labelled for part in by_round.values()),
            labels=sum(part.labels for part in by_round.values()),
            by_round=by_round,
        )


def _check_comparison(item: Comparison) -> None:
    _check_name("comparison id", item.id, NAME_LENGTH)
    for side in (item.a, item.b):
        _check_name("policy version", side.provenance.policy_version)
    for number in (item.round, item.a.provenance.round, item.b.provenance.round):
        if not -(2**31) <= number < 2**31:
            raise HoldfastError(f"Comparison {item.id} has round {number}; rounds must fit 32 bits.")


def _check_name(kind: str, name: str, limit: int | None = None) -> None:
    """Names are stored as they are, so that they can be keys; they must be text that every database holds."""
    if not name or "\0" in name or (limit is not None and len(name) > limit):
        length = "" if limit is None else f" of at most {limit} characters"
        raise HoldfastError(f"The {kind} {name[:60]!r} must be a text{length}, not empty and without NUL.")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise HoldfastError(f"The {kind} {name[:60]!r} is not valid Unicode; rename it.") from error


def _check_same(stored: dict[str, Any], given: dict[str, Any]) -> None:
    if stored != given:
        raise HoldfastError(
            f"Comparison {given['id']} is already there with another prompt, responses or round; "
            "a comparison never changes, so give the new one an id of its own."
        )


def _overlap(past: list[Choice], choices: list[Choice]) -> int:
    """How many of the first choices repeat the end of the past: a list that is sent again overlaps wholly."""
    longest = min(len(past), len(choices))
    return next(n for n in range(longest, -1, -1) if past[len(past) - n :] == choices[:n])


def _insert(connection: Connection, table: Any, rows: list[dict[str, Any]]) -> None:
    # SQLAlchemy takes an empty list for one row of defaults.
    if rows:
        connection.execute(insert(table), rows)


def _select_in(connection: Connection, query: Select[Any], column: Column[Any], keys: Sequence[str]) -> Iterator[Any]:
    """The rows whose column is one of the keys, asked for in batches."""
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        yield from connection.execute(query.where(column.in_(keys[start : start + _KEYS_PER_QUERY])))


def _label_history(connection: Connection, comparison_ids: Sequence[str]) -> dict[tuple[str, str], list[Choice]]:
    """All answers to these comparisons so far, oldest first, by comparison and labeller."""
    # Through the comparisons' primary key: a server without statistics on labels would scan them key by key.
    query = (
        select(comparisons.c.id, labels.c.labeller, labels.c.choice)
        .select_from(comparisons.outerjoin(labels))
        .order_by(labels.c.ordinal)
    )
    history: dict[tuple[str, str], list[Choice]] = {}
    unknown = set(comparison_ids)
    for key, labeller, choice in _select_in(connection, query, comparisons.c.id, comparison_ids):
        unknown.discard(key)
        if labeller is not None:
            history.setdefault((key, labeller), []).append(Choice(choice))
    if unknown:
        raise HoldfastError(f"A label answers comparison {min(unknown)!r}, which is not in the store; add that first.")
    return history


def _watermark(connection: Connection, up_to_round: int | None = None) -> int:
    newest = select(func.coalesce(func.max(labels.c.seq), 0))
    if up_to_round is not None:
        newest = newest.select_from(labels.join(comparisons)).where(comparisons.c.round <= up_to_round)
    return int(connection.execute(newest).scalar_one())


def _comparison_query(up_to_round: int | None) -> Select[Any]:
    """Comparisons with both of their responses, in order of id."""
    sides = [side.c[name] for side in (_side_a, _side_b) for name in _RESPONSE_COLUMNS]
    query = (
        select(comparisons.c.id, comparisons.c.prompt, comparisons.c.round, *sides)
        .join(_side_a, comparisons.c.a == _side_a.c.id)
        .join(_side_b, comparisons.c.b == _side_b.c.id)
        .order_by(comparisons.c.id)
    )
    return query if up_to_round is None else query.where(comparisons.c.round <= up_to_round)


def _comparison(row: Sequence[Any]) -> Comparison:
    comparison_id, prompt, number, *sides = row
    width = len(_RESPONSE_COLUMNS)
    return Comparison(comparison_id, prompt, _response(*sides[:width]), _response(*sides[width:]), number)


def _response(
    text: str, policy_version: str, number: int, seed: int, token_ids: list[int] | None, finished: bool
) -> Response:
    tokens = None if token_ids is None else tuple(token_ids)
    return Response(text, Provenance(policy_version, number, seed), tokens, finished)


def _response_row(key: str, response: Response) -> dict[str, Any]:
    origin = response.provenance
    return {
        "id": key,
        "text": response.text,
        "policy_version": origin.policy_version,
        "round": origin.round,
        "seed": origin.seed,
        "token_ids": None if response.token_ids is None else list(response.token_ids),
        "finished": response.finished,
    }
