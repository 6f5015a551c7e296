"""Labels weighed by how likely the policy finds their answers, against the textbook route."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from toy_preferences import GOOD, toy_pairs

from holdfast.algorithms.importance import importance_weights
from holdfast.reward import importance
from holdfast.reward.importance import Importance
from tiny_models import PAD, plain_logprobs, tiny_policy

PAIRS = [dataclasses.replace(p, weight=0.5 if i == 2 else 1.0) for i, p in enumerate(toy_pairs(12))]


def test_the_reference_s_labels_count_alike_while_the_policy_is_the_reference() -> None:
    policy = tiny_policy()
    assert Importance(policy, policy, PAD, 4096, 1.0).weighed(PAIRS) == PAIRS


@pytest.mark.parametrize("max_tokens", [40, 4096])
def test_answers_that_the_policy_likes_count_for_more(max_tokens: int) -> None:
    reference = tiny_policy()
    policy = copy.deepcopy(reference)
    with torch.no_grad():
        policy.lm.lm_head.weight[GOOD] *= 3.0

    def summed(of: object, prompt: list[int], answer: list[int]) -> float:
        return float(plain_logprobs(of, prompt, answer, 0.7).sum())

    ratios_P = torch.tensor(
        [
            sum(summed(policy.lm, p.prompt, side) - summed(reference.lm, p.prompt, side) for side in (p.a, p.b))
            for p in PAIRS
        ]
    )
    expected_P = importance_weights(ratios_P, importance.POWER, importance.MOST)
    assert float(expected_P.std()) > 0.01
    weighed = Importance(policy, reference, PAD, max_tokens, 0.7).weighed(PAIRS)
    for before, after, weight in zip(PAIRS, weighed, expected_P.tolist(), strict=True):
        assert after.weight == pytest.approx(before.weight * weight, rel=1e-4)
        assert dataclasses.replace(after, weight=before.weight) == before
