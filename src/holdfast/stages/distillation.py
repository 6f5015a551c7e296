"""Rejection-sampling fine-tuning: the policy learns to give at once what best-of-n had to search for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Prompt
from holdfast.randomness import Cursor, generator
from holdfast.track.progress import Progress
from holdfast.train.best_of_n import Best, BestOfN
from holdfast.train.sft import imitate

# Passes over the best answers.
EPOCHS = 2


@dataclass(frozen=True)
class Distilled:
    """What was imitated, and how it went."""

    answers: int
    tokens_sampled: int
    score_before: float
    score_imitated: float
    loss: float


def distil(
    best_of_n: BestOfN,
    prompts: Sequence[Prompt],
    config: Config,
    progress: Progress,
    after_update: Callable[[int], None] = lambda update: None,
) -> Distilled:
    """Sample, pick and imitate; the policy of `best_of_n` is changed in place.

    Only finished answers are imitated: one that was cut off teaches not to end.
    """
    seed, settings = config.run.seed, config.bestofn
    rows = Cursor(len(prompts), seed, "distil").take(min(settings.prompts, len(prompts)))
    sampled = 0
    best: list[Best] = []
    progress.begin("best of n", len(rows))
    for candidates in best_of_n.candidates([prompts[i] for i in rows], settings.n, generator(seed, "distil")):
        sampled += sum(map(len, candidates.tokens))
        best.append(best_of_n.pick(candidates))
        progress.advance(score=best[-1].score)
    ended = [answer for answer in best if answer.finished]
    if not ended:
        raise HoldfastError(
            "None of the best answers came to an end, so there is nothing to imitate; raise rollout.max_new_tokens."
        )
    loss = imitate(
        best_of_n.policy,
        [best_of_n.codec.encode_prompt(answer.prompt) for answer in ended],
        [answer.tokens for answer in ended],
        replace(config.sft, epochs=EPOCHS, lr=settings.lr),
        best_of_n.codec.pad_id,
        config.policy.micro_batch_tokens,
        generator(seed, "distil sft"),
        progress,
        after_update,
    )
    before, after = fmean(answer.mean_score for answer in best), fmean(answer.score for answer in ended)
    return Distilled(len(ended), sampled, before, after, loss)
