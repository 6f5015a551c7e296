"""Fitting the members of an ensemble to labelled comparisons.

Shapes: P pair; the rows of a batch are the P first sides, then the P second sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from holdfast.algorithms.bradley_terry import bradley_terry_loss, pair_accuracy
from holdfast.algorithms.weight_mean import mean_with_one_more
from holdfast.config.schema import RewardConfig
from holdfast.control.schedule import RefreshSchedule
from holdfast.errors import HoldfastError, MetByAll
from holdfast.models.batches import deal_by_length, group_by_work, take_rows
from holdfast.models.gradients import accumulate, clip_and_step
from holdfast.models.reward_model import RewardModel
from holdfast.models.sharding import is_sharded
from holdfast.models.weights import learning, load_moving_weights, moving_weights
from holdfast.parallel.cores import CORES
from holdfast.parallel.processes import PROCESSES
from holdfast.preferences.pair import Pair
from holdfast.reward.ensemble import Ensemble
from holdfast.reward.replay import FOLDS, fold_of
from holdfast.statistics import Share
from holdfast.track.progress import Progress


@dataclass(frozen=True)
class Fit:
    """How one fit went: mean loss, and accuracy on the labels it saw, over members."""

    loss: float
    accuracy: float


@dataclass(frozen=True)
class FitSettings:
    """Length and pace of a fit."""

    epochs: int
    lr: float
    warmup_steps: int


def fit_ensemble(
    ensemble: Ensemble,
    pairs: Sequence[Pair],
    settings: FitSettings,
    config: RewardConfig,
    rng: torch.Generator,
    progress: Progress,
) -> Fit:
    """Fine-tune every member from where it stands, each in its own data order and on its own share of the labels."""
    if len(pairs) < 2:
        raise HoldfastError(
            f"A reward model needs at least 2 labelled comparisons to train on, and there are {len(pairs)}; label more."
        )
    pairs = [ensemble.own_pair(pair) for pair in pairs]
    # Each member draws from a generator of its own, so members can be fitted side by side and come out the same.
    count = config.members if is_averaged(config) else len(ensemble.members)
    seeds = torch.randint(2**62, (count,), generator=rng).tolist()
    needed = {"pairs": pairs, "settings": settings, "seeds": seeds, "bonus_scale": ensemble.bonus_scale}
    with PROCESSES.joint("fit", ensemble.members, **needed):
        return fit_with(ensemble, pairs, settings, config, seeds, progress)


def fit_with(
    ensemble: Ensemble,
    pairs: Sequence[Pair],
    settings: FitSettings,
    config: RewardConfig,
    seeds: Sequence[int],
    progress: Progress,
) -> Fit:
    """The same with the members' seeds; in joint work each process fits some of the members, and then all have them.

    Members that are dealt out over the processes are fitted one by one, each batch shared out instead.
    """
    shares = [labels_for(k, len(seeds), pairs) for k in range(len(seeds))]
    updates = [settings.epochs * -(-len(share) // config.batch) for share in shares]

    def fit(member: RewardModel, share: Sequence[Pair], seed: int) -> Fit:
        own = torch.Generator().manual_seed(seed)
        return _fit_member(ensemble, member, share, settings, config, own, progress)

    if is_averaged(config):
        (member,) = ensemble.members
        progress.begin("reward model", sum(updates))
        return _to_the_mean(member, [partial(fit, member, *of_fit) for of_fit in zip(shares, seeds, strict=True)])
    jobs = [partial(fit, *of_member) for of_member in zip(ensemble.members, shares, seeds, strict=True)]
    if PROCESSES.together and not is_sharded(ensemble.members[0]):
        progress.begin("reward model", sum(PROCESSES.part(updates)))
        fits = _dealt(ensemble.members, jobs)
    else:
        progress.begin("reward model", sum(updates))
        # As many as there are cores side by side; those left over one by one, with their batches shared out instead.
        even = len(jobs) - len(jobs) % CORES.free
        fits = [*CORES.share(jobs[:even]), *(job() for job in jobs[even:])]
    return _mean_of(fits)


def is_averaged(config: RewardConfig) -> bool:
    """Whether the ensemble is one member, the mean of several that are fitted from where it stands (WARM)."""
    return config.aggregation == "averaged"


def _to_the_mean(member: RewardModel, fits: Sequence[Callable[[], Fit]]) -> Fit:
    """Fit the member several times from the same weights, head included, and give it the mean of what comes out."""
    start = {name: tensor.detach().clone() for name, tensor in moving_weights(member).items()}
    mean: dict[str, Tensor] = {}
    done = []
    for count, fit in enumerate(fits):
        load_moving_weights(member, start)
        done.append(fit())
        with torch.no_grad():
            fitted = {name: tensor.detach().clone() for name, tensor in moving_weights(member).items()}
            mean = mean_with_one_more(mean, count, fitted)
    load_moving_weights(member, mean)
    return _mean_of(done)


def _mean_of(fits: Sequence[Fit]) -> Fit:
    return Fit(sum(f.loss for f in fits) / len(fits), sum(f.accuracy for f in fits) / len(fits))


def _dealt(models: Sequence[RewardModel], jobs: Sequence[Callable[[], Fit]]) -> list[Fit]:
    """Each process fits its share of the members alone; then every member goes from its process to the others."""
    mine = PROCESSES.part(range(len(models)))
    outcomes = torch.zeros(len(models), 2, dtype=torch.float64)
    failed = torch.zeros(1)
    error: HoldfastError | None = None
    with PROCESSES.apart():
        try:
            for k, fit in zip(mine, CORES.share([jobs[k] for k in mine]), strict=True):
                outcomes[k] = torch.tensor([fit.loss, fit.accuracy], dtype=torch.float64)
        except HoldfastError as met:
            error, failed[0] = met, 1.0
    PROCESSES.add(outcomes, failed)
    if failed[0]:
        raise MetByAll(str(error or "Training a reward model failed in another process; lower its lr."))
    with torch.no_grad():
        for k, model in enumerate(models):
            for tensor in model.state_dict().values():
                # Through a copy: the fast path notices changes that are made to the tensor itself.
                copy = tensor.detach().clone()
                PROCESSES.spread(copy, k % PROCESSES.world)
                tensor.copy_(copy)
    return [Fit(loss, accuracy) for loss, accuracy in outcomes.tolist()]


def labels_for(k: int, members: int, pairs: Sequence[Pair]) -> Sequence[Pair]:
    """The labels that member k may learn from.

    Each of several members has a fifth of its own that it never sees, in any version: members differ, and there each
    can be measured as on held-out labels.
    """
    kept = [p for p in pairs if members == 1 or fold_of(p.key) != k % FOLDS]
    # Of a handful of labels the fold may leave next to nothing.
    return kept if len(kept) >= 2 else pairs


def unseen_by(key: str, members: int) -> int | None:
    """The member that no version lets learn from a comparison; None where every member may."""
    fold = fold_of(key)
    return fold if members > 1 and fold < members else None


# Weight of the squared sum of a pair's scores: labels say nothing about where scores lie, and this keeps them near 0.
CENTRING = 0.01

BAD_GRADIENT = "Training a reward model met a gradient that is not a number; lower its lr."


def _fit_member(
    ensemble: Ensemble,
    member: RewardModel,
    pairs: Sequence[Pair],
    settings: FitSettings,
    config: RewardConfig,
    rng: torch.Generator,
    progress: Progress,
) -> Fit:
    optimiser = torch.optim.AdamW(learning(member), lr=settings.lr, weight_decay=0.0, fused=True)
    updates = settings.epochs * -(-len(pairs) // config.batch)
    schedule = RefreshSchedule(settings.lr, settings.warmup_steps, updates)
    losses, accuracies = [], []
    update = 0
    for _ in range(settings.epochs):
        order = torch.randperm(len(pairs), generator=rng).tolist()
        for start in range(0, len(order), config.batch):
            batch = [pairs[i] for i in order[start : start + config.batch]]
            for group in optimiser.param_groups:
                group["lr"] = schedule.at(update)
            loss, accuracy = _accumulate(ensemble, member, batch, config)
            clip_and_step(optimiser, MetByAll(BAD_GRADIENT))
            losses.append(loss)
            accuracies.append(accuracy)
            update += 1
            progress.advance(loss=loss, accuracy=accuracy)
    return Fit(sum(losses) / len(losses), sum(accuracies) / len(accuracies))


def _accumulate(
    ensemble: Ensemble, member: RewardModel, batch: Sequence[Pair], config: RewardConfig
) -> tuple[float, float]:
    """Add up the gradients of a batch, the two sides of a pair always in one pass."""
    device = next(member.parameters()).device
    lengths = [p.tokens for p in batch]
    # Members that are fitted side by side share the room of one pass between them.
    room = max(1, ensemble.max_tokens // CORES.sharers)
    if member.fast is None:
        hands = PROCESSES.world if PROCESSES.together else 1
        groups = deal_by_length(range(len(batch)), lengths, room, hands)
    else:
        groups = group_by_work(range(len(batch)), lengths, room, CORES.free)

    def loss_of(group: list[int]) -> tuple[Tensor, tuple[float, float]]:
        pairs = [batch[i] for i in group]
        prompts, answers = [p.prompt for p in pairs] * 2, [p.a for p in pairs] + [p.b for p in pairs]
        rows = take_rows(prompts, answers, list(range(len(answers))), ensemble.pad_id, device)
        scores_2P, added_2P = member(rows), ensemble.added(prompts, answers)
        if added_2P is not None:
            # A planted flaw is part of what the member says, so that training can learn to take it back.
            scores_2P = scores_2P + added_2P.to(scores_2P)
        a_P, b_P = scores_2P.chunk(2)
        share_P = torch.tensor([p.share_a for p in pairs], device=device)
        part = len(pairs) / len(batch)
        # Where every label counts whole, as nearly always, there is nothing to multiply.
        whole = all(p.weight == 1.0 for p in pairs)
        weight_P = None if whole else torch.tensor([p.weight for p in pairs], device=device)
        loss = part * bradley_terry_loss(
            a_P, b_P, label_smoothing=config.label_smoothing, centring=CENTRING, share_P=share_P, weight_P=weight_P
        )
        better_P, worse_P = torch.where(share_P >= 0.5, a_P, b_P), torch.where(share_P >= 0.5, b_P, a_P)
        accuracy = part * float(pair_accuracy(better_P.detach(), worse_P.detach()))
        return loss, (float(loss.detach()), accuracy)

    parts = accumulate(learning(member), groups, loss_of)
    loss, accuracy = PROCESSES.total([sum(loss for loss, _ in parts), sum(accuracy for _, accuracy in parts)])
    return loss, accuracy


def ensemble_accuracy(ensemble: Ensemble, pairs: Sequence[Pair]) -> Share | None:
    """How often the members' mean prefers what the label prefers; None without a clear-cut pair."""
    clear = [p for p in pairs if p.share_a != 0.5]
    if not clear:
        return None
    margins_P = ensemble.margins(clear).mean(0)
    sign_P = torch.tensor([1.0 if p.share_a > 0.5 else -1.0 for p in clear])
    return Share(float(pair_accuracy(margins_P * sign_P, torch.zeros_like(margins_P))), len(clear))
