"""From scores to rewards by hand: aggregation, bounded shaping, penalties."""

from typing import Any

import pytest
import torch
from toy_preferences import toy_config

from holdfast.reward.ensemble import Judgement
from holdfast.reward.source import RewardSource
from holdfast.rollout.sampler import Rollout


class Told:
    """An ensemble that scores an answer by its first token (one member) and by its last (the other)."""

    version, labels, degraded = 4, 99, ()

    def scores(self, prompts: list[list[int]], responses: list[list[int]]) -> torch.Tensor:
        return torch.tensor([[float(r[0]) for r in responses], [float(r[-1]) for r in responses]])

    def judge(self, prompts: list[list[int]], responses: list[list[int]]) -> Judgement:
        return Judgement(self.scores(prompts, responses), torch.zeros(len(responses), 2))


def _rollout(responses: list[list[int]], finished: list[bool]) -> Rollout:
    mask_BT = torch.ones(len(responses), max(map(len, responses)), dtype=torch.bool)
    return Rollout([[3]] * len(responses), responses, mask_BT.float(), None, mask_BT, finished)


ROLLOUT = _rollout([[2, 9, 4], [6, 2], [1]], [True, False, True])


def _rewarding(**changes: Any) -> RewardSource:
    def reference_answers(prompts: list[list[int]], rng: torch.Generator) -> Rollout:
        assert prompts == ROLLOUT.prompts
        torch.rand(1, generator=rng)
        return _rollout([[3], [3], [3]], [True] * 3)

    return RewardSource(Told(), toy_config(**changes), reference_answers)  # type: ignore[arg-type]


def test_scores_are_aggregated_and_kept_apart() -> None:
    scored = _rewarding().reward(ROLLOUT, torch.Generator())
    assert scored.members_KB.tolist() == [[2, 6, 1], [4, 2, 1]]
    assert scored.scores_B.tolist() == [3, 4, 1]
    assert scored.rewards_B.tolist() == [3, 4, 1]
    assert (scored.version, scored.labels) == (4, 99)
    metrics = scored.metrics()
    assert metrics["objective/scores"] == pytest.approx(8 / 3)
    # Spreads 1, 2 and 0.
    assert metrics["ensemble/spread"] == pytest.approx(1.0)


def test_the_aggregation_is_the_config_s() -> None:
    assert _rewarding(aggregation="worst").reward(ROLLOUT, torch.Generator()).scores_B.tolist() == [2, 2, 1]
    rewarding = _rewarding(aggregation="uncertainty")
    # Variances 1, 4, 0, a tenth of each: 3 - .1, 4 - .4, 1.
    assert rewarding.reward(ROLLOUT, torch.Generator()).scores_B.tolist() == pytest.approx([2.9, 3.6, 1.0])


def test_the_penalty_comes_off_the_reward_and_not_off_the_scores() -> None:
    scored = _rewarding(unfinished_penalty=1.5).reward(ROLLOUT, torch.Generator())
    assert scored.rewards_B.tolist() == [3.0, 2.5, 1.0]
    assert scored.scores_B.tolist() == [3, 4, 1]


def test_bounded_shaping_is_against_a_reference_answer_and_penalties_come_after_it() -> None:
    scored = _rewarding(shaping="sigmoid", unfinished_penalty=1.0).reward(ROLLOUT, torch.Generator())
    # Reference answers score 3: sigmoid(0) = .5, sigmoid(1) = .73106 less 1, sigmoid(-2) = .11920.
    torch.testing.assert_close(scored.rewards_B, torch.tensor([0.5, -0.26894, 0.11920]), atol=1e-5, rtol=0)
    assert scored.scores_B.tolist() == [3, 4, 1]


def test_without_shaping_the_reference_is_not_sampled() -> None:
    rng = torch.Generator().manual_seed(0)
    before = rng.get_state()
    _rewarding().reward(ROLLOUT, rng)
    assert torch.equal(rng.get_state(), before)
    _rewarding(shaping="sigmoid").reward(ROLLOUT, rng)
    assert not torch.equal(rng.get_state(), before)
