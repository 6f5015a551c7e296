"""The judge's part in a run's audits: what it has said beside people, and how the next round asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.checkpoint.files import JSON
from holdfast.guard.alarm import Against
from holdfast.guard.drift import Drift, JudgeDrift, KnownPair
from holdfast.guard.judged import ALONE, Agreement, AskingPlan, JudgedPair, JudgedRound, powered_interval


@dataclass
class JudgeBeside:
    """How far the judge agrees with people, how this round asks, and what it has saved."""

    drift: JudgeDrift
    agreement: Agreement = field(default_factory=Agreement)
    plan: AskingPlan = ALONE
    said: dict[Against, list[JudgedPair]] = field(default_factory=dict)  # in this round
    known: list[KnownPair] = field(default_factory=list)  # of this round
    saved: int = 0  # labels that people would have given without it

    def begin_round(self) -> None:
        """How a round asks follows from the rounds before it."""
        self.plan, self.said, self.known = self.agreement.plan(), {}, []

    def meet(self, again: Mapping[str, float]) -> Drift:
        """What the judge says of the anchors again; all is forgotten if it is another one."""
        drift = self.drift.see(again)
        if drift.alarmed:
            self.drift.forget()
            self.agreement = Agreement()
        return drift

    def judged(self) -> dict[Against, JudgedRound]:
        """What judge and people have said in this round, by opponent."""
        return {against: JudgedRound.of(self.plan, pairs) for against, pairs in self.said.items()}

    def end_round(self) -> None:
        """Learn how far judge and people agree, from now on."""
        for pairs in self.said.values():
            self.agreement.add(pairs)
        self.drift.know(self.known)

    def record(self) -> dict[str, JSON]:
        """As an event holds it; win rates are of judge and people together."""
        pairs = [pair for said in self.said.values() for pair in said]
        both = [pair for pair in pairs if pair.people is not None]
        rates: dict[str, JSON] = {name: asdict(powered_interval([each])) for name, each in self.judged().items()}
        return {
            "pairs": len(pairs), "share": self.plan.share, "weight": self.plan.weight, "both": len(both),
            "agreed": sum(pair.judge == pair.people for pair in both), "saved": self.saved, "rates": rates,
        }  # fmt: skip

    def state(self) -> dict[str, Any]:
        return {"agreement": self.agreement.state(), "drift": self.drift.state(), "saved": self.saved}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.agreement.restore(state["agreement"])
        self.drift.restore(state["drift"])
        self.saved = state["saved"]
