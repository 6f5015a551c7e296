"""The curves as a table for people and as a figure with logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.growth.curves import Area, Curve, Found, shown
from holdfast.charts.chart import ChartSpec, Series, grid
from holdfast.cli.tables import show_table

SHOWN = 4  # sizes that fit into a table
PANELS = {
    "whole": ("Work on the whole store", "All of it is read or written, so time grows with it."),
    "round": ("Work of one round", "What a round needs of the store should not grow with what it has no need of."),
    "report": ("Report", "Reading the files of the run is what takes the time."),
    "resume": ("Resume, commit and step", "Models are small here, so that what the run's length costs is seen."),
    "versions": ("Versions of the ensemble", "Saving one more and loading one, where all are kept."),
    "batch": ("A step and its batch", "64 answers of 48 tokens, a million parameters, 3 reward models otherwise."),
    "length": ("A step and its answers", "All of them have this length."),
    "parameters": ("A step and its model", "Policy, reference and reward models have this size."),
    "members": ("A step and its ensemble", "Reward models score, and nothing else of the step changes."),
}


def show(results: Sequence[Found]) -> None:
    for found in results:
        area, curves = found.area, found.curves
        sizes = _some(shown(curves)[0].n)
        columns = [area.x, *(f"{n:,}" for n in sizes), "n^", "MiB", "n^"]
        rows = []
        for curve in shown(curves):
            times = [_seconds(curve.figures["processor"][curve.n.index(n)]) for n in sizes]
            grown = curve.exponents()
            memory = f"{curve.figures['memory'][-1] / 2**20:.0f}"
            rows.append([curve.measurement.name, *times, _power(grown["time"]), memory, _power(grown["memory"])])
        show_table(f"\n{area.title}", columns, rows)
        for curve in shown(curves):
            for name in curve.figures.keys() - {"seconds", "processor", "memory"}:
                grown_to = f"{curve.figures[name][-1]:,.0f}, n^{_power(curve.exponents()[name])}"
                print(f"{curve.measurement.name}, {name} at {curve.n[-1]:,}: {grown_to}")
            if note := curve.note():
                print(note)
    print("\nProcessor seconds, MiB above the start at the largest size, and after each the power of n with which it")
    print("grows over the upper half of the sizes. Seconds on the clock are in the JSON.")


def _some(sizes: list[int]) -> list[int]:
    """The largest sizes and, where there are many, every second one."""
    step = 1 if len(sizes) <= SHOWN else 2
    return sizes[::-1][::step][:SHOWN][::-1]


def _seconds(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _power(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def figure(results: Sequence[Found]) -> str:
    """A chart of time and one of memory for each panel."""
    charts = []
    for found in results:
        area, curves = found.area, found.curves
        for panel in dict.fromkeys(curve.measurement.panel for curve in shown(curves)):
            some = [curve for curve in curves if curve.measurement.panel == panel]
            title, subtitle = PANELS[panel]
            charts.append(_chart(area, some, f"{title}: time", subtitle, "processor seconds", "processor", 1.0))
            charts.append(_chart(area, some, f"{title}: memory", "Above the start.", "MiB", "memory", 2.0**20))
    return grid(charts, 2)


def _chart(
    area: Area, curves: Sequence[Curve], title: str, subtitle: str, unit: str, name: str, scale: float
) -> ChartSpec:
    series = []
    for index, curve in enumerate(curves):
        ys = [value / scale if value > 0 else None for value in curve.figures[name]]
        series.append(Series(curve.measurement.name, [float(n) for n in curve.n], ys, index, dots=True))
    return ChartSpec(title, subtitle, unit, series, x_label=area.x, log_x=True, log_y=True, width=560.0, height=320.0)
