"""The same over HTTP for programs: JSON in and out, described by /api/openapi.json."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from holdfast.people.accounts import Role
from holdfast.people.batches import asked_for
from holdfast.people.label_weights import read_quality
from holdfast.people.queue import LabelQueue, Lease, Said
from holdfast.people.requests import OwnerAction
from holdfast.preferences.encoding import prompt_json
from holdfast.report import rounds, words
from holdfast.text import as_number
from holdfast.web.login import check_login
from holdfast.web.security import Anyone, Labelling, Owning, Refused, TheSite, Watching

KEY_PATTERN = r"^[A-Za-z0-9_.:-]+$"
KEY = Annotated[str, Field(min_length=8, max_length=64, pattern=KEY_PATTERN)]


class ErrorOut(BaseModel):
    """What went wrong, in a sentence."""

    detail: str


PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorOut} for code in (400, 401, 403, 404, 405, 409, 413, 422)
}
router = APIRouter(prefix="/api/v1", responses=PROBLEMS)


class Strict(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Mirror(BaseModel):
    """An object of the library as a document, by the names of its attributes."""

    model_config = ConfigDict(from_attributes=True)


class LogIn(Strict):
    """Who one is."""

    name: str = Field(max_length=200)
    password: str = Field(max_length=2000)


class Me(Mirror):
    """Who the session belongs to."""

    name: str
    role: Role


class LoggedIn(Me):
    """A session, and who it belongs to."""

    token: str = Field(description="Send it as `Authorization: Bearer TOKEN`.")


class PairOut(BaseModel):
    """A pair to answer. `left` and `right` are shuffled; where they come from is not said."""

    lease: str
    purpose: Literal["audit", "training"]
    prompt: Any = Field(description="A text, or a list of {role, content} messages.")
    left: str
    right: str
    left_finished: bool
    right_finished: bool
    expires_at: float
    flagged: bool
    note: str


class AnswerIn(Strict):
    """What a person says of a pair."""

    id: KEY = Field(description="Chosen by you; sending the same again stores nothing.")
    lease: KEY
    said: Said
    seconds: float | None = Field(None, ge=0, le=1e6, description="How long the person took.")
    reasons: list[str] = Field([], max_length=50, description="Why, out of the tags that `progress` has.")


class AnswerOut(BaseModel):
    """That an answer is stored, and the next pair."""

    id: str
    stored: Literal[True] = True
    again: bool = Field(description="Whether it was there already.")
    next: PairOut | None


class RevealOut(BaseModel):
    """What was hidden until the answer: the ensemble's claim, and where the two came from."""

    claim_left: float | None = Field(description="The ensemble's probability that the left one is preferred.")
    left_version: str
    right_version: str


class RemarkIn(Strict):
    """A note about a pair, or a flag on it."""

    id: KEY
    lease: KEY
    kind: Literal["note", "flag", "unflag"]
    text: str = Field("", max_length=2000)


class ExampleOut(Mirror):
    """A pair with its answer, as an example."""

    prompt: str
    better: str
    worse: str
    why: str


class InstructionsOut(Mirror):
    """What people should look at when they compare."""

    text: str = ""
    examples: list[ExampleOut] = []


class BatchOut(Mirror):
    """Comparisons that were asked together, and how many are answered."""

    name: str
    purpose: str
    asked: int
    answered: int
    left_out: int = Field(validation_alias="dropped")
    asked_at: float


class ProgressOut(BaseModel):
    """How many answers one has given, and what waits."""

    mine: int
    waiting: list[BatchOut]
    reasons: list[str] = Field(description="What may be given as reasons of an answer.")


class RunOut(BaseModel):
    """How the run stands."""

    name: str
    status: str
    steps: int
    verdict: str
    evidence: str
    result: str
    figures: dict[str, str]


class MetricOut(BaseModel):
    """A metric by step."""

    name: str
    steps: list[int]
    values: list[float | None]


class MeasureOut(Mirror):
    """One measure of a labeller, beside that of the others."""

    name: str
    value: float | None
    count: int
    beside: float | None
    finding: str


class LabellerOut(Mirror):
    """How far a labeller can be relied on."""

    name: str
    answers: int
    reliable: bool
    measures: list[MeasureOut]


class QualityOut(Mirror):
    """How far the labellers agree, and each of them."""

    alpha: float | None = Field(description="Krippendorff's alpha over comparisons that several people answered.")
    shared: int
    labellers: list[LabellerOut]


class RequestIn(Strict):
    """What an owner asks of the run."""

    id: KEY
    action: OwnerAction
    arguments: dict[str, float | str] = Field(default_factory=dict, max_length=2)
    reason: str = Field("", max_length=500)


class RequestOut(Mirror):
    """A request, and what came of it."""

    id: int
    action: OwnerAction
    arguments: dict[str, Any]
    reason: str
    asked_by: str
    state: str
    outcome: str | None


class InvitationIn(Strict):
    """Whom to invite."""

    role: Role


class InvitationOut(BaseModel):
    """The way in for whoever was invited."""

    path: str = Field(description="Add it to the server's address; it can be used once.")


def pair_out(lease: Lease) -> PairOut:
    shown = lease.shown
    # Who could tell a check item would take more care with it than with others.
    return PairOut.model_construct(
        lease=lease.token, purpose=asked_for([shown.purpose]), prompt=prompt_json(shown.prompt), left=shown.a.text,
        right=shown.b.text, left_finished=shown.a.finished, right_finished=shown.b.finished,
        expires_at=lease.expires_at, flagged=lease.flagged, note=lease.note,
    )  # fmt: skip


def next_of(queue: LabelQueue, name: str) -> PairOut | None:
    lease = queue.next(name)
    return None if lease is None else pair_out(lease)


@router.post("/session", responses={429: {"model": ErrorOut}}, tags=["session"])
def log_in(request: Request, site: TheSite, body: LogIn) -> LoggedIn:
    """Log in with name and password."""
    account = check_login(request, site, body.name, body.password)
    if account is None:
        raise Refused(401, "Name or password is not right.")
    token, _ = site.accounts.open_session(account)
    return LoggedIn(token=token, name=account.name, role=account.role)


@router.delete("/session", status_code=204, tags=["session"])
def log_out(visitor: Anyone, site: TheSite) -> Response:
    """End the session."""
    site.accounts.close_session(visitor.token)
    return Response(status_code=204)


@router.get("/me", tags=["session"])
def me(visitor: Anyone) -> Me:
    """Who you are."""
    return Me.model_validate(visitor)


@router.post("/next", tags=["labelling"])
def take_next(visitor: Labelling, site: TheSite) -> PairOut | None:
    """The pair to answer now, leased to you; null where there is none."""
    return next_of(site.queue, visitor.name)


@router.post("/answers", tags=["labelling"])
def answer(visitor: Labelling, site: TheSite, body: AnswerIn) -> AnswerOut:
    """Store an answer. When this returns, the label survives a crash."""
    done = site.queue.submit(body.id, visitor.name, body.lease, body.said, body.seconds, body.reasons)
    return AnswerOut(id=done.id, again=done.again, next=next_of(site.queue, visitor.name))


@router.post("/answers/{id}/reveal", tags=["labelling"])
def reveal(
    visitor: Labelling, site: TheSite, id: Annotated[str, Path(max_length=64, pattern=KEY_PATTERN)]
) -> RevealOut:
    """What stood behind a pair that you have answered. The answer can then no longer be taken back."""
    revealed = site.queue.reveal(id, visitor.name)
    return RevealOut(
        claim_left=revealed.claim_left, left_version=revealed.versions[0], right_version=revealed.versions[1]
    )


@router.post("/undo", tags=["labelling"])
def undo(visitor: Labelling, site: TheSite) -> PairOut | None:
    """Take back your last answer or skip, unless it was revealed; its pair is yours again. Null where there is none."""
    lease = site.queue.undo(visitor.name)
    return None if lease is None else pair_out(lease)


@router.post("/remarks", status_code=204, tags=["labelling"])
def remark(visitor: Labelling, site: TheSite, body: RemarkIn) -> Response:
    """A note or a flag on the pair that you hold."""
    site.queue.remark(body.id, visitor.name, body.lease, body.kind, body.text)
    return Response(status_code=204)


@router.get("/instructions", tags=["labelling"])
def instructions(visitor: Labelling, site: TheSite) -> InstructionsOut:
    """What the owner wants people to look at; an empty text where nothing is said."""
    return InstructionsOut() if site.instructions is None else InstructionsOut.model_validate(site.instructions)


@router.get("/progress", tags=["labelling"])
def progress(visitor: Labelling, site: TheSite) -> ProgressOut:
    """How many you have answered, and what the run waits for."""
    batches = [BatchOut.model_validate(batch) for batch in site.queue.waiting()]
    return ProgressOut(mine=site.queue.done_by(visitor.name), waiting=batches, reasons=list(site.config.people.reasons))


@router.get("/run", tags=["run"])
def run(visitor: Watching, site: TheSite) -> RunOut:
    """How the run stands."""
    data = site.live.picture().data
    state = words.status(data)
    end = rounds.ending(data, state)
    return RunOut(
        name=data.name, status=state, steps=len(data.metrics), verdict=end.headline if end else "",
        evidence=end.evidence if end else "", result=words.result(data),
        figures={tile.label: tile.value for tile in words.tiles(data)},
    )  # fmt: skip


@router.get("/metrics", tags=["run"])
def metrics(visitor: Watching, site: TheSite, name: Annotated[str, Query(max_length=200)]) -> MetricOut:
    """One metric, step by step; docs/reference/metrics.md has the names."""
    data = site.live.picture().data
    if not data.metrics.count(name):
        raise Refused(404, "The run has no such metric.")
    return MetricOut(name=name, steps=list(data.metrics.steps), values=list(data.metrics.column(name)))


@router.get("/events", tags=["run"])
def events(visitor: Watching, site: TheSite, after: Annotated[int, Query(ge=0, le=10**9)] = 0) -> list[dict[str, Any]]:
    """What happened, in order, from the `after`-th on; at most 1000."""
    page = site.live.picture().data.events[after : after + 1000]
    return [
        {"number": n, "step": e.step, "round": e.round, "event": e.kind, **_plain(e.fields)}
        for n, e in enumerate(page, start=after)
    ]


def _plain(fields: Any) -> dict[str, Any]:
    """Fields without numbers that JSON does not have."""
    return {k: (as_number(v) if isinstance(v, float) else v) for k, v in fields.items()}


@router.get("/quality", tags=["labels"])
def quality(visitor: Watching, site: TheSite) -> QualityOut:
    """How far people agree, and who is found unreliable."""
    return QualityOut.model_validate(read_quality(site.store.database, site.run.key))


@router.get("/requests", tags=["run"])
def requests(visitor: Watching, site: TheSite) -> list[RequestOut]:
    """What owners have asked of the run, the newest first."""
    return [RequestOut.model_validate(request) for request in site.requests.recent()]


@router.post("/requests", tags=["run"])
def ask(visitor: Owning, site: TheSite, body: RequestIn) -> RequestOut:
    """Ask something of the run; it is carried out at its next safe point."""
    site.refuse_trainers()
    asked = site.requests.ask(body.id, body.action, body.arguments, body.reason, visitor.name)
    return RequestOut.model_validate(asked)


@router.delete("/requests/{number}", status_code=204, tags=["run"])
def withdraw(visitor: Owning, site: TheSite, number: Annotated[int, Path(ge=1, le=2**53)]) -> Response:
    """Take back a request that has not been carried out."""
    if not site.requests.withdraw(number):
        raise Refused(404, "There is no such request waiting.")
    return Response(status_code=204)


@router.post("/invitations", tags=["people"])
def invite(visitor: Owning, site: TheSite, body: InvitationIn) -> InvitationOut:
    """A link with which one person makes an account."""
    return InvitationOut(path=f"/join/{site.accounts.invite(body.role, visitor.name)}")
