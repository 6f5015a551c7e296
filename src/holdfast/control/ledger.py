"""The account of KL: what each step spent, what the run has spent in all, and what rollbacks undid."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from holdfast.control.state import JSON, State, check_kind, read_list
from holdfast.errors import HoldfastError


@dataclass(frozen=True)
class LedgerEntry:
    """One step: the KL from the policy before it to the one after, and the KL to the reference, in nats."""

    step: int
    round: int
    kl_step: float
    kl_reference: float
    undone: bool = False


class KLLedger:
    """An append-only list of steps.

    A rollback does not erase: `undo_to` marks the steps after the good one as undone. They were spent, and
    count in `spent`, but the policy no longer stands on them, so they do not count in `position`, in a
    round's total or in `since`. So a rollback calls `undo_to` on the live ledger and does not restore an
    older one; `restore` is for resuming a run.
    """

    def __init__(self) -> None:
        self._entries: list[LedgerEntry] = []

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """Every step in the order it was taken, undone ones included."""
        return tuple(self._entries)

    def record(self, step: int, round: int, kl_step: float, kl_reference: float) -> None:
        """Add a step, which must come after every step that still stands."""
        if not (math.isfinite(kl_step) and math.isfinite(kl_reference)):
            raise ValueError(f"Step {step} has a KL that is not finite ({kl_step}, {kl_reference}); drop it instead.")
        last = self._last()
        if last is not None and step <= last.step:
            raise ValueError(f"Step {step} is not after step {last.step}; undo that one first.")
        self._entries.append(LedgerEntry(step, round, kl_step, kl_reference))

    def undo_to(self, step: int) -> None:
        """Mark every step after `step` as undone."""
        self._entries = [replace(entry, undone=entry.undone or entry.step > step) for entry in self._entries]

    @property
    def spent(self) -> float:
        """The sum of KL per step over the whole run, undone steps included."""
        return math.fsum(entry.kl_step for entry in self._entries)

    @property
    def undone(self) -> float:
        """The part of `spent` that rollbacks undid."""
        return math.fsum(entry.kl_step for entry in self._entries if entry.undone)

    @property
    def position(self) -> float:
        """The sum of KL per step over the steps that the policy stands on."""
        return math.fsum(entry.kl_step for entry in self._entries if not entry.undone)

    @property
    def reference(self) -> float:
        """The KL to the reference at the last step that stands; 0 before the first."""
        last = self._last()
        return 0.0 if last is None else last.kl_reference

    def round_total(self, round: int, with_undone: bool = False) -> float:
        """The KL that one round spent; with `with_undone`, over every attempt at it."""
        return math.fsum(
            entry.kl_step for entry in self._entries if entry.round == round and (with_undone or not entry.undone)
        )

    def since(self, step: int) -> float:
        """The KL spent on steps after `step` that stand."""
        return math.fsum(entry.kl_step for entry in self._entries if entry.step > step and not entry.undone)

    def state(self) -> State:
        rows: list[JSON] = [[e.step, e.round, e.kl_step, e.kl_reference, e.undone] for e in self._entries]
        return {"kind": "ledger", "entries": rows}

    def restore(self, state: dict[str, JSON]) -> None:
        check_kind(state, "ledger")
        self._entries = [_entry(row) for row in read_list(state, "entries")]

    def _last(self) -> LedgerEntry | None:
        return next((entry for entry in reversed(self._entries) if not entry.undone), None)


def _entry(row: JSON) -> LedgerEntry:
    match row:
        case [
            int(step),
            int(round),
            int() | float() as kl_step,
            int() | float() as kl_reference,
            bool(undone),
        ]:
            return LedgerEntry(step, round, float(kl_step), float(kl_reference), undone)
        case _:
            raise HoldfastError(f"The saved KL ledger has a line that cannot be read, {row!r}; use another checkpoint.")
