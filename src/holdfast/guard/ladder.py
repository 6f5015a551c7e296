"""The response ladder: what is done about a verdict, gently first, and more each time the same thing comes back.

    watch      refresh the ensemble -> label more where members disagree -> tighten
    hacking    hacked answers, labelled, into the replay; roll back; tighten; refresh -> harder -> stop and ask
    broken     steps that are not numbers: roll back; a lower learning rate -> lower -> the run ends

A healthy round takes one step down. Tightening for a watch and rollbacks are bounded for the whole run. After the last
rollback the run stops at its last good policy and asks. Resuming it is the answer: it grants as many attempts again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from holdfast.config.schema import GuardConfig
from holdfast.control.state import JSON, State, check_kind, read_int
from holdfast.guard.verdict import Verdict

Rung = Literal["tighten", "slow_down", "label_more", "refresh", "adversarial", "rollback", "stop"]

# What costs least first: a policy that improves moves the signals too, and holding it back would cost what it gains.
WATCH_RUNGS: tuple[Rung, ...] = ("refresh", "label_more", "tighten")
# A suspicion that so many tightenings have not settled is settled by no further one, and each costs some of the gain.
MOST_TIGHTENED = 3

# What a rung multiplies: the KL target, so that beta_factor does not have to fight it, and a round's comparisons.
BUDGET_FACTOR = 0.7
MORE_LABELS = 2.0


@dataclass(frozen=True)
class Action:
    """One thing to do, how often over, and the reason in words."""

    rung: Rung
    reason: str
    times: int = 1


class Ladder:
    """Remembers how often it had to answer, and answers more firmly each time."""

    def __init__(self, config: GuardConfig) -> None:
        self._config = config
        self._watched = 0  # the rung of `watch` that comes next
        self._tightened = 0  # how often a watch had the policy held closer
        self._signature = ""  # what the last hack looked like
        self._times = 0  # how often it came in a row
        self._anchor = ""  # the last good checkpoint when a remedy was last applied
        self._held = 0  # how often the policy was held closer since that checkpoint
        self._slowed = 0  # how often its learning rate was lowered
        self.rollbacks = 0

    def climb(self, verdict: Verdict, anchor: str) -> list[Action]:
        """The actions that a verdict calls for, in the order in which they are to be carried out.

        `anchor` names the checkpoint that a rollback would go back to.
        """
        if verdict.level == "healthy":
            self._watched = max(0, self._watched - 1)
            return []
        if verdict.level == "watch":
            return self._watch(verdict, anchor)
        return self._hacking(verdict, anchor)

    def _watch(self, verdict: Verdict, anchor: str) -> list[Action]:
        rung = WATCH_RUNGS[self._watched]
        self._watched = min(self._watched + 1, len(WATCH_RUNGS) - 1)
        if rung == "tighten":
            if self._tightened == MOST_TIGHTENED:
                rung = WATCH_RUNGS[0]
            else:
                self._tightened += 1
                self._begin_at(anchor)
                self._held += 1
        return [Action(rung, verdict.sentence)]

    def _hacking(self, verdict: Verdict, anchor: str) -> list[Action]:
        self._times = self._times + 1 if verdict.signature == self._signature else 1
        self._signature = verdict.signature
        reason = verdict.sentence
        if not self._attempt(anchor, held=1):
            return [*self._return(reason), Action("stop", f"{self._limit}: {reason}")]
        actions = [
            Action("adversarial", reason),
            *self._return(reason),
            Action("refresh", reason),
        ]
        if self._times > 1:
            actions.append(Action("label_more", reason))
        return actions

    @property
    def _limit(self) -> str:
        """Why there is no further attempt. One that only advises has made none."""
        if self.rollbacks == 0:
            return "guard.rollbacks allows no attempt to go on"
        made = "1 rollback has" if self.rollbacks == 1 else f"{self.rollbacks} rollbacks have"
        return f"{made} not cured it" if self._config.mode == "act" else f"{made} been advised before"

    def broken(self, reason: str, anchor: str) -> list[Action]:
        """What is done about a policy whose steps are not numbers any more; nothing where no rollback is left."""
        return self._return(reason) if self._attempt(anchor, slowed=1) else []

    def _attempt(self, anchor: str, held: int = 0, slowed: int = 0) -> bool:
        """Take one of the rollbacks, with a remedy more for who begins at that checkpoint; whether one was left."""
        self._begin_at(anchor)
        if self.rollbacks >= self._config.rollbacks:
            return False
        self.rollbacks, self._held, self._slowed = self.rollbacks + 1, self._held + held, self._slowed + slowed
        return True

    def _begin_at(self, anchor: str) -> None:
        """Remedies are in the checkpoint that is made after them, so for a new one they are counted anew."""
        if anchor != self._anchor:
            self._anchor, self._held, self._slowed = anchor, 0, 0

    def _return(self, reason: str) -> list[Action]:
        """A rollback. It undoes the remedies since the checkpoint too, so they are done over with the new one."""
        remedies: tuple[tuple[Rung, int], ...] = (("tighten", self._held), ("slow_down", self._slowed))
        return [Action("rollback", reason), *(Action(rung, reason, times) for rung, times in remedies if times)]

    def granted(self) -> None:
        """A person has looked and lets the run go on."""
        self.rollbacks, self._tightened = 0, 0
        self._times, self._signature = 0, ""

    def state(self) -> State:
        return {
            "kind": "ladder",
            "watched": self._watched,
            "tightened": self._tightened,
            "signature": self._signature,
            "times": self._times,
            "anchor": self._anchor,
            "held": self._held,
            "slowed": self._slowed,
            "rollbacks": self.rollbacks,
        }

    def restore(self, state: Mapping[str, JSON]) -> None:
        check_kind(state, "ladder")
        self._watched = min(read_int(state, "watched"), len(WATCH_RUNGS) - 1)
        self._signature, self._anchor = str(state.get("signature", "")), str(state.get("anchor", ""))
        self._tightened, self._times = read_int(state, "tightened"), read_int(state, "times")
        self._held, self._slowed = read_int(state, "held"), read_int(state, "slowed")
        self.rollbacks = read_int(state, "rollbacks")
