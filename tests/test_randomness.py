"""Named streams of random numbers, and the cursor that walks through items: independent, repeatable, restorable."""

import math

import pytest
import torch

from holdfast.randomness import Cursor, Streams, derive_seed, generator, place_of


def _draw(rng: torch.Generator, n: int = 5) -> list[float]:
    return torch.rand(n, generator=rng).tolist()


def test_seeds_depend_on_every_part_and_on_where_one_part_ends() -> None:
    seeds = {
        derive_seed(0), derive_seed(1), derive_seed(0, "a"), derive_seed(0, "b"), derive_seed(0, "a", 1),
        derive_seed(0, "a", 2), derive_seed(0, "ab", "c"), derive_seed(0, "a", "bc"), derive_seed(0, "abc"),
    }  # fmt: skip
    assert len(seeds) == 9
    assert derive_seed(3, "x", 7) == derive_seed(3, "x", 7)
    # Non-negative and below 2^63, so that torch takes it.
    assert all(0 <= derive_seed(s, "x") < 2**63 for s in range(200))
    assert generator(0, "a").initial_seed() == derive_seed(0, "a")


def test_streams_are_independent_by_name() -> None:
    streams, alone = Streams(1), Streams(1)
    _draw(streams["a"], 100)
    _draw(streams["c"], 3)
    assert _draw(streams["b"]) == _draw(alone["b"])
    assert _draw(Streams(1)["a"]) != _draw(Streams(1)["b"])
    assert _draw(Streams(1)["a"]) != _draw(Streams(2)["a"])


def test_the_same_name_goes_on_where_it_was() -> None:
    streams = Streams(1)
    assert _draw(streams["a"], 2) + _draw(streams["a"], 3) == _draw(Streams(1)["a"], 5)


def test_streams_restore_exactly() -> None:
    streams = Streams(1)
    _draw(streams["a"], 7)
    torch.randperm(11, generator=streams["b"])
    torch.randn(3, generator=streams["b"])
    state = streams.state()
    expected = [_draw(streams[name]) for name in ("a", "b", "new")]
    again = Streams(1)
    _draw(again["a"], 1)
    _draw(again["gone"], 1)
    again.restore(state)
    assert [_draw(again[name]) for name in ("a", "b", "new")] == expected
    # A stream that the state does not know starts at its beginning.
    assert _draw(again["gone"]) == _draw(Streams(1)["gone"])
    # The seed a stream began with is part of its state.
    assert again["a"].initial_seed() == derive_seed(1, "a")


def test_a_state_does_not_move_with_its_streams() -> None:
    streams = Streams(1)
    _draw(streams["a"])
    state = streams.state()
    expected = _draw(streams["a"])
    streams.restore(state)
    assert _draw(streams["a"]) == expected
    streams.restore(state)
    assert _draw(streams["a"]) == expected


@pytest.mark.parametrize("n", [1, 3, 10])
def test_a_cursor_covers_each_item_once_an_epoch(n: int) -> None:
    cursor = Cursor(10, seed=0, name="x")
    taken: list[int] = []
    while len(taken) < 30:
        taken += cursor.take(n)
    epochs = [taken[i : i + 10] for i in (0, 10, 20)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_a_take_may_go_over_several_epochs_and_its_size_changes_nothing() -> None:
    one_by_one, at_once = Cursor(4, 7, "x"), Cursor(4, 7, "x")
    singles = [cursor for _ in range(11) for cursor in one_by_one.take(1)]
    assert at_once.take(11) == singles
    assert at_once.state() == one_by_one.state() == {"epoch": 2, "position": 3}
    assert at_once.take(0) == []


@pytest.mark.parametrize("before", [0, 1, 5, 10, 13, 20])
def test_a_cursor_restores_in_mid_epoch(before: int) -> None:
    cursor = Cursor(10, 3, "x")
    cursor.take(before)
    state = cursor.state()
    expected = cursor.take(17)
    again = Cursor(10, 3, "x")
    again.take(4)
    again.restore(state)
    assert again.take(17) == expected


def test_cursors_differ_by_seed_and_name() -> None:
    orders = [Cursor(30, seed, name).take(30) for seed, name in ((0, "a"), (0, "b"), (1, "a"))]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_nothing_to_walk_through_is_refused() -> None:
    with pytest.raises(ValueError, match="0 items"):
        Cursor(0, 0, "x")


def test_places_of_texts_are_spread_over_the_unit_interval() -> None:
    draws = [place_of(f"0 {i}") for i in range(4000)]
    assert min(draws) >= 0.0
    assert max(draws) < 1.0
    assert sum(draws) / 4000 == pytest.approx(0.5, abs=4 / math.sqrt(12 * 4000))
