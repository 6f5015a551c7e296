"""Best-of-n measured where the truth is known: gold and proxy against sqrt(KL), by the unbiased estimator.

    prompts -> N answers each, every member's score and gold  (Pool, drawn once)
    pool, an aggregation, n -> proxy and gold of the best of n -> curve -> fit

Shapes: K member, P prompts, N answers to a prompt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from holdfast.algorithms.best_of_n import best_of_n_estimate, best_of_n_kl
from holdfast.algorithms.overoptimisation import FormFit, fit_form
from holdfast.charts.chart import ChartSpec, Series
from holdfast.lab.observer import Gold, scores_of
from holdfast.models.load import load_causal_lm
from holdfast.models.policy import Policy
from holdfast.models.prompt import Prompt
from holdfast.randomness import generator
from holdfast.reward.aggregate import Aggregation, aggregate
from holdfast.reward.standalone import load_ensemble
from holdfast.run.answers import sampling_of
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import grammars_of
from holdfast.run.observer import Answer
from holdfast.train.best_of_n import BestOfN
from holdfast.worlds.registry import load_task, load_world

COLOURS = (1, 0, 2, 3)
WEIGHT = 0.5  # lambda of the uncertainty-weighted score for best-of-n (Coste et al. 2023)
ENSEMBLES: tuple[Aggregation, ...] = ("mean", "worst", "uncertainty")
NS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


@dataclass(frozen=True)
class Pool:
    """Many answers to each prompt, scored by every member and by the truth."""

    members_KPN: Tensor
    gold_PN: Tensor


@dataclass(frozen=True)
class Point:
    """The best of n: its KL to one answer, its proxy, and its gold, means over prompts."""

    n: int
    kl: float
    proxy: float
    gold: float

    @property
    def distance(self) -> float:
        return math.sqrt(self.kl)


def draw_pool(run: RunDirectory, gold: Gold, prompts: Sequence[Prompt], answers: int, version: int = 1) -> Pool:
    """The reference's answers of a run, scored by a version of its ensemble."""
    config = run.config()
    lm, codec = load_causal_lm(run.reference, config.policy.dtype)
    ensemble = load_ensemble(run.rewards, lm, codec, config, version)
    grammars = grammars_of(config, load_task(config, load_world(config)), codec)
    policy = Policy(lm, fast=config.policy.fast)
    chooser = BestOfN(policy, ensemble, codec, sampling_of(config), grammars=grammars)
    members, golds = [], []
    for c in chooser.candidates(prompts, answers, generator(config.run.seed, "pool")):
        members.append(c.members_KN)
        texts = [Answer(codec.decode(tokens), done) for tokens, done in zip(c.tokens, c.finished, strict=True)]
        golds.append(torch.tensor(scores_of(gold, [c.prompt] * len(texts), texts)))
    return Pool(torch.stack(members, dim=1), torch.stack(golds))


def proxy_of(pool: Pool, kind: Aggregation) -> Tensor:
    """proxy_PN by the whole ensemble."""
    count, prompts, answers = pool.members_KPN.shape
    return aggregate(pool.members_KPN.reshape(count, -1), kind, WEIGHT).view(prompts, answers)


def curve(proxy_PN: Tensor, gold_PN: Tensor, ns: Sequence[int] = NS) -> list[Point]:
    """The best of n by this proxy, for each n that the pool is large enough for."""
    points = []
    for n in [n for n in ns if n <= proxy_PN.shape[1]]:
        proxies = [best_of_n_estimate(proxy_N, proxy_N, n) for proxy_N in proxy_PN]
        golds = [best_of_n_estimate(p_N, g_N, n) for p_N, g_N in zip(proxy_PN, gold_PN, strict=True)]
        points.append(Point(n, best_of_n_kl(n), fmean(proxies), fmean(golds)))
    return points


def curves_of(pool: Pool) -> dict[str, list[Point]]:
    """By one member (the mean over members of their curves), and by the ensemble in three ways."""
    singles = [curve(member_PN, pool.gold_PN) for member_PN in pool.members_KPN]
    return {
        "one member": [
            Point(points[0].n, points[0].kl, fmean(p.proxy for p in points), fmean(p.gold for p in points))
            for points in zip(*singles, strict=True)
        ],
        **{kind: curve(proxy_of(pool, kind), pool.gold_PN) for kind in ENSEMBLES},
    }


def table(curves: dict[str, list[Point]]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Columns and rows of texts, a row for each n."""
    rows = [
        [str(point.n), f"{point.kl:.2f}", *(f"{of[i].gold:+.3f} / {of[i].proxy:+.2f}" for of in curves.values())]
        for i, point in enumerate(next(iter(curves.values())))
    ]
    return ("n", "KL", *curves), rows


def charts(curves: dict[str, list[Point]]) -> list[ChartSpec]:
    """Gold and proxy against sqrt(KL)."""
    return [
        ChartSpec(
            title=title,
            subtitle=subtitle,
            unit=unit,
            x_label="sqrt(KL)",
            series=tuple(
                Series(name, [p.distance for p in points], [getattr(p, what) for p in points], colour)
                for (name, points), colour in zip(curves.items(), COLOURS, strict=True)
            ),
        )
        for what, title, subtitle, unit in (
            ("gold", "Best-of-n: gold", "What is true of the answer that each way of scoring takes.", "gold score"),
            ("proxy", "Best-of-n: proxy", "What each way of scoring says of its own choice.", "standardised score"),
        )
    ]


def fit_curve(points: Sequence[Point]) -> FormFit:
    """d (a - b d) through gold above the reference's."""
    start = points[0].gold
    distance = torch.tensor([p.distance for p in points])
    return fit_form("best_of_n", distance, torch.tensor([p.gold - start for p in points]))
