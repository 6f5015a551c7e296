"""The response ladder: what is done about a verdict, gently first, and more each time the same thing comes back.

    watch      refresh the ensemble -> label more where members disagree -> tighten
    hacking    hacked answers, labelled, into the replay; roll back; tighten; refresh -> harder -> stop and ask

A healthy round takes one step down. Rollbacks are bounded for the whole run; after the last one the run stops at
its last good policy and asks. Resuming it is the answer: it grants as many attempts again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from holdfast.config.schema import GuardConfig
from holdfast.control.state import JSON, State, check_kind, read_int
from holdfast.guard.verdict import Verdict

Rung = Literal["tighten", "label_more", "refresh", "adversarial", "rollback", "stop"]

# What costs least first: a policy that improves moves the signals too, and holding it back would cost what it gains.
WATCH_RUNGS: tuple[Rung, ...] = ("refresh", "label_more", "tighten")


@dataclass(frozen=True)
class Action:
    """One thing to do, with its size where it has one and the reason in words."""

    rung: Rung
    reason: str
    factor: float = 1.0


class Ladder:
    """Remembers how often it had to answer, and answers more firmly each time."""

    def __init__(self, config: GuardConfig) -> None:
        self._config = config
        self._watched = 0  # rungs of `watch` climbed so far
        self._signature = ""  # what the last hack looked like
        self._times = 0  # how often it came in a row
        self.rollbacks = 0

    def climb(self, verdict: Verdict) -> list[Action]:
        """The actions that a verdict calls for, in the order in which they are to be carried out."""
        if verdict.level == "healthy":
            self._watched = max(0, self._watched - 1)
            return []
        if verdict.level == "watch":
            return self._watch(verdict)
        return self._hacking(verdict)

    def _watch(self, verdict: Verdict) -> list[Action]:
        rung = WATCH_RUNGS[min(self._watched, len(WATCH_RUNGS) - 1)]
        self._watched += 1
        factor = {"tighten": self._config.beta_factor, "label_more": self._config.more_labels}.get(rung, 1.0)
        return [Action(rung, verdict.sentence, factor)]

    def _hacking(self, verdict: Verdict) -> list[Action]:
        self._times = self._times + 1 if verdict.signature == self._signature else 1
        self._signature = verdict.signature
        reason = verdict.sentence
        if self.rollbacks >= self._config.rollbacks:
            limit = f"{self.rollbacks} rollbacks have not cured it" if self.rollbacks else "no rollback is allowed"
            return [Action("rollback", reason), Action("stop", f"{limit}: {reason}")]
        self.rollbacks += 1
        # The same hack again: everything that was done the last time is done once more on top of it.
        actions = [
            Action("adversarial", reason),
            Action("rollback", reason),
            Action("tighten", reason, self._config.beta_factor**self._times),
            Action("refresh", reason),
        ]
        if self._times > 1:
            actions.append(Action("label_more", reason, self._config.more_labels))
        return actions

    def granted(self) -> None:
        """A person has looked and lets the run go on."""
        self.rollbacks, self._times, self._signature = 0, 0, ""

    def state(self) -> State:
        return {
            "kind": "ladder",
            "watched": self._watched,
            "signature": self._signature,
            "times": self._times,
            "rollbacks": self.rollbacks,
        }

    def restore(self, state: Mapping[str, JSON]) -> None:
        check_kind(state, "ladder")
        self._watched = read_int(state, "watched")
        self._signature = str(state.get("signature", ""))
        self._times = read_int(state, "times")
        self.rollbacks = read_int(state, "rollbacks")
