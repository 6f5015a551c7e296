"""Bad labellers are told from good ones without the truth, and from a bad ensemble."""

import dataclasses

import pytest
import torch
from simulated_labels import Labels, World, opinions

from holdfast.reward.evidence import Stance
from holdfast.reward.labelcheck import agreement, check_labels, flips, length, position


def _apart(world: World, labels: Labels, seed: int = 0) -> tuple[list[Stance], list[Stance]]:
    everything = opinions(world, labels, seed)
    return [j for j in everything if j.fresh], [j for j in everything if not j.fresh]


def test_the_share_of_flips_is_found() -> None:
    """Opinions that are exactly right in their odds, many labels: 30% flips are found as 30%."""
    rng = torch.Generator().manual_seed(0)

    def labels(count: int, flipped: float) -> tuple[torch.Tensor, torch.Tensor]:
        m = torch.randn(count, generator=rng, dtype=torch.float64)
        y = torch.rand(count, generator=rng, dtype=torch.float64) < torch.sigmoid(0.8 * m)
        turned = torch.rand(count, generator=rng) < flipped
        return m, (y != turned).double()

    share, error = flips([(labels(40000, 0.3), labels(40000, 0.0))])
    assert share == pytest.approx(0.3, abs=4 * error)
    assert error < 0.02
    none, error = flips([(labels(40000, 0.0), labels(40000, 0.0))])
    assert none == pytest.approx(0.0, abs=4 * error)


def test_its_error_is_what_repeated_draws_show() -> None:
    found = []
    for seed in range(150):
        fresh, earlier = _apart(World(right_on_newest=0.70), Labels(), seed)

        def columns(js: list[Stance]) -> tuple[torch.Tensor, torch.Tensor]:
            values = [(j.old, j.share) for j in js]
            table = torch.tensor(values, dtype=torch.float64)
            return table[:, 0], table[:, 1]

        found.append(flips([(columns(fresh), columns(earlier))]))
    shares, errors = torch.tensor(found).T
    assert float(shares.mean()) == pytest.approx(0.0, abs=0.02)
    assert float(shares.std()) == pytest.approx(float(errors.mean()), rel=0.2)


def test_honest_labels_pass_and_coin_tosses_do_not() -> None:
    assert all(check.passed for check in check_labels(*_apart(World(), Labels()), 0.05))
    assert not agreement(*_apart(World(), Labels(flipped=0.5)), 0.05).passed


def test_good_labels_that_the_ensemble_in_use_gets_wrong_are_in_less_doubt_once_the_candidate_follows_them() -> None:
    """A hacked policy: the version in use is wrong more often than right on the newest answers."""
    fresh, earlier = _apart(World(right_on_newest=0.70, gain_on_newest=0.0), Labels())
    follows = [dataclasses.replace(j, old=-j.old) for j in fresh]
    neither = [dataclasses.replace(j, old=-j.old, new=None if j.new is None else -j.new) for j in fresh]
    assert agreement(follows, earlier, 0.05).value < 3 < 6 < agreement(neither, earlier, 0.05).value


def test_position() -> None:
    def labels(first: int, second: int) -> list[Stance]:
        return [Stance(1, float(i < first), 0.0, None) for i in range(first + second)]

    assert not position(labels(150, 0)).passed
    assert not position(labels(0, 150)).passed
    assert not position(labels(120, 30)).passed
    assert position(labels(85, 65)).passed, "people favour a side a little"
    assert position(labels(8, 0)).passed, "8 in a row are no proof"
    assert position([]).passed
    assert "85 times out of 150" in position(labels(85, 65)).words


def test_a_new_love_of_length_is_found_and_an_old_one_is_people_s_taste() -> None:
    world = World()
    fresh, earlier = _apart(world, Labels(loves_length=12.0))
    assert not length(fresh, earlier).passed
    assert length(*_apart(world, Labels())).passed
    assert length(*_apart(world, Labels(loves_length=1.0))).passed, "a little is no proof"
    # The same taste in the earlier labels.
    before = [dataclasses.replace(j, fresh=False) for j in opinions(world, Labels(loves_length=12.0), 7) if j.fresh]
    assert length(fresh, before).passed


def test_turning_against_length_is_no_fault_of_the_labels() -> None:
    assert length(*_apart(World(), Labels(loves_length=-12.0))).passed


def test_too_few_labels_are_not_compared() -> None:
    fresh, earlier = _apart(World(), Labels(flipped=0.5, loves_length=12.0))
    for some in ((fresh[:10], earlier), (fresh, earlier[:10])):
        assert agreement(*some, 0.05).passed
        assert length(*some).passed
        assert "too few" in agreement(*some, 0.05).words
