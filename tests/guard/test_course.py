"""How far a round's steps went, from batches worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from holdfast.guard.course import Course, Step, kl_of, step_from, step_state
from holdfast.guard.host import floored
from holdfast.guard.view import StepView


def view(logprobs: list[list[float]], reference: list[list[float]], finished: list[bool], **learned: float) -> StepView:
    ours = torch.tensor(logprobs)
    return StepView(
        [[1]] * len(logprobs), [[2] * len(row) for row in logprobs], finished, ours, torch.tensor(reference),
        torch.ones_like(ours), torch.zeros(1, len(logprobs)), torch.zeros(len(logprobs), 1), learned,
    )  # fmt: skip


def test_kl_is_the_larger_of_two_estimates() -> None:
    # r = 0.2, -0.2 in both answers: the sums are 0; exp(-r) - 1 + r is 0.01873 and 0.02140, together 0.0401.
    assert kl_of(view([[-1.0, -1.0]] * 2, [[-1.2, -0.8]] * 2, [True] * 2)) == pytest.approx(0.04013, abs=1e-4)
    # A host that knows means alone says r = 0.01 of every token: 0.03 in all, and 0.00015 by the other.
    assert kl_of(view([[-1.0] * 3], [[-1.01] * 3], [True])) == pytest.approx(0.03, abs=1e-5)
    assert kl_of(view([[-1.0] * 3], [[-1.0] * 3], [True])) == 0.0


def test_a_step_is_read_from_its_batch() -> None:
    step = Step.of(view([[-1.0]] * 4, [[-1.5]] * 4, [True, False, False, False], **{"objective/kl_step": 0.7}))
    assert (step.kl, step.moved, step.unfinished) == (pytest.approx(0.5), 0.7, 0.75)
    assert step_from(step_state(step)) == step


def test_the_later_half_says_where_the_policy_is() -> None:
    steps = tuple(Step(kl, None, 0.0) for kl in (0.0, 0.0, 0.02, 0.04))
    assert Course(steps).kl == pytest.approx(0.03)
    assert not Course(steps).unmoved
    assert Course(steps[:2]).unmoved
    assert Course().kl is None
    assert not Course().dropped, "nobody has looked"
    assert Course(watched=True).dropped


def test_where_log_probs_are_not_known_nothing_is_said_of_the_distance() -> None:
    nan = math.nan
    step = Step.of(view([[nan]] * 2, [[nan]] * 2, [True, True]))
    assert step.kl is None
    assert step_from(step_state(step)) == step
    course = Course((step, Step(0.0, None, 0.0), Step(0.3, None, 0.0), step))
    assert course.kl == pytest.approx(0.3), "of those in the later half that are known"
    unknown = Course((step, step), watched=True)
    assert (unknown.kl, unknown.unmoved, unknown.dropped, unknown.advice()) == (None, False, False, [])


@pytest.mark.parametrize(
    ("target", "floor", "lowered"),
    [(4.0, 0.0, 2.8), (4.0, 2.0, 2.8), (4.1, 3.5, 3.5), (4.0, 4.0, 4.0), (4.0, 10.3, 4.0)],
)
def test_a_target_is_lowered_no_further_than_to_the_floor(target: float, floor: float, lowered: float) -> None:
    assert target * floored(target, 0.7, floor) == pytest.approx(lowered)


def test_without_a_target_there_is_nothing_to_keep_up() -> None:
    assert floored(None, 0.7, 3.0) == 0.7
    assert math.isfinite(floored(1e-9, 0.7, 0.0))
