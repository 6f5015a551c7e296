"""Preference data, prompts and demonstrations from and to JSONL and Parquet files.

A preference row has `prompt`, `chosen` and `rejected`, in one of three forms:

    plain            all three are strings
    conversational   lists of {"role", "content"} messages; chosen and rejected hold one assistant message
    implicit prompt  chosen and rejected are whole conversations; the prompt is the start that they share

Columns that may come with them: `round` and `labeller` (a name, or a list of names), and for each response
`chosen_policy_version`, `chosen_round`, `chosen_seed` and the same for `rejected`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.garbage import collection_paused
from holdfast.preferences.encoding import content_hash, prompt_json, response_hash
from holdfast.preferences.rows import Change, Row, read_rows, write_rows
from holdfast.preferences.types import (
    Choice,
    Comparison,
    Demonstration,
    Label,
    LabelledComparison,
    Message,
    Prompt,
    Provenance,
    Response,
)

_SEEDS = ("chosen_seed", "rejected_seed")
IMPORTED = "imported"  # the labeller and policy version of data that does not name its own


@dataclass(frozen=True)
class Written:
    """How many comparisons a file got, and how many were left out because they have no winner."""

    written: int
    skipped: int


@collection_paused()
def read_preferences(path: str | Path) -> list[LabelledComparison]:
    """Read preference rows as comparisons with their labels, in the order of the file.

    Ids are hashes of the content and sides follow from the responses alone, so a file imported twice is
    stored once and the side says nothing about the answer. Rows about the same two responses become one
    comparison; if one labeller preferred each of them once, that is a tie.
    """
    found: dict[str, LabelledComparison] = {}
    again: dict[str, dict[str, Choice]] = {}  # the answers to what has more than one row, which is rare
    same: dict[Any, Any] = {}
    for row in read_rows(path):
        comparison, choice = _preference(row, same)
        key, names = comparison.id, row.texts("labeller", IMPORTED)
        if key not in found and len(names) == 1:
            found[key] = LabelledComparison(comparison, (Label(key, names[0], choice),))
            continue
        item = found.setdefault(key, LabelledComparison(comparison, (Label(key, names[0], choice),)))
        known = again.setdefault(key, {label.labeller: label.choice for label in item.labels})
        for labeller in names:
            if known.setdefault(labeller, choice) != choice:
                known[labeller] = Choice.TIE
    for key, answers in again.items():
        labels = tuple(Label(key, name, choice) for name, choice in sorted(answers.items()))
        found[key] = LabelledComparison(found[key].comparison, labels)
    return list(found.values())


def write_preferences(
    path: str | Path,
    labelled: Iterable[LabelledComparison],
    conversational: bool = False,
    overwrite: bool = False,
) -> Written:
    """Write one row for each comparison with a winner, and say how many had none and were left out.

    The winner is the side that more labellers prefer; `labeller` names those who do, and the answers of the
    others are not written. The file appears whole or not at all.
    """
    table = _Table(labelled, conversational)
    rows = iter(table)
    first = next(rows, None)
    if first is None:
        raise HoldfastError(f"There is nothing to write to {path}: no comparison has a winner.")
    write_rows(path, chain([first], rows), overwrite, table.settle)
    return Written(table.written, table.skipped)


def read_prompts(path: str | Path) -> list[Prompt]:
    """Read the `prompt` column of a JSONL or Parquet file, or the lines of a text file that are not blank."""
    return [_prompt(row, row.require("prompt")) for row in read_rows(path, text_column="prompt")]


def read_demonstrations(path: str | Path) -> list[Demonstration]:
    """Read prompts with the answers to imitate: `prompt` and `completion` (or `response`), or `messages`."""
    return [_demonstration(row) for row in read_rows(path)]


def _preference(row: Row, same: dict[Any, Any]) -> tuple[Comparison, Choice]:
    """A row as a comparison and its answer; `same` holds what earlier rows had, so that equal parts are one object."""
    prompt, chosen_text, rejected_text = _prompt_and_answers(row)
    prompt = same.setdefault(prompt, prompt)
    if chosen_text == rejected_text:
        raise row.error("'chosen' and 'rejected' are the same, so there is nothing to learn; remove the row")
    origins = [_provenance(row, side) for side in ("chosen", "rejected")]
    chosen, rejected = (
        Response(text, same.setdefault(origin, origin))
        for text, origin in zip((chosen_text, rejected_text), origins, strict=True)
    )
    hashes = {"chosen": response_hash(chosen), "rejected": response_hash(rejected)}
    number = row.integer("round", 0)
    # Hashed without regard to order. A bit of this hash, not the order of the two others, picks the sides: an
    # answer that a data set rejects for every prompt would otherwise always stand on the same side.
    key = content_hash([prompt_json(prompt), sorted(hashes.values()), number])
    smaller_is_a = int(key[-1], 16) % 2 == 0
    chosen_is_a = (hashes["chosen"] < hashes["rejected"]) == smaller_is_a
    a, b = (chosen, rejected) if chosen_is_a else (rejected, chosen)
    return Comparison(key, prompt, a, b, number), Choice.A if chosen_is_a else Choice.B


def _prompt_and_answers(row: Row) -> tuple[Prompt, str, str]:
    """Take a row of any of the three forms apart."""
    chosen, rejected = row.require("chosen"), row.require("rejected")
    if isinstance(chosen, str) and isinstance(rejected, str):
        return _prompt(row, row.require("prompt")), chosen, rejected
    if isinstance(chosen, str) or isinstance(rejected, str):
        raise row.error("'chosen' and 'rejected' must both be strings or both be lists of messages")
    chosen_turns = _messages(row, "chosen", chosen)
    rejected_turns = _messages(row, "rejected", rejected)
    given = row.get("prompt")
    prompt = None if given is None else _prompt(row, given)
    if prompt is not None and len(chosen_turns) == len(rejected_turns) == 1:
        return prompt, _answer(row, "chosen", chosen_turns), _answer(row, "rejected", rejected_turns)
    shared = _shared_turns(chosen_turns, rejected_turns)
    if chosen_turns == rejected_turns:
        raise row.error("'chosen' and 'rejected' are the same, so there is nothing to learn; remove the row")
    if not shared:
        raise row.error("'chosen' and 'rejected' do not begin with the same messages, so the prompt is not clear")
    if prompt is not None and prompt != shared and prompt not in [turn.content for turn in shared]:
        raise row.error("'prompt' is not what 'chosen' and 'rejected' have in common; leave that column out")
    rest = len(shared)
    return (
        shared,
        _answer(row, "chosen", chosen_turns[rest:]),
        _answer(row, "rejected", rejected_turns[rest:]),
    )


def _shared_turns(first: Sequence[Message], second: Sequence[Message]) -> tuple[Message, ...]:
    """The longest common prefix of two conversations."""
    length = 0
    while length < min(len(first), len(second)) and first[length] == second[length]:
        length += 1
    return tuple(first[:length])


def _answer(row: Row, column: str, turns: Sequence[Message]) -> str:
    """The text of the assistant's one message."""
    if len(turns) != 1 or turns[0].role != "assistant":
        raise row.error(f"'{column}' must hold exactly one answer of the assistant after the prompt")
    return turns[0].content


def _prompt(row: Row, value: Any) -> Prompt:
    prompt = value if isinstance(value, str) else _messages(row, "prompt", value)
    if not prompt:
        raise row.error("'prompt' is empty")
    return prompt


def _messages(row: Row, column: str, value: Any) -> tuple[Message, ...]:
    wrong = row.error(f"'{column}' must be a string, or a list of messages with 'role' and 'content' as strings")
    if not isinstance(value, list):
        raise wrong
    turns = []
    for turn in value:
        role, content = (turn.get("role"), turn.get("content")) if isinstance(turn, dict) else (None, None)
        if not isinstance(role, str) or not isinstance(content, str):
            raise wrong
        turns.append(Message(role, content))
    return tuple(turns)


def _provenance(row: Row, side: str) -> Provenance:
    return Provenance(
        policy_version=row.text(f"{side}_policy_version", IMPORTED),
        round=row.integer(f"{side}_round", 0),
        seed=row.integer(f"{side}_seed", 0),
    )


def _demonstration(row: Row) -> Demonstration:
    names = [name for name in ("completion", "response", "messages") if row.get(name) is not None]
    if len(names) != 1:
        found = " and ".join(f"'{name}'" for name in names) or "none of them"
        raise row.error(f"must have one of 'completion', 'response' or 'messages', and has {found}")
    value = row.require(names[0])
    if names[0] == "messages":
        # A `prompt` beside it is not read: data sets of conversations often repeat the first question there.
        turns = _messages(row, "messages", value)
        if len(turns) < 2:
            raise row.error("'messages' must hold a prompt and an answer")
        return Demonstration(turns[:-1], _answer(row, "messages", turns[-1:]))
    prompt = _prompt(row, row.require("prompt"))
    if isinstance(value, str):
        return Demonstration(prompt, value)
    return Demonstration(prompt, _answer(row, names[0], _messages(row, names[0], value)))


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

    def settle(self) -> Change | None:
        """What is left to do to every row, once all have been seen."""
        if not self._lists and not self._long_seeds:
            return None

        def change(row: dict[str, Any]) -> dict[str, Any]:
            if self._lists and isinstance(row["labeller"], str):
                row = row | {"labeller": [row["labeller"]]}
            return row | {name: str(row[name]) for name in _SEEDS} if self._long_seeds else row

        return change
