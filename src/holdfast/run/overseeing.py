"""The guard's part of a round: baselines before it, readings in every step, audit, verdict and actions after it.

reference answers -> baselines                          (begin_guard)
a step's answers -> signals                             (see)
fresh pairs -> people -> verdict -> ladder -> actions   (watch_over)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holdfast.events import round_line
from holdfast.guard.view import StepView
from holdfast.models.policy import Policy
from holdfast.preferences.collector import Voices
from holdfast.randomness import generator
from holdfast.reward.scoring import Scored
from holdfast.rollout.sampler import Rollout
from holdfast.run.acting import act
from holdfast.train.ppo import Experience, response_values, rollout_batches

if TYPE_CHECKING:
    from holdfast.run.loop import OnlineLoop

# Labelled comparisons whose answers tell the signals which words have been judged, and answers whose features do:
# enough for stable figures, few enough to take no time.
KNOWN_COMPARISONS = 500
KNOWN_ANSWERS = 256


def begin_guard(loop: OnlineLoop) -> None:
    """Baselines from the reference's answers, and what has been labelled so far."""
    if loop.guarding is None:
        return
    keep_good(loop)
    learn_known(loop)
    guard = loop.guarding.guard
    if guard.begun:
        return
    rng, ids = generator(loop.config.run.seed, "baseline"), loop.prompt_ids
    views = []
    for _ in range(loop.config.guard.baseline_batches):
        rows = torch.randint(len(ids), (loop.config.ppo.batch,), generator=rng).tolist()
        rollout = loop.sample(loop.reference, [ids[i] for i in rows], rng)
        views.append(view_of(rollout, rollout.logprobs_BT, loop.rewarding.reward(rollout, rng), {}))
    guard.begin(views)
    loop.event("baselines", signals=guard.usual())


def learn_known(loop: OnlineLoop) -> None:
    """Tell the signals what has been labelled, as the present ensemble sees it."""
    if loop.guarding is None:
        return
    prompts, responses = loop.refreshing.labelled_answers(KNOWN_COMPARISONS, loop.position.round)
    features_MD = loop.rewarding.ensemble.features(prompts[:KNOWN_ANSWERS], responses[:KNOWN_ANSWERS])
    loop.guarding.guard.know(responses, features_MD, loop.policy.vocabulary)


def see(loop: OnlineLoop, experience: Experience, scored: Scored, learned: Mapping[str, float]) -> dict[str, float]:
    """Let the signals read a step; what they read, by the names of metrics."""
    if loop.guarding is None:
        return {}
    view = view_of(experience.rollout, experience.reference_logprobs_BT, scored, learned)
    return loop.guarding.guard.see(view)


def watch_over(loop: OnlineLoop, name: str) -> bool:
    """Audit, verdict, actions; the policy that people like becomes the one that a rollback goes back to.

    Returns whether the policy that the round came to stands, with nothing held against it.
    """
    if loop.guarding is None:
        return True
    at, guarding = loop.position, loop.guarding
    last = at.round >= loop.config.run.rounds
    voices = voices_of(loop)
    with loop.timed("audit"):
        verdict, pairs = guarding.judge(at.round, loop.policy, voices, last)
    audited = {"labels": len(pairs), "labels_left": guarding.auditing.budget_left, **guarding.guard.audited()}
    loop.event("audit", **audited)
    loop.event("verdict", level=verdict.level, sentence=verdict.sentence, evidence=verdict.evidence)
    loop.progress.say(round_line(at.round, audited, {"level": verdict.level, "sentence": verdict.sentence}))
    actions = guarding.answer(verdict)
    if last and verdict.level != "hacking":
        with loop.timed("audit"):
            choice = guarding.choose(at.round, loop.policy, voices, pairs)
        pairs = choice.pairs
        if choice.again:
            loop.event("choice", labels_left=guarding.auditing.left, **choice.record())
        actions += choice.actions()
    for action in actions:
        if guarding.acts:
            act(loop, action)
        else:
            loop.event("advice", rung=action.rung, reason=action.reason)
    if guarding.acts and any(action.rung == "rollback" for action in actions):
        learn_known(loop)
        loop.let_observe()
    stands = guarding.stands(verdict, pairs)
    if guarding.is_good(verdict, pairs):
        guarding.advance(name, at.round, at.step, loop.policy)
    guarding.guard.close_round(verdict)
    return stands


def voices_of(loop: OnlineLoop) -> Voices[Policy]:
    """How the run's policies answer, and how likely each finds an answer at the temperature of sampling."""

    def likelihood(policy: Policy, rollout: Rollout, rows: list[int]) -> Tensor:
        batches = rollout_batches(policy, rollout, rows, loop.codec.pad_id, loop.config.policy.micro_batch_tokens)
        logprobs_BT = response_values(policy, rollout, batches, loop.config.rollout.temperature)
        return logprobs_BT[rows].sum(1)

    def own(policy: Policy, rollout: Rollout, rows: list[int]) -> Tensor:
        return (rollout.logprobs_BT * rollout.mask_BT)[rows].sum(1)

    return Voices(loop.sample, likelihood, own)


def keep_good(loop: OnlineLoop) -> None:
    """Pin the last good checkpoint, and no other, once it is on disk."""
    if loop.guarding is None:
        return
    good, pinned = loop.guarding.good.name, loop.checkpoints.pinned
    if good not in pinned:
        loop.checkpoints.pin(good)
    for other in pinned - {good}:
        loop.checkpoints.unpin(other)


def view_of(rollout: Rollout, reference_BT: Tensor, scored: Scored, learned: Mapping[str, float]) -> StepView:
    """A step as the signals see it."""
    return StepView(
        prompts=rollout.prompts,
        responses=rollout.responses,
        finished=rollout.finished,
        logprobs_BT=rollout.logprobs_BT,
        reference_logprobs_BT=reference_BT,
        mask_BT=rollout.mask_BT,
        scores_KB=scored.members_KB,
        features_BD=scored.features_BD,
        learned=learned,
        probe_B=scored.probe_B,
    )
