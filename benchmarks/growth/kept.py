"""The curves as JSON, written and read back: what is not measured again stays as it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.growth.curves import AREAS, Area, Curve, Found, shown
from holdfast.errors import HoldfastError

DERIVED = ("meaning", "n", "exponents", "note")


def document(results: Sequence[Found]) -> list[dict[str, Any]]:
    return [
        {
            "name": found.area.name,
            "title": found.area.title,
            "x": found.area.x,
            "made_by": found.made_by,
            "curves": {
                curve.measurement.name: {
                    "meaning": curve.measurement.meaning,
                    "n": curve.n,
                    **curve.figures,
                    "exponents": {name: e and round(e, 3) for name, e in curve.exponents().items()},
                    "note": curve.note(),
                }
                for curve in shown(found.curves)
            },
        }
        for found in results
    ]


def earlier(path: Path) -> dict[str, Found]:
    """What a file of before has, by area; nothing if there is none."""
    if not path.is_file():
        return {}
    try:
        kept = {area["name"]: area for area in json.loads(path.read_text(encoding="utf-8"))["areas"]}
        found = [_read(area, kept[area.name]) for area in AREAS if area.name in kept]
    except (ValueError, KeyError, TypeError) as error:
        raise HoldfastError(
            f"{path} is not a result of `benchmarks scale`; move it away or name another --out."
        ) from error
    return {of.area.name: of for of in found if of.curves}


def _read(area: Area, kept: dict[str, Any]) -> Found:
    curves = []
    for measurement in area.measurements:
        if of := kept["curves"].get(measurement.name):
            figures = {name: values for name, values in of.items() if name not in DERIVED}
            curves.append(Curve(measurement, list(of["n"]), figures))
    return Found(area, curves, dict(kept["made_by"]))


def put_together(before: Found | None, now: Found) -> Found:
    """An area with the curves of now, and those of before that were not measured again."""
    if before is None:
        return now
    measured = {curve.measurement.name: curve for curve in [*before.curves, *now.curves]}
    in_order = [measured[m.name] for m in before.area.measurements if m.name in measured]
    return Found(before.area, in_order, now.made_by)
