"""Preference data, prompts and demonstrations from files and data sets, and preferences to files.

A preference row has `prompt`, `chosen` and `rejected`, in one of three forms:

    plain            all three are strings
    conversational   lists of {"role", "content"} messages; chosen and rejected hold one assistant message
    implicit prompt  chosen and rejected are whole conversations; the prompt is the start that they share

Rows with `prompt`, `completion` and a boolean `label` are unpaired: the n-th good and the n-th bad answer to a prompt
are made a pair, and what has no counterpart is left out. Other formats become one of these: see `foreign`.

Columns that may come with them: `round` and `labeller` (a name, or a list of names), and for each response
`chosen_policy_version`, `chosen_round`, `chosen_seed` and the same for `rejected`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

from holdfast.data.left_out import RowsLeftOut
from holdfast.data.problems import BadData, Problem
from holdfast.data.recognition import OWN, Source
from holdfast.data.rows import Row, RowChange, write_rows
from holdfast.data.turns import answer, messages, question
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Message, Prompt
from holdfast.parallel.garbage import collection_paused
from holdfast.preferences.comparison import (
    Choice,
    Comparison,
    Demonstration,
    Label,
    LabelledComparison,
    PreferencePair,
    Provenance,
    Response,
)
from holdfast.preferences.encoding import content_hash, prompt_json, response_hash

_SEEDS = ("chosen_seed", "rejected_seed")
IMPORTED = "imported"  # the labeller and policy version of data that does not name its own
ANSWERS = ("completion", "response", "messages")
NO_PAIRS = (
    "answers here have a 'label' and no prompt has both a good and a bad one, so there is nothing to compare; "
    "give each prompt one of each, or rows of 'prompt', 'chosen' and 'rejected'"
)
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class RatedAnswer:
    """One answer that somebody found good or bad by itself."""

    prompt: Prompt
    text: str
    good: bool


class Unpaired(Generic[K, V]):
    """Judged answers that wait for a counterpart: the n-th good and the n-th bad answer to a prompt make a pair.

    Prompts and answers are themselves where pairs are wanted, and fingerprints where they are counted.
    """

    def __init__(self) -> None:
        self._waiting: dict[K, tuple[bool, list[V]]] = {}

    def add(self, prompt: K, answer: V, good: bool) -> tuple[V, V] | None:
        """Good and bad of the pair that this answer completes. Two equal answers are no pair, and both are dropped."""
        was_good, waiting = self._waiting.setdefault(prompt, (good, []))
        if was_good == good:
            waiting.append(answer)
            return None
        other = waiting.pop(0)
        if not waiting:
            del self._waiting[prompt]
        if other == answer:
            return None
        return (answer, other) if good else (other, answer)


@dataclass(frozen=True)
class WrittenRows:
    """How many comparisons a file got, and how many were left out because they have no winner."""

    written: int
    skipped: int


@collection_paused()
def read_preferences(source: str | Path, left_out: RowsLeftOut | None = None) -> list[LabelledComparison]:
    """Read preference rows as comparisons with their labels, in the order of the source.

    Ids are hashes of the content and sides follow from the responses alone, so a file imported twice is
    stored once and the side says nothing about the answer. Rows about the same two responses become one
    comparison; if one labeller preferred each of them once, that is a tie.
    """
    by_id: dict[str, LabelledComparison] = {}
    again: dict[str, dict[str, Choice]] = {}  # the answers to what has more than one row, which is rare
    same: dict[Any, Any] = {}
    unpaired: Unpaired[Prompt, str] = Unpaired()
    first_judged: Row | None = None
    for row, pair in read_all(source, lambda row: (row, parse_preference(row)), left_out=left_out):
        if isinstance(pair, RatedAnswer):
            first_judged = first_judged or row
            sides = unpaired.add(pair.prompt, pair.text, pair.good)
            if sides is None:
                continue
            pair = PreferencePair(pair.prompt, *sides)
        comparison, choice = _comparison(row, pair, same)
        key, names = comparison.id, row.texts("labeller", IMPORTED)
        if key not in by_id and len(names) == 1:
            by_id[key] = LabelledComparison(comparison, (Label(key, names[0], choice),))
            continue
        item = by_id.setdefault(key, LabelledComparison(comparison, (Label(key, names[0], choice),)))
        known = again.setdefault(key, {label.labeller: label.choice for label in item.labels})
        for labeller in names:
            if known.setdefault(labeller, choice) != choice:
                known[labeller] = Choice.TIE
    for key, answers in again.items():
        labels = tuple(Label(key, name, choice) for name, choice in sorted(answers.items()))
        by_id[key] = LabelledComparison(by_id[key].comparison, labels)
    if first_judged is not None and not by_id:
        raise BadData(first_judged.problem("no_pairs", NO_PAIRS))
    return list(by_id.values())


def write_preferences(
    path: str | Path,
    labelled: Iterable[LabelledComparison],
    conversational: bool = False,
) -> WrittenRows:
    """Write one row for each comparison with a winner, and say how many had none and were left out.

    The winner is the side that more labellers prefer; `labeller` names those who do, and the answers of the
    others are not written. The file appears whole or not at all.
    """
    table = _Table(labelled, conversational)
    rows = iter(table)
    first = next(rows, None)
    if first is None:
        raise HoldfastError(f"There is nothing to write to {path}: no comparison has a winner.")
    write_rows(path, chain([first], rows), table.settle)
    return WrittenRows(table.written, table.skipped)


def read_prompts(source: str | Path, left_out: RowsLeftOut | None = None) -> list[Prompt]:
    """Read the prompts of a table of any format, or the lines of a text file that are not blank."""
    return [prompt for prompt, _ in read_prompt_rows(source, left_out)]


def read_prompt_rows(source: str | Path, left_out: RowsLeftOut | None = None) -> list[tuple[Prompt, dict[str, Any]]]:
    """The same, each prompt with the other columns of its row, which a reward may read."""

    def parse(row: Row) -> tuple[Prompt, dict[str, Any]]:
        return parse_prompt(row), row.besides("prompt")

    return list(read_all(source, parse, text_column="prompt", left_out=left_out))


def read_demonstrations(source: str | Path, left_out: RowsLeftOut | None = None) -> list[Demonstration]:
    """Read prompts with the answers to imitate: `prompt` and `completion` (or `response`), or `messages`."""
    return list(read_all(source, parse_demonstration, left_out=left_out))


def read_all(
    source: str | Path | Source,
    parse: Callable[[Row], T],
    text_column: str | None = None,
    left_out: RowsLeftOut | None = None,
) -> Iterator[T]:
    """What `parse` makes of each row. Where one is wrong, the rest is gone through to say how many more are.

    Rows that may be left out are, as long as they are few; which comes to light at the end.
    """
    rows = source if isinstance(source, Source) else Source(source, text_column)
    left_out = left_out or RowsLeftOut(0.0)
    first = lost_first = None
    more = lost = number = 0
    try:
        for scanned in rows:
            try:
                if isinstance(scanned, Problem):
                    problem = scanned
                else:
                    number += 1
                    item = parse(scanned)
                    if first is None:
                        yield item
                    continue
            except BadData as error:
                problem = error.problem
            if problem.severity == "warning":
                continue
            number += isinstance(scanned, Problem)
            if left_out.add(problem):
                lost_first, lost = lost_first or problem, lost + 1
                continue
            first, more = (problem, 0) if first is None else (first, more + 1)
            if problem.ends:
                break
    except HoldfastError:
        if first is None:
            raise
        more += 1
    if first is not None:
        raise BadData(first, more)
    if rows.recognised is not None and rows.recognised.format is not OWN:
        left_out.notes.append(f"{rows.source} is read as {rows.recognised.words}.")
    left_out.settle(rows.source, lost_first, lost, number)


def parse_prompt(row: Row) -> Prompt:
    """The prompt of a row of any kind: its own column, or what stands before the answers."""
    if row.get("prompt") is None and isinstance(row.get("messages"), list):
        return question(row, "messages", _unanswered(messages(row, "messages", row.get("messages"))))
    if row.get("prompt") is None and isinstance(row.get("chosen"), list) and row.get("rejected") is not None:
        sides = (messages(row, side, row.get(side)) for side in ("chosen", "rejected"))
        return question(row, "chosen", _unanswered(_shared(row, *sides)))
    return _prompt(row, row.require("prompt"))


def parse_preference(row: Row) -> PreferencePair | RatedAnswer:
    """A row of any of the forms, taken apart and checked."""
    if row.get("chosen") is None and row.get("completion") is not None and "label" in row.values:
        return _judged(row)
    pair = _pair(row)
    if pair.chosen == pair.rejected:
        raise _same_answers(row)
    for side in ("chosen", "rejected"):
        row.text(f"{side}_policy_version", IMPORTED)
        row.integer(f"{side}_round", 0)
        row.integer(f"{side}_seed", 0)
    row.integer("round", 0)
    row.texts("labeller", IMPORTED)
    return pair


def _comparison(row: Row, pair: PreferencePair, same: dict[Any, Any]) -> tuple[Comparison, Choice]:
    """A pair as a comparison and its answer; `same` holds what earlier rows had, so that equal parts are one object."""
    prompt = same.setdefault(pair.prompt, pair.prompt)
    origins = [_provenance(row, side) for side in ("chosen", "rejected")]
    chosen, rejected = (
        Response(text, same.setdefault(origin, origin))
        for text, origin in zip((pair.chosen, pair.rejected), origins, strict=True)
    )
    hashes = {"chosen": response_hash(chosen), "rejected": response_hash(rejected)}
    number = row.integer("round", 0)
    # Hashed without regard to order. A bit of this hash, not the order of the two others, picks the sides: an
    # answer that a data set rejects for every prompt would otherwise always stand on the same side.
    key = content_hash([prompt_json(prompt), sorted(hashes.values()), number])
    smaller_is_a = int(key[-1], 16) % 2 == 0
    chosen_is_a = (hashes["chosen"] < hashes["rejected"]) == smaller_is_a
    a, b = (chosen, rejected) if chosen_is_a else (rejected, chosen)
    return Comparison(key, prompt, a, b, number, "imported"), Choice.A if chosen_is_a else Choice.B


def _pair(row: Row) -> PreferencePair:
    """Take a row of any of the three forms apart."""
    chosen, rejected = row.require("chosen"), row.require("rejected")
    if isinstance(chosen, str) and isinstance(rejected, str):
        return PreferencePair(
            _prompt(row, row.require("prompt")), row.sound("chosen", chosen), row.sound("rejected", rejected)
        )
    if isinstance(chosen, str) or isinstance(rejected, str):
        raise row.error("wrong_type", f"{_sides(row)} must both be strings or both be lists of messages")
    chosen_turns = messages(row, "chosen", chosen)
    rejected_turns = messages(row, "rejected", rejected)
    asked = row.get("prompt")
    prompt = None if asked is None else _prompt(row, asked)
    if prompt is not None and len(chosen_turns) == len(rejected_turns) == 1:
        return PreferencePair(prompt, answer(row, "chosen", chosen_turns), answer(row, "rejected", rejected_turns))
    if chosen_turns == rejected_turns:
        raise _same_answers(row)
    shared = _shared(row, chosen_turns, rejected_turns)
    if prompt is not None and prompt != shared and prompt not in [turn.content for turn in shared]:
        raise row.error(
            "prompt_mismatch", "'prompt' is not what 'chosen' and 'rejected' have in common; leave that column out"
        )
    rest = len(shared)
    sides = answer(row, "chosen", chosen_turns[rest:]), answer(row, "rejected", rejected_turns[rest:])
    return PreferencePair(question(row, "chosen", shared), *sides)


def _same_answers(row: Row) -> BadData:
    what = f"{_sides(row)} are the same, so there is nothing to learn; remove the row"
    return row.error("same_answers", what)


def _sides(row: Row) -> str:
    """The names of the columns with the two answers, or of the one that has both."""
    names = dict.fromkeys(row.name(side) for side in ("chosen", "rejected"))
    return (
        " and ".join(f"'{name}'" for name in names)
        if len(names) > 1
        else f"the best and the worst of '{row.name('chosen')}'"
    )


def _judged(row: Row) -> RatedAnswer:
    label = row.require("label")
    if not isinstance(label, bool):
        raise row.error(
            "label_not_boolean", f"'label' is {label!r:.40}; write true for a good answer and false for a bad one"
        )
    return RatedAnswer(_prompt(row, row.require("prompt")), _text_or_answer(row, "completion"), label)


def _shared(row: Row, first: Sequence[Message], second: Sequence[Message]) -> tuple[Message, ...]:
    """The longest common beginning of two conversations."""
    length = 0
    while length < min(len(first), len(second)) and first[length] == second[length]:
        length += 1
    if not length:
        raise row.error(
            "different_prompts",
            f"{_sides(row)} do not begin with the same messages, so the prompt is not clear",
        )
    return tuple(first[:length])


def _unanswered(turns: Sequence[Message]) -> Sequence[Message]:
    """A conversation without the answer at its end."""
    return turns[:-1] if turns and turns[-1].role == "assistant" else turns


def _prompt(row: Row, value: Any) -> Prompt:
    if isinstance(value, str):
        if not value or value.isspace():
            raise row.error("empty_prompt", f"'{row.name('prompt')}' is empty; write one or remove the row")
        return row.sound("prompt", value)
    return question(row, "prompt", messages(row, "prompt", value))


def _text_or_answer(row: Row, column: str) -> str:
    value = row.require(column)
    if isinstance(value, str):
        return row.sound(column, value)
    return answer(row, column, messages(row, column, value))


def _provenance(row: Row, side: str) -> Provenance:
    return Provenance(
        policy_version=row.text(f"{side}_policy_version", IMPORTED),
        round=row.integer(f"{side}_round", 0),
        seed=row.integer(f"{side}_seed", 0),
    )


def parse_demonstration(row: Row) -> Demonstration:
    names = [name for name in ANSWERS if row.get(name) is not None]
    if len(names) != 1:
        present = " and ".join(f"'{name}'" for name in names) or "none of them"
        wrong = f"must have one of 'completion', 'response' or 'messages', and has {present}"
        whole = row.table and not any(name in row.values for name in ANSWERS)
        raise row.error("two_answers" if names else "missing_column", wrong, ends=whole)
    if names[0] == "messages":
        # A `prompt` beside it is not read: data sets of conversations often repeat the first question there.
        turns = messages(row, "messages", row.require("messages"))
        if len(turns) < 2:
            raise row.error("no_answer", f"'{row.name('messages')}' must hold a prompt and an answer")
        response = answer(row, "messages", turns[-1:])
        prompt: Prompt = question(row, "messages", turns[:-1])
    else:
        prompt = _prompt(row, row.require("prompt"))
        response = _text_or_answer(row, names[0])
    if not response or response.isspace():
        what = f"the answer in '{row.name(names[0])}' is empty; write one or remove the row"
        raise row.error("empty_demonstration", what)
    return Demonstration(prompt, response)


def _has_winner(item: LabelledComparison) -> bool:
    return item.share_a != 0.5 and item.comparison.a.text != item.comparison.b.text


def _preference_columns(item: LabelledComparison, conversational: bool) -> dict[str, Any]:
    comparison = item.comparison
    winner = Choice.A if item.share_a > 0.5 else Choice.B
    chosen, rejected = comparison.a, comparison.b
    if winner is Choice.B:
        chosen, rejected = rejected, chosen
    prompt = comparison.prompt
    if not conversational and not isinstance(prompt, str):
        raise HoldfastError(
            f"The prompt of comparison {comparison.id} is a conversation, which a plain file cannot hold; "
            "write it with conversational=True (--conversational)."
        )
    if conversational and isinstance(prompt, str):
        prompt = (Message("user", prompt),)
    columns: dict[str, Any] = {"prompt": prompt_json(prompt)}
    for side, response in (("chosen", chosen), ("rejected", rejected)):
        answer = prompt_json((Message("assistant", response.text),)) if conversational else response.text
        columns[side] = answer
    columns["labeller"] = [label.labeller for label in item.labels if label.choice is winner]
    columns["round"] = comparison.round
    for side, response in (("chosen", chosen), ("rejected", rejected)):
        columns[f"{side}_policy_version"] = response.provenance.policy_version
        columns[f"{side}_round"] = response.provenance.round
        columns[f"{side}_seed"] = response.provenance.seed
    return columns


class _Table:
    """The rows of a file, made one by one, with one type for each column at the end.

    A labeller is a name alone unless a row has several, and seeds are numbers unless one passes 64 bits.
    """

    def __init__(self, labelled: Iterable[LabelledComparison], conversational: bool) -> None:
        self._labelled, self._conversational = labelled, conversational
        self.written, self.skipped = 0, 0
        self._lists, self._long_seeds = False, False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for item in self._labelled:
            if not _has_winner(item):
                self.skipped += 1
                continue
            row = _preference_columns(item, self._conversational)
            self.written += 1
            self._long_seeds |= not all(-(2**63) <= row[name] < 2**63 for name in _SEEDS)
            if len(row["labeller"]) == 1:
                (row["labeller"],) = row["labeller"]
            else:
                self._lists = True
            yield row

    def settle(self) -> RowChange | None:
        """What is left to do to every row, once all have been seen."""
        if not self._lists and not self._long_seeds:
            return None

        def change(row: dict[str, Any]) -> dict[str, Any]:
            if self._lists and isinstance(row["labeller"], str):
                row = row | {"labeller": [row["labeller"]]}
            return row | {name: str(row[name]) for name in _SEEDS} if self._long_seeds else row

        return change
