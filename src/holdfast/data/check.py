"""Going through data row by row: what a run would refuse, what is doubtful, and what there is.

Memory does not grow with the texts: for each row there are its lengths and a fingerprint or two. Of each kind of
problem a few are kept, and all are counted.
"""

from __future__ import annotations

import difflib
import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from holdfast.data.fingerprint import fingerprint, prompt_fingerprint
from holdfast.data.fit import BeyondContext, Room
from holdfast.data.formats import (
    ANSWERS,
    IMPORTED,
    NO_PAIRS,
    RatedAnswer,
    Unpaired,
    parse_demonstration,
    parse_preference,
    parse_prompt,
)
from holdfast.data.left_out import within
from holdfast.data.problems import BadData, Findings, Problem
from holdfast.data.recognition import OWN, Source
from holdfast.data.rows import Row
from holdfast.data.splits import ENOUGH_TO_HOLD_ONE_OUT, LengthMeasure, Lengths
from holdfast.data.turns import doubts
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Prompt
from holdfast.preferences.comparison import Demonstration, PreferencePair

DataKind = Literal["prompts", "preferences", "demonstrations"]

COLUMNS: dict[DataKind, tuple[str, ...]] = {
    "prompts": ("prompt",),
    "demonstrations": ("prompt", *ANSWERS),
    "preferences": (
        "prompt", "chosen", "rejected", "completion", "label", "labeller", "round", "chosen_policy_version",
        "chosen_round", "chosen_seed", "rejected_policy_version", "rejected_round", "rejected_seed",
    ),
}  # fmt: skip

# A prompt this short may well begin its answer: "Hello" and "Hello there".
SHORTEST_ECHO = 12
# Rows from which on an imbalance is more than chance, and the share that is too much.
ENOUGH_ROWS, UNBALANCED = 30, 0.9

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LINE_BITS = 40  # a place is a file's number and, in its lower bits, a line


@dataclass
class SourceSummary:
    """What is in one source."""

    source: str
    kind: DataKind | Literal["unknown"]
    heldout_file: bool = False
    rows: int = 0
    usable: int = 0
    beyond_limits: int = 0
    duplicates: int = 0
    prompts: int = 0
    heldout_prompts: int = 0
    read_as: str = ""
    left_out: int = 0
    forms: Counter[str] = field(default_factory=Counter)
    lengths: dict[str, array[int]] = field(default_factory=dict)
    chosen_longer: int = 0
    chosen_shorter: int = 0
    labels: Counter[bool] = field(default_factory=Counter)


class DataCheck:
    """Sources one after the other, which know of each other: duplicates and held-out prompts are found across them."""

    def __init__(
        self,
        limits: Lengths,
        measure: LengthMeasure,
        heldout_share: float,
        findings: Findings,
        room: Room | None = None,
        imitates: bool = True,
        skip_share: float = 0.0,
    ) -> None:
        """`room` is the policy's, if it is known; `imitates` says whether demonstrations train it."""
        self._limits, self._measure, self._room, self._imitates = limits, measure, room, imitates
        self._share, self._below = heldout_share, int(heldout_share * 2**64)
        self._skip_share = skip_share
        self.findings = findings
        self._sources: list[str] = []
        # By fingerprint, where something was first.
        self._rows: dict[DataKind, dict[int, int]] = {}
        self._heldout: dict[int, int] = {}
        self._apart: set[int] = set()  # prompts that the hash holds out

    def check(
        self, source: str, kind: DataKind | None = None, heldout: bool = False, format_name: str | None = None
    ) -> SourceSummary:
        """Go through one source: held-out ones first, then prompts, then answers, as a run reads them."""
        self._sources.append(source)
        checked: _SourceCheck | None = None
        broken = lost = 0
        rows = Source(source, None if kind in ("preferences", "demonstrations") else "prompt", format_name)
        try:
            for item in rows:
                if isinstance(item, Problem):
                    self.findings.add(item)
                    broken += item.severity == "error"
                    lost += item.of_a_row
                    ends = item.ends
                else:
                    checked = checked or self._start(source, kind or kind_of(item), heldout)
                    ends = checked.row(item)
                if ends:
                    break
        except BadData as error:
            self.findings.add(error.problem)
        except HoldfastError as error:
            self.findings.add(Problem(source, 0, "unreadable", str(error).rstrip(".")))
        read_as = rows.recognised.words if rows.recognised and rows.recognised.format is not OWN else ""
        if checked is None:
            return SourceSummary(source, kind or "unknown", heldout, rows=broken, read_as=read_as)
        summary = checked.summary
        summary.rows, summary.read_as, lost = summary.rows + broken, read_as, lost + checked.lost
        if within(lost, summary.rows, self._skip_share):
            summary.left_out = lost
            self.findings.forgiven += lost
        checked.finish()
        return summary

    def _start(self, source: str, kind: DataKind, heldout: bool) -> _SourceCheck:
        rows = {} if heldout else self._rows.setdefault(kind, {})
        return _SourceCheck(self, kind, SourceSummary(source, kind, heldout), len(self._sources) - 1, rows)

    def place(self, code: int) -> str:
        """A place that was kept, as FILE:LINE."""
        return f"{self._sources[code >> _LINE_BITS]}:{code & (2**_LINE_BITS - 1)}"


class _SourceCheck:
    """One source under way."""

    def __init__(
        self, check: DataCheck, kind: DataKind, summary: SourceSummary, number: int, rows: dict[int, int]
    ) -> None:
        self._check, self._kind, self.summary, self._rows = check, kind, summary, rows
        self._first_place = number << _LINE_BITS
        self._prompts: set[int] = set()
        self._columns: set[str] = set(COLUMNS[kind])
        self._unpaired: Unpaired[int, int] = Unpaired()
        self._pairs = 0
        self._first: Row | None = None
        self.lost = 0  # rows that cannot be read, and so may be left out
        self._trains = self._fitting = 0  # what is not held out; what of that is within the limits
        self._smallest = (2**64, False)  # of all prompts the smallest hash, and whether that one is within the limits

    def row(self, row: Row) -> bool:
        """Check one row; true if nothing after it is worth reading."""
        self._first = self._first or row
        self.summary.rows += 1
        try:
            item = parse_as(self._kind, row)
        except BadData as error:
            self.lost += error.problem.of_a_row
            self._check.findings.add(error.problem)
            return error.problem.ends
        prompt, answers = _texts(item)
        key = prompt_fingerprint(prompt)
        apart = self._kind != "prompts" and (key in self._check._apart or key in self._check._heldout)
        try:
            sizes = self._sizes(row, prompt, answers)
            fits = self._note_lengths(row, sizes)
            if fits and not apart:
                self._check_room(row, prompt, answers)
        except BadData as error:
            self._check.findings.add(error.problem)
            return error.problem.ends
        self.summary.usable += 1
        self._note_columns(row)
        self._note_form(row, prompt)
        self._note_texts(row, prompt, answers)
        self._note_prompt(row, key, fits)
        if self._kind != "prompts" and not apart:
            self._trains, self._fitting = self._trains + 1, self._fitting + fits
        self._note_again(row, key, item)
        return False

    def _sizes(self, row: Row, prompt: Prompt, answers: dict[str, str]) -> dict[str, int]:
        measure = self._check._measure
        try:
            sizes = {"prompt": measure.prompt(prompt)}
        except HoldfastError as error:
            if self._kind == "demonstrations" and not self._check._imitates and not self._check._limits.limited:
                return {}  # a run that neither imitates it nor measures it does not ask the template
            raise row.error("template_refuses", str(error).rstrip(".")) from error
        return sizes | {name: measure.answer(text) for name, text in answers.items()}

    def _check_room(self, row: Row, prompt: Prompt, answers: dict[str, str]) -> None:
        """What a run asks before it begins: does the policy take this?"""
        room = self._check._room
        if room is None:
            return
        try:
            if self._kind == "prompts":
                room.check_prompt(prompt)
            elif self._kind == "preferences":
                for text in answers.values():
                    room.check_answer("labelled answer", prompt, text)
            elif self._check._imitates:
                room.check_answer("demonstration", prompt, answers["answer"])
        except BeyondContext as error:
            raise row.error("beyond_context", str(error).rstrip(".")) from error
        except HoldfastError as error:
            raise row.error("template_refuses", str(error).rstrip(".")) from error

    def _add(self, row: Row, kind: str, text: str) -> None:
        self._check.findings.add(row.problem(kind, text))

    def _note_columns(self, row: Row) -> None:
        if row.values.keys() <= self._columns:
            return
        known = COLUMNS[self._kind]
        for name in row.values.keys() - self._columns:
            self._columns.add(name)
            near = difflib.get_close_matches(str(name)[:40].lower(), known, 1, 0.8)
            if near and near[0] not in row.values:
                text = f"'{name[:40]}' is not read; if it should be '{near[0]}', rename it in every row"
                self._add(row, "misspelt_column", text)

    def _note_form(self, row: Row, prompt: Prompt) -> None:
        form = "plain" if isinstance(prompt, str) else "conversational"
        if form not in self.summary.forms and self.summary.forms:
            other = next(iter(self.summary.forms))
            text = f"is {form} where the rows before are {other}; both are read, but a model sees two kinds of prompt"
            self._add(row, "mixed_forms", text)
        self.summary.forms[form] += 1
        if not isinstance(prompt, str):
            for problem in doubts(row, prompt):
                self._check.findings.add(problem)

    def _note_texts(self, row: Row, prompt: Prompt, answers: dict[str, str]) -> None:
        turns = [prompt] if isinstance(prompt, str) else [turn.content for turn in prompt]
        named = [("prompt", text) for text in turns] + list(answers.items())
        for name, text in named:
            if not text.isprintable() and (match := _CONTROL.search(text)):
                code = ord(match.group())
                self._add(
                    row, "control_characters", f"'{row.name(name)}' holds the control character U+{code:04X}; remove it"
                )
        asked = turns[-1].strip()
        for name, text in answers.items():
            if not text or text.isspace():
                self._add(
                    row, "empty_answer", f"'{row.name(name)}' is empty; remove the row unless saying nothing is meant"
                )
            elif len(asked) >= SHORTEST_ECHO and text.lstrip().startswith(asked):
                self._add(row, "prompt_in_answer", f"'{row.name(name)}' begins with its prompt; cut that part off")

    def _note_lengths(self, row: Row, sizes: dict[str, int]) -> bool:
        """Whether all lengths are within the limits."""
        limits, fits = self._check._limits, True
        for name, size in sizes.items():
            self.summary.lengths.setdefault(name, array("I")).append(size)
            wrong = limits.wrong("prompt" if name == "prompt" else "answer", size)
            if wrong:
                fits = False
                bound = (limits.prompt if name == "prompt" else limits.answer)[wrong == "too_long"]
                self._add(row, wrong, f"'{row.name(name)}' has {size:,} {limits.unit}, and the limit is {bound:,}")
        self.summary.beyond_limits += not fits
        if "chosen" in sizes:
            self.summary.chosen_longer += sizes["chosen"] > sizes["rejected"]
            self.summary.chosen_shorter += sizes["chosen"] < sizes["rejected"]
        return fits

    def _note_prompt(self, row: Row, key: int, fits: bool) -> None:
        place = self._first_place + row.line
        if self.summary.heldout_file:
            self._check._heldout.setdefault(key, place)
        elif (there := self._check._heldout.get(key)) is not None:
            where = self._check.place(there)
            self._add(row, "heldout_trains", f"the prompt is held out at {where}; take it out of one of the two")
        if self._kind == "prompts":
            new = self._note_same(row, key, "the same prompt is at {}; it counts once")
        else:
            new = key not in self._prompts
            self._prompts.add(key)
        if not new:
            return
        held = key < self._check._below
        self.summary.prompts += 1
        self.summary.heldout_prompts += held
        if self._kind == "prompts" and not self.summary.heldout_file:
            if held:
                self._check._apart.add(key)
            elif key not in self._check._heldout:
                self._trains, self._fitting = self._trains + 1, self._fitting + fits
            self._smallest = min(self._smallest, (key, fits))

    def _note_same(self, row: Row, key: int, text: str) -> bool:
        """Whether something is new; if not, say where it was."""
        if (there := self._rows.get(key)) is None:
            self._rows[key] = self._first_place + row.line
            return True
        self.summary.duplicates += 1
        self._add(row, "duplicate", text.format(self._check.place(there)))
        return False

    def _note_again(self, row: Row, key: int, item: Prompt | Demonstration | PreferencePair | RatedAnswer) -> None:
        if isinstance(item, Demonstration):
            self._note_same(row, fingerprint(str(key), item.response), "the same demonstration is at {}; remove one")
        elif isinstance(item, RatedAnswer):
            self._note_judged(row, key, item)
        elif isinstance(item, PreferencePair):
            for name in row.texts("labeller", IMPORTED):
                self._note_pair(row, key, item, name)

    def _note_pair(self, row: Row, key: int, pair: PreferencePair, labeller: str) -> None:
        parts = (str(key), labeller, str(row.integer("round", 0)))
        there = self._rows.get(fingerprint(*parts, pair.rejected, pair.chosen))
        if there is not None:
            where = self._check.place(there)
            self._add(row, "contradiction", f"the opposite is preferred at {where}; keep one, or it counts as a tie")
        self._note_same(row, fingerprint(*parts, pair.chosen, pair.rejected), "the same pair is at {}; it counts once")

    def _note_judged(self, row: Row, key: int, item: RatedAnswer) -> None:
        self.summary.labels[item.good] += 1
        self._pairs += self._unpaired.add(key, fingerprint(item.text), item.good) is not None
        parts = (str(key), item.text, str(item.good))
        self._note_same(row, fingerprint(*parts), "the same answer with the same label is at {}; remove one")

    def _note_what_trains(self, row: Row) -> None:
        """Whether anything is left to train on; of ten prompts or more one is held out in any case, as in a run."""
        s, check = self.summary, self._check
        if s.heldout_file or not s.usable or self._kind == "preferences":
            return
        if self._kind == "prompts":
            if not s.heldout_prompts and check._share > 0 and s.prompts >= ENOUGH_TO_HOLD_ONE_OUT:
                check._apart.add(self._smallest[0])
                self._fitting -= self._smallest[1]
            if s.prompts and not self._fitting:
                text = "leaves no prompt to train on: all are held out or beyond the limits; give more prompts"
                self._add(row, "nothing_left", text)
        elif self._trains and not self._fitting:
            self._add(row, "nothing_left", "leaves no demonstration: all are beyond the limits; change the limits")

    def finish(self) -> None:
        """What only all rows together show."""
        s, first = self.summary, self._first
        if first is None:
            return
        row = Row(s.source, 0, {})
        self._note_what_trains(row)
        judged = sum(s.labels.values())
        if judged and not self._pairs and judged == s.usable:
            self._check.findings.add(first.problem("no_pairs", NO_PAIRS))
        elif judged and (alone := judged - 2 * self._pairs):
            self._add(row, "unpaired", f"{alone:,} of {judged:,} labelled answers have no counterpart and are left out")
        if judged >= ENOUGH_ROWS and max(s.labels.values()) > UNBALANCED * judged:
            text = f"{s.labels[True]:,} of {judged:,} labels are true; pairs need both"
            self._add(row, "unbalanced_labels", text)
        pairs = len(s.lengths.get("chosen", ()))
        for count, word in ((s.chosen_longer, "longer"), (s.chosen_shorter, "shorter")):
            if pairs >= ENOUGH_ROWS and count > UNBALANCED * pairs:
                text = f"the chosen answer is the {word} one in {count:,} of {pairs:,} pairs"
                self._add(row, "unbalanced_length", f"{text}: a reward model may learn just that")


def parse_as(kind: DataKind, row: Row) -> Prompt | Demonstration | PreferencePair | RatedAnswer:
    """A row as what it is to be."""
    if kind == "prompts":
        return parse_prompt(row)
    return parse_preference(row) if kind == "preferences" else parse_demonstration(row)


def kind_of(row: Row) -> DataKind:
    """What a source seems to hold, by the columns of its first row."""
    if {"chosen", "rejected"} & row.values.keys() or {"completion", "label"} <= row.values.keys():
        return "preferences"
    return "demonstrations" if set(ANSWERS) & row.values.keys() else "prompts"


def _texts(item: Prompt | Demonstration | PreferencePair | RatedAnswer) -> tuple[Prompt, dict[str, str]]:
    if isinstance(item, PreferencePair):
        return item.prompt, {"chosen": item.chosen, "rejected": item.rejected}
    if isinstance(item, Demonstration):
        return item.prompt, {"answer": item.response}
    if isinstance(item, RatedAnswer):
        return item.prompt, {"completion": item.text}
    return item, {}


def quantiles(sizes: Sequence[int]) -> dict[str, int]:
    """Smallest, median, 90th and 99th percentile (nearest rank), largest."""
    import numpy as np

    ordered = np.sort(np.asarray(sizes, dtype=np.uint32))
    last = len(ordered) - 1
    ranks = {"min": 0, "median": last // 2, "p90": -(-9 * last // 10), "p99": -(-99 * last // 100), "max": last}
    return {name: int(ordered[rank]) for name, rank in ranks.items()}
