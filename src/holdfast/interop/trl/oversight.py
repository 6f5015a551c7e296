"""The guard over a trainer that is not ours, from the first step of its training to the last.

reference answers -> baselines                                              (begin)
a step's completions, kl and entropy -> signals, KL controller -> beta      (see)
fresh pairs -> labeller -> verdict -> ladder -> actions on the trainer      (audit)

All judgement is `guarding.Guarding`'s, as in our own loop; here is only what it takes to carry it to the trainer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.checkpoint.store import CheckpointStore
from holdfast.config.schema import GuardConfig
from holdfast.control.kl import KLController
from holdfast.guard.ladder import Action
from holdfast.guard.lines import event_line, round_line
from holdfast.guard.review import Guarding, win_rate
from holdfast.guard.verdict import Verdict
from holdfast.guard.view import StepView
from holdfast.interop.trl.answers import Answers, Player, per_token
from holdfast.interop.trl.refresher import EnsembleTeacher
from holdfast.interop.trl.snapshot import capture, put_back
from holdfast.preferences.collector import Voices
from holdfast.randomness import generator
from holdfast.reward.scoring import Scored
from holdfast.rollout.sampler import Rollout
from holdfast.track.tracker import Tracker


@dataclass(frozen=True)
class Batch:
    """A generation as the reward function met it: answers, scores, and the policy's own count of their tokens."""

    rollout: Rollout
    scored: Scored
    tokens: Sequence[int]


@dataclass
class Oversight:
    """Everything that exists once training has begun. `round` counts audits; `audited` is the step of the last one."""

    trainer: Any
    guarding: Guarding[Player]
    controller: KLController
    answers: Answers
    policy: Player
    kept: CheckpointStore
    tracker: Tracker
    refresher: EnsembleTeacher
    say: Callable[[str], None]
    rounds: int
    bar: float
    round: int = 1
    audited: int = 0

    @property
    def step(self) -> int:
        return int(self.trainer.state.global_step)

    @property
    def config(self) -> GuardConfig:
        return self.guarding.config

    def begin(self) -> None:
        """Baselines from the reference's answers, in batches like the trainer's own; the beginning is kept."""
        guarding, args = self.guarding, self.trainer.args
        self.keep_good(guarding.good.name)
        self.refresher.learn_known(guarding.guard)
        group = int(args.num_generations)
        prompts, rng = list(self.answers.prompts), generator(guarding.seed, "baseline")
        views = []
        for _ in range(self.config.baseline_batches):
            rows = torch.randint(len(prompts), (max(1, int(args.generation_batch_size) // group),), generator=rng)
            asked = [list(prompts[i]) for i in rows.tolist() for _ in range(group)]
            rollout = self.answers.sample(guarding.reference, asked, rng)
            scored = self.answers.reward.score(rollout)
            views.append(view_of(rollout, scored, rollout.logprobs_BT, rollout.logprobs_BT, {}))
        guarding.guard.begin(views)
        self.event("baselines", signals=guarding.guard.usual())

    def see(self, batch: Batch, metrics: Mapping[str, float]) -> None:
        """Let the signals read a step, and the controller set the next one's beta."""
        rollout, tokens_B = batch.rollout, torch.tensor(batch.tokens, dtype=torch.float32)
        # The trainer's kl and entropy are means over the policy's tokens.
        kl, entropy = (metrics.get(name, math.nan) for name in ("kl", "entropy"))
        logprobs_BT = -per_token(rollout, entropy * tokens_B)
        reference_BT = logprobs_BT - per_token(rollout, kl * tokens_B)
        learned = {"objective/scores": float(batch.scored.scores_B.mean())}
        if "clip_ratio/region_mean" in metrics:
            learned["policy/clipfrac_avg"] = metrics["clip_ratio/region_mean"]
        readings = self.guarding.guard.see(view_of(rollout, batch.scored, logprobs_BT, reference_BT, learned))
        kl_answer = kl * float(tokens_B.mean())
        if math.isfinite(kl_answer):
            self.controller.update(kl_answer, len(tokens_B), self.answers.reward.ensemble.labels)
            self.trainer.beta = self.controller.beta
        self.tracker.metrics(self.step, self.round, {**readings, "control/beta": self.trainer.beta})

    def audit(self, last: bool) -> bool:
        """Ask about fresh pairs, come to a verdict and act on it; whether training is to stop."""
        guarding = self.guarding
        # Log-probs of sampling stand for entropies here, so a player's own answers are looked at once more.
        voices = Voices(self.answers.sample, self.answers.likelihood, self.answers.likelihood)
        verdict, pairs = guarding.judge(self.round, self.policy, voices, last)
        audited = {"labels": len(pairs), "labels_left": guarding.auditing.budget_left, **guarding.guard.audited()}
        self.event("audit", **audited)
        self.event("verdict", level=verdict.level, sentence=verdict.sentence, evidence=verdict.evidence)
        self.say(round_line(self.round, audited, {"level": verdict.level, "sentence": verdict.sentence}))
        self._log(verdict, {name: win_rate(pairs, name) for name in ("reference", "anchor", "pointed")})
        actions = guarding.answer(verdict)
        if last and verdict.level != "hacking":
            choice = guarding.choose(self.round, self.policy, voices, pairs)
            pairs = choice.pairs
            if choice.again:
                self.event("choice", labels_left=guarding.auditing.left, **choice.record())
            actions += choice.actions()
        if guarding.guard.miscalibrated and not any(action.rung == "refresh" for action in actions):
            actions.append(Action("refresh", "the last audit found the ensemble's claims wrong"))
        for action in actions:
            if guarding.acts:
                RUNGS[action.rung](self, action)
            else:
                self.event("advice", rung=action.rung, reason=action.reason)
        if guarding.is_good(verdict, pairs):
            name = self.free_name(f"round-{self.round:04d}")
            self.keep_good(name)
            guarding.advance(name, self.round, self.step, self.policy)
        guarding.guard.close_round(verdict)
        self.round, self.audited = self.round + 1, self.step
        return guarding.stopped

    def keep_good(self, name: str) -> None:
        """Put the trainer, as it is now, where a rollback finds it."""
        self.kept.save(name, capture(self.trainer, self.controller, self.refresher.version))
        self.kept.pin(name)

    def free_name(self, name: str) -> str:
        """A run that was resumed from further back keeps what its other future has kept."""
        taken, number = set(self.kept.names()), 1
        while (free := name if number == 1 else f"{name}.{number}") in taken:
            number += 1
        return free

    def close(self) -> None:
        """Let go of files and labels."""
        self.tracker.close()
        self.refresher.store.close()

    def event(self, kind: str, **fields: object) -> None:
        """Write down what happened, and say it where it matters to whoever watches."""
        self.tracker.event(self.step, self.round, kind, **fields)
        line = event_line(kind, self.round, fields)
        if line is not None:
            self.say(line)

    def _log(self, verdict: Verdict, rates: Mapping[str, float | None]) -> None:
        """The audit among the trainer's own metrics, for whatever it reports to."""
        logged = getattr(self.trainer, "_metrics", {}).get("train")
        if logged is None:
            return
        numbers = {f"holdfast/win_rate_{name}": rate for name, rate in rates.items()}
        for name in ("suspicion_p", "evidence"):
            value = verdict.evidence.get(name)
            numbers[f"holdfast/{name}"] = float(value) if isinstance(value, int | float) else None
        for name, number in numbers.items():
            if number is not None:
                logged.setdefault(name, []).append(number)

    def state(self) -> dict[str, Any]:
        """Everything that moves, as JSON; weights of the last good policy are in its checkpoint."""
        return {
            "guarding": self.guarding.state(),
            "controller": self.controller.state(),
            "refresher": self.refresher.state(),
            "rounds": self.rounds,
            "bar": self.bar,
            "round": self.round,
            "audited": self.audited,
            "offsets": self.tracker.offsets(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave; a run that had stopped to ask is allowed to go on."""
        good = self.kept.load(state["guarding"]["good"]["name"])
        self.guarding.restore(state["guarding"], good.tensors["policy"])
        self.controller.restore(state["controller"])
        self.trainer.beta = self.controller.beta
        self.refresher.restore(state["refresher"])
        self.refresher.learn_known(self.guarding.guard)
        self.round, self.audited = int(state["round"]), int(state["audited"])
        self.tracker.rewind(state["offsets"])
        if self.guarding.stopped:
            self.guarding.grant()
        self.event("resumed", checkpoint=f"checkpoint-{self.step}")


def view_of(
    rollout: Rollout, scored: Scored, logprobs_BT: Tensor, reference_BT: Tensor, learned: Mapping[str, float]
) -> StepView:
    """A batch as the signals see it."""
    return StepView(
        prompts=rollout.prompts,
        responses=rollout.responses,
        finished=rollout.finished,
        logprobs_BT=logprobs_BT,
        reference_logprobs_BT=reference_BT,
        mask_BT=rollout.mask_BT,
        scores_KB=scored.members_KB,
        features_BD=scored.features_BD,
        learned=learned,
        probe_B=scored.probe_B,
    )


# ---- what the ladder's rungs are on a trainer


def tighten(over: Oversight, action: Action) -> None:
    """Raise beta on the live trainer, and lower the KL that is aimed at where there is a target."""
    config, times = over.config, action.times
    before = {"beta": over.trainer.beta, "kl_target": over.controller.target}
    over.controller.tighten(config.beta_factor**times, config.budget_factor**times)
    over.trainer.beta = over.controller.beta
    after = {"beta": over.trainer.beta, "kl_target": over.controller.target}
    _written(over, action, "the policy is held closer to the reference", before, after)


def rollback(over: Oversight, action: Action) -> None:
    """Back to the last good policy, with everything that moves along with it; steps go on."""
    good, stepped_to = over.guarding.good, over.step
    snapshot = over.kept.load(good.name)
    over.refresher.go_back(snapshot)
    put_back(over.trainer, over.controller, snapshot, over.refresher.version)
    over.guarding.guard.after_rollback()
    over.refresher.learn_known(over.guarding.guard)
    over.event("rollback", to=good.name, step_from=stepped_to, step_to=good.step, reason=action.reason)


def stop(over: Oversight, action: Action) -> None:
    over.guarding.stopped = True
    over.event("stopped", reason=action.reason)


def refresh(over: Oversight, action: Action) -> None:
    """Train the ensemble on the audit's labels, which have measured before they train."""
    if not over.refresher.wanted:
        left_out(over, action)
        return
    outcome = over.refresher.refresh(over.round + 1, over.step)
    if outcome is None:
        over.event("refresh_skipped", reason=f"{action.reason}, but there are no new labels")
        return
    over.refresher.learn_known(over.guarding.guard)
    over.event("refresh", reason=action.reason, **outcome.refresh_event())


def adversarial(over: Oversight, action: Action) -> None:
    """Hacked answers beside good ones, labelled, where the ensemble learns from labels at all."""
    guarding = over.guarding
    if not over.refresher.wanted:
        left_out(over, action)
        return
    before = {"labels": over.refresher.store.watermark()}
    labelled = guarding.auditing.collecting.collect_adversarial(
        over.round, guarding.audits.suspicious_pairs, over.policy, guarding.anchor, guarding.good.name,
        over.answers.sample, guarding.seed,
    )  # fmt: skip
    after = {"labels": over.refresher.store.watermark()}
    _written(over, action, f"{labelled} hacked answers labelled beside good ones", before, after)


def left_out(over: Oversight, action: Action) -> None:
    """What this run was not asked to do; nor does a trainer of somebody else's collect comparisons to label more of."""
    over.event("left_out", rung=action.rung, reason=action.reason)


RUNGS: dict[str, Callable[[Oversight, Action], None]] = {
    "tighten": tighten,
    "slow_down": left_out,
    "label_more": left_out,
    "refresh": refresh,
    "adversarial": adversarial,
    "rollback": rollback,
    "stop": stop,
}


def _written(over: Oversight, action: Action, words: str, before: object, after: object) -> None:
    """The event of an action, with the value before it and the one read back after it."""
    over.event(
        "action", rung=action.rung, words=words, before=before, after=after, changed=before != after,
        reason=action.reason,
    )  # fmt: skip
