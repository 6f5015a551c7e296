"""The replay hears every round alike, and the holdout never changes its mind."""

import torch

from holdfast.reward.replay import draw_replay, even_shares, holdout_place

Item = tuple[int, int]


def _rounds(*sizes: int) -> list[list[Item]]:
    return [[(number, place) for place in range(size)] for number, size in enumerate(sizes)]


def _draw(rounds: list[list[Item]], wanted: int, seed: int = 0) -> list[Item]:
    return draw_replay(rounds, wanted, torch.Generator().manual_seed(seed))


def _counts(drawn: list[Item], rounds: int) -> list[int]:
    return [sum(number == r for number, _ in drawn) for r in range(rounds)]


def test_replay_is_even_over_rounds() -> None:
    # 12 over 3 rounds: 4 of each, however many each round holds.
    drawn = _draw(_rounds(100, 10, 5), 12)
    assert _counts(drawn, 3) == [4, 4, 4]
    assert len(set(drawn)) == 12, "drawn without replacement"
    # The last has only 2: the others make up for it.
    assert _counts(_draw(_rounds(100, 10, 2), 12), 3) == [5, 5, 2]


def test_replay_gives_all_there_is_and_no_more() -> None:
    assert sorted(_draw(_rounds(3, 0, 2), 99)) == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]
    assert _draw(_rounds(40, 40), 0) == []
    assert _draw([], 5) == []


def test_replay_follows_from_the_generator() -> None:
    rounds = _rounds(60, 60)
    assert _draw(rounds, 10) == _draw(rounds, 10)
    assert _draw(rounds, 10) != _draw(rounds, 10, seed=1)


def test_replay_draws_as_if_each_round_were_shuffled_and_dealt() -> None:
    rounds = _rounds(7, 3, 5)
    rng = torch.Generator().manual_seed(4)
    decks = [[deck[i] for i in torch.randperm(len(deck), generator=rng).tolist()] for deck in rounds]
    dealt: list[Item] = []
    while len(dealt) < 11:
        dealt += [deck.pop() for deck in decks if deck][: 11 - len(dealt)]
    assert _draw(rounds, 11, seed=4) == dealt


def test_with_more_rounds_than_places_every_round_has_its_chance() -> None:
    """A run of 200 rounds that replays 20 must not hear its first 20 rounds for ever."""
    rounds = _rounds(*[5] * 200)
    heard = [number for seed in range(200) for number, _ in _draw(rounds, 20, seed)]
    # Each round is heard 200 x 20 / 200 = 20 times on average, with a standard deviation of about 4.
    counts = [heard.count(r) for r in range(200)]
    assert min(counts) > 2
    assert max(counts) < 45
    assert _counts(_draw(rounds, 20), 200).count(1) == 20, "from twenty different rounds"


def test_the_holdout_is_near_its_share() -> None:
    held = sum(holdout_place(f"run/r0001-{n:05d}") < 0.2 for n in range(2000))
    # 2000 x .2 = 400, with a standard deviation of sqrt(2000 x .2 x .8) = 18.
    assert abs(held - 400) < 4 * 18


def test_the_holdout_is_the_same_in_every_release() -> None:
    """Runs of an earlier release are resumed, and what was held out must not begin to train."""
    # sha256("holdout concierge-0/r0001-00007"), its first 8 bytes over 2**64.
    assert holdout_place("concierge-0/r0001-00007") == int("8abf9abda5182ca1", 16) / 2**64


def test_even_shares_by_hand() -> None:
    assert even_shares([100, 100, 100], 30) == [10, 10, 10]
    # 4 and 6 give all they have, and 40 are left for the two others.
    assert even_shares([100, 4, 100, 6], 50) == [20, 4, 20, 6]
    assert even_shares([3, 5], 100) == [3, 5]
    assert even_shares([], 10) == []
