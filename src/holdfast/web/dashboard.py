"""The live dashboard: the verdict and its evidence, the charts of the report, a time line, and what an owner may do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from holdfast.charts.spec import ChartSpec
from holdfast.checkpoint.store import CheckpointStore
from holdfast.report import rounds, words
from holdfast.report.data import EventRow, RunData
from holdfast.report.panels import panels
from holdfast.reward.ensemble import VersionStore
from holdfast.run.demand import Demand, done_of, label_demand
from holdfast.web.renderer import page, render
from holdfast.web.security import TheSite, Watching
from holdfast.web.site import Site

router = APIRouter(include_in_schema=False)

MOST_ON_TIME_LINE = 80
MOST_SIGNALS = 9
ALWAYS = ("Length", "Repeated trigrams", "Rare tokens", "Entropy")
# Events that a person looks for on the time line, with a word for each; the rest is in the report.
ON_TIME_LINE = {
    "refresh": "refresh",
    "gate": "gate",
    "audit": "audit",
    "verdict": "verdict",
    "choice": "choice",
    "action": "action",
    "advice": "advice",
    "rollback": "rollback",
    "stopped": "stopped",
    "owner": "owner",
    "label_quality": "labels",
    "labels_missing": "labels",
    "kl_limit": "KL limit",
    "kl_stop": "KL stop",
    "waiting": "waits",
    "waited": "goes on",
    "resumed": "resumed",
    "run_finished": "finished",
    "ensemble_trained": "ensemble",
    "checkpoint_skipped": "checkpoint",
}


@dataclass(frozen=True)
class TimeLineEntry:
    """One event on the time line: a word, the whole sentence, and where the answers are that caused it."""

    when: str
    kind: str
    text: str
    weight: str
    time: str
    answers: str


def moment_of(event: EventRow) -> TimeLineEntry:
    return TimeLineEntry(
        event.when, ON_TIME_LINE[event.kind], event.text, event.weight, _clock(event), answers_of(event)
    )


def _clock(event: EventRow) -> str:
    try:
        return datetime.fromisoformat(str(event.fields.get("time"))).astimezone(UTC).strftime("%d %b %H:%M:%S UTC")
    except ValueError:
        return ""


def answers_of(event: EventRow) -> str:
    """The page with the answers behind an event; empty where there are none."""
    if event.round is None:
        return ""
    if event.kind in ("audit", "verdict", "choice", "rollback", "advice", "stopped") and not event.fields.get("by"):
        return f"/answers?round={event.round}&kind=audit"
    if event.kind == "action":
        kind = "adversarial" if event.fields.get("rung") == "adversarial" else "audit"
        return f"/answers?round={event.round}&kind={kind}"
    if event.kind in ("refresh", "gate"):
        return f"/answers?round={event.round}&kind=training"
    return ""


def time_line(run: RunData) -> list[TimeLineEntry]:
    """The newest first."""
    wanted = [event for event in run.events if event.kind in ON_TIME_LINE]
    return [moment_of(event) for event in reversed(wanted[-MOST_ON_TIME_LINE:])]


def draw(run: RunData, site: Site) -> tuple[str, str]:
    """The live part of the page, and the charts for a closer look."""
    shown = panels(run)
    state = words.status(run)
    signals, others = always_first([*shown.signals, *shown.more_signals])
    live = render(
        "live.html",
        status=state,
        ending=rounds.ending(run, state),
        result=words.result(run),
        tiles=words.tiles(run),
        shown=shown,
        signals=signals,
        moments=time_line(run),
    )
    return live, render("charts.html", charts=[*shown.more, *others])


def always_first(signals: Sequence[ChartSpec]) -> tuple[list[ChartSpec], list[ChartSpec]]:
    """The signals to show at once: the best known ways to fool a reward, then those that moved most; and the rest."""
    known = [spec for spec in signals if spec.title in ALWAYS]
    moved = [spec for spec in signals if spec.title not in ALWAYS]
    room = MOST_SIGNALS - len(known)
    return [*known, *moved[:room]], moved[room:]


@router.get("/")
def dashboard(request: Request, visitor: Watching, site: TheSite) -> Response:
    return page(request, "dashboard.html", visitor, picture=site.live.picture_soon(), **_asides(site))


def _asides(site: Site) -> dict[str, Any]:
    """What is not drawn from the run's files: who is waited for, what was asked, where one can go back to."""
    recent, picture = site.requests.recent(8), site.live.picture_soon()
    return {
        "state": words.status(picture.data) if picture else "",
        "demand": demand_of(site),
        "asked": site.store.count_asked(site.run.key),
        "batches": site.queue.waiting(),
        "requests": recent,
        "paused": _paused(site),
        "trainer": site.run.trainer,
        "checkpoints": list(reversed(CheckpointStore(site.run.checkpoints).names())),
        "given_reward": site.config.reward.given,
        "versions": sorted(VersionStore(site.run.rewards).accepted(), reverse=True),
    }


def demand_of(site: Site) -> Demand | None:
    """How many comparisons the run will still ask for by its settings; None for one that has no round before it."""
    manifest = site.run.manifest()
    if manifest.get("stage") or site.run.trainer:
        return None
    return label_demand(site.config, "ensemble" in manifest, done_of(site.run, site.store.count_asked(site.run.key)))


def _paused(site: Site) -> bool:
    """Whether the newest pause that was carried out has not been ended."""
    done = [r.action for r in site.requests.recent(200) if r.state == "done" and r.action in ("pause", "resume")]
    return bool(done) and done[0] == "pause"


@router.get("/live")
def live(visitor: Watching, site: TheSite, have: int = 0) -> Response:
    """The live part again, if there is a newer one than the browser has."""
    picture = site.live.picture()
    if picture.number == have:
        return Response(status_code=204)
    return HTMLResponse(picture.live, headers={"X-Picture": str(picture.number)})


@router.get("/live/aside")
def aside(visitor: Watching, site: TheSite) -> Response:
    """What is asked and waited for, which changes without the run's files."""
    return HTMLResponse(render("aside.html", visitor=visitor, **_asides(site)))


@router.get("/live/waits")
def waits(visitor: Watching, site: TheSite) -> Response:
    """Whether the run waits for people, and the way to where they answer."""
    return HTMLResponse(render("waits.html", visitor=visitor, batches=site.queue.waiting()))


@router.get("/live/more")
def more(visitor: Watching, site: TheSite) -> Response:
    return HTMLResponse(site.live.picture().more)
