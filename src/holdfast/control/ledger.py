"""The account of KL: what each step spent, what the run has spent in all, and what rollbacks undid."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from holdfast.errors import HoldfastError

# The columns of the account, with the codes of Python's arrays.
_COLUMNS = {"step": "q", "round": "q", "kl_step": "d", "kl_reference": "d", "undone": "b"}
_TYPES = {"q": torch.int64, "d": torch.float64, "b": torch.int8}


@dataclass(frozen=True)
class LedgerEntry:
    """One step: the KL from the policy before it to the one after, and the KL to the reference, in nats."""

    step: int
    round: int
    kl_step: float
    kl_reference: float
    undone: bool = False


class KLLedger:
    """An append-only list of steps and the KL of each, with exact sums.

    A rollback does not erase: `return_to` marks the steps that the policy no longer stands on as undone. They were
    spent, and count in `spent`, but not in `position`, in a round's total or in `since`. So a rollback calls
    `return_to` on the live ledger and does not restore an older one; `restore` is for resuming a run.
    """

    def __init__(self) -> None:
        self._columns: dict[str, array[Any]] = {name: array(code) for name, code in _COLUMNS.items()}
        self._rounds: dict[int, Fraction]
        self._since: dict[int, tuple[int, Fraction]]  # from a step on: how many entries are counted, and their sum
        self._last: LedgerEntry | None
        self._add_up()

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """Every step in the order it was taken, undone ones included."""
        return tuple(self._entry(i) for i in range(len(self)))

    def __len__(self) -> int:
        return len(self._columns["step"])

    def record(self, step: int, round: int, kl_step: float, kl_reference: float) -> None:
        """Add a step, which must come after every step that still stands."""
        if not (math.isfinite(kl_step) and math.isfinite(kl_reference)):
            raise ValueError(f"Step {step} has a KL that is not finite ({kl_step}, {kl_reference}); drop it instead.")
        if self._last is not None and step <= self._last.step:
            raise ValueError(f"Step {step} is not after step {self._last.step}; undo that one first.")
        self._append(LedgerEntry(step, round, kl_step, kl_reference))

    def return_to(self, saved: Mapping[str, Tensor]) -> float:
        """Stand again on the steps that this account stood on when it was saved; returns the KL that this undoes.

        Every step since is undone. Steps that an earlier rollback undid stand again if they stood then: one may go back
        and then forth.
        """
        self.check_returnable(saved)
        stood, undone = saved["undone"].tolist(), self._columns["undone"]
        now = array(_COLUMNS["undone"], [*stood, *[1] * (len(undone) - len(stood))])
        gone = math.fsum(
            kl for kl, was, is_ in zip(self._columns["kl_step"], undone, now, strict=True) if is_ and not was
        )
        self._columns["undone"] = now
        self._add_up()
        return gone

    def check_returnable(self, saved: Mapping[str, Tensor]) -> None:
        """Refuse an account that this one did not come from."""
        steps = saved["step"].tolist()
        if steps != list(self._columns["step"][: len(steps)]):
            raise HoldfastError(
                "The checkpoint's KL ledger has steps that this run never took; use another checkpoint."
            )

    def undone_spans(self) -> list[tuple[int, int]]:
        """The steps that do not stand, as stretches (from, to]: those after `from` up to `to`."""
        spans: list[tuple[int, int]] = []
        stands = 0  # the last step that stands before an undone one
        for entry in self.entries:
            if not entry.undone:
                stands = entry.step
            elif spans and spans[-1][0] == stands:
                spans[-1] = stands, max(entry.step, spans[-1][1])
            else:
                spans.append((stands, entry.step))
        return spans

    @property
    def spent(self) -> float:
        """The sum of KL per step over the whole run, undone steps included."""
        return float(self._spent)

    @property
    def undone(self) -> float:
        """The part of `spent` that rollbacks undid."""
        return float(self._undone)

    @property
    def position(self) -> float:
        """The sum of KL per step over the steps that the policy stands on."""
        return float(self._spent - self._undone)

    @property
    def reference(self) -> float:
        """The KL to the reference at the last step that stands; 0 before the first."""
        return 0.0 if self._last is None else self._last.kl_reference

    def round_total(self, round: int) -> float:
        """The KL that one round spent on steps that stand."""
        return float(self._rounds.get(round, 0))

    def last_step_before(self, round: int) -> int:
        """The newest step of the rounds before one, undone or not; 0 where there is none."""
        steps, rounds = self._columns["step"], self._columns["round"]
        return max((int(s) for s, r in zip(steps, rounds, strict=True) if r < round), default=0)

    def since(self, step: int) -> float:
        """The KL spent on steps after `step` that stand."""
        steps, undone, spent = (self._columns[name] for name in ("step", "undone", "kl_step"))
        # Asked again and again from one step on, so what was added up for it before is gone on with.
        counted, total = self._since.get(step, (0, Fraction()))
        for i in range(counted, len(self)):
            if steps[i] > step and not undone[i]:
                total += Fraction(spent[i])
        self._since = {step: (len(self), total)}
        return float(total)

    def state(self) -> dict[str, Tensor]:
        """The account as columns; a long run writes it with every checkpoint, so it is numbers and not text."""
        return {name: _tensor(column, _TYPES[_COLUMNS[name]]) for name, column in self._columns.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self._columns = {name: array(code, state[name].tolist()) for name, code in _COLUMNS.items()}
        self._add_up()

    def _entry(self, i: int) -> LedgerEntry:
        c = self._columns
        return LedgerEntry(
            int(c["step"][i]), int(c["round"][i]), c["kl_step"][i], c["kl_reference"][i], bool(c["undone"][i])
        )

    def _append(self, entry: LedgerEntry) -> None:
        for name, column in self._columns.items():
            column.append(getattr(entry, name))
        self._count(entry)

    def _add_up(self) -> None:
        """All sums from the beginning."""
        self._spent, self._undone = Fraction(), Fraction()
        self._rounds, self._since, self._last = {}, {}, None
        for entry in self.entries:
            self._count(entry)

    def _count(self, entry: LedgerEntry) -> None:
        spent = Fraction(entry.kl_step)
        self._spent += spent
        if entry.undone:
            self._undone += spent
        else:
            self._rounds[entry.round] = self._rounds.get(entry.round, Fraction()) + spent
            self._last = entry


def _tensor(column: array[Any], dtype: torch.dtype) -> Tensor:
    # A copy, so that it stays what it was when the ledger goes on.
    return torch.frombuffer(column, dtype=dtype).clone() if column else torch.empty(0, dtype=dtype)
