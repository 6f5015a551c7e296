"""The simulated labeller: steady, wrong as often as it is told to be, and fair to both sides."""

import math
from collections.abc import Callable, Sequence

import pytest

from holdfast.models.prompt import Prompt
from holdfast.preferences.comparison import Choice, Comparison, Provenance, Response
from holdfast.worlds.protocol import LabellerSettings
from holdfast.worlds.simulated_labeller import SimulatedLabeller, win_probability

ORIGIN = Provenance("test", 0, 0)


def _judgement(prompt: Prompt, text: str, finished: bool) -> float:
    """The first number in the text is how good it is; an answer that does not end is worth 10 less."""
    return float(text.split()[0]) - (0 if finished else 10)


def _comparisons(a: str, b: str, count: int) -> list[Comparison]:
    return [Comparison(f"c{i}", "p", Response(a, ORIGIN), Response(b, ORIGIN), 0) for i in range(count)]


def _labeller(**settings: object) -> SimulatedLabeller:
    sure = {"temperature": 0.0, **settings}
    return SimulatedLabeller("guests", _judgement, LabellerSettings(**sure))  # type: ignore[arg-type]


def _share_a(labeller: SimulatedLabeller, comparisons: Sequence[Comparison]) -> float:
    labels = labeller.label(comparisons)
    assert [x.comparison_id for x in labels] == [c.id for c in comparisons]
    assert {x.labeller for x in labels} == {"guests"}
    return sum(x.choice is Choice.A for x in labels) / len(labels)


def _close(share: float, probability: float, count: int) -> bool:
    """Within 4 standard errors of a binomial share."""
    return abs(share - probability) <= 4 * math.sqrt(probability * (1 - probability) / count)


def test_without_noise_the_better_answer_always_wins() -> None:
    assert _share_a(_labeller(), _comparisons("1", "0.999", 50)) == 1.0
    assert _share_a(_labeller(), _comparisons("0.999", "1", 50)) == 0.0


def test_the_same_comparison_gets_the_same_answer() -> None:
    comparisons = _comparisons("1", "1", 200)
    first = _labeller(noise=0.3, temperature=1.0, seed=5).label(comparisons)
    # Asked one by one, in another order, by another object of the same seed.
    again = _labeller(noise=0.3, temperature=1.0, seed=5)
    assert [again.label([c])[0] for c in reversed(comparisons)] == list(reversed(first))
    other = _labeller(noise=0.3, temperature=1.0, seed=6).label(comparisons)
    assert [x.choice for x in other] != [x.choice for x in first]


@pytest.mark.parametrize("noise", [0.0, 0.15, 0.5, 1.0])
def test_answers_flip_at_the_set_rate(noise: float) -> None:
    share = _share_a(_labeller(noise=noise), _comparisons("1", "0", 4000))
    assert _close(share, 1 - noise, 4000)


def test_equal_answers_are_a_coin_toss() -> None:
    assert _close(_share_a(_labeller(), _comparisons("1", "1", 4000)), 0.5, 4000)
    assert _close(_share_a(_labeller(temperature=0.3), _comparisons("1", "1", 4000)), 0.5, 4000)


def test_temperature_blurs_close_calls() -> None:
    # sigmoid(0.2 / 0.1) = 1 / (1 + e^-2) = 0.8808; with noise 0.1 it is .8808 * .9 + .1192 * .1 = 0.8046.
    share = _share_a(_labeller(temperature=0.1), _comparisons("0.2", "0", 4000))
    assert _close(share, 0.8808, 4000)
    share = _share_a(_labeller(temperature=0.1, noise=0.1), _comparisons("0.2", "0", 4000))
    assert _close(share, 0.8046, 4000)


def test_a_taste_is_weighed_against_the_truth() -> None:
    def per_word(worth: float) -> Callable[[str, str], float]:
        return lambda prompt, answer: worth * len(answer.split())

    # b has 4 more words: at 0.25 each it gains exactly the 1 that a is better by.
    pair = ("1", "0 a a a a")
    assert _share_a(_labeller(taste=per_word(0.24)), _comparisons(*pair, 50)) == 1.0
    assert _share_a(_labeller(taste=per_word(0.26)), _comparisons(*pair, 50)) == 0.0
    assert 0.3 < _share_a(_labeller(taste=per_word(0.25)), _comparisons(*pair, 200)) < 0.7


def test_whether_an_answer_ends_is_seen() -> None:
    cut = Comparison("c", "p", Response("5", ORIGIN, finished=False), Response("0", ORIGIN), 0)
    assert _labeller().label([cut])[0].choice is Choice.B


def test_win_probability_is_symmetric_under_swap() -> None:
    for gap in (0.0, 1e-12, 0.3, 2.0, 50.0, 1e300):
        for temperature in (0.0, 1e-300, 0.1, 1.0, 100.0):
            p, q = win_probability(gap, temperature), win_probability(-gap, temperature)
            assert p + q == pytest.approx(1.0, abs=1e-15)
            assert 0.5 <= p <= 1.0
    assert win_probability(0.2, 0.1) == pytest.approx(0.880797, abs=1e-6)
    assert win_probability(1e-9, 0.0) == 1.0


def test_swapping_the_sides_swaps_the_shares() -> None:
    labeller = _labeller(temperature=0.5, noise=0.1)
    forward = _comparisons("0.4", "0", 4000)
    # sigmoid(.8) = .68997 -> .9 * .68997 + .1 * .31003 = .65198
    assert _close(_share_a(labeller, forward), 0.65198, 4000)
    assert _close(_share_a(labeller, [c.swap() for c in forward]), 1 - 0.65198, 4000)


def test_choice_and_flip_are_independent_draws() -> None:
    labeller = _labeller(temperature=1.0, noise=0.5)
    # Whatever the quality gap, half of all answers are flipped, so the share is one half.
    assert _close(_share_a(labeller, _comparisons("3", "0", 4000)), 0.5, 4000)
