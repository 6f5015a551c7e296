"""Where comparisons and labels live: an append-only store on SQLite (the default) or PostgreSQL.

    add_comparisons -> comparisons -> unlabelled -> people -> add_labels -> labels -> labelled -> refresh

Writers take turns, so a label's `seq` grows in the order in which labels became visible. The watermark, the
largest seq, therefore names a set of labels that never changes: `labelled(watermark=w)` is the same now and
after a resume.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, NamedTuple, Self

from sqlalchemy import Connection, exists, func, insert, or_, select, text, true

from holdfast.errors import HoldfastError
from holdfast.parallel.garbage import collection_paused
from holdfast.preferences import records
from holdfast.preferences.comparison import UNASKED, Choice, Comparison, Label, LabelledComparison, Purpose, Response
from holdfast.preferences.database import Database
from holdfast.preferences.encoding import response_hash
from holdfast.preferences.label_seal import SEALED, LabelSeal
from holdfast.preferences.records import FirstAnswer, RowDecoder, select_in
from holdfast.preferences.schema import NAME_LENGTH, WITHDRAWN, comparisons, labels, responses


class StoreCounts(NamedTuple):
    """How much the store holds. `labels` counts every answer, also those that a later answer replaced."""

    comparisons: int
    labels: int


class PreferenceStore:
    """Comparisons and the labels that people gave them. Nothing in it is ever changed or deleted.

    One store may be used by several threads; a forked process must open its own.
    """

    def __init__(self, database: Database) -> None:
        self.database = database  # the queue and the accounts share it
        # By labeller, where it is not 1: labels weigh so much when they are read, and 0 leaves them out.
        self.weights: Mapping[str, float] = {}

    @classmethod
    def open(cls, url: str, create: bool = True) -> Self:
        """Open the store at a database URL, such as `sqlite:///run.db`; `create` it if it is not there, or refuse."""
        return cls(Database(url, create=create))

    def close(self) -> None:
        """Let go of the database. Closing twice is allowed."""
        self.database.close()

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
            row = _comparison_row(item)
            sides[row["a"]], sides[row["b"]] = item.a, item.b
            _check_same(rows.setdefault(item.id, row), row)
        with self.database.write() as connection:
            for stored in select_in(connection, select(comparisons), comparisons.c.id, list(rows)):
                _check_same(dict(stored._mapping), rows.pop(stored.id))
            missing = {key: sides[key] for row in rows.values() for key in (row["a"], row["b"])}
            for (key,) in select_in(connection, select(responses.c.id), responses.c.id, list(missing)):
                del missing[key]
            # In order of key, which is a hash: a large batch then goes through each page of the index once.
            _insert(connection, responses, [_response_row(key, missing[key]) for key in sorted(missing)])
            _insert(connection, comparisons, list(rows.values()))
        return len(rows)

    def taken(self, items: Sequence[Comparison]) -> bool:
        """Whether the id of any of these is there already with another content."""
        rows = {item.id: _comparison_row(item) for item in items}
        with self.database.read() as connection:
            stored = select_in(connection, select(comparisons), comparisons.c.id, list(rows))
            return any(dict(row._mapping) != rows[row.id] for row in stored)

    def add_labels(self, items: Sequence[Label]) -> int:
        """Store answers and return how many were new; once this returns they survive a crash.

        An answer equal to that labeller's newest answer to the comparison is stored once, however often it is
        sent. A different one is added after it, and the newest counts. Sending a whole list again adds
        nothing, even if a labeller changes their mind within it.
        """
        with self.database.write() as connection:
            return insert_labels(connection, items)

    def labelled(self, up_to_round: int | None = None, watermark: int | None = None) -> list[LabelledComparison]:
        """Every answered comparison in order of id, with each labeller's newest answer in order of name.

        `up_to_round` leaves out comparisons of later rounds; `watermark` leaves out labels after that one.
        """
        with collection_paused():
            return list(self.each_labelled(up_to_round, watermark))

    def each_labelled(
        self, up_to_round: int | None = None, watermark: int | None = None
    ) -> Iterator[LabelledComparison]:
        """The same one by one, in the memory of a page; labels that come in meanwhile are left out."""
        decoder, after, done = RowDecoder(), "", False
        while not done:
            with self.database.read() as connection:
                # Pinned first, so that every page is of the same set of labels.
                watermark = records.watermark(connection) if watermark is None else watermark
                answers, done = records.answers_after(connection, after, watermark)
                if not answers:
                    return
                first, after = next(iter(answers)), next(reversed(answers))
                rows = connection.execute(records.between(first, after, watermark, up_to_round)).all()
            yield from records.with_answers(iter(rows), answers, decoder, self.weights)

    def labelled_among(self, comparison_ids: Sequence[str], watermark: int | None = None) -> list[LabelledComparison]:
        """Those of these comparisons that are answered, in order of id; the rest of the store is not looked at."""
        keys = sorted(set(comparison_ids))
        with self.database.read() as connection:
            last = records.watermark(connection) if watermark is None else watermark
            answers = records.answers_to(connection, keys, last)
            answered = [key for key in keys if key in answers]
            rows = select_in(connection, records.comparison_query(), comparisons.c.id, answered)
            return list(records.with_answers(rows, answers, RowDecoder(), self.weights))

    def asked(self, run: str, round: int, purposes: Sequence[Purpose], limit: int) -> list[str]:
        """The first ids of what a run asked for these purposes in a round, in order."""
        of_round = (comparisons.c.run == run, comparisons.c.round == round, comparisons.c.purpose.in_(purposes))
        query = select(comparisons.c.id).where(*of_round).order_by(comparisons.c.id).limit(limit)
        with self.database.read() as connection:
            return list(connection.execute(query).scalars())

    def count_asked(self, run: str) -> int:
        """How many comparisons a run has asked for; checks of who answers are not among them."""
        query = select(func.count()).where(comparisons.c.run == run, comparisons.c.purpose.not_in(UNASKED))
        with self.database.read() as connection:
            return int(connection.execute(query).scalar_one())

    def asked_by(self, run: str) -> list[tuple[str, Purpose]]:
        """Ids and purposes of everything that a run has asked, in all stages of a pipeline."""
        whose = or_(comparisons.c.run == run, comparisons.c.run.startswith(f"{run}/", autoescape=True))
        query = select(comparisons.c.id, comparisons.c.purpose).where(whose, comparisons.c.purpose.not_in(UNASKED))
        with self.database.read() as connection:
            return [(key, purpose) for key, purpose in connection.execute(query)]

    def answered(self, comparison_ids: Sequence[str]) -> set[str]:
        """Which of these comparisons somebody has answered."""
        with self.database.read() as connection:
            return records.answered_among(connection, comparison_ids)

    def first_answers(self, after: int, up_to: int) -> list[FirstAnswer]:
        """First answers whose sequence number is after one and not after another: the next of them, none at the end."""
        with self.database.read() as connection:
            return records.first_answers(connection, after, up_to)

    def unlabelled(self) -> list[Comparison]:
        """The comparisons that nobody has answered, in order of id."""
        answer = exists().where(labels.c.comparison_id == comparisons.c.id, labels.c.choice != WITHDRAWN)
        query = records.comparison_query().where(~answer)
        decoder = RowDecoder()
        with self.database.read() as connection:
            return [decoder.comparison(row) for row in connection.execute(query)]

    def watermark(self, up_to_round: int | None = None) -> int:
        """The sequence number of the newest label (of comparisons up to a round), 0 if there is none."""
        with self.database.read() as connection:
            return records.watermark(connection, up_to_round)

    def seal(self, seal: LabelSeal, up_to: int | None = None) -> None:
        """Have a seal take the labels that it has not taken yet, up to one or all that there are."""
        with self.database.read() as connection:
            last = records.watermark(connection) if up_to is None else up_to
            seal.take(lambda values: connection.execute(text(SEALED), values), last)

    def labels_by_labeller(self, watermark: int | None = None) -> dict[str, int]:
        """How many comparisons each labeller has answered, by name; an answer that was taken back does not count.

        With a `watermark` as it was then: what was said after it does not count, nor does it take anything back.
        """
        until = true() if watermark is None else labels.c.seq <= watermark
        later = labels.alias("later")
        newer = exists().where(
            later.c.comparison_id == labels.c.comparison_id,
            later.c.labeller == labels.c.labeller,
            later.c.ordinal > labels.c.ordinal,
            true() if watermark is None else later.c.seq <= watermark,
        )
        query = (
            select(labels.c.labeller, func.count())
            .where(labels.c.choice != WITHDRAWN, until, ~newer)
            .group_by(labels.c.labeller)
            .order_by(labels.c.labeller)
        )
        with self.database.read() as connection:
            return {str(name): int(count) for name, count in connection.execute(query)}

    def counts(self) -> StoreCounts:
        """How many comparisons and labels there are."""
        with self.database.read() as connection:
            rows = [connection.execute(select(func.count()).select_from(t)).scalar_one() for t in (comparisons, labels)]
        return StoreCounts(*rows)


def insert_labels(connection: Connection, items: Sequence[Label]) -> int:
    """What `PreferenceStore.add_labels` does, within the transaction of a caller who has more to write."""
    choices_of: dict[tuple[str, str], list[str]] = {}
    for item in items:
        _check_name("comparison id", item.comparison_id, NAME_LENGTH)
        _check_name("labeller", item.labeller, NAME_LENGTH)
        choices = choices_of.setdefault((item.comparison_id, item.labeller), [])
        if not choices or choices[-1] != item.choice:
            choices.append(Choice(item.choice).value)
    return _append(connection, choices_of)


def withdraw_label(connection: Connection, comparison_id: str, labeller: str) -> int:
    """Say that a labeller takes back what they said of a comparison; what they said stays on record."""
    return _append(connection, {(comparison_id, labeller): [WITHDRAWN]})


def _append(connection: Connection, choices_of: Mapping[tuple[str, str], list[str]]) -> int:
    now = datetime.now(UTC)
    rows: list[dict[str, Any]] = []
    history = _label_history(connection, list(dict.fromkeys(key for key, _ in choices_of)))
    for (comparison_id, labeller), choices in choices_of.items():
        past = history.get((comparison_id, labeller), [])
        for ordinal, choice in enumerate(choices[_overlap(past, choices) :], start=len(past)):
            rows.append(
                {
                    "comparison_id": comparison_id,
                    "labeller": labeller,
                    "choice": choice,
                    "ordinal": ordinal,
                    "created_at": now,
                }
            )
    _insert(connection, labels, rows)
    return len(rows)


def _check_comparison(item: Comparison) -> None:
    _check_name("comparison id", item.id, NAME_LENGTH)
    if item.run:
        _check_name("run", item.run, NAME_LENGTH)
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


def _comparison_row(item: Comparison) -> dict[str, Any]:
    a, b = response_hash(item.a), response_hash(item.b)
    return {
        "id": item.id, "prompt": item.prompt, "a": a, "b": b, "round": item.round, "purpose": item.purpose,
        "run": item.run, "repeats": item.repeats,
    }  # fmt: skip


def _check_same(stored: dict[str, Any], row: dict[str, Any]) -> None:
    if stored != row:
        raise HoldfastError(
            f"Comparison {row['id']} is already there with another prompt, responses, round or purpose; "
            "a comparison never changes, so give the new one an id of its own."
        )


def _overlap(past: list[str], choices: list[str]) -> int:
    """How many of the first choices repeat the end of the past: a list that is sent again overlaps wholly."""
    longest = min(len(past), len(choices))
    return next(n for n in range(longest, -1, -1) if past[len(past) - n :] == choices[:n])


def _insert(connection: Connection, table: Any, rows: list[dict[str, Any]]) -> None:
    # SQLAlchemy takes an empty list for one row of defaults.
    if rows:
        connection.execute(insert(table), rows)


def _label_history(connection: Connection, comparison_ids: Sequence[str]) -> dict[tuple[str, str], list[str]]:
    """All answers to these comparisons so far, oldest first, by comparison and labeller."""
    # Through the comparisons' primary key: a server without statistics on labels would scan them key by key.
    query = (
        select(comparisons.c.id, labels.c.labeller, labels.c.choice)
        .select_from(comparisons.outerjoin(labels))
        .order_by(labels.c.ordinal)
    )
    history: dict[tuple[str, str], list[str]] = {}
    unknown = set(comparison_ids)
    for key, labeller, choice in select_in(connection, query, comparisons.c.id, comparison_ids):
        unknown.discard(key)
        if labeller is not None:
            history.setdefault((key, labeller), []).append(choice)
    if unknown:
        raise HoldfastError(f"A label answers comparison {min(unknown)!r}, which is not in the store; add that first.")
    return history


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
