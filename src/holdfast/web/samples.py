"""Answers to look at: those to the fixed prompts across rounds, and those that people were asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from holdfast.drawings.picture import AnswerPicture, Undrawn
from holdfast.drawings.registry import drawing_of, picture_of
from holdfast.models.prompt import plain_text
from holdfast.preferences.comparison import LabelledComparison, Purpose
from holdfast.report.data import RunData, SampleRow
from holdfast.report.delivered import delivered
from holdfast.report.undone import undone
from holdfast.text import clip
from holdfast.web.renderer import page
from holdfast.web.security import TheSite, Watching

router = APIRouter(include_in_schema=False)

Order = Literal["round", "reward", "disagreement", "suspicion"]
View = Literal["pairs", "rounds"]
ON_A_PAGE = 30
PAIRS_ON_A_PAGE = 60
MOST_PAIRS = 5_000


@dataclass(frozen=True)
class ShownSample:
    """An answer with what there is to sort it by."""

    row: SampleRow
    text: str
    omitted: int
    suspicion: float
    undone: bool
    drawing: str = ""

    @property
    def drawn(self) -> AnswerPicture | Undrawn | None:
        """Made when it is shown: a page has a few of many."""
        return picture_of(self.drawing, self.row.response, self.row.prompt)

    def key(self, order: Order) -> float:
        reward = self.row.score if self.row.score is not None else float("-inf")
        spread = self.row.spread if self.row.spread is not None else float("-inf")
        keys = {"round": self.row.step, "reward": reward, "disagreement": spread, "suspicion": self.suspicion}
        return float(keys[order])


def features(row: SampleRow) -> tuple[float, float, float]:
    """Length in words, share of word pairs that repeat, and the ensemble's spread."""
    words = row.response.split()
    pairs = list(pairwise(words))
    repeated = 1.0 - len(set(pairs)) / len(pairs) if pairs else 0.0
    return float(len(words)), repeated, row.spread or 0.0


def suspicions(rows: Sequence[SampleRow]) -> list[float]:
    """How far each answer is from those of the reference: the largest of its features, in their deviations there."""
    first = min((row.step for row in rows), default=0)
    usual = [features(row) for row in rows if row.step == first]
    if not usual:
        return []
    columns = list(zip(*usual, strict=True))
    means = [fmean(column) for column in columns]
    # A feature that hardly varied in the reference does not make the least change a wonder.
    scales = [max(pstdev(column), 0.1 * abs(mean), 0.05) for column, mean in zip(columns, means, strict=True)]
    return [
        max(abs(x - mean) / scale for x, mean, scale in zip(features(row), means, scales, strict=True)) for row in rows
    ]


def shown_samples(run: RunData) -> list[ShownSample]:
    gone, drawing = undone(run), drawing_of(run.manifest)
    return [
        ShownSample(row, *clip(row.response), suspicion, gone.covers(row.step), drawing)
        for row, suspicion in zip(run.samples, suspicions(run.samples), strict=True)
    ]


@dataclass(frozen=True)
class BeforeAndAfter:
    """The first answer to a fixed prompt, and the delivered policy's; None where that is the first policy."""

    before: ShownSample
    after: ShownSample | None

    @property
    def newest(self) -> ShownSample:
        return self.after or self.before


def before_and_after(shown: Sequence[ShownSample], step: int) -> list[BeforeAndAfter]:
    """A pair for each prompt: its first answer, and its newest one up to the step that the run stands on."""
    pairs = []
    for number in sorted({one.row.prompt_index for one in shown}):
        mine = sorted((one for one in shown if one.row.prompt_index == number), key=lambda one: one.row.step)
        later = [one for one in mine[1:] if not one.undone and one.row.step <= step]
        pairs.append(BeforeAndAfter(mine[0], later[-1] if later else None))
    return pairs


@router.get("/samples")
def samples(
    request: Request,
    visitor: Watching,
    site: TheSite,
    prompt: Annotated[int, Query(ge=-1, le=10**6)] = -1,
    sort: Order = "suspicion",
    view: View = "pairs",
    start: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> Response:
    """Answers to one fixed prompt, or to all of them: before and after side by side, or of every round."""
    run = site.live.picture().data
    everything, policy = shown_samples(run), delivered(run)
    prompts = {one.row.prompt_index: one.row.prompt for one in everything}
    asked = [one for one in everything if prompt in (-1, one.row.prompt_index)]
    found: list[Any] = asked if view == "rounds" else before_and_after(asked, policy.step)
    found.sort(key=lambda one: (-_newest(one).key(sort), _newest(one).row.prompt_index))
    return page(
        request, "samples.html", visitor, prompts=sorted(prompts.items()), prompt=prompt, sort=sort, view=view,
        start=start, shown=found[start : start + ON_A_PAGE], count=len(found), step=ON_A_PAGE, policy=policy.policy,
    )  # fmt: skip


def _newest(one: ShownSample | BeforeAndAfter) -> ShownSample:
    return one.newest if isinstance(one, BeforeAndAfter) else one


@dataclass(frozen=True)
class AnsweredSide:
    """One side of a comparison: who wrote it, and what."""

    version: str
    text: str
    omitted: int
    drawn: AnswerPicture | Undrawn | None


@dataclass(frozen=True)
class ShownComparison:
    """A comparison as people answered it."""

    id: str
    prompt: str
    sides: tuple[AnsweredSide, AnsweredSide]
    share_a: float
    answers: tuple[tuple[str, str], ...]


def asked_of(item: LabelledComparison, drawing: str = "") -> ShownComparison:
    asked = plain_text(item.comparison.prompt)
    one, other = (
        AnsweredSide(side.provenance.policy_version, *clip(side.text), picture_of(drawing, side.text, asked))
        for side in (item.comparison.a, item.comparison.b)
    )
    words = {"a": "the first", "b": "the second", "tie": "a tie"}
    answers = tuple((label.labeller, words[label.choice]) for label in item.labels)
    return ShownComparison(item.comparison.id, clip(asked)[0], (one, other), item.share_a, answers)


@router.get("/answers")
def answers(
    request: Request,
    visitor: Watching,
    site: TheSite,
    round: Annotated[int, Query(ge=0, le=10**6)],
    kind: Literal["audit", "training", "adversarial"] = "audit",
    start: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> Response:
    """The comparisons that a round's audit, labels or remedy was about, with what people said."""
    # What follows from a round's steps belongs to the next round, which may train on it.
    purposes: tuple[Purpose, ...] = ("first", "training") if kind == "training" else (kind,)
    ids = site.store.asked(site.run.key, round + (kind != "training"), purposes, MOST_PAIRS)
    items = [asked_of(item, site.drawing) for item in site.store.labelled_among(ids[start : start + PAIRS_ON_A_PAGE])]
    return page(
        request, "answers.html", visitor, items=items, round=round, kind=kind, start=start, step=PAIRS_ON_A_PAGE,
        asked=len(ids), answered=len(site.store.answered(ids)),
    )  # fmt: skip
