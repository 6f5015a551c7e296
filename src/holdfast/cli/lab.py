"""`holdfast lab`: experiments on worlds whose truth is known."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli import lab_bestofn
from holdfast.cli.options import add_verb
from holdfast.errors import HoldfastError
from holdfast.text import counted

if TYPE_CHECKING:
    from holdfast.lab.experiment import Experiment, Plan, Results

RESULTS = Path("benchmarks/results")
FIRST_SEED = 1000

DETAILS = """\
examples:
  holdfast lab list                                   what there is
  holdfast lab run efficacy --seeds 5                 does the guard help?
  holdfast lab run efficacy --forms both              every flaw in both its forms
  holdfast lab run efficacy --only held_back          flaws that nothing was tuned on
  holdfast lab run detection --flaw my_flaw.py:Mine   a flaw of your own, in a file of your own
  holdfast lab run efficacy --world stories --policy DIR   on a pretrained model, where no flaw is planted
  holdfast lab sweep beta                             one knob over its range
  holdfast lab sweep beta --ray auto                  its trials over the Ray cluster of this machine
  holdfast lab table efficacy                         the table of an earlier run, once more
Trials go on where they were stopped: give the same command again."""


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "lab", "experiments: every failure and every cure, with the truth known", None, DETAILS)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    listing = add_verb(actions, "list", "the experiments and the questions they answer", list_experiments)
    listing.add_argument("--json", action="store_true", help="print the list as JSON")
    run = add_verb(actions, "run", "run an experiment, print its table, keep its result", run_experiment)
    run.add_argument("name", metavar="NAME", help="an experiment; `holdfast lab list` names them")
    add_run_options(run)
    sweep = add_verb(actions, "sweep", "try one knob over its range", run_sweep)
    sweep.add_argument("knob", metavar="KNOB", help="beta, refresh, budget, schedule, members, aggregation, ...")
    add_run_options(sweep)
    for action, summary, work in (
        ("table", "print the table of an experiment that has been run", show_kept_table),
        ("figures", "draw the figure of an experiment that has been run", draw_kept_figure),
    ):
        shown = add_verb(actions, action, summary, work)
        shown.add_argument("name", metavar="NAME", help="an experiment, as in the name of its file: lab-NAME.json")
        add_out(shown)
        shown.add_argument("--json", action="store_true", help="print the result as JSON")

    lab_bestofn.add(actions)


def add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help=f"where results are ({RESULTS} if it exists, else here)"
    )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, metavar="N", help="seeds for each arm (the experiment's own number)")
    parser.add_argument(
        "--first-seed", type=int, default=FIRST_SEED, metavar="N",
        help=f"the first of them ({FIRST_SEED}; below 100 is for tuning)",
    )  # fmt: skip
    parser.add_argument("--workers", type=int, metavar="N", help="trials side by side, a core each (2)")
    parser.add_argument(
        "--ray", nargs="?", const="", metavar="ADDRESS",
        help="trials over a Ray cluster: auto or HOST:PORT; without an address, over workers started here",
    )  # fmt: skip
    parser.add_argument("--runs", type=Path, default=Path(".lab"), metavar="DIR", help="trials, kept (.lab)")
    add_out(parser)
    parser.add_argument(
        "--forms", choices=("default", "emergent", "planted", "both"), default="default",
        help="forms of the flaws: each one's default, one form for all, or both",
    )  # fmt: skip
    parser.add_argument(
        "--only", action="append", default=[], metavar="SCENARIO",
        help="only this scenario, or a half of the further flaws, tuning or held_back; may be repeated",
    )  # fmt: skip
    parser.add_argument("--flaw", metavar="SPEC", help="this flaw alone: a name or path/to/file.py:Class")
    parser.add_argument("--weight", type=float, metavar="X", help="flaw.weight of --flaw, in either form")
    parser.add_argument(
        "--world",
        metavar="NAME",
        help="another world: stories, boat_race, layout, forecast, or path/to/file.py:Class, with a gold score",
    )
    parser.add_argument(
        "--policy", metavar="DIR", help="a Hugging Face causal-LM directory in place of the world's own"
    )
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="A.B=C",
        help="a setting for all arms that do not set it themselves; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--keep-weights", action="store_true", help="keep checkpoints and reward versions of trials that have ended"
    )
    parser.add_argument("--quick", action="store_true", help="everything tiny, one seed: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def list_experiments(args: argparse.Namespace) -> int:
    from holdfast.lab.experiments import all_experiments

    known = all_experiments()
    rows = [
        {
            "name": e.name,
            "question": e.question,
            "scenarios": len(e.chosen()),
            "arms": len(e.arms),
            "seeds": e.seeds,
            "trials": len(e.chosen()) * sum(min(arm.seeds or e.seeds, e.seeds) for arm in e.arms),
        }
        for e in known.values()
    ]
    if args.json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        print(f"{row['name']:<18} {row['question']}  ({row['trials']} trials)")
    return 0


def run_experiment(args: argparse.Namespace) -> int:
    from holdfast.lab.experiments import experiment_named

    return run(args, experiment_named(args.name))


def run_sweep(args: argparse.Namespace) -> int:
    from holdfast.lab.experiments import experiment_named
    from holdfast.lab.experiments.sweep import KNOBS, PREFIX

    if args.knob not in KNOBS:
        raise HoldfastError(f"There is no knob {args.knob!r} to sweep; there are {', '.join(KNOBS)}.")
    return run(args, experiment_named(f"{PREFIX}{args.knob}"))


def run(args: argparse.Namespace, experiment: Experiment) -> int:
    """Check everything, run what is missing, keep the result and its figure, and show the table."""
    from holdfast.lab.results import check_plan, command_of, document_of, keep, keep_figure

    out, workers = out_of(args), workers_of(args, experiment)
    plan = plan_of(args, experiment)
    check_plan(plan)
    count = len(plan.cells()) + len(plan.cells(later=True))
    say(f"{experiment.name}: {experiment.question}  {counted(count, 'trial')} in {args.runs}")
    results = trials_of(args, plan, workers)
    if not results.trials:
        raise HoldfastError(f"No trial has ended; the first one said: {results.failures[0]}")
    document = document_of(plan, results, command_of(sys.argv[1:]))
    label = experiment.name + tag_of(args, experiment)
    path = keep(document, label, out)
    keep_figure(plan.experiment, document["result"], label, out)
    show(plan.experiment, document, args.json, path)
    return 1 if results.failures else 0


def trials_of(args: argparse.Namespace, plan: Plan, workers: int | None) -> Results:
    """The plan carried out, on this machine or over a cluster."""
    from holdfast.lab.results import carry_out

    if args.ray is None:
        return carry_out(plan, workers or 2, say)
    from holdfast.lab.cluster import cluster_at

    with cluster_at(args.ray, args.runs, workers, say) as cluster:
        return carry_out(plan, cluster.workers, say, cluster.desk)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def plan_of(args: argparse.Namespace, experiment: Experiment) -> Plan:
    """What the options ask for; refuses what cannot work before anything is written."""
    from holdfast.config import load_config
    from holdfast.lab.experiment import Plan
    from holdfast.lab.fit import fitted
    from holdfast.lab.results import QUICK

    if args.seeds is not None and args.seeds < 1:
        raise HoldfastError(f"--seeds is {args.seeds}; run at least 1 seed, 5 for a result to be trusted.")
    if args.first_seed < 0:
        raise HoldfastError(f"--first-seed is {args.first_seed}; seeds begin at 0.")
    if args.runs.exists() and not args.runs.is_dir():
        raise HoldfastError(f"--runs {args.runs} is a file; name a directory, which may be new.")
    settings: tuple[str, ...] = QUICK if args.quick else ()
    if args.world:
        # The quick settings speak of the built-in world's size.
        settings = tuple(s for s in settings if not s.startswith("world."))
        settings = (*settings, f"world.name={json.dumps(args.world)}")
    if args.policy:
        settings = (*settings, f"policy.path={json.dumps(args.policy)}")
    config = load_config(None, [*experiment.settings, *settings, *args.overrides, f"run.seed={args.first_seed}"])
    experiment, sizes = fitted(experiment, config)
    experiment = with_flaw(args, experiment)
    seeds = args.seeds or (1 if args.quick else experiment.seeds)
    return Plan(
        experiment=experiment,
        scenarios=experiment.chosen(args.forms, args.only),
        seeds=tuple(range(args.first_seed, args.first_seed + seeds)),
        runs=args.runs,
        settings=(*sizes, *settings, *args.overrides),
        keep_weights=args.keep_weights,
    )


def tag_of(args: argparse.Namespace, experiment: Experiment) -> str:
    """What sets a result apart in the name of its file: the plain name is for the experiment as it stands."""
    changed = hashlib.sha256("\n".join(args.overrides).encode()).hexdigest()[:6]
    file, _, name = (args.world or "").rpartition(":")
    parts = [Path(file).stem] if file else [name] if name else []
    parts += [Path(args.policy).resolve().name] if args.policy else []
    parts += [args.flaw.rpartition(":")[2]] if args.flaw else []
    parts += [f"weight-{args.weight:g}"] if args.weight is not None else []
    parts += [args.forms] if args.forms != "default" else []
    parts += [name.replace(" ", "-").replace(",", "") for name in args.only]
    parts += [f"from-{args.first_seed}"] if args.first_seed != FIRST_SEED else []
    parts += [f"{args.seeds}-seeds"] if args.seeds not in (None, experiment.seeds) else []
    parts += [f"changed-{changed}"] if args.overrides else []
    parts += ["quick"] if args.quick else []
    return "".join(f"-{part}" for part in parts)


def with_flaw(args: argparse.Namespace, experiment: Experiment) -> Experiment:
    """The experiment on a flaw of the user's choice instead of its own scenarios."""
    from holdfast.lab.scenarios import flaw_scenarios

    if args.weight is not None and args.flaw is None:
        raise HoldfastError("--weight is the weight of --flaw; name a flaw with it.")
    if args.flaw is None:
        return experiment
    name = args.flaw.rpartition(":")[2]
    return replace(experiment, scenarios=tuple(flaw_scenarios(name, args.flaw, weight=args.weight)))


def workers_of(args: argparse.Namespace, experiment: Experiment) -> int | None:
    """Trials side by side; None for what suits the place: two here, all cores of a cluster."""
    if args.workers is not None and args.workers < 1:
        raise HoldfastError(f"--workers is {args.workers}; at least 1 has to work.")
    # An experiment that measures time has the machine for itself.
    return args.workers or experiment.workers


def out_of(args: argparse.Namespace) -> Path:
    out = args.out or (RESULTS if RESULTS.is_dir() else Path())
    if not out.is_dir():
        raise HoldfastError(f"--out {out} is not a directory; make it first or name another.")
    return Path(out)


def show_kept_table(args: argparse.Namespace) -> int:
    from holdfast.lab.experiments import experiment_named
    from holdfast.lab.results import file_of, kept

    out = out_of(args)
    document, path = kept(args.name, out), file_of(args.name, out)
    with refusing_damaged(path):
        show(experiment_named(document["experiment"]), document, args.json, path)
    return 0


def draw_kept_figure(args: argparse.Namespace) -> int:
    from holdfast.lab.experiments import experiment_named
    from holdfast.lab.results import file_of, keep_figure, kept

    out = out_of(args)
    document = kept(args.name, out)
    with refusing_damaged(file_of(args.name, out)):
        path = keep_figure(experiment_named(document["experiment"]), document["result"], args.name, out)
    print(json.dumps({"figure": str(path)}) if args.json else f"drawn in {path}")
    return 0


@contextmanager
def refusing_damaged(path: Path) -> Iterator[None]:
    """A result in which something is missing, as an edited file or one of another version may be, is named."""
    try:
        yield
    except UnicodeError:
        raise  # that is the terminal's fault
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise HoldfastError(
            f"{path} is not a result that this version can show ({type(error).__name__}: {error}); run it again."
        ) from error


def show(experiment: Experiment, document: dict[str, Any], as_json: bool, path: Path) -> None:
    """The tables and the recommendation, or everything as JSON."""
    from holdfast.cli.tables import show_table

    if as_json:
        print(json.dumps(document))
        return
    for table in experiment.tables(document["result"]):
        show_table(table.title, table.columns, table.rows, table.left)
        print()
    print(document["recommendation"])
    for failure in document["failures"]:
        print(f"failed: {failure}", file=sys.stderr)
    print(f"\nkept in {path}")
