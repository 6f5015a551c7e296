"""The report of a run as one HTML file that needs no network and no script to be read."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from holdfast.charts.chart import line_chart
from holdfast.charts.layers import MOST_ROUNDS
from holdfast.charts.spec import ChartSpec
from holdfast.charts.style import CHART_STYLE
from holdfast.checkpoint.files import write_atomic
from holdfast.drawings.picture import AnswerPicture, Undrawn
from holdfast.drawings.style import DRAWING_STYLE
from holdfast.events.levels import LEVELS
from holdfast.people.reasons import ReasonCount
from holdfast.report import rounds, samples, words
from holdfast.report.data import EventRow, RunData, read_run
from holdfast.report.panels import MORE, main_panels, marked_every, narrow, panels
from holdfast.report.probe_panels import dynamics
from holdfast.statistics import Share
from holdfast.text import as_number, clip, counted, percent, sentence, visible

# What the boxes that have no room for their label are called.
KEY = Markup(
    '<span class="key"><svg class="hf-drawing" viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">'
    '<rect class="box {}" x="1" y="1" width="10" height="10"/></svg>{}</span>'
)
# The style of all that is drawn in a page.
DRAWN_STYLE = CHART_STYLE + DRAWING_STYLE
CONFIG_LIMIT = 100_000
MOST_MAIN_EVENTS = 60
MOST_EVENTS = 1_000
# The name is the page's title already; of the rest a reader wants these.
FACTS = (
    ("world", "world"),
    ("policy", "policy"),
    ("seed", "seed"),
    ("started", "started"),
    ("seconds", "took"),
    ("peak_memory", "peak memory"),
    ("holdfast_version", "holdfast"),
)  # fmt: skip

WORDS = (
    ("Gold", "", "The truth, known in a made-up world only. Training never sees it."),
    ("Step, round", "", "A step is one PPO batch. A round is: collect labels, maybe refresh, then several steps."),
    ("Budget", "control/kl_target", "How far from the reference, in nats of KL, the policy may go."),
    ("Skipped steps", "steps/skipped", "Steps dropped before the update, for example because of a NaN."),
)  # fmt: skip
ENSEMBLE_WORDS = (
    ("Proxy", "objective/scores", "The score of the reward ensemble, which training pushes up."),
    ("Refresh", "", "The reward ensemble is trained again on old and new labels; v2, v3 ... are its versions."),
    ("Labels", "ensemble/labels", "How many labels the present version of the ensemble was trained on."),
    ("Reward-model accuracy", "",
     "The share of comparisons where the ensemble prefers the answer that the labeller preferred."),
)  # fmt: skip
GIVEN_WORDS = (
    ("Reward", "objective/scores", "What the reward says of answers, which training pushes up; in its own unit."),
    ("Component", "", "One of several numbers that make up the reward, or a criterion of a rubric."),
    ("Granted", "", "Of the pairs in which a component was higher for the policy, those that people gave it too."),
    ("Not scored", "reward/unscored", "Answers that the reward could not score. They have no part in what is learnt."),
)  # fmt: skip


GUARD_WORDS = (
    ("Audit", "",
     "Fresh answers of the policy beside another's, which the labeller compares. It measures before it may train."),
    ("Claim", "",
     "The reward's probability that the policy's answer is preferred. One that is no model learns it from audits."),
    ("Last good policy", "",
     "The newest one that was liked at least as well as the one before it; rollbacks go there."),
    ("Verdict", "", sentence("; ".join(f"{level}: {kind.meaning}" for level, kind in reversed(LEVELS.items())))),
    ("Rollback", "", "Policy, critic, optimiser, KL control and ensemble, if any, go back together. Labels are kept."),
)  # fmt: skip
GATE_WORDS = (
    ("Gate", "", "The test on labels not learnt from that a refreshed ensemble has to pass before it is used."),
)  # fmt: skip


def environment(package: str) -> Environment:
    """The templates of a package, with what they print: charts, and numbers as a person reads them."""
    made = Environment(
        # Parts that the site's pages share with the report are the report's.
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("holdfast.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Text from a run is made visible in the place where it is printed, so that no piece can be forgotten.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    made.filters |= {
        "chart": chart, "picture": picture, "narrow": narrow, "glyph": rounds.glyph, "percent": percent,
        "counted": counted, "duration": words.duration, "share": lambda value, count: Share(value, count).note,
    }  # fmt: skip
    return made


def picture(drawn: AnswerPicture | Undrawn | None) -> Markup:
    """An answer's picture as a figure of a page, or the sentence that stands in its place."""
    if drawn is None:
        return Markup("")
    if isinstance(drawn, Undrawn):
        return Markup('<p class="none undrawn">{}</p>').format(visible(drawn.sentence))
    keys = [KEY.format(colour, name) for colour, name in drawn.legend]
    under = Markup("").join([*keys, *(Markup("<span>{}</span>").format(note) for note in drawn.notes)])
    caption = Markup("<figcaption>{}</figcaption>").format(under) if under else ""
    return Markup('<figure class="drawing {}">{}{}</figure>').format(drawn.kind, Markup(drawn.svg), caption)


def chart(spec: ChartSpec) -> Markup:
    """A chart as a figure of a page."""
    return Markup(f'<figure class="chart">{line_chart(spec, inline=True)}</figure>')


ENVIRONMENT = environment("holdfast.report")


def write_report(
    run_dir: Path, out: Path | None = None, notes: Sequence[str] = (), reasons: Sequence[ReasonCount] = ()
) -> Path:
    """Write the report of a run atomically to `out`, or to report.html in its directory; return the path.

    `notes` are what a reader should know beside what the run's files of rows tell, and `reasons` those of the people.
    """
    target = out if out is not None else run_dir / "report.html"
    run = read_run(run_dir)
    write_atomic(target, render(replace(run, notes=(*run.notes, *notes), reasons=tuple(reasons))).encode())
    return target


def render(run: RunData) -> str:
    """The whole page as text. The same run gives the same text."""
    shown = panels(run)
    main_events = [event for event in run.events if event.weight != "minor"]
    state = words.status(run)
    config, config_omitted = clip(run.config, CONFIG_LIMIT)
    return page(
        "run",
        name=run.name,
        status=state,
        facts=_facts(run),
        ending=rounds.ending(run, state),
        result=words.result(run),
        notes=run.notes,
        tiles=words.tiles(run),
        rounds=rounds.round_table(run),
        answered_by=rounds.answered_by(run),
        given_reward=run.given_reward,
        has_gold=any(row.gold is not None for row in run.gold),
        has_refresh=bool(run.refreshes),
        marked_every=marked_every(sum(bool(event.step) for event in run.refreshes)),
        has_refused=bool(run.refused),
        has_rollback=bool(run.happened("rollback")),
        has_stripes=1 < len(set(run.metrics.rounds)) <= MOST_ROUNDS,
        reasons=run.reasons,
        shown=shown,
        dynamics=dynamics(run.probes, run.squeezed_at),
        main_events=_ends(main_events),
        main_events_left=max(0, len(main_events) - MOST_MAIN_EVENTS),
        all_events=run.events[-MOST_EVENTS:],
        events_in_all=len(run.events),
        samples=samples.before_and_after(run),
        timings=_timings(run),
        steps=len(run.timings),
        config=config,
        config_omitted=config_omitted,
        glossary=[
            *WORDS,
            *(GIVEN_WORDS if run.given_reward else ENSEMBLE_WORDS),
            *(GUARD_WORDS if rounds.is_guarded(run) else ()),
            *(GATE_WORDS if rounds.is_guarded(run) and not run.given_reward else ()),
            *((panel.title, panel.metric, panel.subtitle) for panel in (*main_panels(run), *MORE)),
        ],
    )


def page(kind: str, **values: Any) -> str:
    """A page from its template, with our own style and script in it."""
    style, script = asset("report.css") + DRAWN_STYLE, asset("report.js")
    template = ENVIRONMENT.get_template(f"{kind}.html")
    return template.render(kind=kind, policy=content_policy(style, script), style=style, script=script, **values)


def content_policy(style: str, script: str) -> str:
    """Nothing may be loaded, sent or run except this page's own style and script, named by their hashes."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def asset(name: str) -> str:
    return resources.files("holdfast.report").joinpath(name).read_text("utf-8")


def _facts(run: RunData) -> list[tuple[str, str]]:
    return [(label, _fact(name, run.manifest[name])) for name, label in FACTS if run.manifest.get(name) is not None]


def _fact(name: str, value: object) -> str:
    seconds = as_number(value)
    if name == "started" and seconds is not None and 0 <= seconds < 1e11:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if name == "seconds" and seconds is not None:
        return words.duration(seconds)
    if name == "peak_memory" and seconds is not None:
        return f"{seconds / 1e9:.2f} GB"
    return clip(str(value), 120)[0]


def _ends(events: list[EventRow]) -> list[EventRow]:
    """The first third and the last two thirds of what fits: how the run began and how it ended."""
    if len(events) <= MOST_MAIN_EVENTS:
        return events
    return events[: MOST_MAIN_EVENTS // 3] + events[len(events) - (MOST_MAIN_EVENTS - MOST_MAIN_EVENTS // 3) :]


def _timings(run: RunData) -> list[tuple[str, float, float]]:
    """The phases of a step by the time that they took: in all, and as a share."""
    totals: dict[str, float] = {}
    for row in run.timings:
        for phase, seconds in row.seconds.items():
            totals[phase] = totals.get(phase, 0.0) + seconds
    whole, longest_first = sum(totals.values()), sorted(totals.items(), key=lambda item: -item[1])
    return [(phase.replace("_", " "), seconds, seconds / whole) for phase, seconds in longest_first if whole]
