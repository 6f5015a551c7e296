"""DPO on the labels of a store, as a run of its own: checkpointed, resumable bit for bit, probed, reported.

    labels -> pairs -> reference log-probs, computed once and kept      (prepare)
    cursor -> batch of pairs -> loss -> update                          (update)
    policy on held-out prompts -> KL, length, samples, observers        (measure, after each pass)

A pass over the pairs counts as a round, an update as a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

import torch

from holdfast.checkpoint.pace import SavePace
from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.store import CheckpointStore
from holdfast.checkpoint.transaction import Part, capture, restore
from holdfast.config import Config
from holdfast.control.schedule import RefreshSchedule
from holdfast.errors import HoldfastError, Interrupted
from holdfast.models.gradients import clip_and_step
from holdfast.models.policy import Policy
from holdfast.models.prompt import Prompt, plain_text
from holdfast.models.sharding import ModelWeights
from holdfast.models.weights import learning
from holdfast.probes.prober import Answering, Prober
from holdfast.randomness import Cursor, generator
from holdfast.rollout.likelihood import answer_logprobs
from holdfast.rollout.sampler import Rollout
from holdfast.run.answers import Answers
from holdfast.run.observer import Audience
from holdfast.track.progress import Progress
from holdfast.track.tracker import Tracker
from holdfast.train.dpo import AnswerPair, PairLearner
from holdfast.train.optimiser import OptimiserState

# Held-out prompts that are answered after each pass to measure KL and length.
# Updates until the peak of the learning rate.
WARMUP_STEPS = 10
MEASURED = 100


@dataclass
class OfflineDPO:
    """One noun per collaborator; `run` reads like the algorithm."""

    config: Config
    answers: Answers
    reference: Policy
    pairs: Sequence[AnswerPair]
    held_out: Sequence[AnswerPair]
    heldout_prompts: Sequence[Prompt]
    tracker: Tracker
    checkpoints: CheckpointStore
    progress: Progress
    prober: Prober | None
    answering: Answering
    audience: Audience
    stop_requested: Callable[[], bool]
    pace: SavePace = field(default_factory=SavePace)

    def __post_init__(self) -> None:
        dpo, self.policy, self.position = self.config.dpo, self.answers.policy, self.answers.position
        self.per_epoch = -(-len(self.pairs) // dpo.batch)
        parameters = learning(self.policy)
        self.learner = PairLearner(
            self.policy, parameters, dpo, 1.0, self.config.policy.micro_batch_tokens, self.answers.codec.pad_id
        )
        self.optimiser = torch.optim.AdamW(parameters, lr=dpo.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
        self.schedule = RefreshSchedule(dpo.lr, WARMUP_STEPS, dpo.epochs * self.per_epoch)
        self.cursor = Cursor(len(self.pairs), self.config.run.seed, "dpo pairs")
        self.parts: dict[str, Part] = {
            "policy": ModelWeights(self.policy),
            "optimiser": OptimiserState(self.optimiser),
            "position": self.position,
            "cursor": self.cursor,
            "audience": self.audience,
            "files": self.tracker,
        }

    def run(self) -> None:
        """All passes from where the run stands."""
        at, epochs = self.position, self.config.dpo.epochs
        if self.checkpoints.is_empty():
            self.begin()
        self.progress.begin("dpo", max(0, epochs * self.per_epoch - at.step))
        while at.round <= epochs:
            while at.step_in_round < self.per_epoch:
                self.update()
                if at.step_in_round < self.per_epoch:
                    self.commit_within_pass()
            at.next_round()
            self.commit_now()
            self.stop_if_asked()
        self.event("run_finished")

    def begin(self) -> None:
        """Everything once before the first update."""
        if self.prober is not None:
            self.prober.begin(self.policy, self.answering)
        self.event(
            "pairs_ready", train=len(self.pairs), held_out=len(self.held_out),
            batch=min(self.config.dpo.batch, len(self.pairs)), prompts=min(MEASURED, len(self.heldout_prompts)),
        )  # fmt: skip
        self.tracker.metrics(0, 0, self.measure(0))
        self.commit("round-0000")

    def update(self) -> None:
        """One batch of pairs: loss, gradient, step, figures."""
        at, dpo = self.position, self.config.dpo
        batch = [self.pairs[i] for i in self.cursor.take(min(dpo.batch, len(self.pairs)))]
        lr = self.schedule.at(at.step)
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        stats = self.learner.accumulate(batch, dpo.beta)
        bad = HoldfastError("DPO met a gradient that is not a number; lower dpo.lr.")
        norm = clip_and_step(self.optimiser, bad)
        at.step, at.step_in_round = at.step + 1, at.step_in_round + 1
        figures = {**stats.metrics(), "optim/grad_norm": norm, "control/lr": lr, "control/beta": dpo.beta}
        self.probe()
        if at.step_in_round == self.per_epoch:
            figures |= self.measure(at.round)
            self.event("round_finished", kl=figures["objective/kl"], kl_round=figures["objective/kl"])
        self.tracker.metrics(at.step, at.round, figures)
        self.progress.advance(
            loss=figures["loss/dpo"], accuracy=figures["rewards/accuracies"], chosen=figures["logps/chosen"],
            rejected=figures["logps/rejected"],
        )  # fmt: skip

    def probe(self) -> None:
        """Probe where it is due, and warn when the squeezing effect is under way for the first time."""
        at, prober = self.position, self.prober
        if prober is None or not (prober.due(at.step) or at.step == self.config.dpo.epochs * self.per_epoch):
            return
        prober.probe(self.policy, at.step, at.round)
        squeezing = prober.squeezing()
        if squeezing is not None:
            evidence = {name: value for name, value in asdict(squeezing).items() if name != "step"}
            self.event("squeezing", sentence=squeezing.sentence, **evidence)
            self.progress.say(f"squeezing: {squeezing.sentence}")

    def measure(self, epoch: int) -> dict[str, float]:
        """KL to the reference and length on held-out prompts, accuracy on held-out labels; samples and observers."""
        at = self.position
        prompts = list(self.heldout_prompts[:MEASURED])
        figures: dict[str, float] = {}
        if prompts:
            ids = [self.answers.codec.encode_prompt(p) for p in prompts]
            rng = generator(self.config.run.seed, "answers")
            rollout = self.answers.sample(self.policy, ids, rng, counted=False)
            kl_B = (rollout.logprobs_BT * rollout.mask_BT).sum(1) - answer_logprobs(
                self.reference, rollout.prompts, rollout.responses, self.answers.codec.pad_id,
                self.config.policy.micro_batch_tokens, self.config.rollout.temperature, rollout.grammars,
            )  # fmt: skip
            figures["objective/kl"] = float(kl_B.mean())
            figures["response/length_mean"] = sum(rollout.lengths) / len(rollout.lengths)
            figures["response/unfinished"] = 1.0 - sum(rollout.finished) / len(rollout.finished)
            self.show_samples(prompts, rollout, epoch)
        if self.held_out:
            stats = self.learner.measure(self.held_out, self.config.dpo.beta)
            figures["rewards/heldout_accuracies"] = stats.metrics()["rewards/accuracies"]
        self.audience.after_round(at.step, epoch, self.answers.answer)
        return figures

    def show_samples(self, prompts: Sequence[Prompt], rollout: Rollout, epoch: int) -> None:
        shown = min(self.config.track.samples, len(prompts))
        answers = self.answers.texts(rollout)[:shown]
        for i, (prompt, answer) in enumerate(zip(prompts[:shown], answers, strict=True)):
            self.tracker.sample(
                self.position.step, epoch, prompt_index=i, prompt=plain_text(prompt), response=answer.text,
                finished=answer.finished,
            )  # fmt: skip
        self.audience.after_samples(self.position.step, epoch, prompts[:shown], answers)

    def event(self, kind: str, **fields: object) -> None:
        self.tracker.event(self.position.step, min(self.position.round, self.config.dpo.epochs), kind, **fields)

    def commit_within_pass(self) -> None:
        """Save where that costs little beside the updates that it keeps, and when the user has asked to stop."""
        if self.stop_requested() or self.pace.due:
            self.commit_now()
        self.stop_if_asked()

    def commit_now(self) -> None:
        """Save where the run stands within a pass, or between two."""
        self.commit(self.position.checkpoint_name)

    def stop_if_asked(self) -> None:
        if self.stop_requested() and self.position.round <= self.config.dpo.epochs:
            raise Interrupted

    def commit(self, name: str) -> None:
        """Write a checkpoint that holds everything that moves."""
        with self.pace.saving():
            self.checkpoints.save(name, capture(self.parts))

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a checkpoint; the files are cut to match."""
        restore(self.parts, snapshot)
        if self.prober is not None:
            self.prober.recall()
