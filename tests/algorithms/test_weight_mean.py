"""The mean of models' weights, by hand."""

import pytest
import torch

from holdfast.algorithms.weight_mean import mean_with_one_more


def test_by_hand() -> None:
    # Means of 1 | 1 and 2 | 1, 2 and 6: 1, 1.5, 3. Of the counters the newest stays.
    mean: dict[str, torch.Tensor] = {}
    seen = []
    for count, (value, steps) in enumerate([(1.0, 7), (2.0, 8), (6.0, 9)]):
        mean = mean_with_one_more(mean, count, {"w": torch.tensor([value, -value]), "steps": torch.tensor(steps)})
        seen.append((mean["w"].tolist(), int(mean["steps"])))
    assert seen == [([1.0, -1.0], 7), ([1.5, -1.5], 8), ([pytest.approx(3.0), pytest.approx(-3.0)], 9)]


def test_what_is_given_stays_as_it_is() -> None:
    mean, newest = {"w": torch.tensor([1.0])}, {"w": torch.tensor([5.0])}
    assert mean_with_one_more(mean, 3, newest)["w"].tolist() == [2.0]
    assert (mean["w"].tolist(), newest["w"].tolist()) == ([1.0], [5.0])
