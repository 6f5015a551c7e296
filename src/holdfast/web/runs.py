"""Several runs in the same charts: those that stand beside the one that is served."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from holdfast.charts.spec import ChartSpec, Series
from holdfast.charts.style import PALETTE_SIZE
from holdfast.report import rounds, words
from holdfast.report.data import RunData, RunFollower
from holdfast.report.delivered import KL_FIGURE, PROXY_FIGURE, REWARD_FIGURE, Delivered, delivered
from holdfast.report.guard_panels import one_half, rate_line, window
from holdfast.report.panels import MAIN, MORE, MetricPanel
from holdfast.report.undone import undone
from holdfast.text import format_value
from holdfast.web.renderer import page
from holdfast.web.samples import ShownSample, before_and_after, shown_samples
from holdfast.web.security import TheSite, Watching

router = APIRouter(include_in_schema=False)

MOST_RUNS = PALETTE_SIZE
MOST_PROMPTS = 4
PROXY = MetricPanel(
    "objective/scores", "Proxy", "What the reward says; each run has its own ensemble, or is given its reward.", "score"
)
COMPARED = (
    PROXY,
    *(
        panel
        for panel in (*MAIN, *MORE)
        if panel.metric
        in (
            "objective/kl", "objective/kl_cumulative", "control/beta", "ensemble/spread", "response/length_mean",
            "objective/entropy", "response/distinct2",
        )
    ),
)  # fmt: skip

_followers: dict[Path, RunFollower] = {}
_guard = threading.Lock()


def neighbours(path: Path) -> list[str]:
    """The names of the runs in the same directory, this one first."""
    beside = sorted(one.parent.name for one in path.resolve().parent.glob("*/manifest.json"))
    name = path.resolve().name
    return [name, *(other for other in beside if other != name)]


def read(path: Path) -> RunData:
    """A run, of which only what is new is read."""
    with _guard:
        if len(_followers) > 2 * MOST_RUNS:
            _followers.clear()
        return _followers.setdefault(path, RunFollower(path)).read()


def overlaid(panel: MetricPanel, runs: dict[str, RunData]) -> ChartSpec:
    """One metric of several runs."""
    series = []
    for colour, (name, run) in enumerate(runs.items()):
        known = undone(run).kept(run.known(panel.metric))
        xs, ys = [float(step) for step, _ in known], [value for _, value in known]
        series.append(Series(name, xs, ys, colour, smooth=window(len(known))))
    return ChartSpec(
        panel.title, panel.subtitle, panel.unit, tuple(series), percent=panel.percent, from_zero=panel.from_zero
    )


def audited(runs: dict[str, RunData]) -> ChartSpec:
    """How often the policy is preferred to the reference, with its interval."""
    series = []
    for colour, (name, run) in enumerate(runs.items()):
        gone = undone(run)
        kept = [event for event in run.happened("audit") if not gone.covers(event.step)]
        series.append(rate_line(name, kept, "reference", colour))
    return ChartSpec(
        "Preferred to the reference",
        "Share of fresh pairs, a tie as half, with the 95% interval. Undone rounds are left out.",
        series=tuple(series), limit=one_half([x for one in series for x in one.xs]), percent=True,
    )  # fmt: skip


def figures(runs: dict[str, RunData]) -> list[tuple[str, list[str]]]:
    """The key figures of each run, a row for each; those of a policy are of the one that the run delivers."""
    policies = [delivered(run) for run in runs.values()]

    def preferred(policy: Delivered) -> str:
        rate = policy.preferred_to_reference
        return "–" if rate is None else f"{rate.share.of('pair')} by {rate.answered_by}"

    def figure(policy: Delivered, name: str) -> str:
        known = policy.figures.get(name)
        return "–" if known is None else format_value(known.end)

    def proxy(policy: Delivered) -> str:
        version = policy.reward_version
        name = REWARD_FIGURE if REWARD_FIGURE in policy.figures else PROXY_FIGURE
        return figure(policy, name) + ("" if version is None else f" by v{version}")

    summaries = [rounds.summary(run) for run in runs.values()]
    return [
        ("status", [words.status(run) for run in runs.values()]),
        ("verdict", [words.verdict(one) if one and one.verdict else "–" for one in summaries]),
        ("delivers", [policy.policy for policy in policies]),
        ("preferred to the reference", [preferred(policy) for policy in policies]),
        ("steps", [f"{len(run.metrics):,}" for run in runs.values()]),
        ("proxy", [proxy(policy) for policy in policies]),
        ("KL to reference", [figure(policy, KL_FIGURE) for policy in policies]),
    ]


def same_prompts(runs: dict[str, RunData]) -> list[tuple[str, list[ShownSample]]]:
    """The first fixed prompts that the runs share, each with the answer of the policy that each run delivers."""
    newest: dict[str, dict[str, ShownSample]] = {}
    for name, run in runs.items():
        step = delivered(run).step
        for pair in before_and_after(shown_samples(run), step):
            newest.setdefault(pair.before.row.prompt, {})[name] = pair.newest
    shared = [(prompt, answers) for prompt, answers in newest.items() if len(answers) == len(runs)]
    return [(prompt, [answers[name] for name in runs]) for prompt, answers in shared[:MOST_PROMPTS]]


@router.get("/compare")
def compare(
    request: Request, visitor: Watching, site: TheSite, run: Annotated[list[str] | None, Query(max_length=50)] = None
) -> Response:
    names = neighbours(site.run.path)
    wanted = [name for name in names if name in (run or names[:3])][:MOST_RUNS]
    parent = site.run.path.resolve().parent
    runs = {name: read(parent / name) for name in wanted}
    charts = [spec for spec in (audited(runs), *(overlaid(panel, runs) for panel in COMPARED)) if spec.has_data()]
    return page(
        request, "compare.html", visitor, names=names, wanted=wanted, charts=charts, figures=figures(runs),
        most=MOST_RUNS, answers=same_prompts(runs),
    )  # fmt: skip
