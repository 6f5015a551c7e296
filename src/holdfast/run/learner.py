"""The policy's side of the loop: one step of it, and the mean of the last rounds' policies.

prompts -> policy -> responses -> ensemble - beta * KL -> credit -> update -> ledger, controller, signals, metrics
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from holdfast.config import Config
from holdfast.control.kl import KLBudget, KLController
from holdfast.control.ledger import KLLedger
from holdfast.control.plateau import Plateau
from holdfast.control.policy_mean import PolicyMean
from holdfast.control.schedule import Annealing, LearningRate
from holdfast.control.step_size import StepSize, far_out, near
from holdfast.errors import HoldfastError
from holdfast.guard.host import view_of
from holdfast.guard.review import Review
from holdfast.models.batches import MicroBatch
from holdfast.models.policy import Policy
from holdfast.models.prompt import Prompt
from holdfast.models.sharding import put_state, whole_state
from holdfast.probes.prober import Answering, Prober
from holdfast.randomness import Cursor, Streams, generator
from holdfast.reward.refresher import Refresher
from holdfast.reward.source import Reward, Scored
from holdfast.rollout.sampler import Rollout
from holdfast.run.answers import Answers
from holdfast.run.journal import Journal
from holdfast.run.observer import Audience
from holdfast.run.probes import probe_step
from holdfast.train.ppo import Experience, NonFiniteStep, NothingScored, PolicyOptimiser, response_values

# Steps in a row that are not numbers: one may be an odd batch, five are a policy that has come apart.
MOST_SKIPPED = 5


@dataclass
class Learner:
    """The policy, what it learns from, and what steers and watches its steps.

    Without a guard there is no `review`, and without an ensemble there is no `refresher`. `step_size` sizes the steps
    of a rate that the program has chosen; one that somebody has set stays as it is.
    """

    config: Config
    prompts: Sequence[Prompt]
    prompt_ids: Sequence[list[int]]
    cursor: Cursor
    streams: Streams
    policy: Policy
    reference: Policy
    answers: Answers
    optimiser: PolicyOptimiser
    reward: Reward
    refresher: Refresher | None
    controller: KLController
    budget: KLBudget
    ledger: KLLedger
    learning_rate: LearningRate
    annealing: Annealing
    step_size: StepSize | None
    plateau: Plateau
    mean: PolicyMean
    review: Review[Policy] | None
    journal: Journal
    audience: Audience
    prober: Prober | None
    answering: Answering
    told_unscored: int = 0  # the last round in which it was said why answers have no score

    def begin_probes(self) -> None:
        """Probe the policy as it is before the first step."""
        if self.prober is not None:
            self.prober.begin(self.policy, self.answering)

    def step(self) -> str:
        """One PPO batch: sample, score, assign credit, update, account; what is wrong, where steps have come apart."""
        at, timed = self.journal.position, self.journal.timed
        rows = [i for i in self.cursor.take(self.config.ppo.batch) for _ in range(self.config.ppo.samples_per_prompt)]
        with timed("sample"):
            rollout = self.answers.sample(self.policy, [self.prompt_ids[i] for i in rows], self.streams["rollout"])
        with timed("score"):
            batches = self.optimiser.batches(rollout)
            reference_BT = self.reference_logprobs(rollout, batches)
            values_BT = self.optimiser.values(rollout, batches)
            scored = self.reward.reward(rollout, self.streams["shaping"])
        at.step, at.step_in_round = at.step + 1, at.step_in_round + 1
        of_plan = at.step - 1 - at.freed * self.config.run.steps_per_round
        beta = self.controller.beta
        try:
            if fault := self.reward.fault(scored):
                return self.drop_bad_scores(scored, fault)
            experience = self.optimiser.credit(
                rollout, reference_BT, values_BT, scored.rewards_B, beta, scored.scored_B
            )
            kl = float(experience.kl_B.mean())
            self.controller.update(kl, len(rows), self.reward.labels)
            with timed("update"):
                learned, kl_step = self.update(experience, batches, beta, self.annealing.at(of_plan))
        except NothingScored as reason:
            return self.drop_bad_scores(scored, f"{reason} ({'; '.join(scored.reasons)})")
        except NonFiniteStep as reason:
            return self.skip_step(str(reason))
        at.skipped_in_a_row = 0
        self.tell_unscored(scored)
        self.ledger.record(at.step, at.round, kl_step, kl)
        self.pace(scored.mean)
        with timed("guard"):
            readings = self.see(experience, scored, {**learned, "objective/kl_step": kl_step})
        held = {"objective/kl_step": kl_step, "control/beta": beta}
        self.report_step(experience, scored, {**held, **learned, **readings})
        if self.prober is not None and self.prober.due(at.step):
            probe_step(self.prober, self.policy, experience, batches, self.config.rollout.temperature, at)
        self.audience.after_step(at.step, at.round, [self.prompts[i] for i in rows], self.answers.texts(rollout))
        return ""

    def update(
        self, experience: Experience, batches: list[MicroBatch], beta: float, annealed: float
    ) -> tuple[dict[str, float], float]:
        """Learn from a step's answers, by a step of the size that the rate makes it or that fits the KL budget."""
        rate, rng = self.learning_rate, self.streams["minibatches"]
        if self.step_size is None:
            if not len(self.ledger):
                self.probe_rate(experience, batches, beta)
            return self.optimiser.learn(experience, batches, beta, rate.rate * annealed, rng)
        share = rate.share * annealed * self.controller.pace
        band = self.step_size.band(self.allowance, share)
        learned, kl = self.optimiser.learn(experience, batches, beta, rate.base * share, rng, band)
        self.step_size.learn(learned["control/lr"] / share, kl, band.aim)
        return learned, kl

    @property
    def allowance(self) -> float:
        """How far the policy may go: the controller's target, or what the budget comes to where that has none."""
        target = self.controller.target
        return self.budget.at(self.reward.labels) if target is None else target

    @property
    def rate_setting(self) -> str:
        """The setting that makes steps longer or shorter."""
        if self.step_size is not None:
            return "kl.target" if self.config.kl.controller == "adaptive" else "kl.budget_start"
        return "ppo.lr"

    def probe_rate(self, experience: Experience, batches: list[MicroBatch], beta: float) -> None:
        """Before the first step: try the whole of a rate that somebody has set, and say so where it is far out."""
        rng, tried = self.streams["minibatches"], list[tuple[float, float]]()
        rate: float | None = self.learning_rate.base
        limits = far_out(self.allowance)
        while rate is not None:
            tried.append((rate, self.optimiser.probe(experience, batches, beta, rate, rng)))
            rate = limits.again(tried)
            limits = near(limits.aim)  # of one that is far out it is sought what would do
        if len(tried) > 1:
            (lr, kl), (suits, _) = tried[0], tried[-1]
            moved = {"kl": kl} if math.isfinite(kl) else {}
            self.journal.event("rate_far_out", lr=lr, budget=self.allowance, suits=suits, **moved)

    def see(self, experience: Experience, scored: Scored, learned: Mapping[str, float]) -> dict[str, float]:
        """Let the guard's signals read a step; what they read, by the names of metrics."""
        if self.review is None:
            return {}
        view = view_of(experience.rollout, scored, experience.reference_logprobs_BT, learned)
        return self.review.guard.see(view)

    def pace(self, score: float) -> None:
        """Advance the learning rate, and lower it when the policy has settled."""
        self.learning_rate.advance()
        self.plateau.add(score)
        if self.plateau.settled:
            self.learning_rate.settle()
            if self.refresher is not None:
                # Kept for the next round's refresh: the plateau test itself starts afresh below.
                self.refresher.settled = True
            self.journal.event("lr_decayed", lr=self.learning_rate.rate)
            self.plateau.reset()

    def drop_bad_scores(self, scored: Scored, fault: str) -> str:
        """Drop a step that the reward has not scored; what of it gives nothing else, step after step, is left out.

        Of a reward that is given nothing can be left out, and a policy that is taken back mends no reward.
        """
        trouble = self.skip_step(fault)
        if trouble and scored.given_B is not None:
            raise HoldfastError(
                f"{MOST_SKIPPED} steps in a row were dropped: {fault}; mend the reward, and `holdfast resume` goes on."
            )
        if not trouble or not self.reward.mend(scored, MOST_SKIPPED):
            return trouble
        self.journal.position.skipped_in_a_row = 0
        return ""

    def tell_unscored(self, scored: Scored) -> None:
        """Say why answers have no score, once a round."""
        if scored.reasons and self.told_unscored != (at := self.journal.position).round:
            self.told_unscored = at.round
            count = len(scored.scores_B)
            missing = count - int(scored.scored_B.sum())
            self.journal.event("unscored", answers=count, unscored=missing, reasons=list(scored.reasons))

    def skip_step(self, reason: str) -> str:
        """Count a step that met a value that is not a number; says so where there are too many in a row."""
        at = self.journal.position
        at.skipped, at.skipped_in_a_row = at.skipped + 1, at.skipped_in_a_row + 1
        self.journal.event("step_skipped", reason=reason)
        self.journal.metrics({"steps/skipped": at.skipped})
        self.journal.progress.advance()
        many = at.skipped_in_a_row >= MOST_SKIPPED
        return f"{at.skipped_in_a_row} steps in a row met values that are not numbers ({reason})" if many else ""

    def report_step(self, experience: Experience, scored: Scored, values: Mapping[str, float]) -> None:
        """One row of metrics, one of timings, one move of the progress bar."""
        at, ledger, target = self.journal.position, self.ledger, self.controller.target
        row = {
            **step_metrics(experience, scored),
            "objective/kl_round": ledger.round_total(at.round),
            "objective/kl_cumulative": ledger.spent,
            **({} if target is None else {"control/kl_target": target}),
            **values,
            "steps/skipped": float(at.skipped),
        }
        self.journal.metrics(row)
        shown = {"score": "objective/scores", "kl": "objective/kl", "beta": "control/beta"}
        figures = {name: row[metric] for name, metric in shown.items()}
        self.journal.end_step(round=at.round, **figures, length=row["response/length_mean"])

    def reference_logprobs(self, rollout: Rollout, batches: list[MicroBatch]) -> Tensor:
        """The reference's log-probs of a step's answers, under their grammars and otherwise whole."""
        temperature = self.config.rollout.temperature
        return response_values(self.reference, rollout, batches, temperature, truncated=False)

    def draw(self, policy: Policy, rng: torch.Generator) -> Rollout:
        """Answers of a policy to as many prompts as a step has, drawn by lot; in groups where the reward is given."""
        rows = torch.randint(len(self.prompt_ids), (self.config.ppo.batch,), generator=rng).tolist()
        group = self.config.ppo.samples_per_prompt if self.config.reward.given else 1
        return self.answers.sample(policy, [self.prompt_ids[i] for i in rows for _ in range(group)], rng)

    def take_mean(self) -> None:
        """End with the mean of the last rounds' policies: put it in the policy's place, and say what it is like."""
        policies = self.mean.policies + 1
        put_state(self.policy, self.mean.mean_with(whole_state(self.policy)))
        self.mean.restore({})  # it is in the policy now
        rng = generator(self.config.run.seed, "mean of policies")
        rollout = self.draw(self.policy, rng)
        reference_BT = self.reference_logprobs(rollout, self.optimiser.batches(rollout))
        kl_B = ((rollout.logprobs_BT - reference_BT) * rollout.mask_BT).sum(1)
        score = self.reward.reward(rollout, rng).metrics()["objective/scores"]
        length = sum(rollout.lengths) / len(rollout.lengths)
        self.journal.event("averaged", policies=policies, kl=float(kl_B.mean()), score=score, length=length)


def step_metrics(experience: Experience, scored: Scored) -> dict[str, float]:
    """Reward, KL, entropy and what the answers look like."""
    rollout, scored_B = experience.rollout, scored.scored_B
    reward = float(experience.rewards_B[scored_B].mean())
    return {
        **scored.metrics(),
        "objective/kl": float(experience.kl_B.mean()),
        "objective/rlhf_reward": reward,
        "objective/non_score_reward": reward - float(scored.rewards_B[scored_B].mean()),
        "objective/entropy": -float((rollout.logprobs_BT * rollout.mask_BT).sum(1).mean()),
        "response/length_mean": sum(rollout.lengths) / len(rollout.lengths),
        "response/length_max": float(max(rollout.lengths)),
        "response/unfinished": 1.0 - sum(rollout.finished) / len(rollout.finished),
        "response/distinct2": distinct_bigrams(rollout.responses),
        **({} if rollout.server_gap is None else {"rollout/server_gap": rollout.server_gap}),
    }


def distinct_bigrams(responses: Sequence[Sequence[int]]) -> float:
    """Different pairs of neighbouring tokens over all such pairs in the batch; low when answers repeat."""
    pairs = [pair for r in responses for pair in pairwise(r)]
    return len(set(pairs)) / len(pairs) if pairs else 1.0
