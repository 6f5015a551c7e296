"""What owners do: ask something of the run, after a question; invite people and shut them out. And label quality."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import RedirectResponse, Response

from holdfast.models.prompt import plain_text
from holdfast.people.accounts import Role
from holdfast.people.label_weights import UNRELIABLE_WEIGHT, read_quality
from holdfast.people.quality import FEWEST_ANSWERS
from holdfast.people.reasons import read_reasons
from holdfast.people.remarks import read_remarks
from holdfast.people.requests import ACTIONS, OwnerAction, checked
from holdfast.preferences.comparison import Comparison
from holdfast.text import clip
from holdfast.web.renderer import page
from holdfast.web.security import Owning, OwningForm, TheSite, Visitor, Watching, scheme_of
from holdfast.web.site import Site

router = APIRouter(include_in_schema=False)

QUESTIONS: dict[OwnerAction, str] = {
    "pause": "Pause the run?",
    "resume": "Let the run go on?",
    "audit": "Ask for an audit?",
    "rollback": "Roll back to {checkpoint}?",
    "reward": "Go back to version {version} of the reward ensemble?",
    "beta": "Change beta to {value:g}?",
    "budget": "Change the KL budget to {value:g} nats?",
}
CONSEQUENCES: dict[OwnerAction, str] = {
    "pause": "The run saves itself after the step it is in and waits. Nothing is lost.",
    "resume": "The run goes on from where it was paused.",
    "audit": "The round ends after the step it is in, and its audit asks about as many pairs as in a suspicious round.",
    "rollback": "Policy, critic, optimiser, KL control and ensemble go back together to that checkpoint. Steps since "
    "then are undone; labels are kept.",
    "reward": "That version scores from here on; the policy stays as it is. The next refresh starts from it, with all "
    "that was labelled since, and until then a KL budget that grows with the labels is that of the labels it knows.",
    "beta": "The weight of the KL penalty. An adaptive controller goes on from the new value.",
    "budget": "The KL to the reference that the run aims at. A budget that grows with the labels is scaled as a whole.",
}
Reason = Annotated[str, Form(max_length=500)]


@router.get("/act")
def confirm(
    request: Request,
    visitor: Owning,
    site: TheSite,
    action: Annotated[str, Query(max_length=20)] = "",
    checkpoint: Annotated[str, Query(max_length=100)] = "",
    version: Annotated[str, Query(max_length=40)] = "",
    value: Annotated[str, Query(max_length=40)] = "",
    reason: Annotated[str, Query(max_length=500)] = "",
) -> Response:
    """Ask first."""
    arguments = checked(action, _arguments(action, checkpoint, version, value))
    known = next(name for name in ACTIONS if name == action)
    return page(
        request, "confirm.html", visitor, action=known, arguments=arguments, reason=reason,
        question=QUESTIONS[known].format(**arguments), consequence=CONSEQUENCES[known], key=secrets.token_urlsafe(16),
    )  # fmt: skip


def _arguments(action: str, checkpoint: str, version: str, value: str) -> dict[str, object]:
    if action == "rollback":
        return {"checkpoint": checkpoint}
    if action == "reward":
        return {"version": int(version) if version.isascii() and version.isdigit() else version}
    if action in ("beta", "budget"):
        try:
            return {"value": float(value)}
        except ValueError:
            return {"value": value}
    return {}


@router.post("/act")
def act(
    visitor: OwningForm,
    site: TheSite,
    action: Annotated[OwnerAction, Form()],
    key: Annotated[str, Form(min_length=8, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")],
    checkpoint: Annotated[str, Form(max_length=100)] = "",
    version: Annotated[str, Form(max_length=40)] = "",
    value: Annotated[str, Form(max_length=40)] = "",
    reason: Reason = "",
) -> Response:
    """Write the request down; the run carries it out at its next safe point."""
    site.refuse_trainers()
    site.requests.ask(key, action, _arguments(action, checkpoint, version, value), reason, visitor.name)
    return RedirectResponse("/", 303)


@router.post("/act/withdraw")
def withdraw(visitor: OwningForm, site: TheSite, number: Annotated[int, Form(ge=1, le=2**53)]) -> Response:
    site.requests.withdraw(number)
    return RedirectResponse("/", 303)


@router.get("/people")
def people(request: Request, visitor: Owning, site: TheSite) -> Response:
    return _people(request, visitor, site)


def _people(request: Request, visitor: Visitor, site: Site, token: str = "", words: str = "") -> Response:
    """The page, with a new link on it where one has been made: it is shown once, and only its hash is kept."""
    link = f"{scheme_of(request)}://{request.headers['host']}/join/{token}" if token else ""
    return page(request, "people.html", visitor, accounts=site.accounts.all(), link=link, words=words)


@router.post("/people/invite")
def invite(request: Request, visitor: OwningForm, site: TheSite, role: Annotated[Role, Form()]) -> Response:
    token = site.accounts.invite(role, visitor.name)
    return _people(request, visitor, site, token, f"An invitation for one {role}")


@router.post("/people/password")
def forgotten(
    request: Request, visitor: OwningForm, site: TheSite, name: Annotated[str, Form(max_length=200)]
) -> Response:
    """A link with which somebody sets a new password."""
    token = site.accounts.forgotten(name, visitor.name)
    return _people(request, visitor, site, token, f"A new password for {name[:60]}")


@router.post("/people/enable")
def enable(visitor: OwningForm, site: TheSite, name: Annotated[str, Form(max_length=200)]) -> Response:
    site.accounts.enable(name)
    return RedirectResponse("/people", 303)


@router.post("/people/disable")
def disable(visitor: OwningForm, site: TheSite, name: Annotated[str, Form(max_length=200)]) -> Response:
    site.accounts.disable(name)
    return RedirectResponse("/people", 303)


@router.get("/quality")
def quality(request: Request, visitor: Watching, site: TheSite) -> Response:
    team = read_quality(site.store.database, site.run.key)
    names = [labeller.name for labeller in team.labellers]
    pairs = {**team.pairs, **{(b, a): value for (a, b), value in team.pairs.items()}}
    remarks = [
        (remark, clip(plain_text(remark.comparison.prompt), 300)[0], *_clipped(remark.comparison))
        for remark in read_remarks(site.store.database, site.run.key)
    ]
    return page(
        request, "quality.html", visitor, quality=team, names=names, pairs=pairs,
        unreliable=site.config.people.unreliable, weight=UNRELIABLE_WEIGHT, fewest=FEWEST_ANSWERS,
        remarks=remarks, reasons=read_reasons(site.store.database, site.run.key),
    )  # fmt: skip


def _clipped(comparison: Comparison) -> tuple[str, str]:
    """Both answers, cut to what fits a list."""
    return clip(comparison.a.text, 600)[0], clip(comparison.b.text, 600)[0]
