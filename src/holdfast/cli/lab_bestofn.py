"""`holdfast lab bestofn`: best-of-n from a run's reference by its ensemble, against the truth."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from holdfast.cli.options import add_verb

DETAILS = """\
Samples many answers of the run's reference to held-out prompts, scores them with every member of version 1 and with the
truth, and shows proxy and gold of the best of n for one member, the mean, the worst case and the uncertainty-weighted
score, with the fit of gold = d (a - b d), d = sqrt(KL), and its quality.

example:
  holdfast lab bestofn runs/concierge-0 --answers 1024"""


def add(actions: Any) -> None:
    parser = add_verb(actions, "bestofn", "best-of-n by a run's ensemble, against the truth", work, DETAILS)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory, of a world that knows gold")
    parser.add_argument("--prompts", type=int, default=40, metavar="N", help="held-out prompts (40)")
    parser.add_argument("--answers", type=int, default=1024, metavar="N", help="answers to each, at least 4 (1024)")
    parser.add_argument("--version", type=int, default=1, metavar="N", help="version of the ensemble (1)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the curves and their figure here")
    parser.add_argument("--json", action="store_true", help="print the curves as JSON")


def work(args: argparse.Namespace) -> int:
    from holdfast.errors import HoldfastError
    from holdfast.lab.best_of_n import curves_of, draw_pool
    from holdfast.lab.observer import gold_of
    from holdfast.models.load import load_causal_lm
    from holdfast.run.directory import RunDirectory
    from holdfast.run.inputs import choose_threads, set_up_torch
    from holdfast.worlds.registry import load_world

    run = RunDirectory.open(args.run)
    config = run.config()
    world = load_world(config)
    truth = gold_of(world)
    if truth is None:
        raise HoldfastError(f"The world {world.name} knows no gold score, so there is nothing to measure.")
    if args.prompts < 1 or args.answers < 4:
        raise HoldfastError("Give at least 1 of --prompts and 4 of --answers.")
    if args.out is not None and not args.out.is_dir():
        raise HoldfastError(f"--out {args.out} is not a directory; make it first or name another.")
    if not run.reference.is_dir():
        raise HoldfastError(f"{run.path} has no reference yet; `holdfast resume {run.path}` goes on with it.")
    set_up_torch(config)
    choose_threads(config, load_causal_lm(run.reference)[0])
    pool = draw_pool(run, truth, list(world.heldout_prompts())[: args.prompts], args.answers, args.version)
    tell(curves_of(pool), args)
    return 0


def tell(curves: dict[str, Any], args: argparse.Namespace) -> None:
    """The curves as a table or as JSON; kept, with their figure, where that is asked for."""
    from dataclasses import asdict

    from holdfast.charts.chart import grid
    from holdfast.checkpoint.files import write_atomic
    from holdfast.cli.tables import show_table
    from holdfast.lab.best_of_n import charts, fit_curve, table

    fits = {name: fit_curve(points) for name, points in curves.items()}
    document = {
        name: {"fit": asdict(fits[name]), "points": [asdict(point) for point in points]}
        for name, points in curves.items()
    }
    if args.out is not None:
        write_atomic(args.out / "best-of-n.json", (json.dumps(document, indent=1) + "\n").encode())
        write_atomic(args.out / "best-of-n.svg", grid(charts(curves), columns=2).encode())
    if args.json:
        print(json.dumps(document))
        return
    show_table("Gold / proxy of the best of n", *table(curves))
    for name, fit in fits.items():
        print(f"{name:<12} gold = d ({fit.a:.3f} - {fit.b:.3f} d) above the reference's, R² {fit.r2:.3f}")
