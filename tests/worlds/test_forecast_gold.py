"""The truth of the forecast world: the discrete score by hand, quantities, and what is no forecast."""

from __future__ import annotations

import pytest

from holdfast.errors import HoldfastError
from holdfast.worlds.forecast.gold import STEP_COSTS, UNREADABLE, crps, gold_score, read
from holdfast.worlds.forecast.quantity import Quantity, every_prompt, quantity_of

EIGHT = "1 2 3 4 5 6 7 8"
ANYTHING = f"boats in the harbour; anything from 2 to 6; at {EIGHT}"
TRUTH = [0, 0, 0.25, 0.5, 0.75, 1, 1, 1]


def test_the_score_by_hand() -> None:
    # Sure of 2 where 1, 2 and 3 are as likely: 1/3 below 1, 2/3 below 2.
    truth = [1 / 3, 2 / 3, 1]
    # The truth's own: 1/3 * 2/3 twice.
    assert crps(truth, truth) == pytest.approx(4 / 9)
    # Beyond it (0 - 1/3)^2 + (1 - 2/3)^2.
    assert crps([0, 1, 1], truth) == pytest.approx(4 / 9 + 2 / 9)


def test_it_is_the_mean_score_of_what_comes_to_pass() -> None:
    # y is 1, 2 or 3, each a third of the time; the score of each is the sum of (F_k - [y <= k])^2.
    forecast = [0.5, 0.6, 1.0]
    scores = [sum((f - (y <= k)) ** 2 for k, f in enumerate(forecast, start=1)) for y in (1, 2, 3)]
    assert crps(forecast, [1 / 3, 2 / 3, 1]) == pytest.approx(sum(scores) / 3)


@pytest.mark.parametrize(
    ("described", "at", "below"),
    [
        # A quarter of the way from 2 to 6 is 3.
        ("anything from 2 to 6", 3, 0.25),
        ("about 4, give or take 1", 4, 0.5),
        # The normal distribution one standard deviation above its mean.
        ("about 4, give or take 1", 5, 0.841345),
        ("usually 2, sometimes up to 7", 2, 0.5),
        ("usually 2, sometimes up to 7", 7, 0.95),
        # What is beyond the last point counts as the last point.
        ("about 6, give or take 3", 8, 1.0),
    ],
)
def test_quantities_by_hand(described: str, at: int, below: float) -> None:
    truth = quantity_of(f"letters in the box; {described}; at {EIGHT}").truth()
    assert truth[at - 1] == pytest.approx(below, abs=1e-6)
    assert truth == sorted(truth)
    assert truth[-1] == 1


def test_in_tens_it_is_the_same() -> None:
    tens = quantity_of("letters in the box; usually 20, sometimes up to 70; at 10 20 30 40 50 60 70 80")
    ones = quantity_of(f"letters in the box; usually 2, sometimes up to 7; at {EIGHT}")
    assert tens.truth() == pytest.approx(ones.truth())


def test_who_is_too_sure_or_elsewhere() -> None:
    quantity = Quantity("about", 4.0, 2.0, tuple(range(1, 9)))
    # Half as wide: 5 is a whole deviation away. One step higher: 4 is where 3 was.
    assert quantity.curve(spread=0.5)[4] == pytest.approx(0.841345, abs=1e-6)
    assert quantity.curve(shift=1)[3] == pytest.approx(quantity.truth()[2])
    usual = Quantity("usually", 2.0, 7.0, tuple(range(1, 9)))
    # 7 is 1.645 deviations of the logarithm away, in half the width twice as many.
    assert usual.curve(spread=0.5)[6] == pytest.approx(0.9995, abs=1e-4)


def test_gold_by_hand() -> None:
    said = ",".join(f"{value:.2f}" for value in TRUTH)
    assert gold_score(ANYTHING, f'{{"p":[{said}]}}') == pytest.approx(1.0)
    # Sure of 4: it loses 0.25^2 at 3, 0.5^2 at 4 and 0.25^2 at 5.
    sure = '{"p":[0.00,0.00,0.00,1.00,1.00,1.00,1.00,1.00]}'
    assert gold_score(ANYTHING, sure) == pytest.approx(1 - STEP_COSTS * (0.0625 + 0.25 + 0.0625))
    assert gold_score(ANYTHING, sure, finished=False) == UNREADABLE


@pytest.mark.parametrize(
    "answer",
    [
        "", "[]", "{}", '{"p":1}', '{"p":[1.00]}', '{"p":[0,0,0,0,0,0,0,1],"q":1}', '{"p":[0,0,0,0,0,0,0,true]}',
        '{"p":[0.50,0.25,1,1,1,1,1,1]}', '{"p":[-0.25,0,0,0,0,0,0,1]}', '{"p":[0,0,0,0,0,0,0,0.95]}',
        '{"p":[0,0,0,0,0,0,0,0,1]}', '{"p":[0,0,0,0,0,0,NaN,1]}', '{"p":[0,0,0,0,0,0,0,2]}', "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_forecast(answer: str) -> None:
    assert read(answer) is None
    assert gold_score(ANYTHING, answer) == UNREADABLE


def test_every_prompt_can_be_read_back() -> None:
    assert len({quantity_of(prompt) for prompt in every_prompt()[: len(every_prompt()) // 12]}) > 100
    with pytest.raises(HoldfastError, match="'Hello' is not a prompt of the forecast world, such as 'minutes"):
        quantity_of("Hello")
