"""The audit: fresh comparisons of the policy with the reference and with the last good policy, answered by people.

    prompts -> policy, other -> sides shuffled -> store -> labeller -> who won, beside what the ensemble claims

They measure first. Afterwards they are labels like any other in the store, and the next refresh may train on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

import torch

from holdfast.collecting import Answering, Collecting, Sample
from holdfast.config.schema import AuditConfig
from holdfast.guard.audit import Against, AuditPair
from holdfast.preferences.types import Comparison, LabelledComparison, Provenance
from holdfast.reward.calibration import claims
from holdfast.reward.training import Pair
from holdfast.rollout.sampler import Rollout

# Pairs that are drawn for each pointed one.
POINTED = 3

# An answer: its rollout, and its place there.
Drawn = tuple[Rollout, int]


@dataclass(frozen=True)
class Opponent(Generic[Answering]):
    """Whom the policy is compared with, the reference or the last good policy, and in which pairs."""

    against: Against
    policy: Answering
    version: str


@dataclass(frozen=True)
class _Order(Generic[Answering]):
    """So many comparisons with an opponent, numbered from `first` on."""

    opponent: Opponent[Answering]
    first: int
    count: int

    @property
    def draws(self) -> int:
        return self.count * (POINTED if self.opponent.against == "pointed" else 1)

    def choose(self, claims: Sequence[float]) -> list[int]:
        """The places of the drawn pairs to ask about, as they come; of pointed ones, those claimed most surely."""
        surest = sorted(range(len(claims)), key=lambda place: -claims[place])
        return sorted(surest[: self.count])


@dataclass(frozen=True)
class _Pairs:
    """Drawn pairs: the places of their prompts, the answers of both sides, and what the ensemble claims."""

    rows: list[int]
    ours: list[Drawn]
    theirs: list[Drawn]
    claims: list[float]


@dataclass(frozen=True)
class _Question:
    """What is known of a pair before people answer it; `claim` speaks of the policy's side, exchanged or not."""

    swapped: bool
    against: Against
    claim: float

    def answered(self, item: LabelledComparison) -> AuditPair:
        won = damped(1.0 - item.share_a if self.swapped else item.share_a, item.weight)
        return AuditPair(item.comparison.id, self.against, won, self.claim)


@dataclass
class Auditing:
    """Asks, within the run's budget of audit labels. Ids follow from the round, so a round redone asks nobody twice."""

    collecting: Collecting
    config: AuditConfig
    spent: int = 0

    @property
    def left(self) -> int:
        """Labels that may still be asked for; none where nobody answers."""
        return 0 if self.collecting.labeller is None else max(0, self.config.budget - self.spent)

    def buy(
        self,
        round: int,
        already: int,
        wanted: Sequence[tuple[Opponent[Answering], int]],
        policy: Answering,
        sample: Sample[Answering],
        rng: torch.Generator,
    ) -> list[AuditPair]:
        """So many answered comparisons with each opponent, asked for in one go, or as many as the budget allows.

        `already` were asked for in this round.
        """
        asked: list[Comparison] = []
        drawn: dict[str, _Question] = {}
        left = self.left
        orders = []
        for opponent, count in wanted:
            # Numbered by what was wanted: people may leave some unanswered, and their numbers are taken all the same.
            orders.append(_Order(opponent, already, min(count, left)))
            left, already = left - orders[-1].count, already + count
        for order, pairs in zip(orders, self._draw(orders, policy, sample, rng), strict=True):
            for n, place in enumerate(order.choose(pairs.claims)):
                swap = bool(torch.randint(2, (), generator=rng))
                comparison = self._comparison(round, order.first + n, pairs, place, order.opponent.version)
                asked.append(comparison.swap() if swap else comparison)
                drawn[comparison.id] = _Question(swap, order.opponent.against, pairs.claims[place])
        if not asked:
            return []
        self.collecting.ask(asked, "audit")
        answered = self.collecting.store.labelled_among([c.id for c in asked], self.collecting.store.watermark())
        self.spent += len(answered)
        return [drawn[item.comparison.id].answered(item) for item in answered]

    def _draw(
        self, orders: Sequence[_Order[Answering]], policy: Answering, sample: Sample[Answering], rng: torch.Generator
    ) -> list[_Pairs]:
        """Fresh pairs of answers for each order; every policy answers all its prompts in one go."""
        everyone = self.collecting.prompts
        rows = [torch.randint(len(everyone), (order.draws,), generator=rng).tolist() for order in orders]
        prompts = [[self.collecting.codec.encode_prompt(everyone[i]) for i in some] for some in rows]
        ours = _answered_by(policy, prompts, sample, rng)
        theirs: list[list[Drawn]] = [[] for _ in orders]
        for player in {id(order.opponent.policy): order.opponent.policy for order in orders}.values():
            places = [n for n, order in enumerate(orders) if order.opponent.policy is player]
            for n, answers in zip(places, _answered_by(player, [prompts[n] for n in places], sample, rng), strict=True):
                theirs[n] = answers
        said = iter(self._claims(prompts, ours, theirs))
        claimed = [[next(said) for _ in some] for some in rows]
        return [_Pairs(*each) for each in zip(rows, ours, theirs, claimed, strict=True)]

    def _claims(
        self, prompts: Sequence[list[list[int]]], ours: Sequence[list[Drawn]], theirs: Sequence[list[Drawn]]
    ) -> list[float]:
        """The ensemble's probability that people prefer the policy's answer, for all pairs in one go."""
        sides = [[rollout.responses[n] for some in side for rollout, n in some] for side in (ours, theirs)]
        everything = zip([prompt for some in prompts for prompt in some], *sides, strict=True)
        pairs = [Pair(prompt, one, other, share_a=0.5, round=0) for prompt, one, other in everything]
        told: list[float] = claims(self.collecting.ensemble, pairs).tolist()
        return told

    def _comparison(self, round: int, number: int, pairs: _Pairs, place: int, opponent: str) -> Comparison:
        responses = [
            self.collecting.response(*side[place], Provenance(version, round, number))
            for side, version in ((pairs.ours, f"round-{round:04d}"), (pairs.theirs, opponent))
        ]
        key = f"{self.collecting.key}/audit-r{round:04d}-{number:05d}"
        # It belongs to the next round, which may train on it: a round done again must not find its own audit there.
        return Comparison(key, self.collecting.prompts[pairs.rows[place]], responses[0], responses[1], round + 1)


def _answered_by(
    player: Answering, prompts: Sequence[list[list[int]]], sample: Sample[Answering], rng: torch.Generator
) -> list[list[Drawn]]:
    """One policy's answers to several lists of prompts."""
    everything = [prompt for some in prompts for prompt in some]
    if not everything:
        return [[] for _ in prompts]
    rollout, places = sample(player, everything, rng), iter(range(len(everything)))
    return [[(rollout, next(places)) for _ in some] for some in prompts]


def damped(share: float, weight: float) -> float:
    """An outcome as it counts: that of an unreliable labeller is drawn towards a tie, by as much as it weighs less."""
    return 0.5 + weight * (share - 0.5)
