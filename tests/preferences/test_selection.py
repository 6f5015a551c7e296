"""Selection of pairs to label. K member, P pair."""

import pytest
import torch

from holdfast.errors import HoldfastError
from holdfast.preferences.collector import select_disagreement, select_random


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_random_selection_is_sorted_distinct_and_repeatable():
    chosen = select_random(100, 10, generator(1))
    assert chosen == sorted(set(chosen))
    assert len(chosen) == 10
    assert all(0 <= index < 100 for index in chosen)
    assert chosen == select_random(100, 10, generator(1))
    assert chosen != select_random(100, 10, generator(2))


def test_random_selection_is_uniform():
    draws = generator(0)
    counts = [0] * 5
    for _ in range(2000):
        for index in select_random(5, 2, draws):
            counts[index] += 1
    # Each index is in a draw with probability 2/5: mean 800, deviation sqrt(2000 * 0.4 * 0.6) = 21.9.
    assert all(abs(count - 800) < 5 * 21.9 for count in counts)


def test_disagreement_about_the_sign_outranks_disagreement_about_the_size():
    # Win probabilities of two members, and their variance (half the distance, squared):
    #   pair 0: sigmoid(1), sigmoid(-1)  = .7311, .2689   -> .2311^2 = .0534
    #   pair 1: sigmoid(5), sigmoid(9)   = .9933, .9999   -> .0033^2 = .00001, though the margins differ by 4
    #   pair 2: sigmoid(0), sigmoid(0)   = .5, .5         -> 0
    #   pair 3: sigmoid(2), sigmoid(-2)  = .8808, .1192   -> .3808^2 = .1450
    #   pair 4: sigmoid(0), sigmoid(1.5) = .5, .8176      -> .1588^2 = .0252
    margins_KP = torch.tensor([[1.0, 5.0, 0.0, 2.0, 0.0], [-1.0, 9.0, 0.0, -2.0, 1.5]])
    assert select_disagreement(margins_KP, 1) == [3]
    assert select_disagreement(margins_KP, 2) == [0, 3]
    assert select_disagreement(margins_KP, 3) == [0, 3, 4]
    assert select_disagreement(margins_KP, 4) == [0, 1, 3, 4]


def test_equal_disagreement_is_taken_in_order_of_index():
    # The same three margins in every pair, in each of their six orders: equal variance in exact arithmetic.
    orders = [[0.3, -1.7, 2.9], [0.3, 2.9, -1.7], [-1.7, 0.3, 2.9], [-1.7, 2.9, 0.3], [2.9, 0.3, -1.7]]
    margins_KP = torch.tensor(orders * 20).T
    assert select_disagreement(margins_KP, 7) == list(range(7))


def test_infinite_margins_are_certain_members():
    margins_KP = torch.tensor([[0.0, torch.inf], [0.1, -torch.inf]])
    assert select_disagreement(margins_KP, 1) == [1]


def test_selecting_none_and_all():
    assert select_random(3, 0, generator(0)) == []
    assert select_random(3, 3, generator(0)) == [0, 1, 2]
    assert select_disagreement(torch.zeros(2, 3), 0) == []
    assert select_disagreement(torch.zeros(2, 3), 3) == [0, 1, 2]


def test_a_nan_margin_is_refused():
    with pytest.raises(HoldfastError, match="NaN"):
        select_disagreement(torch.tensor([[0.0, torch.nan], [0.0, 1.0]]), 1)
