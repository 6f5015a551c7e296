"""Time and memory against the size of the store, the length of a run, the size of a step.

Every measurement has a process of its own, so that its peak memory is its own. For each curve the power of n with which
it grows is fitted over the upper half of the sizes; what grows much faster than linear is explained. The whole of it
takes about an hour and 3 GB of disk. What is left out by --only stays in the results as it was.

python -m benchmarks scale         writes scale.json and scale.svg
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.growth import process
from benchmarks.growth.curves import AREAS, KINDS, Area, Curve, Found
from benchmarks.growth.figure import figure, show
from benchmarks.growth.kept import document, earlier, put_together
from benchmarks.record import write
from benchmarks.speed.options import Settings, parser_with_places, settings_of
from holdfast.checkpoint.files import write_atomic
from holdfast.errors import HoldfastError


def main(words: Sequence[str]) -> None:
    parser = parser_with_places("scale", __doc__, "stores and runs, removed as soon as they are measured")
    parser.add_argument("--only", metavar="KINDS", help=f"some of {','.join(KINDS)}, with commas between them")
    args = parser.parse_args(words)
    areas, settings = chosen(args.only), settings_of("scale", args)
    path = settings.out / ("scale-quick.json" if settings.quick else "scale.json")
    results, made = {} if settings.quick else earlier(path), settings.made_by()
    for area in areas:
        # Kept one by one: an hour's work is not lost when it is cut.
        results[area.name] = put_together(results.get(area.name), Found(area, curves_of(area, settings), made))
        found = [results[a.name] for a in AREAS if a.name in results]
        kept = {"areas": document(found)}
        write(path, kept)
        write_atomic(path.with_suffix(".svg"), figure(found).encode())
    if settings.as_json:
        print(json.dumps(kept))
    else:
        show([results[area.name] for area in areas])
        print(f"\nkept in {path} and {path.stem}.svg")


def chosen(only: str | None) -> list[Area]:
    """The areas with what --only names, and what that needs first."""
    names = list(KINDS) if only is None else [name.strip() for name in only.split(",") if name.strip()]
    if not names or not set(names) <= set(KINDS):
        raise HoldfastError(f"--only {only} names no kind of measurement; give some of {','.join(KINDS)}.")
    areas = [replace(a, measurements=tuple(m for m in a.measurements if m.kind in ("", *names))) for a in AREAS]
    return [area for area in areas if any(m.kind for m in area.measurements)]


def curves_of(area: Area, settings: Settings) -> list[Curve]:
    """Every measurement of an area at every size, in a directory that is removed before the next size."""
    curves = [Curve(measurement) for measurement in area.measurements]
    for n in area.quick if settings.quick else area.sizes:
        directory = settings.work / "scale" / f"{area.name}-{n}"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        try:
            for curve in curves:
                figures = process.measure(f"benchmarks.growth.{curve.measurement.function}", directory, n)
                curve.add(n, figures)
                settings.say(
                    f"{area.name} {n:>9,} {area.x}  {curve.measurement.name:<24} {figures['processor']:>10.4f} s "
                    f"{figures['memory'] / 2**20:>8.0f} MiB"
                )
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return curves
