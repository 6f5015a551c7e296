"""Rows of the store as comparisons and labels. Equal parts of a large result are one object, not many.

Everything is read in pages or by key, so that no query has more to do because the store has grown elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Column, Connection, Select, exists, select

from holdfast.preferences.comparison import (
    Choice,
    Comparison,
    Label,
    LabelledComparison,
    Provenance,
    Purpose,
    Response,
)
from holdfast.preferences.schema import WITHDRAWN, comparisons, labels, responses

KEYS_PER_QUERY = 1000  # well under every database's limit of parameters
PAGE = 4000  # labels read at once

_COMPARISON_COLUMNS = ("id", "prompt", "round", "purpose", "run", "repeats")
_RESPONSE_COLUMNS = ("text", "policy_version", "round", "seed", "token_ids", "finished")
_side_a = responses.alias("side_a")
_side_b = responses.alias("side_b")
_earlier = labels.alias("earlier")
_later = labels.alias("later")

NewestAnswers = dict[str, dict[str, Choice]]


class FirstAnswer(NamedTuple):
    """A labeller's first answer to a comparison; `opens` if nobody had answered it before."""

    seq: int
    comparison_id: str
    round: int
    purpose: Purpose
    run: str
    opens: bool


class RowDecoder:
    """Makes comparisons of rows, and keeps what repeats (tokens, words, provenances) once for all of them."""

    def __init__(self) -> None:
        self._words: dict[Any, Any] = {}
        self._origins: dict[tuple[str, int, int], Provenance] = {}

    def comparison(self, row: Sequence[Any]) -> Comparison:
        comparison_id, prompt, number, purpose, run, repeats, *sides = row
        width = len(_RESPONSE_COLUMNS)
        a, b = self._response(*sides[:width]), self._response(*sides[width:])
        return Comparison(comparison_id, prompt, a, b, number, self._known(purpose), self._known(run), repeats)

    def _known(self, word: Any) -> Any:
        return self._words.setdefault(word, word)

    def _response(
        self, text: str, policy_version: str, number: int, seed: int, token_ids: list[int] | None, finished: bool
    ) -> Response:
        origin = self._origins.get((policy_version, number, seed))
        if origin is None:
            origin = self._origins.setdefault((policy_version, number, seed), Provenance(policy_version, number, seed))
        known = self._words.setdefault
        tokens = None if token_ids is None else tuple([known(token, token) for token in token_ids])
        return Response(text, origin, tokens, finished)


def watermark(connection: Connection, up_to_round: int | None = None) -> int:
    """The sequence number of the newest label (of comparisons up to a round), 0 if there is none."""
    newest = select(labels.c.seq).order_by(labels.c.seq.desc()).limit(1)
    if up_to_round is not None:
        # Looked up label by label from the newest back, and nearly always the first one is of an early enough round.
        asked = exists().where(comparisons.c.id == labels.c.comparison_id, comparisons.c.round <= up_to_round)
        newest = newest.where(asked)
    return int(connection.execute(newest).scalar() or 0)


def comparison_query(up_to_round: int | None = None) -> Select[Any]:
    """Comparisons with both of their responses, in order of id."""
    sides = [side.c[name] for side in (_side_a, _side_b) for name in _RESPONSE_COLUMNS]
    query = (
        select(*(comparisons.c[name] for name in _COMPARISON_COLUMNS), *sides)
        .join(_side_a, comparisons.c.a == _side_a.c.id)
        .join(_side_b, comparisons.c.b == _side_b.c.id)
        .order_by(comparisons.c.id)
    )
    return query if up_to_round is None else query.where(comparisons.c.round <= up_to_round)


def select_in(connection: Connection, query: Select[Any], column: Column[Any], keys: Sequence[str]) -> Iterator[Any]:
    """The rows whose column is one of the keys, asked for in batches."""
    for start in range(0, len(keys), KEYS_PER_QUERY):
        yield from connection.execute(query.where(column.in_(keys[start : start + KEYS_PER_QUERY])))


def _answer_query(up_to: int) -> Select[Any]:
    """All answers up to a watermark, by comparison and labeller, the newest of each last."""
    return (
        select(labels.c.comparison_id, labels.c.labeller, labels.c.choice)
        .where(labels.c.seq <= up_to)
        .order_by(labels.c.comparison_id, labels.c.labeller, labels.c.ordinal)
    )


def _newest(rows: Iterator[Any]) -> NewestAnswers:
    """What counts of each labeller; who has taken an answer back says nothing, and an id may be left with none."""
    newest: NewestAnswers = {}
    for comparison_id, labeller, choice in rows:
        answers = newest.setdefault(comparison_id, {})
        if choice == WITHDRAWN:
            answers.pop(labeller, None)
        else:
            answers[labeller] = Choice(choice)
    return newest


def answers_after(connection: Connection, after: str, up_to: int, page: int = PAGE) -> tuple[NewestAnswers, bool]:
    """The newest answers to the comparisons that come next in order of id, and whether these are the last."""
    rows = connection.execute(_answer_query(up_to).where(labels.c.comparison_id > after).limit(page)).all()
    if len(rows) < page:
        return _newest(iter(rows)), True
    # The page may end in the middle of the answers to a comparison; that one begins the next page.
    cut = rows[-1].comparison_id
    whole = [row for row in rows if row.comparison_id != cut]
    if not whole:
        return answers_after(connection, after, up_to, 2 * page)
    return _newest(iter(whole)), False


def answers_to(connection: Connection, keys: Sequence[str], up_to: int) -> NewestAnswers:
    """The newest answers to these comparisons."""
    # Through the comparisons' primary key: a server without statistics on labels would scan them key by key.
    query = _answer_query(up_to).join(comparisons, labels.c.comparison_id == comparisons.c.id)
    return _newest(select_in(connection, query, comparisons.c.id, keys))


def answered_among(connection: Connection, keys: Sequence[str]) -> set[str]:
    """Which of these comparisons have a label that has not been taken back."""
    replaced = exists().where(
        _later.c.comparison_id == labels.c.comparison_id,
        _later.c.labeller == labels.c.labeller,
        _later.c.ordinal > labels.c.ordinal,
    )
    counts = exists().where(labels.c.comparison_id == comparisons.c.id, labels.c.choice != WITHDRAWN, ~replaced)
    query = select(comparisons.c.id).where(counts)
    return {key for (key,) in select_in(connection, query, comparisons.c.id, keys)}


def between(first: str, last: str, up_to: int, up_to_round: int | None) -> Select[Any]:
    """The answered comparisons from one id to another."""
    answered = select(labels.c.comparison_id).where(
        labels.c.seq <= up_to, labels.c.comparison_id >= first, labels.c.comparison_id <= last
    )
    query = comparison_query(up_to_round).where(comparisons.c.id >= first, comparisons.c.id <= last)
    return query.where(comparisons.c.id.in_(answered))


def with_answers(
    rows: Iterator[Any], answers: NewestAnswers, decoder: RowDecoder, weights: Mapping[str, float]
) -> Iterator[LabelledComparison]:
    """Comparisons joined with the labels that count, each with its labeller's weight; where none counts, nothing."""
    for row in rows:
        item = decoder.comparison(row)
        counted = tuple(
            [
                Label(item.id, name, choice, weight)
                for name, choice in answers[item.id].items()
                if (weight := weights.get(name, 1.0)) > 0.0
            ]
        )
        if counted:
            yield LabelledComparison(item, counted)


def first_answers(connection: Connection, after: int, up_to: int) -> list[FirstAnswer]:
    """The next page of first answers in the order in which they came."""
    opens = ~exists().where(_earlier.c.comparison_id == labels.c.comparison_id, _earlier.c.seq < labels.c.seq)
    query = (
        select(
            labels.c.seq, labels.c.comparison_id, comparisons.c.round, comparisons.c.purpose, comparisons.c.run, opens
        )
        .join(comparisons, labels.c.comparison_id == comparisons.c.id)
        .where(labels.c.seq > after, labels.c.seq <= up_to, labels.c.ordinal == 0)
        .order_by(labels.c.seq)
        .limit(PAGE)
    )
    return [FirstAnswer._make((*row[:-1], bool(row[-1]))) for row in connection.execute(query)]
