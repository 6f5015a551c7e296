"""The response ladder: what is done about a verdict, gently first, and more each time the same thing comes back.

    watch      refresh the ensemble -> label more where members disagree -> tighten;
               where people do not grant what one component of the reward gained, that one counts for less instead
    hacking    hacked answers, labelled, into the replay; roll back; tighten; refresh -> harder -> stop and ask;
               where people do not grant what one component of the reward gained, that one counts for less
    worse      roll back; a lower learning rate -> lower -> stop and ask
    broken     steps that are not numbers: roll back; a lower learning rate -> lower -> the run ends

Unaudited, unreliable and unmoved rounds call for what a person can do, which their sentence says; where their signals
are suspicious they are watched as well. A healthy round takes one step down. Tightening for a watch and rollbacks are
bounded for the whole run. After the last rollback the run stops at its last good policy and asks. Resuming it is the
answer: it grants as many attempts again.

No remedy recreates its cause: nothing aims at less KL than the policy has that is gone back to, which would only be
dragged away from what people liked; and the answers of a policy that has merely become worse are not called hacked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.config.schema import GuardConfig
from holdfast.guard.verdict import Verdict
from holdfast.text import counted

Rung = Literal["tighten", "slow_down", "label_more", "refresh", "adversarial", "rollback", "discount", "stop"]

# What costs least first: a policy that improves moves the signals too, and holding it back would cost what it gains.
WATCH_RUNGS: tuple[Rung, ...] = ("refresh", "label_more", "tighten")
# A suspicion that so many tightenings have not settled is settled by no further one, and each costs some of the gain.
MOST_TIGHTENED = 3

# What a rung multiplies: the KL target, so that beta_factor does not have to fight it, and a round's comparisons.
BUDGET_FACTOR = 0.7
MORE_LABELS = 2.0
# What is left each time of a component that pays for what people do not grant. A half of it may still pay more than
# what is worth something.
DISCOUNT = 0.25


@dataclass(frozen=True)
class Action:
    """One thing to do, how often over, and the reason in words."""

    rung: Rung
    reason: str
    times: int = 1
    component: str = ""


@dataclass
class Ladder:
    """Remembers how often it had to answer, and answers more firmly each time. It leaves out what its host `lacks`."""

    config: GuardConfig
    lacks: frozenset[Rung] = frozenset()
    watched: int = 0  # the rung of `watch` that comes next
    tightened: int = 0  # how often a watch had the policy held closer
    signature: str = ""  # what the last hack looked like
    times: int = 0  # how often it came in a row
    anchor: str = ""  # the last good checkpoint when a remedy was last applied
    held: int = 0  # how often the policy was held closer since that checkpoint
    slowed: int = 0  # how often its learning rate was lowered
    rollbacks: int = 0

    def climb(self, verdict: Verdict, anchor: str) -> list[Action]:
        """The actions that a verdict calls for, in the order in which they are to be carried out.

        `anchor` names the checkpoint that a rollback would go back to.
        """
        if verdict.level == "healthy":
            self.watched = max(0, self.watched - 1)
            return []
        if verdict.level == "hacking":
            return self._hacking(verdict, anchor)
        if verdict.level == "worse":
            return self._worse(verdict, anchor)
        return self._watch(verdict, anchor) if verdict.suspect else []

    def _watch(self, verdict: Verdict, anchor: str) -> list[Action]:
        if (component := verdict.component) and "discount" not in self.lacks:
            return [Action("discount", verdict.sentence, component=component)]
        # Where none of the gentle ones is there, one round is waited for: holding the policy back costs what it gains.
        rungs: list[Rung | None] = [rung for rung in WATCH_RUNGS if rung not in self.lacks]
        rungs = rungs if len(rungs) > 1 else [None, *rungs]
        rung = rungs[self.watched]
        self.watched = min(self.watched + 1, len(rungs) - 1)
        if rung == "tighten":
            if self.tightened == MOST_TIGHTENED:
                rung = rungs[0]
            else:
                self.tightened += 1
                self._begin_at(anchor)
                self.held += 1
        return [] if rung is None else [Action(rung, verdict.sentence)]

    def _hacking(self, verdict: Verdict, anchor: str) -> list[Action]:
        self.times = self.times + 1 if verdict.signature == self.signature else 1
        self.signature = verdict.signature
        reason = verdict.sentence
        if not self._attempt(anchor, held=1):
            return self._stop(reason)
        actions = [Action("adversarial", reason), *self._return(reason), Action("refresh", reason)]
        if component := verdict.component:
            actions.append(Action("discount", reason, component=component))
        actions += [Action("label_more", reason)] if self.times > 1 else []
        return [action for action in actions if action.rung not in self.lacks]

    def _worse(self, verdict: Verdict, anchor: str) -> list[Action]:
        left = self._attempt(anchor, slowed=1)
        return self._return(verdict.sentence) if left else self._stop(verdict.sentence)

    def _stop(self, reason: str) -> list[Action]:
        return [*self._return(reason), Action("stop", f"{self._limit}: {reason}")]

    @property
    def _limit(self) -> str:
        """Why there is no further attempt. One that only advises has made none."""
        if self.rollbacks == 0:
            return "guard.rollbacks allows no attempt to go on"
        made = counted(self.rollbacks, "rollback has", "rollbacks have")
        return f"{made} not cured it" if self.config.mode == "act" else f"{made} been advised before"

    def broken(self, reason: str, anchor: str) -> list[Action]:
        """What is done about a policy whose steps are not numbers any more; nothing where no rollback is left."""
        return self._return(reason) if self._attempt(anchor, slowed=1) else []

    def _attempt(self, anchor: str, held: int = 0, slowed: int = 0) -> bool:
        """Take one of the rollbacks, with a remedy more for who begins at that checkpoint; whether one was left."""
        self._begin_at(anchor)
        if self.rollbacks >= self.config.rollbacks:
            return False
        self.rollbacks, self.held, self.slowed = self.rollbacks + 1, self.held + held, self.slowed + slowed
        return True

    def _begin_at(self, anchor: str) -> None:
        """Remedies are in the checkpoint that is made after them, so for a new one they are counted anew."""
        if anchor != self.anchor:
            self.anchor, self.held, self.slowed = anchor, 0, 0

    def _return(self, reason: str) -> list[Action]:
        """A rollback. It undoes the remedies since the checkpoint too, so they are done over with the new one."""
        remedies: tuple[tuple[Rung, int], ...] = (("tighten", self.held), ("slow_down", self.slowed))
        return [Action("rollback", reason), *(Action(rung, reason, times) for rung, times in remedies if times)]

    def granted(self) -> None:
        """A person has looked and lets the run go on."""
        self.rollbacks, self.tightened = 0, 0
        self.times, self.signature = 0, ""

    def state(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("config", "lacks")}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
