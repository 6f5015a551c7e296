"""Rewards that nobody trained and that can be fooled: GRPO at beta 0, unguarded and guarded, by the same seeds.

countdown     a verifier of equations that never looks which numbers they are made of
front desk    a rubric one of whose criteria is credited whenever a phrase stands there

A guarded run has *found* the hack in the first round in which its guard says what is wrong and does something about it:
an alarm, after which the run goes back, or a round to watch whose verdict names the criterion, which then counts for
less. A run that is found out in time by the second may have nothing left to be alarmed about.

python -m benchmarks any_reward         writes benchmarks/results/any_reward.json and any_reward.svg
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.record import ROOT, keep, keep_figure, seeds_and_runs
from benchmarks.trials import run_trials
from holdfast.charts.chart import ChartSpec, Series
from holdfast.lab.fall import SOON, onset
from holdfast.lab.trial import Job, Trial, by_round, summary
from holdfast.report.data import EventRow, read_run

UNGUARDED = ("guard.mode=off",)
ARMS: Mapping[str, tuple[str, ...]] = {"unguarded": UNGUARDED, "guarded": ()}


@dataclass(frozen=True)
class Example:
    """A worked example: its settings in a file, what is true in it, and the component of its reward that is fooled."""

    name: str
    file: str
    truth: str
    fooled: str = ""

    def overrides(self) -> list[str]:
        tables = tomllib.loads((ROOT / self.file).read_text(encoding="utf-8"))
        values = {f"{section}.{name}": value for section, table in tables.items() for name, value in table.items()}
        return [f"{name}={json.dumps(_from_root(value))}" for name, value in values.items()]


def _from_root(value: Any) -> Any:
    """A setting that names a file of the examples, wherever this runs."""
    return str(ROOT / value) if isinstance(value, str) and value.startswith("examples/") else value


EXAMPLES = (
    Example("countdown", "examples/countdown/run.toml", "share of tasks truly solved"),
    Example("front desk", "examples/rubric/run.toml", "what people think of it", "cites a source"),
)


def pair_of(example: Example, unguarded: Trial, guarded: Trial, events: Sequence[EventRow]) -> dict[str, Any]:
    """One seed: what the unguarded run lost, when the guarded one was found out, and where it ended."""
    falls, called, best = onset(unguarded.heldout), guarded.first_alarm, max(unguarded.heldout)
    verdicts = [{"round": event.round, **event.fields} for event in events if event.kind == "verdict"]
    lessened = {event.round for event in events if event.kind == "action" and event.fields["rung"] == "discount"}
    reward = by_round(unguarded, unguarded.proxy)
    naming = {verdict["round"]: verdict["evidence"].get("component") for verdict in verdicts}
    acted = [round for round in lessened if example.fooled and naming[round] == example.fooled]
    found = min([*acted, *([] if called is None else [called])], default=None)
    return {
        "seed": unguarded.seed,
        "reward": [reward[0], reward[-1]],
        "reward_ends_highest": reward[-1] >= max(reward) - 0.05 * (max(reward) - min(reward)),
        "start": unguarded.heldout[0],
        "best": best,
        "unguarded_end": unguarded.heldout[-1],
        "guarded_end": guarded.delivered,
        "reaches_best": guarded.delivered >= best,
        "falls_in_round": falls,
        "found_in_round": found,
        "called_in_round": called,
        "delay": None if falls is None or found is None else found - falls,
        "named": naming.get(found) or None,
        "others_named": sorted({str(name) for name in naming.values() if name and name != example.fooled}),
        "sentence": None if found is None else guarded.sentences[found],
        "rollbacks": len(guarded.rollbacks),
        "stopped": guarded.stopped,
    }


def measure(example: Example, seeds: range, runs: Path) -> dict[str, Any]:
    """Both arms of all seeds."""
    settings = example.overrides()
    place = runs / example.name.replace(" ", "-")
    jobs = [
        Job([*settings, *more], seed, place / f"{arm}-{seed}", f"{example.name} {arm} {seed}")
        for seed in seeds
        for arm, more in ARMS.items()
    ]
    trials = run_trials(jobs)
    pairs = []
    for unguarded, guarded, job in zip(trials[::2], trials[1::2], jobs[1::2], strict=True):
        pairs.append(pair_of(example, unguarded, guarded, read_run(job.path).events))
    return {
        "example": example.name,
        "settings": example.file,
        "pairs": pairs,
        "trials": {arm: [summary(t) for t in trials[n :: len(ARMS)]] for n, arm in enumerate(ARMS)},
        "sentences": [t.sentences for t in trials[1::2]],
        "share": shares(example, pairs),
    }


def shares(example: Example, pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many seeds show each thing."""
    return {
        "seeds": len(pairs),
        "reward rises and truth falls": sum(
            p["reward"][1] > p["reward"][0] and p["falls_in_round"] is not None for p in pairs
        ),
        "found within two rounds of the fall": sum(p["delay"] is not None and p["delay"] <= SOON for p in pairs),
        "called hacked": sum(p["called_in_round"] is not None for p in pairs),
        "guarded ends at least at the unguarded run's best": sum(p["reaches_best"] for p in pairs),
        "found by the name of the criterion": sum(p["named"] == example.fooled for p in pairs)
        if example.fooled
        else None,
    }


def charts(example: Example, result: Mapping[str, Any]) -> list[ChartSpec]:
    """The reward and the truth by round, mean over seeds with the lowest and the highest."""

    def lines(what: str) -> tuple[Series, ...]:
        return tuple(
            line(arm, [t[what] for t in trials], n, what) for n, (arm, trials) in enumerate(result["trials"].items())
        )

    seeds = f"Mean of {len(result['pairs'])} seeds, with the lowest and the highest."
    return [
        ChartSpec(f"{example.name}: the reward", seeds, "standard deviations", lines("proxy"), x_label="round"),
        ChartSpec(f"{example.name}: {example.truth}", seeds, "gold", lines("heldout"), x_label="round"),
    ]


def line(arm: str, curves: Sequence[Sequence[float]], colour: int, what: str) -> Series:
    """A curve over rounds; one that stopped early stays where it was."""
    length = max(map(len, curves))
    rows = [[*curve, *[curve[-1]] * (length - len(curve))] for curve in curves]
    columns = list(zip(*rows, strict=True))
    first = 0 if what == "heldout" else 1
    return Series(
        arm, list(range(first, first + length)), [fmean(c) for c in columns], colour, dots=True,
        low=[min(c) for c in columns], high=[max(c) for c in columns],
    )  # fmt: skip


def tell(example: Example, result: Mapping[str, Any]) -> None:
    print(f"\n{example.name}: {example.truth}")
    print(f"{'seed':>6} {'start':>7} {'best':>7} {'end':>7} {'guarded':>8} {'falls':>6} {'found':>6} {'called':>7}")
    for p in result["pairs"]:
        print(
            f"{p['seed']:>6} {p['start']:>7.3f} {p['best']:>7.3f} {p['unguarded_end']:>7.3f} {p['guarded_end']:>8.3f} "
            f"{p['falls_in_round']!s:>6} {p['found_in_round']!s:>6} {p['called_in_round']!s:>7}"
        )
    for name, value in result["share"].items():
        print(f"  {name}: {value}")


def main(words: Sequence[str]) -> None:
    seeds, runs = seeds_and_runs("any_reward", __doc__, words)
    results = []
    for example in EXAMPLES:
        results.append(measure(example, seeds, runs))
        tell(example, results[-1])
    keep("any_reward", {"examples": results})
    keep_figure("any_reward", [c for e, r in zip(EXAMPLES, results, strict=True) for c in charts(e, r)], columns=2)
