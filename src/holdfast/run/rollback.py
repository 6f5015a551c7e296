"""Everything that moves in a run, as named parts: to resume from, and to roll back to.

resume     all of it comes back, and the files are cut to match: the run goes on bit for bit
rollback   policy, critic, optimiser, learning rate, KL controller, mean of policies, random streams, cursor, ensemble
           version and replay watermark come back together; time goes on: counters, files, labels and the draws of what
           is labelled, the guard's memory, and the ledger, which marks the steps since as undone
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.store import CheckpointStore
from holdfast.checkpoint.transaction import Part, capture, differences, restore, state_of
from holdfast.control.ledger import KLLedger
from holdfast.errors import HalfDone
from holdfast.guard.host import Good
from holdfast.reward.ensemble import VersionStore


@dataclass(frozen=True)
class RunState:
    """The parts of a run: `taken_back` by a rollback, `going_on` through it; `versions` are those of its ensemble."""

    taken_back: Mapping[str, Part]
    going_on: dict[str, Part]
    ledger: KLLedger
    checkpoints: CheckpointStore
    versions: VersionStore | None

    def add(self, name: str, part: Part) -> None:
        """One more part that goes on; parts that themselves roll back can only be made after this."""
        self.going_on[name] = part

    def capture(self) -> Snapshot:
        """The state of the run at this moment."""
        return capture({**self.taken_back, "ledger": self.ledger, **self.going_on})

    def resume(self, snapshot: Snapshot) -> None:
        """Put everything back to where a checkpoint left it, and cut the files to match."""
        restore({**self.taken_back, "ledger": self.ledger, **self.going_on}, snapshot)

    def roll_back(self, name: str) -> float:
        """Return to a checkpoint as one transaction; returns the KL that was undone.

        Nothing is on disk yet when this returns. The next commit makes it lasting in one piece, and a run that is
        killed before it does the round again, comes to the same verdict and rolls back again.
        """
        snapshot = self.checkpoints.load(name)
        self.check(snapshot)
        then = state_of(snapshot, "ledger")
        self.ledger.check_returnable(then)
        restore(self.taken_back, snapshot)
        undone = self.ledger.return_to(then)
        if different := differences(snapshot, capture(self.taken_back), self.taken_back):
            raise HalfDone(
                f"After the rollback to {name} the run's {different[0]} is not what the checkpoint holds; "
                "resume the run, which goes on from its newest checkpoint."
            )
        return undone

    def check(self, snapshot: Snapshot) -> None:
        """Refuse a checkpoint whose version of the ensemble, where there is one, is damaged."""
        if self.versions is not None:
            self.versions.verify(int(state_of(snapshot, "ensemble")["version"]))


def good_at(name: str, snapshot: Snapshot) -> Good:
    """A checkpoint as the last good one. Between two rounds it is of the earlier."""
    at = state_of(snapshot, "position")
    ledger = KLLedger()
    ledger.restore(state_of(snapshot, "ledger"))
    return Good(name, at["round"] if at["step_in_round"] else at["round"] - 1, at["step"], ledger.reference)
