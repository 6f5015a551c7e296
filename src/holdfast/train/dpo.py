"""Learning from pairs of answers: one update of DPO or a relative, offline from labels or online from the ensemble.

    labelled pairs + reference log-probs, kept             -> PairLearner.update                       (offline)
    rollout + rewards -> best and worst of each prompt     -> OnlineDPO.credit, .learn -> the same     (online)

Shapes: B answers, G answers to one prompt, T response tokens (padded on the right), P pairs; the rows of a batch are P
chosen, then P rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.algorithms.credit import accompanied
from holdfast.algorithms.dpo import PairLogProbs, dpo_losses
from holdfast.algorithms.finite import first_nonfinite
from holdfast.config.schema import DPOConfig, KLConfig, PPOConfig
from holdfast.grammar.walk import Grammar
from holdfast.models.batches import MicroBatch, deal_by_length, group_by_work
from holdfast.models.gradients import accumulate
from holdfast.models.policy import Policy
from holdfast.parallel.cores import CORES
from holdfast.parallel.processes import PROCESSES
from holdfast.rollout.likelihood import summed_logprobs
from holdfast.rollout.sampler import Rollout
from holdfast.rollout.support import Support, support_of_answers
from holdfast.train.ppo import Experience, NonFiniteStep, NothingScored, PolicyOptimiser, nothing_to_learn

# SimPO's target margin between chosen and rejected.
SIMPO_MARGIN = 1.0


@dataclass(frozen=True)
class AnswerPair:
    """Two answers to a prompt as tokens, with their log-probs under the reference.

    `share` is the share of people who preferred the chosen one, `grammar` what answers to the prompt have to be.
    """

    prompt: list[int]
    chosen: list[int]
    rejected: list[int]
    reference_chosen: float
    reference_rejected: float
    share: float = 1.0
    grammar: Grammar | None = None
    rows: tuple[int, int] = (0, 0)  # of a rollout whose support is known

    @property
    def tokens(self) -> int:
        return 2 * len(self.prompt) + len(self.chosen) + len(self.rejected)


@dataclass(frozen=True)
class PairStats:
    """Sums over pairs, so that those of micro-batches can be added."""

    pairs: int
    loss: float
    accuracy: float
    chosen_reward: float
    rejected_reward: float
    chosen: float
    rejected: float

    def __add__(self, other: PairStats) -> PairStats:
        return PairStats(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def metrics(self) -> dict[str, float]:
        """Means, by the names that TRL has for them."""
        n = max(1, self.pairs)
        return {
            "loss/dpo": self.loss / n,
            "rewards/accuracies": self.accuracy / n,
            "rewards/chosen": self.chosen_reward / n,
            "rewards/rejected": self.rejected_reward / n,
            "rewards/margins": (self.chosen_reward - self.rejected_reward) / n,
            "logps/chosen": self.chosen / n,
            "logps/rejected": self.rejected / n,
        }


class PairLearner:
    """Losses and gradients of pairs under one policy."""

    def __init__(
        self, policy: Policy, parameters: Sequence[Tensor], config: DPOConfig, temperature: float, max_tokens: int,
        pad_id: int,
    ) -> None:  # fmt: skip
        self.policy, self.parameters, self.config = policy, list(parameters), config
        self.temperature, self.max_tokens, self.pad_id = temperature, max_tokens, pad_id

    def accumulate(self, pairs: Sequence[AnswerPair], beta: float, support: Support | None = None) -> PairStats:
        """Add the gradient of the pairs' mean loss to the parameters; `support` is that of the rollout they are of."""

        def loss(group: list[AnswerPair]) -> tuple[Tensor, PairStats]:
            return self._loss(group, beta, len(pairs), support)

        return over_processes(_sum(accumulate(self.parameters, self._groups(pairs), loss)))

    @torch.no_grad()
    def measure(self, pairs: Sequence[AnswerPair], beta: float) -> PairStats:
        """The same figures without a gradient."""
        groups = self._groups(pairs)
        return _sum(CORES.share([lambda g=group: self._loss(g, beta, len(pairs))[1] for group in groups]))  # type: ignore[misc]

    def _groups(self, pairs: Sequence[AnswerPair]) -> list[list[AnswerPair]]:
        """Micro-batches; the two sides of a pair are always in one."""
        lengths = [pair.tokens for pair in pairs]
        if self.policy.fast is None:
            groups = deal_by_length(range(len(pairs)), lengths, self.max_tokens, PROCESSES.world)
        else:
            groups = group_by_work(range(len(pairs)), lengths, self.max_tokens, CORES.free * PROCESSES.world)
        return [[pairs[i] for i in group] for group in groups]

    def _loss(
        self, pairs: Sequence[AnswerPair], beta: float, pair_count: int, support: Support | None = None
    ) -> tuple[Tensor, PairStats]:
        device, config = self.policy.device, self.config
        batch = self._batch(pairs, support)
        chosen_P, rejected_P = summed_logprobs(self.policy, batch, self.temperature).chunk(2)

        def of(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=device)

        logprobs = PairLogProbs(
            chosen_P=chosen_P,
            rejected_P=rejected_P,
            reference_chosen_P=of([p.reference_chosen for p in pairs]),
            reference_rejected_P=of([p.reference_rejected for p in pairs]),
            chosen_tokens_P=of([max(1, count) for count in batch.counts[: len(pairs)]]),
            rejected_tokens_P=of([max(1, count) for count in batch.counts[len(pairs) :]]),
        )
        losses_P = dpo_losses(
            config.loss, logprobs, beta, config.label_smoothing, SIMPO_MARGIN, config.nll_weight,
            of([p.share for p in pairs]),
        )  # fmt: skip
        return losses_P.sum() / pair_count, _stats(losses_P, logprobs, beta)

    def _batch(self, pairs: Sequence[AnswerPair], support: Support | None) -> MicroBatch:
        """The chosen answers, then the rejected ones."""
        answers = [p.chosen for p in pairs] + [p.rejected for p in pairs]
        rows, prompts = list(range(len(answers))), [p.prompt for p in pairs] * 2
        if support is None:
            own = support_of_answers([p.grammar for p in pairs] * 2, answers)
            free = None if own is None else own.of(rows)
        else:
            free = support.of([p.rows[0] for p in pairs] + [p.rows[1] for p in pairs])
        return MicroBatch(rows, prompts, answers, self.pad_id, self.policy.device, free)


@torch.no_grad()
def _stats(losses_P: Tensor, logprobs: PairLogProbs, beta: float) -> PairStats:
    chosen_P, rejected_P = logprobs.chosen_gain_P, logprobs.rejected_gain_P
    right_P = (chosen_P > rejected_P).float() + 0.5 * (chosen_P == rejected_P).float()
    sums = (losses_P, right_P, beta * chosen_P, beta * rejected_P, logprobs.chosen_P, logprobs.rejected_P)
    return PairStats(len(losses_P), *(float(values.sum()) for values in sums))


def _sum(parts: Sequence[PairStats]) -> PairStats:
    total = PairStats(0, *[0.0] * 6)
    for part in parts:
        total = total + part
    return total


def over_processes(stats: PairStats) -> PairStats:
    """The figures of all processes' pairs, in joint work."""
    pairs, *sums = PROCESSES.total([float(value) for value in vars(stats).values()])
    return PairStats(int(pairs), *sums)


class OnlineDPO(PolicyOptimiser):
    """Takes PPO's place in the loop: of each prompt's answers the ensemble's best and worst are a pair.

    Beta is the KL controller's, so that the guard, the budget and the ledger mean here what they mean for PPO.
    """

    def __init__(
        self, policy: Policy, ppo: PPOConfig, dpo: DPOConfig, kl: KLConfig, temperature: float, max_tokens: int,
        pad_id: int,
    ) -> None:  # fmt: skip
        super().__init__(policy, None, ppo, kl, temperature, max_tokens, pad_id)
        self.learner = PairLearner(policy, self.parameters, dpo, temperature, max_tokens, pad_id)

    def credit(
        self,
        rollout: Rollout,
        reference_BT: Tensor,
        values_BT: Tensor,
        rewards_B: Tensor,
        beta: float,
        scored_B: Tensor | None = None,
    ) -> Experience:
        """1 for the tokens of each prompt's best answer, -1 for those of its worst, 0 for the rest and for ties."""
        scored_B = torch.ones_like(rewards_B, dtype=torch.bool) if scored_B is None else scored_B
        bad = first_nonfinite(
            {"log-probs": rollout.logprobs_BT, "reference log-probs": reference_BT, "scores": rewards_B[scored_B]}
        )
        if bad:
            raise NonFiniteStep(f"{bad} are not all numbers")
        group = self.ppo.samples_per_prompt
        if not accompanied(scored_B, group).any():
            raise NothingScored(nothing_to_learn(scored_B))
        sign_B = torch.zeros_like(rewards_B)
        for best, worst in extremes(torch.where(scored_B, rewards_B, torch.nan), group):
            sign_B[best], sign_B[worst] = 1.0, -1.0
        kl_B = ((rollout.logprobs_BT - reference_BT) * rollout.mask_BT).sum(1)
        return Experience(
            rollout=rollout,
            reference_logprobs_BT=reference_BT,
            values_BT=values_BT,
            advantages_BT=sign_B[:, None] * rollout.mask_BT,
            returns_BT=torch.zeros_like(values_BT),
            kl_B=kl_B,
            rewards_B=torch.where(scored_B, rewards_B - beta * kl_B, torch.nan),
            taught_B=sign_B != 0,
        )

    def update(
        self,
        experience: Experience,
        beta: float,
        lr: float,
        rng: torch.Generator,
        batches: list[MicroBatch] | None = None,
    ) -> dict[str, float]:
        """Several passes over the step's pairs."""
        pairs = fresh_pairs(experience, self.ppo.samples_per_prompt)
        self.set_rate(lr)
        stats: PairStats | None = None
        norms: list[float] = []
        for _ in range(self.ppo.epochs if pairs else 0):
            for minibatch in self.minibatches(pairs, rng):
                part = self.learner.accumulate(minibatch, max(beta, LEAST_BETA), experience.rollout.support)
                norms.append(self.step())
                stats = part if stats is None else stats + part
        measured = {"control/epochs_done": float(self.ppo.epochs if pairs else 0)}
        if stats is not None:
            measured |= stats.metrics() | {"optim/grad_norm": sum(norms) / len(norms)}
        return measured


# With beta 0 every policy that ranks the pair rightly would do; the loss is not defined there.
LEAST_BETA = 1e-3


def extremes(rewards_B: Tensor, group: int) -> list[tuple[int, int]]:
    """The best and the worst answer to each prompt, as rows; prompts whose answers score alike are left out.

    NaN is no score: such an answer is neither.
    """
    pairs = []
    for start in range(0, len(rewards_B), group):
        rewards_G = rewards_B[start : start + group]
        best, worst = int(rewards_G.nan_to_num(-torch.inf).argmax()), int(rewards_G.nan_to_num(torch.inf).argmin())
        if rewards_G[best] > rewards_G[worst]:
            pairs.append((start + best, start + worst))
    return pairs


def fresh_pairs(experience: Experience, group: int) -> list[AnswerPair]:
    """A step's answers as pairs, by the signs that `credit` gave them."""
    rollout, sign_B = experience.rollout, experience.advantages_BT.sum(1).sign()
    reference_B = (experience.reference_logprobs_BT * rollout.mask_BT).sum(1).tolist()
    return [
        AnswerPair(
            rollout.prompts[best], rollout.responses[best], rollout.responses[worst], reference_B[best],
            reference_B[worst], rows=(best, worst),
        )
        for best, worst in extremes(sign_B, group)
    ]  # fmt: skip
