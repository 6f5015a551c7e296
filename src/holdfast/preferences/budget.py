"""How many answers a run may ask for in all, and how many of them are kept for the audits to come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LabelBudget:
    """One cap over everything that is asked; without `most` there is none.

    `per_audit` answers are kept for the audit of each of `rounds`, so that training does not leave them without.
    """

    most: int = 0
    per_audit: int = 0
    rounds: int = 0

    def kept(self, round: int) -> int:
        """What comparisons of a round leave to the audits to come; an audit's own belong to the round after it.

        It follows from the settings and not from what is left, so a round that is done again is given the same.
        """
        return self.per_audit * max(0, self.rounds - max(1, round) + 1)
