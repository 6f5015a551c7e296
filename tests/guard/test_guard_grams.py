"""Runs of tokens, against plain counting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.guard.grams import Grams, joined, lay_flat, single_tokens

BATCHES = st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=1, max_size=5)


def grams(answers: list[list[int]], n: int) -> Grams:
    singles = single_tokens(*lay_flat(answers), len(answers))
    out = singles
    for _ in range(n - 1):
        out = joined(out, singles)
    return out


def plain(answer: list[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(answer[i : i + n]) for i in range(len(answer) - n + 1)]


@given(BATCHES, st.integers(1, 4))
def test_runs_are_those_of_each_answer(answers: list[list[int]], n: int) -> None:
    found = grams(answers, n)
    expected = [(row, run) for row, answer in enumerate(answers) for run in plain(answer, n)]
    assert found.rows_G.tolist() == [row for row, _ in expected]
    number_of: dict[int, tuple[int, ...]] = {}
    for number, (_, run) in zip(found.ids_G.tolist(), expected, strict=True):
        assert number_of.setdefault(number, run) == run
    assert len(set(number_of.values())) == len(number_of) == found.kinds


@given(BATCHES)
def test_two_ways_to_join_give_the_same_runs(answers: list[list[int]]) -> None:
    three = grams(answers, 3)
    six, again = joined(three, three), grams(answers, 6)
    assert six.rows_G.tolist() == again.rows_G.tolist()
    assert six.starts_G.tolist() == again.starts_G.tolist()
    assert six.kinds == again.kinds


@given(BATCHES, st.integers(1, 3))
def test_the_repeated_share(answers: list[list[int]], n: int) -> None:
    shares = [1 - len(set(runs)) / len(runs) for runs in (plain(answer, n) for answer in answers) if runs]
    found = grams(answers, n).repeated()
    assert found is None if not shares else found == pytest.approx(sum(shares) / len(shares))


def test_very_large_vocabularies_stay_exact() -> None:
    a, b = 2**31 - 1, 2**31 - 2
    assert grams([[a, b, a, b, a, b]], 3).repeated() == pytest.approx(0.5)
