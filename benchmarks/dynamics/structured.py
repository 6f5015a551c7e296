"""Answers under a grammar, on the worlds whose answers are JSON: what it gives, what it costs, and what it does not do.

layout, forecast   each world with its grammar and without, by the same seeds; and with log-probs over the whole
                   vocabulary under the same grammar, which is how it is usually done
validator          a validator of layouts as the only reward: bare and guarded

python -m benchmarks structured                    writes benchmarks/results/structured-*.json and figures
python -m benchmarks structured --part validator   one of them
"""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.record import RESULTS, ROOT, keep, keep_figure, parser_of
from benchmarks.trials import run_trials
from holdfast.charts.chart import ChartSpec, Series
from holdfast.checkpoint.files import write_atomic
from holdfast.drawings.boxes import layout_svg, read_layout
from holdfast.lab.fall import SOON, onset
from holdfast.lab.observer import answers_by_round
from holdfast.lab.trial import SAID_FILE, Job, Trial, by_round, summary
from holdfast.run.observer import Answer
from holdfast.statistics import bootstrap
from holdfast.worlds.forecast.gold import read as read_forecast
from holdfast.worlds.forecast.quantity import quantity_of
from holdfast.worlds.layout.page import read as read_boxes
from holdfast.worlds.protocol import World
from holdfast.worlds.registry import WORLDS

READERS = {"layout": read_boxes, "forecast": read_forecast}
CONSTRAINED, FREE, WHOLE = "constrained", "unconstrained", "whole vocabulary"
ARMS: Mapping[str, tuple[str, ...]] = {
    CONSTRAINED: (),
    FREE: ("rollout.grammar=none",),
    WHOLE: ("rollout.renormalise=false",),
}
# Nobody looks on, so that no arm is rolled back: what is compared is how answers are drawn and learnt from.
UNWATCHED = ("guard.mode=off", "refresh.every_rounds=2")
VALIDATOR = ROOT / "examples" / "structured" / "run.toml"
GUARDING: Mapping[str, tuple[str, ...]] = {"bare": ("guard.mode=off", "reward.corrective=false"), "guarded": ()}
# Held-out prompts, of which each is answered eight times after every round.
HELDOUT = 40
# Answers that are drawn, and forecasts that are shown beside the truth.
SHOWN = 4


@dataclass(frozen=True)
class Said:
    """Of a policy's held-out answers: the share that is valid, that is cut off, that is valid and says nothing."""

    valid: float
    cut: float
    empty: float

    @classmethod
    def of(cls, world: str, answers: Sequence[Answer]) -> Said:
        read = [READERS[world](answer.text) if answer.finished else None for answer in answers]
        return cls(
            fmean(boxes is not None for boxes in read),
            fmean(not answer.finished for answer in answers),
            fmean(boxes == [] for boxes in read),
        )


def said_in(job: Job, world: str) -> list[dict[str, float]]:
    """What the held-out answers of every round are, from the reference's on."""
    rounds = answers_by_round(job.path / SAID_FILE)
    return [asdict(Said.of(world, rounds[round])) for round in sorted(rounds)]


# ---- the worlds


def jobs_of(world: str, seeds: range, runs: Path) -> list[Job]:
    """All arms of all seeds; those of one seed share their reference."""
    settings = (f"world.name={world}", *getattr(WORLDS[world], "lab_settings", ()), *UNWATCHED)
    return [
        Job(
            [*settings, *more], seed, runs / f"{world}-{arm.replace(' ', '-')}-{seed}", f"{world} {arm} {seed}",
            heldout=HELDOUT, asks_everything=True, references=runs / "references",
        )
        for seed in seeds
        for arm, more in ARMS.items()
    ]  # fmt: skip


def measure_world(world: str, seeds: range, runs: Path) -> dict[str, Any]:
    """Gold, validity, KL, tokens and time of every arm, and the paired differences to the constrained one."""
    jobs = jobs_of(world, seeds, runs)
    trials = dict(zip(((job.seed, arm) for job, arm in _by_arm(jobs)), run_trials(jobs), strict=True))
    arms = {}
    for arm in ARMS:
        mine = [trials[seed, arm] for seed in seeds]
        said = [said_in(job, world) for job, of in _by_arm(jobs) if of == arm]
        arms[arm] = {
            "start": asdict(bootstrap([t.heldout[0] for t in mine])),
            "end": asdict(bootstrap([t.delivered for t in mine])),
            "rise": asdict(bootstrap([t.delivered - t.heldout[0] for t in mine])),
            "valid": [fmean(rounds[n]["valid"] for rounds in said) for n in (0, -1)],
            "cut": [fmean(rounds[n]["cut"] for rounds in said) for n in (0, -1)],
            "kl": fmean(by_round(t, t.kl)[-1] for t in mine),
            "tokens": fmean(t.tokens for t in mine),
            "seconds": [t.seconds for t in mine],
            "trials": [summary(t) for t in mine],
            "said": said,
        }
    against = {arm: compared(trials, seeds, arm) for arm in ARMS if arm != CONSTRAINED}
    return {"world": world, "arms": arms, "constrained less": against, "shown": shown(world, jobs[0])}


def _by_arm(jobs: Sequence[Job]) -> list[tuple[Job, str]]:
    return [(job, list(ARMS)[n % len(ARMS)]) for n, job in enumerate(jobs)]


def compared(trials: Mapping[tuple[int, str], Trial], seeds: range, arm: str) -> dict[str, Any]:
    """What the constrained run has more than another arm of the same seed: gold at the end, the rise of it, KL."""
    pairs = [(trials[seed, CONSTRAINED], trials[seed, arm]) for seed in seeds]
    return {
        "end": asdict(bootstrap([one.delivered - other.delivered for one, other in pairs])),
        "rise": asdict(
            bootstrap([one.delivered - one.heldout[0] - other.delivered + other.heldout[0] for one, other in pairs])
        ),
        "kl": asdict(bootstrap([by_round(one, one.kl)[-1] - by_round(other, other.kl)[-1] for one, other in pairs])),
        "tokens": fmean(one.tokens / other.tokens for one, other in pairs),
        "seconds": fmean((one.seconds or 0) / (other.seconds or 1) for one, other in pairs),
    }


def shown(world: str, job: Job) -> list[dict[str, str]]:
    """The first held-out prompts with the reference's answer and the last policy's: the first of their eight draws."""
    prompts = _world(job).heldout_prompts()
    rounds = answers_by_round(job.path / SAID_FILE)
    first, last = rounds[min(rounds)], rounds[max(rounds)]
    return [
        {"prompt": str(prompt), "before": first[n].text, "after": last[n].text}
        for n, prompt in enumerate(prompts[:SHOWN])
    ]


def _world(job: Job) -> World:
    config = job.config()
    return WORLDS[config.world.name](job.seed, **config.world.options)  # type: ignore[call-arg]


def world_charts(result: Mapping[str, Any]) -> list[ChartSpec]:
    """Gold and validity by round, mean over seeds with the lowest and the highest."""
    world, arms = result["world"], result["arms"]
    seeds = f"Held-out prompts; mean of {len(arms[CONSTRAINED]['trials'])} seeds, with the lowest and the highest."
    gold = [line(arm, [t["heldout"] for t in arms[arm]["trials"]], n) for n, arm in enumerate(arms)]
    valid = [line(arm, [[r["valid"] for r in rounds] for rounds in arms[arm]["said"]], n) for n, arm in enumerate(arms)]
    return [
        ChartSpec(f"{world}: gold", seeds, "gold", gold, x_label="round"),
        ChartSpec(f"{world}: valid answers", seeds, "", valid, x_label="round", percent=True),
    ]


def line(arm: str, curves: Sequence[Sequence[float]], colour: int, first: int = 0) -> Series:
    """A curve over rounds from the first one on; one that stopped early stays where it was."""
    length = max(map(len, curves))
    columns = list(zip(*([*curve, *[curve[-1]] * (length - len(curve))] for curve in curves), strict=True))
    return Series(
        arm, list(range(first, first + length)), [fmean(c) for c in columns], colour, dots=True,
        low=[min(c) for c in columns], high=[max(c) for c in columns],
    )  # fmt: skip


def curves(shown: Sequence[Mapping[str, str]]) -> list[ChartSpec]:
    """Forecasts before and after beside the truth, which only a world knows."""
    charts = []
    for each in shown:
        quantity = quantity_of(each["prompt"])
        told = {"truth": quantity.truth()}
        told |= {when: values for when in ("before", "after") if (values := read_forecast(each[when])) is not None}
        lines = [
            Series(name, list(quantity.points), ys, n, dots=True, bare=True)
            for n, (name, ys) in enumerate(told.items())
        ]
        of, described = each["prompt"].partition("; at ")[0].split("; ")
        charts.append(ChartSpec(of, f"{described}: the probability of at most so many", "", lines, x_label=""))
    return charts


def pages(shown: Sequence[Mapping[str, str]]) -> str:
    """Layouts before (above) and after (below) as one drawing."""
    drawn, wide, high = [], 250, 330
    for n, each in enumerate(shown):
        request = each["prompt"].partition("; ")
        for row, text in enumerate((request[0], request[2])):
            drawn.append(f'<text x="{n * wide + 8}" y="{14 + 14 * row}">{escape(text)}</text>')
        for row, when in enumerate(("before", "after")):
            picture = layout_svg(read_layout(each[when] if read_boxes(each[when]) is not None else "[]"))
            # Where it stands takes the place of its own size.
            place = f'x="{n * wide}" y="{36 + row * high}" width="{wide - 20}" height="{high - 20}"'
            head, _, rest = picture.partition(">")
            drawn.append(f"{re.sub(' (width|height)=.[^ ]*', '', head)} {place}>{rest}")
    size = f"0 0 {wide * len(shown)} {36 + 2 * high}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="sans-serif" font-size="9" fill="#777">'
        + "".join(drawn)
        + "</svg>"
    )


def tell_world(result: Mapping[str, Any]) -> None:
    print(f"\n{result['world']}")
    print(
        f"{'arm':<18} {'start':>6} {'end':>6} {'rise':>6} {'':<16} {'valid':>12} {'cut':>6} {'kl':>5} "
        f"{'tokens':>8} {'s':>5}"
    )
    for name, arm in result["arms"].items():
        rise, seconds = arm["rise"], [s for s in arm["seconds"] if s is not None]
        print(
            f"{name:<18} {arm['start']['mean']:>6.2f} {arm['end']['mean']:>6.2f} {rise['mean']:>6.2f} "
            f"({rise['low']:.2f} to {rise['high']:.2f}) {arm['valid'][0]:>5.1%} {arm['valid'][1]:>6.1%} "
            f"{arm['cut'][1]:>6.1%} {arm['kl']:>5.2f} {arm['tokens']:>8,.0f} {fmean(seconds or [0]):>5.0f}"
        )
    for name, less in result["constrained less"].items():
        end, kl = less["end"], less["kl"]
        print(
            f"  constrained less {name}: gold {end['mean']:+.3f} ({end['low']:+.3f} to {end['high']:+.3f}), KL "
            f"{kl['mean']:+.2f} ({kl['low']:+.2f} to {kl['high']:+.2f}); tokens {less['tokens']:.2f}, time "
            f"{less['seconds']:.2f} times"
        )


def world(name: str, seeds: range, runs: Path) -> None:
    result = measure_world(name, seeds, runs)
    tell_world(result)
    keep(f"structured-{name}", result)
    keep_figure(f"structured-{name}", world_charts(result))
    if name == "layout":
        write_atomic(RESULTS / "structured-pages.svg", pages(result["shown"]).encode())
    else:
        keep_figure("structured-curves", curves(result["shown"]), columns=2)


# ---- a validator as the only reward


def measure_validator(seeds: range, runs: Path) -> dict[str, Any]:
    """Both arms of all seeds."""
    tables = tomllib.loads(VALIDATOR.read_text(encoding="utf-8"))
    tables["reward"]["source"] = str(ROOT / tables["reward"]["source"])
    settings = [f"{section}.{name}={json.dumps(v)}" for section, table in tables.items() for name, v in table.items()]
    jobs = [
        Job(
            [*settings, *more], seed, runs / f"validator-{arm}-{seed}", f"validator {arm} {seed}", heldout=HELDOUT,
            asks_everything=True, references=runs / "references",
        )
        for seed in seeds
        for arm, more in GUARDING.items()
    ]  # fmt: skip
    trials = run_trials(jobs)
    both = range(0, len(jobs), len(GUARDING))
    pairs = [pair_of(trials[n], trials[n + 1], jobs[n], jobs[n + 1]) for n in both]
    return {
        "settings": str(VALIDATOR.relative_to(ROOT)),
        "pairs": pairs,
        "trials": {arm: [summary(t) for t in trials[n::2]] for n, arm in enumerate(GUARDING)},
        "share": {
            "seeds": len(pairs),
            "bare ends valid and empty": sum(p["bare_valid"] > 0.9 and p["bare_empty"] > 0.5 for p in pairs),
            "guarded is called within two rounds": sum(p["delay"] is not None and p["delay"] <= SOON for p in pairs),
            "guarded ends at least at the bare run's best": sum(p["reaches_best"] for p in pairs),
        },
    }


def pair_of(bare: Trial, guarded: Trial, bare_job: Job, guarded_job: Job) -> dict[str, Any]:
    """One seed: how the bare run ended, when the guarded one was called, and where it ended."""
    falls, called, best = onset(bare.heldout), guarded.first_alarm, max(bare.heldout)
    last, guarded_last = said_in(bare_job, "layout")[-1], said_in(guarded_job, "layout")[-1]
    return {
        "seed": bare.seed,
        "start": bare.heldout[0],
        "best": best,
        "bare_end": bare.heldout[-1],
        "bare_valid": last["valid"],
        "bare_empty": last["empty"],
        "bare_reward": by_round(bare, bare.proxy),
        "guarded_end": guarded.delivered,
        "guarded_valid": guarded_last["valid"],
        "guarded_empty": guarded_last["empty"],
        "reaches_best": guarded.delivered >= best,
        "falls_in_round": falls,
        "called_in_round": called,
        "delay": None if falls is None or called is None else called - falls,
        "sentence": None if called is None else guarded.sentences[called],
        "rollbacks": len(guarded.rollbacks),
        "seconds": [bare.seconds, guarded.seconds],
    }


def tell_validator(result: Mapping[str, Any]) -> None:
    print(
        f"\n{'seed':>6} {'start':>6} {'best':>6} {'end':>6} {'valid':>6} {'empty':>6} {'falls':>6} {'called':>7} "
        f"{'guarded':>8}"
    )
    for p in result["pairs"]:
        print(
            f"{p['seed']:>6} {p['start']:>6.2f} {p['best']:>6.2f} {p['bare_end']:>6.2f} {p['bare_valid']:>6.0%} "
            f"{p['bare_empty']:>6.0%} {p['falls_in_round']!s:>6} {p['called_in_round']!s:>7} {p['guarded_end']:>8.2f}"
        )
    for name, value in result["share"].items():
        print(f"  {name}: {value}")


def validator(seeds: range, runs: Path) -> None:
    result = measure_validator(seeds, runs)
    tell_validator(result)
    keep("structured-validator", result)
    curves = result["trials"]
    about = f"Mean of {len(result['pairs'])} seeds, with the lowest and the highest."
    reward = [line(arm, [t["proxy"] for t in trials], n, first=1) for n, (arm, trials) in enumerate(curves.items())]
    gold = [line(arm, [t["heldout"] for t in trials], n) for n, (arm, trials) in enumerate(curves.items())]
    keep_figure(
        "structured-validator",
        [
            ChartSpec(
                "The reward",
                "The validator's; guarded, after hacking, the corrective's too.",
                "",
                reward,
                x_label="round",
            ),
            ChartSpec("What the layouts are worth", about, "gold", gold, x_label="round"),
        ],
    )


PARTS: Mapping[str, tuple[Callable[[range, Path], None], int]] = {
    "layout": (partial(world, "layout"), 5),
    "forecast": (partial(world, "forecast"), 5),
    "validator": (validator, 10),
}


def main(words: Sequence[str]) -> None:
    parser = parser_of("structured", __doc__)
    parser.add_argument("--part", choices=sorted(PARTS), help="one of them alone")
    parser.add_argument("--seeds", type=int, help="how many (5, validator 10)")
    parser.add_argument("--first-seed", type=int, default=1000, help="the first (1000; those below are for tuning)")
    parser.add_argument("--runs", type=Path, help="keep the runs here; finished ones are not run again")
    args = parser.parse_args(words)
    runs = args.runs or Path(tempfile.mkdtemp(prefix="holdfast-structured-"))
    for name, (part, usual) in PARTS.items():
        if args.part in (None, name):
            part(range(args.first_seed, args.first_seed + (args.seeds or usual)), runs)
