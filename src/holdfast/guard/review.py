"""What stands between a round's last step and its commit: audit, verdict, and which policy is the good one.

    signals of the round's steps -> suspicion -> how many fresh pairs people are asked about -> verdict
    verdict, and people's win rate against the anchor -> is this the new anchor, or what does the ladder say?

The anchor is the last good checkpoint: the policy that a later one has to be at least as good as, and that a rollback
goes back to. It moves on only when people liked the new policy at least as well in the round's pairs, so that many
small losses, each too small for an alarm, carry it downhill far more slowly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import torch

from holdfast.config.schema import AuditConfig, GuardConfig
from holdfast.guard.audit import AuditPair, side_of
from holdfast.guard.auditor import Auditing, Opponent
from holdfast.guard.guard import Guard
from holdfast.guard.ladder import Action, Ladder
from holdfast.guard.verdict import Verdict, people_say
from holdfast.models.sharding import put_state, whole_state
from holdfast.preferences.collector import Voices
from holdfast.randomness import generator

# Against the reference, against the last good policy, and pointed ones.
KINDS = 3
# Before a run ends with an earlier policy: for each pair that a last round asks about against that one, so many more.
# A lead of one standard error is often chance; in three times as many pairs it seldom is, and a policy that is truly
# worse still loses.
CONFIRMING = 2


@dataclass(frozen=True)
class Good:
    """The last good checkpoint. Before any round has been found good it is the policy's beginning, the reference."""

    name: str = "round-0000"
    round: int = 0
    step: int = 0


@dataclass
class Orders:
    """What the ladder has asked of the rounds to come; it goes on through rollbacks."""

    refresh: str = ""  # why the next round refreshes whatever its triggers say
    label_more: float = 1.0  # factor on the next round's comparisons
    audit: str = ""  # why the next audit asks about as many pairs as in a suspicious round


@dataclass(frozen=True)
class Choice:
    """Whether a run ends with the last good policy in place of its last, and the round's pairs that say so.

    `again` of them were asked about for this choice alone.
    """

    back: bool
    pairs: list[AuditPair]
    again: int
    sentence: str

    def actions(self) -> list[Action]:
        """What is to be done about it."""
        reason = f"the run ends with the policy that people liked better: {self.sentence}"
        return [Action("rollback", reason)] if self.back else []

    def record(self) -> dict[str, Any]:
        """As an event holds it."""
        return {"labels": self.again, "back": self.back, "sentence": self.sentence}


class Weights(Protocol):
    """What is asked of a policy here: its weights, to keep those of the last good one."""

    def state_dict(self) -> Mapping[str, torch.Tensor]: ...

    def load_state_dict(self, state_dict: Mapping[str, torch.Tensor]) -> object: ...


Player = TypeVar("Player", bound=Weights)


@dataclass
class Guarding(Generic[Player]):
    """The guard with its collaborators. `anchor` holds the weights of the last good policy."""

    config: GuardConfig
    audits: AuditConfig
    seed: int
    guard: Guard
    auditing: Auditing
    ladder: Ladder
    reference: Player
    anchor: Player
    good: Good = field(default_factory=Good)
    orders: Orders = field(default_factory=Orders)
    stopped: bool = False

    @property
    def acts(self) -> bool:
        return self.config.mode == "act"

    def judge(
        self, round: int, policy: Player, voices: Voices[Player], last: bool = False
    ) -> tuple[Verdict, list[AuditPair]]:
        """Ask people about fresh pairs, more of them where there is reason to, and come to a verdict.

        The run's last round is a reason: which policy the run ends with is decided there.
        """
        # A generator for each round, and rounds never come twice: nothing to save, and nothing that a rollback repeats.
        rng = generator(self.seed, "audit", round)
        decisive = self._last_good
        opponents = [decisive]
        if self.good.round:
            opponents.insert(0, Opponent("reference", self.reference, "reference"))
        pairs: list[AuditPair] = []
        asked = 0

        def buy(count: int, *opponents: Opponent[Player]) -> None:
            nonlocal asked
            if count <= 0:
                return
            wanted = [(opponent, count) for opponent in opponents]
            pairs.extend(self.auditing.buy(round, asked, wanted, policy, voices, rng))
            asked += count * len(opponents)

        pointed = replace(decisive, against="pointed")
        buy(self.audits.pairs, *opponents, pointed)
        wanted, self.orders.audit = bool(self.orders.audit) or last, ""
        buy(self._further(wanted or self._suspicious(pairs, decisive)), decisive, pointed)
        verdict = self._verdict(pairs)
        unclear = verdict.level == "watch" or (verdict.level == "healthy" and self.guard.evidence().value > 1.0)
        if unclear or last:
            # Something is amiss and people have not said what to make of it, or a choice is to be made: as many again.
            buy(self.audits.suspicious_pairs, decisive, *([pointed] if unclear else []))
            verdict = self._verdict(pairs)
        return verdict, pairs

    def choose(self, round: int, policy: Player, voices: Voices[Player], pairs: Sequence[AuditPair]) -> Choice:
        """Which policy the run ends with: to choose between two takes no proof of hacking, a run ends with the better.

        Where people seem to like the last good one better they are asked again, if anything is to be done about it.
        The verdict's sequential test has not planned for these pairs and does not count them.
        """
        back, again, opponent = self.prefers_anchor(pairs), list[AuditPair](), self._last_good
        if back and self.acts:
            # By the plan and not by what was answered: a late answer must not change what a round done again asks.
            count = CONFIRMING * (max(self.audits.pairs, self.audits.suspicious_pairs) + self.audits.suspicious_pairs)
            # Numbered after all that a round may ask about.
            already, rng = KINDS * most_pairs(self.audits), generator(self.seed, "choice", round)
            again = self.auditing.buy(round, already, [(opponent, count)], policy, voices, rng)
        everything = [*pairs, *again]
        side = side_of(everything, opponent.against)
        sentence = people_say(side) if side is not None else ""
        return Choice(back and self.prefers_anchor(everything), everything, len(again), sentence)

    @property
    def ensemble(self) -> int:
        """The version of the ensemble that makes the claims."""
        return self.auditing.collecting.ensemble.version

    def _further(self, suspicious: bool) -> int:
        """How many pairs to ask about beyond the first ones.

        An ensemble that has judged an earlier round is the best reason: it has not seen what became of the policy. That
        may last for the rest of the run, so it takes no more than the round's share of the labels that are left when
        those for the first pairs of the rounds to come are set aside.
        """
        base, many, to_come = self.audits.pairs, self.audits.suspicious_pairs, self.guard.rounds_to_come
        further = max(0, many - base) if suspicious else 0
        if self.guard.has_claimed(self.ensemble):
            share = (self.auditing.left - KINDS * base * to_come) // (2 * (to_come + 1))
            further = max(further, min(2 * many - base, share))
        return further

    def _verdict(self, pairs: Sequence[AuditPair]) -> Verdict:
        return self.guard.judge(pairs, self.auditing.budget_left, self.ensemble)

    def _suspicious(self, pairs: Sequence[AuditPair], opponent: Opponent[Player]) -> bool:
        """Whether the signals, or the first pairs themselves, are a reason to ask further."""
        rates = [win_rate(pairs, against) for against in (opponent.against, "pointed")]
        lost = any(rate is not None and rate < 0.5 for rate in rates)
        return lost or self.guard.suspicion().p < self.config.suspicion

    def is_good(self, verdict: Verdict, pairs: Sequence[AuditPair]) -> bool:
        """Whether the policy becomes the new anchor: not hacking, and liked at least as well as the present one.

        In a run in which people never answer there is nothing to go by but the signals. In one in which they do, a
        policy that nobody was asked about takes nobody's place.
        """
        rate = win_rate(pairs, self._last_good.against)
        if rate is None:
            return verdict.level == "healthy" and not self.guard.heard
        return verdict.level != "hacking" and rate >= 0.5

    @property
    def _last_good(self) -> Opponent[Player]:
        """The last good policy as an opponent; before any round was good, that is the reference."""
        if self.good.round:
            return Opponent("anchor", self.anchor, self.good.name)
        return Opponent("reference", self.reference, "reference")

    def prefers_anchor(self, pairs: Sequence[AuditPair]) -> bool:
        """Whether people like the last good policy better than the present one, by this round's answers.

        By more than one standard error: where they like both alike, the one that has learnt from more labels stays.
        """
        won = [pair.policy_won for pair in pairs if pair.against == self._last_good.against]
        return len(won) - 2 * sum(won) > math.sqrt(len(won))

    def stands(self, verdict: Verdict, pairs: Sequence[AuditPair]) -> bool:
        """Whether nothing is held against the policy: a round to be trusted, and the last good one is not liked better.

        Nothing is, where the guard only advises.
        """
        return not self.acts or (verdict.trusted and not self.prefers_anchor(pairs))

    def advance(self, name: str, round: int, step: int, policy: Player) -> None:
        """The present policy, saved under `name`, is the last good one from now on."""
        self.good = Good(name, round, step)
        put(self.anchor, weights_of(policy))

    def answer(self, verdict: Verdict) -> list[Action]:
        """What the ladder says."""
        return self.ladder.climb(verdict, self.good.name)

    def grant(self) -> None:
        """The user has resumed a run that had stopped to ask."""
        self.stopped = False
        self.ladder.granted()

    def state(self) -> dict[str, Any]:
        return {
            "guard": self.guard.state(),
            "ladder": self.ladder.state(),
            "good": asdict(self.good),
            "orders": asdict(self.orders),
            "audit_labels": self.auditing.spent,
            "stopped": self.stopped,
        }

    def restore(self, state: Mapping[str, Any], anchor: Mapping[str, torch.Tensor]) -> None:
        self.guard.restore(state["guard"])
        self.ladder.restore(state["ladder"])
        self.good = Good(**state["good"])
        self.orders = Orders(**state["orders"])
        self.auditing.spent = int(state["audit_labels"])
        self.stopped = bool(state["stopped"])
        put(self.anchor, anchor)


def most_pairs(audits: AuditConfig) -> int:
    """The most pairs of a kind that a round asks about: the first ones, further ones, and more where it is unclear."""
    return max(audits.pairs, 2 * audits.suspicious_pairs) + audits.suspicious_pairs


def weights_of(player: Weights) -> Mapping[str, torch.Tensor]:
    """The weights, whole where a model is dealt out over processes."""
    return whole_state(player) if isinstance(player, torch.nn.Module) else player.state_dict()


def put(player: Weights, weights: Mapping[str, torch.Tensor]) -> None:
    """The inverse."""
    if isinstance(player, torch.nn.Module):
        put_state(player, weights)
    else:
        player.load_state_dict(weights)


def win_rate(pairs: Sequence[AuditPair], against: str) -> float | None:
    """How often people preferred the policy, a tie as half; None without a pair."""
    won = [pair.policy_won for pair in pairs if pair.against == against]
    return sum(won) / len(won) if won else None
