"""The labelling page: one pair at a time, by buttons, by keys, with or without script.

The page is a form. The script sends it in the background and puts the answer, which is the next pair, into the page;
without script the browser does the same with a redirect.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Header, Query, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from holdfast.drawings.picture import AnswerPicture, Undrawn
from holdfast.drawings.registry import picture_of
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Message, plain_text
from holdfast.people.accounts import SESSION_SECONDS
from holdfast.people.batches import LabelBatch
from holdfast.people.instructions import Instructions
from holdfast.people.queue import Lease, Said, Submitted
from holdfast.text import visible
from holdfast.web.differences import Piece, differences
from holdfast.web.renderer import page, render
from holdfast.web.security import Labelling, LabellingForm, Refused, TheSite, Visitor, cookie_of
from holdfast.web.site import Site

router = APIRouter(include_in_schema=False)

LONGEST_SHOWN = 60_000
Fragment = Annotated[str | None, Header(alias="X-Fragment")]
Token = Annotated[str, Form(min_length=8, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]


@dataclass(frozen=True)
class ShownSide:
    """One answer as it is shown; `omitted` characters are behind a link."""

    name: str
    number: int
    pieces: list[Piece]
    omitted: int
    finished: bool
    drawn: AnswerPicture | Undrawn | None = None


@dataclass(frozen=True)
class ShownPair:
    """Two answers to a prompt as they are shown; `submission` makes sending twice the same as sending once."""

    lease: str
    turns: list[Message]
    sides: tuple[ShownSide, ShownSide]
    submission: str
    flagged: bool
    note: str
    differ: bool
    drawing: str = ""


@dataclass(frozen=True)
class LabellingProgress:
    """How far it is: mine, and what the run waits for."""

    mine: int
    batches: list[LabelBatch]

    @property
    def now(self) -> LabelBatch | None:
        return self.batches[0] if self.batches else None


def pair_of(lease: Lease, drawing: str = "") -> ShownPair:
    """A lease for the eye: the sides as they were shuffled, no names, no scores; drawn where answers are."""
    shown = lease.shown
    asked = plain_text(shown.prompt)
    turns = [Message("", shown.prompt)] if isinstance(shown.prompt, str) else list(shown.prompt)
    texts = [side.text[:LONGEST_SHOWN] for side in (shown.a, shown.b)]
    pieces = differences(texts[0], texts[1])
    left, right = (
        ShownSide(name, n, parts, len(side.text) - len(text), side.finished, picture_of(drawing, side.text, asked))
        for n, (name, parts, side, text) in enumerate(
            zip(("Answer 1", "Answer 2"), pieces, (shown.a, shown.b), texts, strict=True), start=1
        )
    )
    differ = any(piece.differs for side in pieces for piece in side)
    cut = [Message(turn.role, turn.content[:LONGEST_SHOWN]) for turn in turns]
    submission = secrets.token_urlsafe(16)
    return ShownPair(lease.token, cut, (left, right), submission, lease.flagged, lease.note, differ, drawing)


def go_on(
    site: Site, visitor: Visitor, fragment: str | None, lease: Lease | None, last: Submitted | None, words: str
) -> Response:
    """The part of the page that changes with each pair, or the whole page again where there is no script."""
    if fragment is None:
        return RedirectResponse("/label", 303)
    lease = lease or site.queue.next(visitor.name)
    return HTMLResponse(render("pair.html", **_values(site, visitor, lease, last, words)))


def _values(site: Site, visitor: Visitor, lease: Lease | None, last: Submitted | None, words: str) -> dict[str, Any]:
    return {
        "visitor": visitor,
        "pair": None if lease is None else pair_of(lease, site.drawing),
        "last": last,
        "said": None if last is None else said_of(last),
        "words": words,
        "reasons": site.config.people.reasons,
        "instructed": site.instructions is not None,
        "progress": LabellingProgress(site.queue.done_by(visitor.name), site.queue.waiting()),
    }


def said_of(last: Submitted) -> str:
    """An answer in words, as the person gave it."""
    if last.answer in ("a", "b"):
        return "answer 1" if (last.answer == "a") != last.swapped else "answer 2"
    return {"tie": "a tie", "both_bad": "both bad", "skip": "skipped"}[last.answer]


@router.get("/label")
def label_page(
    request: Request, visitor: Labelling, site: TheSite, read: Annotated[str, Query(max_length=64)] = ""
) -> Response:
    """The next pair; before the first one, and when they have changed, the owner's instructions."""
    if site.instructions is not None and read == site.instructions.digest:
        begun = RedirectResponse("/label", 303)
        begun.set_cookie(read_name(request), read, httponly=True, samesite="strict", max_age=int(SESSION_SECONDS))
        return begun
    if site.instructions is not None and not has_read(request, site.instructions):
        return instructions(request, visitor, site)
    lease = site.queue.next(visitor.name)
    values = _values(site, visitor, lease, None, "")
    return page(request, "label.html", visitor, **{name: value for name, value in values.items() if name != "visitor"})


def read_name(request: Request) -> str:
    """The cookie that keeps which instructions somebody has read, each server's its own."""
    return f"{cookie_of(request)}_read"


def has_read(request: Request, instructions: Instructions) -> bool:
    return request.cookies.get(read_name(request)) == instructions.digest


@router.get("/label/instructions")
def instructions(request: Request, visitor: Labelling, site: TheSite) -> Response:
    """What the owner wants people to look at."""
    told = site.instructions
    if told is None:
        raise Refused(404, "The owner of this run has given no instructions.")
    examples = [
        (one, *(picture_of(site.drawing, text, one.prompt) for text in (one.better, one.worse)))
        for one in told.examples
    ]
    return page(
        request, "instructions.html", visitor, instructions=told, examples=examples, again=has_read(request, told)
    )


@router.get("/label/pair")
def next_pair(visitor: Labelling, site: TheSite) -> Response:
    return go_on(site, visitor, "pair", None, None, "")


@router.post("/label/answer")
def answer(
    visitor: LabellingForm,
    site: TheSite,
    lease: Token,
    submission: Token,
    said: Annotated[Said, Form()],
    seconds: Annotated[float | None, Form(ge=0, le=1e6)] = None,
    reasons: Annotated[list[str], Form(max_length=50)] = [],  # noqa: B006
    x_fragment: Fragment = None,
) -> Response:
    """Store an answer and give the next pair. What went wrong is said above it; nothing is lost."""
    last, words = None, ""
    try:
        last = site.queue.submit(submission, visitor.name, lease, said, seconds, reasons)
    except HoldfastError as error:
        words = str(error)
    return go_on(site, visitor, x_fragment, None, last, words)


@router.post("/label/reveal")
def reveal(visitor: LabellingForm, site: TheSite, submission: Token) -> Response:
    """What stood behind a pair, for who has answered it and asks."""
    try:
        revealed, words = site.queue.reveal(submission, visitor.name), ""
    except HoldfastError as error:
        revealed, words = None, str(error)
    return HTMLResponse(render("reveal.html", revealed=revealed, words=words))


@router.post("/label/undo")
def undo(visitor: LabellingForm, site: TheSite, x_fragment: Fragment = None) -> Response:
    words = ""
    lease = None
    try:
        lease = site.queue.undo(visitor.name)
        words = "Taken back: here is that pair again." if lease else "There is nothing to take back."
    except HoldfastError as error:
        words = str(error)
    return go_on(site, visitor, x_fragment, lease, None, words)


@router.post("/label/remark")
def remark(
    visitor: LabellingForm,
    site: TheSite,
    lease: Token,
    remark: Token,
    kind: Annotated[Literal["note", "flag", "unflag"], Form()],
    text: Annotated[str, Form(max_length=4000)] = "",
    x_fragment: Fragment = None,
) -> Response:
    words = {"note": "The note is kept.", "flag": "Flagged.", "unflag": "No longer flagged."}[kind]
    try:
        site.queue.remark(remark, visitor.name, lease, kind, text)
    except HoldfastError as error:
        words = str(error)
    return go_on(site, visitor, x_fragment, None, None, words)


@router.get("/label/whole/{number}")
def whole(visitor: Labelling, site: TheSite, number: Literal["1", "2"]) -> Response:
    """A very long answer as plain text, of the pair that the person holds and no other."""
    lease = site.queue.next(visitor.name)
    if lease is None:
        raise Refused(404, "There is no pair to look at.")
    side = lease.shown.a if number == "1" else lease.shown.b
    headers = {"Content-Security-Policy": "default-src 'none'; sandbox"}
    return PlainTextResponse(visible(side.text), headers=headers)
