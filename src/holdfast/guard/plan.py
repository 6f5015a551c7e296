"""How many pairs an audit asks about: all that follows from `audit.pairs` and `audit.more_pairs`, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.config.schema import AuditConfig, LabelsConfig
from holdfast.preferences.budget import LabelBudget

# Kinds of pairs: against the reference, against the last good policy, and pointed ones. Until a round was good there is
# no other good policy than the reference.
KINDS = 3

# An ensemble that has judged an earlier round has not seen what became of the policy: the best reason to ask further.
UNSEEN = 2
# Before a run ends with an earlier policy: for each pair that a last round asks about against that one, so many more.
# A lead of one standard error is often chance; in three times as many pairs it seldom is, and a policy that is truly
# worse still loses.
CONFIRMING = 2

# One in so many of the labels that are left to the last round is kept for that, if it is needed.
CHOICE = 4


def split(room: int, count: int, kinds: int) -> list[int]:
    """So many pairs of each kind; where there is not room for all, an even part, more to the first kinds."""
    return [min(count, (room + kinds - 1 - n) // kinds) for n in range(kinds)]


@dataclass(frozen=True)
class AuditPlan:
    """Pairs of one kind, by what they are asked for."""

    audits: AuditConfig

    @property
    def suspicious(self) -> int:
        """All of a round that is suspicious or the last."""
        return max(self.audits.pairs, self.audits.more_pairs)

    @property
    def unseen(self) -> int:
        """All of a round whose ensemble has judged an earlier one."""
        return max(self.audits.pairs, UNSEEN * self.audits.more_pairs)

    @property
    def unclear(self) -> int:
        """Further ones where the answers leave it open, and in the last round."""
        return self.audits.more_pairs

    @property
    def most(self) -> int:
        """The most that a round asks about."""
        return self.unseen + self.unclear

    @property
    def confirming(self) -> int:
        """Further ones before a run ends with its last good policy instead of the present one."""
        return CONFIRMING * (self.suspicious + self.unclear)

    def fewest(self, last: bool) -> int:
        """What an audit asks about at the least, in all kinds together: before any round was good there are two."""
        first = (KINDS - 1) * self.audits.pairs
        return first + (2 * (self.suspicious - self.audits.pairs) + self.unclear if last else 0)

    def greatest(self, last: bool, acts: bool) -> int:
        """What an audit asks about at the most, where people leave everything open."""
        further = max(self.unseen, self.suspicious) - self.audits.pairs
        return KINDS * self.audits.pairs + 2 * (further + self.unclear) + (self.confirming if last and acts else 0)

    def share(self, left: int, to_come: int, last: bool, acts: bool) -> int:
        """How many of the labels that are left a round may ask for, so that every round to come has its part.

        As many as are left beyond the first pairs of the others and all of the last round's; or, where that is too
        little, as many as fall to each. It follows from the plan and from what was left when the round began, so a
        round that is done again may ask for the same. The last round leaves some for the choice at the run's end.
        """
        if last:
            return left - min(self.confirming if acts else 0, left // CHOICE)
        to_come = max(1, to_come)
        kept = KINDS * self.audits.pairs * to_come
        kept += 2 * (self.suspicious - self.audits.pairs) + self.unclear + (self.confirming if acts else 0)
        return max(math.ceil(left / (to_come + 1)), left - kept)

    @property
    def adversarial(self) -> int:
        """Hacked answers beside good ones that are labelled after a rollback."""
        return self.audits.more_pairs


def budget_for(labels: LabelsConfig, audits: AuditConfig, rounds: int, overlap: float = 0.0) -> LabelBudget:
    """The cap over everything, of which the first pairs of each round's audit are kept: half of it at the most.

    `overlap` is the share of comparisons that two people answer.
    """
    first = math.ceil(KINDS * audits.pairs * (1.0 + overlap))
    return LabelBudget(labels.budget, min(first, audits.budget // rounds, labels.budget // 2 // rounds), rounds)
