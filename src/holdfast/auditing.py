"""The audit: fresh comparisons of the policy with the reference and with the last good policy, answered by people.

    prompts -> policy, other -> sides shuffled -> store -> labeller -> who won, beside what the ensemble claims

They measure first. Afterwards they are labels like any other in the store, and the next refresh may train on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

import torch

from holdfast.collecting import Answering, Collecting, Sample
from holdfast.config.schema import AuditConfig
from holdfast.guard.audit import Against, AuditPair
from holdfast.preferences.types import Comparison, LabelledComparison, Provenance
from holdfast.reward.calibration import claims
from holdfast.reward.training import pairs_of
from holdfast.rollout.sampler import Rollout

# Pairs that are drawn for each pointed one.
POINTED = 3


@dataclass(frozen=True)
class Opponent(Generic[Answering]):
    """Whom the policy is compared with, the reference or the last good policy, and in which pairs."""

    against: Against
    policy: Answering
    version: str


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
        drawn: dict[str, tuple[int, Against]] = {}  # id -> whether its sides are exchanged, and what kind of pair it is
        for opponent, count in wanted:
            # Numbered by what was wanted: people may leave some unanswered, and their numbers are taken all the same.
            within = max(0, min(count, self.left - len(asked)))
            swapped = self._draw(round, already, within, policy, opponent, sample, rng) if within else []
            for comparison, swap in swapped:
                asked.append(comparison.swap() if swap else comparison)
                drawn[comparison.id] = swap, opponent.against
            already += count
        if not asked:
            return []
        self.collecting.ask(asked, "audit")
        answered = self.collecting.store.labelled_among([c.id for c in asked], self.collecting.store.watermark())
        self.spent += len(answered)
        return self._outcomes(answered, drawn)

    def _draw(
        self,
        round: int,
        already: int,
        count: int,
        policy: Answering,
        opponent: Opponent[Answering],
        sample: Sample[Answering],
        rng: torch.Generator,
    ) -> list[tuple[Comparison, int]]:
        """Fresh pairs of answers, the policy's first, and for each whether its sides are to be exchanged."""
        pointed = opponent.against == "pointed"
        drawn = count * (POINTED if pointed else 1)
        rows = torch.randint(len(self.collecting.prompts), (drawn,), generator=rng).tolist()
        prompts = [self.collecting.codec.encode_prompt(self.collecting.prompts[i]) for i in rows]
        sides = sample(policy, prompts, rng), sample(opponent.policy, prompts, rng)
        chosen = self._surest(prompts, sides, count) if pointed else list(range(count))
        swapped = torch.randint(2, (count,), generator=rng).tolist()
        comparisons = [
            self._comparison(round, already + n, rows[place], sides, place, opponent.version)
            for n, place in enumerate(chosen)
        ]
        return list(zip(comparisons, swapped, strict=True))

    def _surest(self, prompts: list[list[int]], sides: tuple[Rollout, Rollout], count: int) -> list[int]:
        """The places of the pairs in which the ensemble is surest of the policy, in the order they were drawn."""
        ours_KP, theirs_KP = (self.collecting.ensemble.scores(prompts, side.responses) for side in sides)
        margin_P = (ours_KP - theirs_KP).mean(0)
        return sorted(margin_P.argsort(descending=True, stable=True)[:count].tolist())

    def _comparison(
        self, round: int, number: int, row: int, sides: tuple[Rollout, Rollout], n: int, opponent: str
    ) -> Comparison:
        responses = [
            self.collecting.response(rollout, n, Provenance(version, round, number))
            for rollout, version in zip(sides, (f"round-{round:04d}", opponent), strict=True)
        ]
        key = f"{self.collecting.key}/audit-r{round:04d}-{number:05d}"
        # It belongs to the next round, which may train on it: a round done again must not find its own audit there.
        return Comparison(key, self.collecting.prompts[row], responses[0], responses[1], round + 1)

    def _outcomes(
        self, answered: Sequence[LabelledComparison], drawn: Mapping[str, tuple[int, Against]]
    ) -> list[AuditPair]:
        claimed = claims(self.collecting.ensemble, pairs_of(self.collecting.codec, answered)).tolist()
        pairs = []
        for item, claim_a in zip(answered, claimed, strict=True):
            swap, against = drawn[item.comparison.id]
            pairs.append(
                AuditPair(
                    comparison_id=item.comparison.id,
                    against=against,
                    policy_won=damped(1.0 - item.share_a if swap else item.share_a, item.weight),
                    claim=1.0 - claim_a if swap else claim_a,
                )
            )
        return pairs


def damped(share: float, weight: float) -> float:
    """An outcome as it counts: that of an unreliable labeller is drawn towards a tie, by as much as it weighs less."""
    return 0.5 + weight * (share - 0.5)
