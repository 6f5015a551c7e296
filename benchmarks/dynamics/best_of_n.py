"""Best-of-n and PPO against the same ensemble, with a quarter of the labels wrong: gold and proxy against sqrt(KL).

The best of n by one member, by the mean, by the worst case and uncertainty-weighted; the two functional forms and how
well they fit; best-of-n against PPO at equal KL and at equal proxy.

python -m benchmarks best_of_n         writes benchmarks/results/best_of_n.json and best_of_n.svg
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.record import keep, keep_figure, seeds_and_runs, smoothed
from holdfast.algorithms.overoptimisation import FormFit, fit_form
from holdfast.charts.chart import ChartSpec, Series
from holdfast.config import load_config
from holdfast.lab.best_of_n import Point, curves_of, draw_pool, fit_curve
from holdfast.lab.observer import gold_of
from holdfast.lab.scenarios import STANDS_STILL
from holdfast.lab.trial import Job, Trial, run_trial
from holdfast.run.directory import RunDirectory
from holdfast.statistics import bootstrap
from holdfast.worlds.registry import load_world

SETTINGS = (
    "world.label_noise=0.25", "reward.members=5", "reward.aggregation=mean", "kl.controller=fixed", "kl.beta=0.0",
    *STANDS_STILL, "guard.mode=off", "probes.every=0",
)  # fmt: skip
PROMPTS, ANSWERS = 40, 1024
# The KL below which PPO's curves are not fitted (Gao et al. 2022).
LEAST_KL = 0.2


def measure(seed: int, runs: Path) -> dict[str, Any]:
    """One seed: a PPO run, then best-of-n from its reference by the ensemble that it was trained against."""
    path = runs / f"ppo-{seed}"
    trial = run_trial(Job(SETTINGS, seed, path, references=runs / "references"))
    run = RunDirectory(path)
    world = load_world(load_config(None, [*SETTINGS, f"run.seed={seed}"]))
    gold = gold_of(world)
    assert gold is not None
    torch.set_num_threads(1)
    pool = draw_pool(run, gold, list(world.heldout_prompts())[:PROMPTS], ANSWERS)
    curves = curves_of(pool)
    return {
        "seed": seed,
        "curves": {name: [asdict(p) for p in points] for name, points in curves.items()},
        "fits": {name: asdict(fit_curve(points)) for name, points in curves.items()},
        "ppo": ppo_of(trial),
        "against_ppo": against(curves["mean"], trial),
    }


def ppo_of(trial: Trial) -> dict[str, Any]:
    """PPO's curves and the fit of d (a - b log d), and of the other form beside it."""
    kl, gold, proxy = smoothed(trial.kl), smoothed(trial.gold), smoothed(trial.proxy)
    points = [(k**0.5, g - trial.heldout[0]) for k, g in zip(kl, gold, strict=True) if k >= LEAST_KL]
    d, above = torch.tensor([p[0] for p in points]), torch.tensor([p[1] for p in points])
    return {
        "kl": kl, "gold": gold, "proxy": proxy, "start": trial.heldout[0],
        "fit": asdict(fit_form("rl", d, above)), "fit_other": asdict(fit_form("best_of_n", d, above)),
    }  # fmt: skip


def against(points: list[Point], trial: Trial) -> dict[str, Any]:
    """Gold of best-of-n less PPO's when it first has best-of-n's KL, or its proxy, for n = 4, 16, 64, 256."""
    kl, gold, proxy = smoothed(trial.kl), smoothed(trial.gold), smoothed(trial.proxy)
    found: dict[str, Any] = {"equal KL": {}, "equal proxy": {}}
    for point in [p for p in points if p.n in (4, 16, 64, 256)]:
        for name, line, x in (("equal KL", kl, point.kl), ("equal proxy", proxy, point.proxy)):
            # Where the line first gets there; PPO goes past it, and comes back.
            first = next((i for i, value in enumerate(line) if value >= x), None)
            if first:
                theirs = at([line[first - 1], line[first]], [gold[first - 1], gold[first]], x)
                found[name][str(point.n)] = None if theirs is None else point.gold - theirs
            else:
                found[name][str(point.n)] = None
    return found


def means(results: list[dict[str, Any]], name: str) -> tuple[list[float], list[float], list[float]]:
    """d, gold above the reference's and proxy of a curve, mean over seeds."""
    curves = [r["curves"][name] for r in results]
    d = [p["kl"] ** 0.5 for p in curves[0]]
    gold = [fmean(c[i]["gold"] - c[0]["gold"] for c in curves) for i in range(len(d))]
    return d, gold, [fmean(c[i]["proxy"] for c in curves) for i in range(len(d))]


def fits_over_seeds(results: list[dict[str, Any]]) -> dict[str, FormFit]:
    """d (a - b d) through the means over seeds."""
    return {
        name: fit_form("best_of_n", *(torch.tensor(x) for x in means(results, name)[:2]))
        for name in results[0]["curves"]
    }


def charts(results: list[dict[str, Any]]) -> list[ChartSpec]:
    names = ("one member", "mean", "worst", "uncertainty")
    colours = (1, 0, 2, 3)
    fitted = fits_over_seeds(results)["mean"]
    ppo = results[0]["ppo"]
    return [
        ChartSpec(
            title="Best-of-n: gold, with a quarter of the labels wrong",
            subtitle=f"Above the reference's, n from 1 to 512. d (a - b d) fits the mean's with R² = {fitted.r2:.3f}.",
            unit="gold score",
            x_label="sqrt(KL)",
            series=tuple(Series(n, *means(results, n)[:2], c) for n, c in zip(names, colours, strict=True)),
        ),
        ChartSpec(
            title="Best-of-n: proxy",
            subtitle="What each way of scoring says of its own choice.",
            unit="standardised score",
            x_label="sqrt(KL)",
            series=tuple(
                Series(n, means(results, n)[0], means(results, n)[2], c) for n, c in zip(names, colours, strict=True)
            ),
        ),
        ChartSpec(
            title="PPO against the same ensemble, no KL penalty",
            subtitle=f"Gold above the reference's by seed. d (a - b log d): R² = {ppo['fit']['r2']:.2f} in the first.",
            unit="gold score",
            x_label="sqrt(KL)",
            series=tuple(
                Series(
                    f"seed {r['seed']}",
                    [max(k, 0.0) ** 0.5 for k in r["ppo"]["kl"]],
                    [g - r["ppo"]["start"] for g in r["ppo"]["gold"]],
                )
                for r in results
            ),
        ),
    ]


def main(words: Sequence[str]) -> None:
    seeds, runs = seeds_and_runs("best_of_n", __doc__, words)
    results = []
    for seed in seeds:
        results.append(measure(seed, runs))
        tell(results[-1])
    ends = {name: [r["curves"][name][-1]["gold"] for r in results] for name in results[0]["curves"]}
    kept = {
        name: bootstrap([a - b for a, b in zip(ends[name], ends["one member"], strict=True)])
        for name in ("mean", "worst", "uncertainty")
    }
    fits = fits_over_seeds(results)
    print(f"\nmean over seeds: R² of d (a - b d): {', '.join(f'{name} {fit.r2:.3f}' for name, fit in fits.items())}")
    print("gold at n = 512 above that of one member:")
    for name, estimate in kept.items():
        print(f"  {name:<12} {estimate}")
    apart = {
        where: {
            n: asdict(bootstrap(known))
            for n in ("4", "16", "64", "256")
            if (known := [x for r in results if (x := r["against_ppo"][where][n]) is not None])
        }
        for where in ("equal KL", "equal proxy")
    }
    for where, of in apart.items():
        words = ", ".join(f"n={n} {e['mean']:+.3f} ({e['count']} seeds)" for n, e in of.items())
        print(f"gold of best-of-n less PPO's at {where}: {words}")
    keep(
        "best_of_n",
        {
            "seeds": list(seeds),
            "settings": SETTINGS,
            "fits_over_seeds": {name: asdict(fit) for name, fit in fits.items()},
            "above_one_member_at_512": {name: asdict(e) for name, e in kept.items()},
            "best_of_n_less_ppo": apart,
            "runs": results,
        },
    )
    keep_figure("best_of_n", charts(results))


def tell(result: dict[str, Any]) -> None:
    fits = ", ".join(f"{name} {fit['r2']:.3f}" for name, fit in result["fits"].items())
    ends = ", ".join(f"{name} {points[-1]['gold']:+.3f}" for name, points in result["curves"].items())
    print(f"seed {result['seed']}: R² of d (a - b d): {fits}", flush=True)
    print(f"  gold at n = {result['curves']['mean'][-1]['n']}: {ends}")
    ppo = result["ppo"]
    print(
        f"  PPO: R² of d (a - b log d) {ppo['fit']['r2']:.3f} (a {ppo['fit']['a']:.2f}, b {ppo['fit']['b']:.2f}); "
        f"of d (a - b d) {ppo['fit_other']['r2']:.3f}; peak {max(ppo['gold']):+.3f}, end {ppo['gold'][-1]:+.3f}",
        flush=True,
    )


def at(xs: Sequence[float], ys: Sequence[float], x: float) -> float | None:
    """The value of a line at x, between its points; None outside them. `xs` rise."""
    if not xs or not xs[0] <= x <= xs[-1]:
        return None
    for i in range(1, len(xs)):
        if x <= xs[i]:
            share = (x - xs[i - 1]) / (xs[i] - xs[i - 1]) if xs[i] > xs[i - 1] else 1.0
            return ys[i - 1] + share * (ys[i] - ys[i - 1])
    return ys[-1]
