"""The answers to the fixed prompts, before and after, as the page shows them."""

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.drawings.picture import AnswerPicture, Undrawn
from holdfast.drawings.registry import drawing_of, picture_of
from holdfast.report.data import RunData, SampleRow
from holdfast.report.undone import undone
from holdfast.text import clip, format_value

MOST_PROMPTS = 24
MOST_MOMENTS = 16


@dataclass(frozen=True)
class ShownAnswer:
    """One answer, safe to look at; `omitted` is how many characters were cut off its end."""

    step: int
    text: str
    omitted: int
    finished: bool
    score: str
    gold: str
    drawn: AnswerPicture | Undrawn | None = None


@dataclass(frozen=True)
class Card:
    """A fixed prompt with its first answer and one answer per later moment; None where there is none."""

    prompt: str
    prompt_omitted: int
    before: ShownAnswer | None
    after: tuple[ShownAnswer | None, ...]


@dataclass(frozen=True)
class Moment:
    """A time at which the fixed prompts were answered."""

    step: int
    label: str
    undone: bool = False


@dataclass(frozen=True)
class BeforeAfter:
    """The section "The same prompts, before and after". `shown` is the moment to begin with: the last that was kept."""

    first: Moment | None
    moments: tuple[Moment, ...]
    cards: tuple[Card, ...]
    prompts_in_all: int
    moments_in_all: int
    shown: int = 0


def before_and_after(run: RunData) -> BeforeAfter:
    """Lay out the samples by prompt; the page stays small by showing some prompts and some moments only."""
    rows = {(row.step, row.prompt_index): row for row in run.samples}
    rounds = {row.step: row.round for row in run.samples}
    steps = sorted(rounds)
    prompts = sorted({row.prompt_index for row in run.samples})
    if not steps:
        return BeforeAfter(None, (), (), 0, 0)
    later, gone = _thinned(steps[1:]), undone(run)
    kept = [place for place, step in enumerate(later) if not gone.covers(step)]
    gold, drawing = run.sample_gold(), drawing_of(run.manifest)
    return BeforeAfter(
        first=Moment(steps[0], f"step {steps[0]:,}" + (" (the reference)" if steps[0] == 0 else "")),
        moments=tuple(_moment(step, rounds[step], gone.covers(step)) for step in later),
        cards=tuple(_card(index, steps[0], later, rows, gold, drawing) for index in prompts[:MOST_PROMPTS]),
        prompts_in_all=len(prompts),
        moments_in_all=len(steps) - 1,
        shown=(kept or [len(later) - 1])[-1],
    )


def _moment(step: int, round: int, undone: bool) -> Moment:
    return Moment(step, f"step {step:,}, after round {round:,}{' (undone)' if undone else ''}", undone)


def _thinned(steps: list[int]) -> list[int]:
    if len(steps) <= MOST_MOMENTS:
        return steps
    last = len(steps) - 1
    return [steps[round(index * last / (MOST_MOMENTS - 1))] for index in range(MOST_MOMENTS)]


def _card(
    index: int,
    first: int,
    later: list[int],
    rows: Mapping[tuple[int, int], SampleRow],
    gold: Mapping[tuple[int, int], float],
    drawing: str,
) -> Card:
    def answer(step: int) -> ShownAnswer | None:
        row = rows.get((step, index))
        if row is None:
            return None
        text, omitted = clip(row.response)
        truth = gold.get((step, index))
        return ShownAnswer(
            drawn=picture_of(drawing, row.response, row.prompt),
            step=step,
            text=text,
            omitted=omitted,
            finished=row.finished,
            # Beside 1.0: two decimals everywhere, so that the answers can be compared at a glance.
            score="" if row.score is None else format_value(row.score, beside=1.0),
            gold="" if truth is None else format_value(truth, beside=1.0),
        )

    prompt = next(row.prompt for (_, prompt_index), row in rows.items() if prompt_index == index)
    shown, omitted = clip(prompt)
    return Card(shown, omitted, answer(first), tuple(answer(step) for step in later))
