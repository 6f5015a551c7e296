"""One PPO update: what the policy learns from a step's answers.

    Rollout + reference log-probs + scores -> credit -> Experience -> PPO.update -> statistics

Shapes: B answers, T response tokens (padded on the right), N response tokens of a micro-batch laid end to end.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from holdfast.algorithms.credit import assign_credit
from holdfast.algorithms.finite import first_nonfinite
from holdfast.algorithms.gradient_penalty import regularised_gradient
from holdfast.algorithms.kl import kl_estimate
from holdfast.algorithms.ppo import PolicyStats, loss_divisor, ppo_policy_loss, ppo_value_loss, token_weights
from holdfast.checkpoint.transaction import Part
from holdfast.config.schema import KLConfig, PPOConfig
from holdfast.control.step_size import StepAim
from holdfast.models.batches import MicroBatch, lay_out, micro_batches, pick_out
from holdfast.models.gradients import accumulate, clip_and_step
from holdfast.models.policy import Policy
from holdfast.models.reward_model import CriticModel
from holdfast.models.sharding import ModelWeights, whole
from holdfast.models.weights import learning
from holdfast.parallel.cores import CORES
from holdfast.parallel.processes import PROCESSES
from holdfast.rollout.sampler import Rollout
from holdfast.train.optimiser import OptimiserState, optimiser_snapshot, restore_optimiser

Item = TypeVar("Item")

# A value moves no further than this from the one it had when the answers were sampled, and its loss counts a tenth,
# since the value head may share the policy's trunk.
VALUE_CLIP = 0.2
VALUE_WEIGHT = 0.1
# How far along its gradient the policy is moved to see how the gradient changes there, as a multiple of the gradient.
AHEAD = 0.01
# Answers of a step on which the KL of its update is measured (0 for all): the rest would cost another pass over them.
STEP_ANSWERS = 16


class NonFiniteStep(Exception):
    """A value that is not a number turned up before it could reach the optimiser."""

    met_by_all = True  # it is looked for in sums over the processes


class NothingScored(NonFiniteStep):
    """Too few answers have a score for anything to be learnt from them."""


@dataclass(frozen=True)
class Experience:
    """A rollout with everything that PPO needs to learn from it."""

    rollout: Rollout
    reference_logprobs_BT: Tensor
    values_BT: Tensor
    advantages_BT: Tensor
    returns_BT: Tensor
    kl_B: Tensor
    rewards_B: Tensor
    taught_B: Tensor

    @property
    def rows(self) -> list[int]:
        """The answers that there is something to learn from: the loss and its mean are over these alone."""
        return self.taught_B.nonzero()[:, 0].tolist()

    @property
    def crossing(self) -> Experience:
        """The same as it is told to other processes."""
        return replace(self, rollout=self.rollout.crossing)


def experience_of(
    rollout: Rollout,
    reference_logprobs_BT: Tensor,
    values_BT: Tensor,
    scores_B: Tensor,
    beta: float,
    ppo: PPOConfig,
    kl: KLConfig,
    scored_B: Tensor | None = None,
) -> Experience:
    """A rollout with the credit that its scores give it; refused where a value is not a number.

    Where `scored_B` is False there is no score, and NaN may stand there; refused where that leaves nothing to learn.
    """
    credit = assign_credit(
        rollout.logprobs_BT,
        reference_logprobs_BT,
        values_BT,
        scores_B,
        rollout.mask_BT,
        beta if kl.placement == "reward" else 0.0,
        ppo.advantage,
        group_size=ppo.samples_per_prompt,
        estimator=kl.estimator,
        offset=ppo.advantage_offset,
        scored_B=scored_B,
    )
    bad = first_nonfinite(
        {
            "log-probs": rollout.logprobs_BT,
            "reference log-probs": reference_logprobs_BT,
            "scores": scores_B if scored_B is None else scores_B[scored_B],
            "values": values_BT,
            "advantages": credit.advantages_BT,
        }
    )
    if bad:
        raise NonFiniteStep(f"{bad} are not all numbers")
    if not credit.taught_B.any():
        raise NothingScored(nothing_to_learn(scored_B))
    return Experience(rollout, reference_logprobs_BT, values_BT, *credit)


def nothing_to_learn(scored_B: Tensor | None) -> str:
    """Why a step's scores leave nothing to learn from."""
    if scored_B is None or not scored_B.any():
        return "no answer could be scored"
    return "no prompt has two answers that could be scored"


@torch.no_grad()
def response_values(
    model: nn.Module, rollout: Rollout, batches: list[MicroBatch], temperature: float = 1.0, truncated: bool = True
) -> Tensor:
    """A pass without gradients laid out as (B, T): a policy's log-probs, or a critic's values.

    The reference is not `truncated`: only a grammar holds for it, not what top-k and top-p kept of the policy.
    """
    needed: dict[str, Any] = {
        "prompts": rollout.prompts, "responses": rollout.responses, "rows": [batch.rows for batch in batches],
        "support": rollout.crossing.support, "temperature": temperature, "truncated": truncated,
    }  # fmt: skip
    with PROCESSES.joint("values", [model], **needed), whole(model):
        return values_of(model, rollout.logprobs_BT.shape, batches, temperature, truncated)


@torch.no_grad()
def values_of(
    model: nn.Module, shape: Sequence[int], batches: list[MicroBatch], temperature: float, truncated: bool
) -> Tensor:
    """The same; in joint work each process takes some of the batches."""
    out_BT = torch.zeros(*shape)

    def compute(batch: MicroBatch) -> None:
        policy = isinstance(model, Policy)
        result = model(batch, temperature, truncated).logprobs_N if policy else model(batch)
        lay_out(result, batch, out_BT)

    CORES.share([partial(compute, batch) for batch in PROCESSES.part(batches)])
    PROCESSES.add(out_BT)
    return out_BT


def rollout_batches(
    policy: Policy, rollout: Rollout, rows: list[int] | None, pad_id: int, max_tokens: int
) -> list[MicroBatch]:
    """Micro-batches of some of a rollout's answers, or of all."""
    rows = list(range(len(rollout.prompts))) if rows is None else rows
    pieces = CORES.free if policy.fast is not None else 0
    given = rollout.prompts, rollout.responses
    return micro_batches(*given, rows, pad_id, max_tokens, policy.device, pieces, rollout.support)


@dataclass(frozen=True)
class Kept:
    """What an update changes, as it was before."""

    weights: list[Tensor]
    moments: Mapping[str, Tensor]
    settings: Mapping[str, Any]


class PolicyOptimiser(ABC):
    """What moves the policy in the loop: PPO, or online DPO."""

    def __init__(
        self,
        policy: Policy,
        critic: CriticModel | None,
        ppo: PPOConfig,
        kl: KLConfig,
        temperature: float,
        max_tokens: int,
        pad_id: int,
    ) -> None:
        self.policy, self.critic, self.ppo, self.kl = policy, critic, ppo, kl
        self.temperature, self.max_tokens, self.pad_id = temperature, max_tokens, pad_id
        judging = critic if critic is not None else policy.value_head
        valuing = learning(judging) if judging is not None else []
        acting = [p for p in learning(policy) if all(p is not other for other in valuing)]
        self.acting, self.parameters = acting, [*acting, *valuing]
        # The critic's group is the second one, where there is a critic: it starts from nothing and learns faster.
        groups = [{"params": group} for group in (acting, valuing) if group]
        self.optimiser = torch.optim.AdamW(groups, lr=ppo.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)

    def parts(self) -> dict[str, Part]:
        """What learning moves, for checkpoints."""
        critic: dict[str, Part] = {} if self.critic is None else {"critic": ModelWeights(self.critic)}
        return {"policy": ModelWeights(self.policy), **critic, "optimiser": OptimiserState(self.optimiser)}

    def batches(self, rollout: Rollout, rows: list[int] | None = None) -> list[MicroBatch]:
        return rollout_batches(self.policy, rollout, rows, self.pad_id, self.max_tokens)

    def values(self, rollout: Rollout, batches: list[MicroBatch]) -> Tensor:
        """What the critic expected: kept from sampling for a value head, one pass for a model of its own."""
        if self.critic is not None:
            return response_values(self.critic, rollout, batches)
        return torch.zeros_like(rollout.logprobs_BT) if rollout.values_BT is None else rollout.values_BT

    @abstractmethod
    def credit(
        self,
        rollout: Rollout,
        reference_BT: Tensor,
        values_BT: Tensor,
        rewards_B: Tensor,
        beta: float,
        scored_B: Tensor | None = None,
    ) -> Experience:
        """What a step's answers are to teach; those whose place in `scored_B` is False have no reward and no part."""

    def learn(
        self,
        experience: Experience,
        batches: list[MicroBatch],
        beta: float,
        lr: float,
        rng: torch.Generator,
        band: StepAim | None = None,
    ) -> tuple[dict[str, float], float]:
        """A whole update and how far it moved the policy, or nothing: a bad number puts everything back.

        With a band an update that misses it is taken back and taken again at another rate.
        """
        rows, crossing = [batch.rows for batch in batches], experience.crossing
        needed: dict[str, Any] = {"experience": crossing, "rows": rows, "beta": beta, "lr": lr, "rng": rng}
        with PROCESSES.joint("learn", [self.policy], **needed, band=band):
            before, drawn, tried = self.kept(), rng.get_state(), list[tuple[float, float]]()
            while True:
                try:
                    learned = self.update(experience, beta, lr, rng, batches)
                    kl = self.moved(experience.rollout)
                except NonFiniteStep:
                    self.put_back(before)
                    if band is None:
                        raise
                    kl = math.inf
                tried.append((lr, kl))
                again = None if band is None else band.again(tried)
                if again is None:
                    break
                self.put_back(before)
                rng.set_state(drawn)
                lr = again
            if band is not None and kl > band.high:
                self.put_back(before)
                raise NonFiniteStep(f"no learning rate of {len(tried)} made the step short enough")
            sized = {} if band is None else {"control/kl_aim": band.aim, "control/tries": float(len(tried))}
            return {**learned, **sized, "control/lr": lr}, kl

    def probe(
        self, experience: Experience, batches: list[MicroBatch], beta: float, lr: float, rng: torch.Generator
    ) -> float:
        """How far an update would move the policy, in nats per answer; it is taken back, and leaves no trace."""
        rows, crossing = [batch.rows for batch in batches], experience.crossing
        needed: dict[str, Any] = {"experience": crossing, "rows": rows, "beta": beta, "lr": lr, "rng": rng}
        with PROCESSES.joint("probe", [self.policy], **needed):
            before, drawn = self.kept(), rng.get_state()
            try:
                self.update(experience, beta, lr, rng, batches)
                return self.moved(experience.rollout)
            except NonFiniteStep:
                return math.inf
            finally:
                self.put_back(before)
                rng.set_state(drawn)

    def kept(self) -> Kept:
        """The weights that learn, and what the optimiser holds, to go back to."""
        return Kept([p.detach().clone() for p in self.parameters], *optimiser_snapshot(self.optimiser))

    def put_back(self, kept: Kept) -> None:
        with torch.no_grad():
            for parameter, before in zip(self.parameters, kept.weights, strict=True):
                parameter.copy_(before)
        restore_optimiser(self.optimiser, kept.moments, kept.settings)

    @abstractmethod
    def update(
        self,
        experience: Experience,
        beta: float,
        lr: float,
        rng: torch.Generator,
        batches: list[MicroBatch] | None = None,
    ) -> dict[str, float]:
        """Several passes over a step's answers; `batches` of all of them serve where there are some already."""

    def moved(self, rollout: Rollout) -> float:
        """KL(policy before the update || policy after it) in nats per answer, by k3 on some of the step's answers.

        It is one more pass over them, so it takes as many as the ledger needs and no more, spread over the step.
        """
        count = len(rollout.prompts)
        rows = list(range(0, count, max(1, count // (STEP_ANSWERS or count))))
        after_BT = response_values(self.policy, rollout, self.batches(rollout, rows), self.temperature)
        kl_BT = kl_estimate(rollout.logprobs_BT[rows], after_BT[rows], "k3") * rollout.mask_BT[rows]
        kl = float(kl_BT.sum(1).mean())
        if not math.isfinite(kl):
            raise NonFiniteStep("the KL of the update is not a number")
        return kl

    def step(self) -> float:
        """One step of the optimiser along the gradient that has been added up; returns its norm."""
        return clip_and_step(self.optimiser, NonFiniteStep("gradients are not all numbers"))

    def set_rate(self, lr: float) -> None:
        for group, factor in zip(self.optimiser.param_groups, (1.0, self.ppo.critic_lr_factor), strict=False):
            group["lr"] = lr * factor

    def minibatches(self, items: Sequence[Item], rng: torch.Generator) -> Iterator[list[Item]]:
        """The items of a step in a random order, in equal parts."""
        order = torch.randperm(len(items), generator=rng).tolist()
        size = -(-len(items) // self.ppo.minibatches)
        for start in range(0, len(items), size):
            yield [items[i] for i in order[start : start + size]]


NO_STATS = PolicyStats(*(torch.zeros(()) for _ in range(4)))


def over_processes(stats: PolicyStats) -> PolicyStats:
    """The statistics of all processes' tokens, in joint work."""
    if not PROCESSES.together:
        return stats
    sums = torch.stack([stats.tokens, stats.clipped, stats.kl, stats.ratio]).double()
    PROCESSES.add(sums)
    return PolicyStats(*sums)


class PPO(PolicyOptimiser):
    """Clipped policy and value updates over one optimiser. No answer has more than `longest` tokens."""

    def __init__(
        self,
        policy: Policy,
        critic: CriticModel | None,
        ppo: PPOConfig,
        kl: KLConfig,
        temperature: float,
        max_tokens: int,
        pad_id: int,
        longest: int = 0,
    ) -> None:
        super().__init__(policy, critic, ppo, kl, temperature, max_tokens, pad_id)
        self.longest = longest

    def credit(
        self,
        rollout: Rollout,
        reference_BT: Tensor,
        values_BT: Tensor,
        rewards_B: Tensor,
        beta: float,
        scored_B: Tensor | None = None,
    ) -> Experience:
        """Advantages and returns of a step's answers."""
        return experience_of(rollout, reference_BT, values_BT, rewards_B, beta, self.ppo, self.kl, scored_B)

    def update(
        self,
        experience: Experience,
        beta: float,
        lr: float,
        rng: torch.Generator,
        batches: list[MicroBatch] | None = None,
    ) -> dict[str, float]:
        """Several passes over the step's answers; stops early when the policy has moved too far from its start."""
        self.set_rate(lr)
        stats: PolicyStats | None = None
        value_losses, policy_losses, kl_losses, norms = [], [], [], []
        epochs_done = 0
        taught = experience.rows
        whole_step = batches if self.ppo.minibatches == 1 and bool(experience.taught_B.all()) else None
        for _ in range(self.ppo.epochs):
            epoch_stats: PolicyStats | None = None
            for rows in self.minibatches(taught, rng):
                cut = whole_step or self.batches(experience.rollout, rows)
                policy_loss, value_loss, kl_loss, batch_stats = self._accumulate(experience, cut, beta)
                if self.ppo.gradient_penalty:
                    self._penalise(partial(self._accumulate, experience, cut, beta))
                norms.append(self.step())
                policy_losses.append(policy_loss)
                value_losses.append(value_loss)
                kl_losses.append(kl_loss)
                epoch_stats = batch_stats if epoch_stats is None else epoch_stats + batch_stats
            assert epoch_stats is not None
            stats = epoch_stats if stats is None else stats + epoch_stats
            epochs_done += 1
            if self.ppo.epoch_kl_stop and float(epoch_stats.mean_kl) > self.ppo.epoch_kl_stop:
                break
        assert stats is not None
        measured = {
            "loss/policy_avg": _mean(policy_losses),
            "policy/approxkl_avg": float(stats.mean_kl),
            "policy/clipfrac_avg": float(stats.clip_fraction),
            "val/ratio": float(stats.mean_ratio),
            "optim/grad_norm": _mean(norms),
            "control/epochs_done": float(epochs_done),
        }
        if self.ppo.advantage == "gae":
            measured["loss/value_avg"] = _mean(value_losses)
            measured["val/explained_variance"] = explained_variance(experience)
        if self.kl.placement == "loss":
            measured["loss/kl_avg"] = _mean(kl_losses)
        return measured

    @torch.no_grad()
    def _penalise(self, differentiate: Callable[[], object]) -> None:
        """Add the penalty on its norm to the policy's gradient, by a second pass over the minibatch a little ahead.

        The answers stay those of the step. What a critic of its own learns by is left as it is.
        """
        gradients = [None if p.grad is None else p.grad.clone() for p in self.parameters]
        ahead = {id(p) for p in self.acting}
        moved = [(p, p.clone(), g) for p, g in zip(self.parameters, gradients, strict=True) if id(p) in ahead]
        for parameter, _, gradient in moved:
            if gradient is not None:
                parameter.add_(gradient, alpha=AHEAD)
        self.optimiser.zero_grad(set_to_none=True)
        with torch.enable_grad():
            differentiate()
        for parameter, before, gradient in moved:
            if gradient is not None and parameter.grad is not None:
                gradient.copy_(regularised_gradient(gradient, parameter.grad, self.ppo.gradient_penalty, AHEAD))
            parameter.copy_(before)
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient

    def _accumulate(
        self, experience: Experience, batches: list[MicroBatch], beta: float
    ) -> tuple[float, float, float, PolicyStats]:
        """Add up a minibatch's gradients over its micro-batches, which are worked on side by side."""
        lengths = [count for batch in batches for count in batch.counts]

        def loss_of(batch: MicroBatch) -> tuple[Tensor, tuple[list[float], PolicyStats]]:
            losses, stats = self._losses(experience, batch, beta, lengths)
            return torch.stack(losses).sum(), ([float(loss.detach()) for loss in losses], stats)

        parts = accumulate(self.parameters, batches, loss_of)
        sums, stats = [0.0, 0.0, 0.0], NO_STATS
        for losses, part in parts:
            sums, stats = [a + b for a, b in zip(sums, losses, strict=True)], stats + part
        sums = PROCESSES.total(sums)
        return sums[0], sums[1], sums[2], over_processes(stats)

    def _losses(
        self, experience: Experience, batch: MicroBatch, beta: float, lengths: list[int]
    ) -> tuple[list[Tensor], PolicyStats]:
        """Of a micro-batch the policy's, the critic's and the KL's loss; `lengths` are those of the whole minibatch."""
        device = self.policy.device
        divisor = loss_divisor(self.ppo.loss, lengths, self.longest)
        weights_N = token_weights(self.ppo.loss, batch.counts)
        weights_N = None if weights_N is None else weights_N.to(device)

        def tokens(values_BT: Tensor) -> Tensor:
            return pick_out(values_BT, batch).to(device)

        out = self.policy(batch, self.temperature)
        mask_N = torch.ones_like(out.logprobs_N)
        policy_loss, stats = ppo_policy_loss(
            out.logprobs_N,
            tokens(experience.rollout.logprobs_BT),
            tokens(experience.advantages_BT),
            mask_N,
            self.ppo.clip,
            divisor,
            self.ppo.clip_high,
            weights_N,
        )
        value_loss = kl_loss = torch.zeros((), device=device)
        if self.ppo.advantage == "gae":
            values_N = self.critic(batch) if self.critic is not None else out.values_N
            assert values_N is not None
            value_loss = VALUE_WEIGHT * ppo_value_loss(
                values_N,
                tokens(experience.values_BT),
                tokens(experience.returns_BT),
                mask_N,
                VALUE_CLIP,
                max(1, sum(lengths)),
            )
        if self.kl.placement == "loss":
            reference_N = tokens(experience.reference_logprobs_BT)
            kl_N = kl_estimate(out.logprobs_N, reference_N, self.kl.estimator)
            kl_loss = beta * (kl_N if weights_N is None else kl_N * weights_N).sum() / divisor
        return [policy_loss, value_loss, kl_loss], stats


def explained_variance(experience: Experience) -> float:
    """1 - Var(returns - values) / Var(returns) over tokens with a return: 1 is a perfect critic, 0 a constant one."""
    mask_BT = experience.rollout.mask_BT & experience.taught_B[:, None]
    returns_N, values_N = experience.returns_BT[mask_BT], experience.values_BT[mask_BT]
    variance = float(returns_N.var(unbiased=False))
    return 0.0 if variance == 0.0 else 1.0 - float((returns_N - values_N).var(unbiased=False)) / variance


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
