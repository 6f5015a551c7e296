"""`holdfast bench scale`: time and memory against the size of the store, the length of a run, the size of a step."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.bench.options import RESULTS, Settings, allowed_cores
from holdfast.bench.scale_curves import AREAS, KINDS, Area, Curve, Found
from holdfast.errors import HoldfastError

DETAILS = """\
Every measurement has a process of its own, so that its peak memory is its own. For each curve the power of n with which
it grows is fitted over the upper half of the sizes; what grows much faster than linear is explained.

Writes scale.json and scale.svg. The whole of it takes about an hour and 3 GB of disk. What is left out by
--only stays in them as it was."""


def add(kinds: Any) -> None:
    summary = "measure time and memory against the size of store, run and step"
    parser: argparse.ArgumentParser = kinds.add_parser(
        "scale",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=DETAILS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="KINDS", help=f"some of {','.join(KINDS)}, with commas between them")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help=f"where the results go ({RESULTS} if it exists, else here)"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path(".bench"),
        metavar="DIR",
        dest="workspace",
        help="stores and runs, removed as soon as they are measured (.bench)",
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(work=work)


def work(args: argparse.Namespace) -> int:
    from holdfast.bench.machine import made_by
    from holdfast.bench.scale_figure import figure, show
    from holdfast.bench.scale_kept import document, earlier, put_together
    from holdfast.checkpoint.files import write_atomic

    areas = chosen(args.only)
    out = args.out or (RESULTS if RESULTS.is_dir() else Path())
    if not out.is_dir():
        raise HoldfastError(f"--out {out} is not a directory; make it first or name another.")
    settings = Settings("scale", 1, len(allowed_cores()), out, args.workspace.absolute(), args.json, args.quick)
    name = "scale-quick" if args.quick else "scale"
    results, made = {} if args.quick else earlier(out / f"{name}.json"), made_by(settings)
    for area in areas:
        # Kept one by one: an hour's work is not lost when it is cut.
        results[area.name] = put_together(results.get(area.name), Found(area, curves_of(area, settings), made))
        found = [results[a.name] for a in AREAS if a.name in results]
        kept = {"areas": document(found)}
        write_atomic(out / f"{name}.json", (json.dumps(kept, indent=1) + "\n").encode())
        write_atomic(out / f"{name}.svg", figure(found).encode())
    if args.json:
        print(json.dumps(kept))
    else:
        show([results[area.name] for area in areas])
        print(f"\nkept in {out / name}.json and {name}.svg")
    return 0


def chosen(only: str | None) -> list[Area]:
    """The areas with what --only names, and what that needs first."""
    names = list(KINDS) if only is None else [name.strip() for name in only.split(",") if name.strip()]
    if not names or not set(names) <= set(KINDS):
        raise HoldfastError(f"--only {only} names no kind of measurement; give some of {','.join(KINDS)}.")
    areas = [replace(a, measurements=tuple(m for m in a.measurements if m.kind in ("", *names))) for a in AREAS]
    return [area for area in areas if any(m.kind for m in area.measurements)]


def curves_of(area: Area, settings: Settings) -> list[Curve]:
    """Every measurement of an area at every size, in a directory that is removed before the next size."""
    from holdfast.bench.scale_child import measure

    curves = [Curve(measurement) for measurement in area.measurements]
    for n in area.quick if settings.quick else area.sizes:
        directory = settings.work / "scale" / f"{area.name}-{n}"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        try:
            for curve in curves:
                figures = measure(f"holdfast.bench.{curve.measurement.function}", directory, n)
                curve.add(n, figures)
                settings.say(
                    f"{area.name} {n:>9,} {area.x}  {curve.measurement.name:<24} {figures['processor']:>10.4f} s "
                    f"{figures['memory'] / 2**20:>8.0f} MiB"
                )
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return curves
