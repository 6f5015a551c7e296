"""What can be wrong with data: every kind by name, how much it matters, and where it was found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.errors import HoldfastError
from holdfast.text import counted

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class ProblemKind:
    """An error stops a run. A row with a warning is used, or left out by a rule that the warning names."""

    severity: Severity
    meaning: str


def _kinds(severity: Severity, meanings: dict[str, str]) -> dict[str, ProblemKind]:
    return {name: ProblemKind(severity, meaning) for name, meaning in meanings.items()}


KINDS = _kinds(
    "error",
    {
        "unreadable": "the file is missing, cannot be opened, or has neither known content nor a known extension",
        "empty_file": "no row at all",
        "wrong_file": "a zip archive, bzip2, xz or UTF-16, or something packed twice",
        "damaged_file": "a packed file that is cut off or cannot be unpacked to its end",
        "unknown_format": "columns of no format that is known",
        "not_utf8": "a line in another encoding",
        "bom_inside": "a byte-order mark at the start of a later line, as where files were joined",
        "line_too_long": "a line or row of more than 64 MiB",
        "not_json": "a line that is not JSON, or is nested too deeply",
        "truncated": "the file ends in the middle of its last row",
        "python_quotes": "Python instead of JSON: single quotes, None, True, False",
        "trailing_comma": "a comma before a closing bracket, or after the row",
        "two_rows": "more than one JSON value in a line",
        "raw_control": "a raw tab or other control character inside a JSON text",
        "wrong_cells": "a line of CSV with more or fewer cells than its header",
        "bad_quotes": "a quote in CSV that does not end where its cell does, or never",
        "repeated_key": "one column twice in a row",
        "not_object": "JSON, but not an object with named columns",
        "missing_column": "a column that is needed is not there",
        "null_value": "a column that is needed is null",
        "wrong_type": "a number, a list or something else in place of a text",
        "not_a_dialogue": "an hh-rlhf text without `Human:` and `Assistant:` turns, or with text before the first",
        "no_scores": "fewer than two completions with a score, or all with the same",
        "empty_prompt": "a prompt without a visible character",
        "empty_demonstration": "an answer to imitate without a visible character",
        "lone_surrogate": "half a character (`\\ud83d`), which no tokenizer takes",
        "unknown_role": "a role that is not system, developer, user, assistant or tool",
        "empty_message": "a turn of the prompt without a visible character",
        "ends_with_assistant": "a prompt whose last turn is the assistant's",
        "no_answer": "not exactly one answer of the assistant after the prompt",
        "same_answers": "`chosen` and `rejected` are the same",
        "different_prompts": "`chosen` and `rejected` begin with different messages",
        "prompt_mismatch": "`prompt` is not what `chosen` and `rejected` have in common",
        "two_answers": "more than one column with an answer",
        "label_not_boolean": "a `label` that is not true or false",
        "no_pairs": "labelled answers, and no prompt with both a good and a bad one",
        "template_refuses": "the tokenizer's chat template raises for this conversation",
        "beyond_context": "more tokens than the policy's context has room for",
        "nothing_left": "nothing to train on once held-out prompts and limits are taken off",
    },
) | _kinds(
    "warning",
    {
        "bom": "a byte-order mark at the start of the file, which other programs stumble over",
        "control_characters": "NUL or another control character in a text",
        "empty_answer": "an answer without a visible character",
        "prompt_in_answer": "an answer that begins with its prompt",
        "starts_with_assistant": "a conversation whose first turn is neither system's nor the user's",
        "role_twice": "two turns of one role in a row",
        "system_inside": "a system turn that is not the first",
        "duplicate": "the same row again",
        "contradiction": "one labeller preferred each of two answers once; a run takes that as a tie",
        "too_short": "shorter than the limit; a run with that limit leaves it out",
        "too_long": "longer than the limit; a run with that limit leaves it out",
        "misspelt_column": "a column that is nearly one that is read",
        "mixed_forms": "plain and conversational rows in one file",
        "heldout_trains": "a held-out prompt among the training data; a run leaves it out of training",
        "unpaired": "labelled answers without a counterpart to the same prompt, which are left out",
        "unbalanced_length": "the chosen answer is the longer one (or the shorter) nearly always",
        "unbalanced_labels": "nearly all labels are the same",
    },
)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where. `line` is 0 for the file as a whole."""

    source: str
    line: int
    kind: str
    text: str
    unit: Literal["line", "row"] = "line"
    ends: bool = False  # nothing more can be read of this file
    row: Any = field(default=None, compare=False, repr=False)  # what stands there, for the file of what is left out

    @property
    def severity(self) -> Severity:
        return KINDS[self.kind].severity

    @property
    def of_a_row(self) -> bool:
        """Whether leaving out one row would mend it."""
        return self.severity == "error" and self.line > 0 and not self.ends

    def shown(self) -> str:
        """FILE:LINE: what is wrong and what to do, as editors and compilers have it."""
        place = f"{self.source}:{self.line}" if self.line else self.source
        return f"{place}: {self.severity}: {self.text} [{self.kind}]"

    def sentence(self) -> str:
        return f"{self.source}, {self.unit} {self.line}: {self.text}" if self.line else f"{self.source} {self.text}"


class BadData(HoldfastError):
    """Data that cannot be used: the first problem, and how many more there are."""

    def __init__(self, problem: Problem, more: int = 0) -> None:
        rest = (
            f"; {counted(more, 'more problem')} after it: `holdfast data check {problem.source}` lists all"
            if more
            else ""
        )
        super().__init__(f"{problem.sentence()}{rest}.")
        self.problem = problem


class Findings:
    """Problems as they are found: all are counted, the first of each kind are kept, so that memory stays bounded."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self.kept: list[Problem] = []
        self.counts: Counter[str] = Counter()
        self.forgiven = 0  # errors in rows that may be left out

    def add(self, problem: Problem) -> None:
        self.counts[problem.kind] += 1
        if self.counts[problem.kind] <= self._keep:
            self.kept.append(problem)

    def number(self, severity: Severity) -> int:
        number = sum(count for kind, count in self.counts.items() if KINDS[kind].severity == severity)
        return number - self.forgiven if severity == "error" else number
