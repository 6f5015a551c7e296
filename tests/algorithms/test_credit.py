"""Credit where some answers have no score, by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from holdfast.algorithms.credit import Credit, assign_credit

NONE = float("nan")
# Four answers of two tokens; log-probs equal the reference's, so that rewards are the scores.
MASK_BT = torch.ones(4, 2, dtype=torch.bool)
ZEROS_BT = torch.zeros(4, 2)
VALUES_BT = torch.tensor([[0.0, 0.5], [0.3, 0.3], [0.0, 1.0], [0.0, 0.0]])
SCORES_B = torch.tensor([1.0, NONE, 3.0, 2.0])
SCORED_B = ~SCORES_B.isnan()


def credit(scores_B: torch.Tensor = SCORES_B, **given: Any) -> Credit:
    return assign_credit(ZEROS_BT, ZEROS_BT, VALUES_BT, scores_B, MASK_BT, 0.1, **given)


def test_gae_with_an_answer_that_has_no_score() -> None:
    # lambda 1, gamma 1: A_t = score - V_t. Row 1 teaches nothing, and has no value target either.
    given = credit(advantage="gae", lam=1.0, whiten=False, scored_B=SCORED_B)
    assert given.advantages_BT.tolist() == [[1.0, 0.5], [0.0, 0.0], [3.0, 2.0], [2.0, 2.0]]
    assert given.returns_BT.tolist() == [[1.0, 1.0], [0.0, 0.0], [3.0, 3.0], [2.0, 2.0]]
    assert given.taught_B.tolist() == [True, False, True, True]
    assert given.rewards_B.tolist()[::2] == [1.0, 3.0]
    assert given.rewards_B.isnan().tolist() == [False, True, False, False]
    assert given.kl_B.tolist() == [0.0] * 4


def test_whitening_is_over_the_tokens_of_scored_answers() -> None:
    # 1, .5, 3, 2, 2, 2: mean 1.75, unbiased variance (.5625 + 1.5625 + 1.5625 + 3 * .0625) / 5 = .775.
    given = credit(advantage="gae", lam=1.0, scored_B=SCORED_B)
    expected = (torch.tensor([[1.0, 0.5], [1.75, 1.75], [3.0, 2.0], [2.0, 2.0]]) - 1.75) / 0.775**0.5
    torch.testing.assert_close(given.advantages_BT, expected)


def test_against_the_others_the_only_scored_answer_to_a_prompt_teaches_nothing() -> None:
    # 1 and nothing | 3 and 2: of the first prompt nothing is learnt, of the second +-1 (rloo), +-1/2 (dr_grpo) and
    # +-.5 / (sqrt(.5) + 1e-4) (grpo).
    for advantage, lead in (("rloo", 1.0), ("dr_grpo", 0.5), ("grpo", 0.5 / (0.5**0.5 + 1e-4))):
        given = credit(advantage=advantage, group_size=2, scored_B=SCORED_B)
        torch.testing.assert_close(given.advantages_BT[:, 0], torch.tensor([0.0, 0.0, lead, -lead]))
        assert given.taught_B.tolist() == [False, False, True, True]
        nudged = credit(advantage=advantage, group_size=2, scored_B=SCORED_B, offset=0.25)
        torch.testing.assert_close(nudged.advantages_BT[:, 1], torch.tensor([0.0, 0.0, 0.25 + lead, 0.25 - lead]))


def test_dr_grpo_takes_off_the_mean_and_no_more() -> None:
    given = credit(torch.tensor([1.0, 5.0, 6.0, 8.0]), advantage="dr_grpo", group_size=4)
    assert given.advantages_BT.tolist() == [[-4.0, -4.0], [0.0, 0.0], [1.0, 1.0], [3.0, 3.0]]


@pytest.mark.parametrize(("advantage", "group"), [("gae", 1), ("rloo", 2), ("grpo", 2), ("dr_grpo", 4)])
def test_all_of_them_scored_is_bit_for_bit_as_if_nobody_had_asked(advantage: str, group: int) -> None:
    rng = torch.Generator().manual_seed(0)
    logprobs_BT, reference_BT, values_BT = (torch.randn(4, 2, generator=rng) for _ in range(3))
    scores_B = torch.randn(4, generator=rng)

    def given(scored_B: torch.Tensor | None) -> Credit:
        return assign_credit(
            logprobs_BT, reference_BT, values_BT, scores_B, MASK_BT, 0.1, advantage, group_size=group, scored_B=scored_B
        )  # type: ignore[arg-type]

    assert all(torch.equal(a, b) for a, b in zip(given(None), given(torch.ones(4, dtype=torch.bool)), strict=True))


@pytest.mark.parametrize("advantage", ["gae", "rloo", "grpo", "dr_grpo"])
def test_what_stands_at_an_unscored_place_is_not_read(advantage: str) -> None:
    group = 1 if advantage == "gae" else 4
    ones = [
        credit(torch.tensor([1.0, nothing, 3.0, 2.0]), advantage=advantage, group_size=group, scored_B=SCORED_B)
        for nothing in (NONE, 1e30, float("inf"))
    ]
    for other in ones[1:]:
        for a, b in zip(ones[0], other, strict=True):
            torch.testing.assert_close(a, b, equal_nan=True, rtol=0, atol=0)
