"""Signals of a reward that is one number, on batches small enough to work out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from holdfast.guard.guard import NOTHING_KNOWN
from holdfast.guard.signal import read_all
from holdfast.guard.signals import SIGNALS
from holdfast.guard.view import StepView

NAN = math.nan


def view(given: list[float] | None, logprobs: list[float] | None = None, **parts: list[float]) -> StepView:
    answers = 8 if given is None else len(given)
    mask_BT = torch.ones(answers, 1, dtype=torch.bool)
    logprobs_BT = torch.tensor(logprobs or [-1.0] * answers)[:, None]
    prompts = [[n // 4] for n in range(answers)]  # groups of four
    given_B: Tensor | None = None if given is None else torch.tensor(given, dtype=torch.float32)
    components = {name: torch.tensor(x, dtype=torch.float32) for name, x in parts.items()}
    return StepView(
        prompts, [[2]] * answers, [True] * answers, logprobs_BT, logprobs_BT, mask_BT, torch.zeros(1, answers),
        torch.zeros(0, 1), given_B=given_B, components=components,
    )  # fmt: skip


def read(name: str, of: StepView) -> float | None:
    reader = SIGNALS[name].read
    assert reader is not None
    return reader(of, NOTHING_KNOWN)


NAMES = ("saturation", "group_spread", "unscored", "confidence_gap", "component_imbalance")


@pytest.mark.parametrize("name", NAMES)
def test_an_ensemble_has_none_of_them(name: str) -> None:
    assert read(name, view(None)) is None


def test_by_hand() -> None:
    some = view([1, 1, 0, NAN, 1, 1, 1, 1])
    assert read("saturation", some) == pytest.approx(6 / 7)
    assert read("unscored", some) == pytest.approx(1 / 8)
    # Groups (1, 1, 0) and (1, 1, 1, 1): standard deviations sqrt(1/3) and 0.
    assert read("group_spread", some) == pytest.approx(math.sqrt(1 / 3) / 2)


def test_a_reward_that_is_the_same_for_all_has_no_ceiling_to_speak_of() -> None:
    assert read("saturation", view([1.0] * 8)) is None
    assert read("group_spread", view([1.0] * 8)) == 0.0


def test_the_policy_is_surer_of_what_the_reward_prefers() -> None:
    # Preferred answers at -0.5, others at -2 nats a token.
    sure = view([1, 0, 1, 0, 1, 0, 1, 0], [-0.5, -2.0] * 4)
    assert read("confidence_gap", sure) == pytest.approx(1.5)
    assert read("confidence_gap", view([1, 0, 0, 0, 0, 0, 0, 0])) is None, "one answer says nothing"


def test_one_component_alone() -> None:
    # Means 3 and 1, of which NaN is no part: three quarters are one component's.
    some = view([1.0] * 8, cites=[3.0] * 7 + [NAN], correct=[1.0] * 8)
    assert read("component_imbalance", some) == pytest.approx(0.75)
    assert read("component_imbalance", view([1.0] * 8, alone=[1.0] * 8)) is None


@pytest.mark.parametrize("name", ["self_perplexity", "entropy", "kl_per_answer", "kl_per_token", "confidence_gap"])
def test_without_log_probs_these_read_nothing(name: str) -> None:
    unknown = view([1, 0, 1, 0, 1, 0, 1, 0], [NAN] * 8)
    readings, _ = read_all({name: SIGNALS[name]}, unknown, NOTHING_KNOWN, {})
    assert readings == {}
