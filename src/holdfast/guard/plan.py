"""How many pairs an audit asks about: all that follows from `audit.pairs` and `audit.more_pairs`, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.config.schema import AuditConfig

# An ensemble that has judged an earlier round has not seen what became of the policy: the best reason to ask further.
UNSEEN = 2
# Before a run ends with an earlier policy: for each pair that a last round asks about against that one, so many more.
# A lead of one standard error is often chance; in three times as many pairs it seldom is, and a policy that is truly
# worse still loses.
CONFIRMING = 2


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

    @property
    def adversarial(self) -> int:
        """Hacked answers beside good ones that are labelled after a rollback."""
        return self.audits.more_pairs
