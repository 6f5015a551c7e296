"""Distributions: what is read, at which points, and what is said of those that are none."""

import pytest

from holdfast.charts.chart import line_chart
from holdfast.drawings.curve import Curve, curve_chart, curve_terminal, draw_curve, points_in, read_curve
from holdfast.drawings.picture import CannotBeDrawn


def test_the_points_are_those_of_the_answer_or_of_the_prompt_or_places() -> None:
    text = '{"p":[0.10,0.60,1.00]}'
    asked = "Of 30 tables, how many are taken? Give the chance of at most 5, 10 and 20."
    assert read_curve(text, asked) == Curve((5, 10, 20), (0.1, 0.6, 1.0))
    assert read_curve('{"x":[1,2,4],"p":[0.10,0.60,1.00]}', asked).xs == (1, 2, 4)
    assert read_curve(text, "How many?") == Curve((1, 2, 3), (0.1, 0.6, 1.0), named=False)


@pytest.mark.parametrize(
    ("prompt", "count", "points"),
    [
        ("at 0, 10, 20 and 30", 4, (0, 10, 20, 30)),
        ("first 1, 2, 3. Then 4, 5, 6.", 3, (4, 5, 6)),
        ("at -1.5; 0; 1.5?", 3, (-1.5, 0, 1.5)),
        ("at 0,5,10.", 3, (0, 5, 10)),
        ("at 10, 5, 0", 3, None),
        ("at 1, 2", 3, None),
        ("1" * 30_000, 2, None),
    ],
)
def test_points_in_a_prompt(prompt: str, count: int, points: tuple[float, ...] | None) -> None:
    assert points_in(prompt, count) == points


def test_one_that_falls_or_does_not_end_at_1_is_drawn_and_said() -> None:
    assert Curve((0, 1, 2), (0.0, 0.5, 1.0)).notes == ()
    assert Curve((0, 1, 2), (0.5, 0.2, 0.9)).notes == (
        "It falls at 1: it is no cumulative distribution.", "It ends at 0.9 and not at 1.",
    )  # fmt: skip


def test_the_words_have_every_number_and_stand_in_the_chart() -> None:
    picture = draw_curve('{"x":[0,5],"p":[0.25,1]}')
    assert picture.words == "Chance of at most x, at 2 points: 0: 0.25; 5: 1.00."
    assert picture.words in picture.svg
    assert 'role="img"' in picture.svg


def test_two_curves_in_one_chart() -> None:
    spec = curve_chart(Curve((0, 5), (0.0, 1.0)), Curve((0, 5), (0.5, 1.0)))
    assert [series.name for series in spec.series] == ["predicted", "true"]
    svg = line_chart(spec)
    assert "predicted: Chance of at most x, at 2 points: 0: 0.00" in svg
    assert "true: Chance of at most x, at 2 points: 0: 0.50" in svg


def test_in_a_terminal() -> None:
    assert curve_terminal(Curve((0, 10), (0.05, 1.0))) == " 0  0.05  ██\n10  1.00  " + 40 * "█"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "0 chances"),
        ('{"q": 1}', "no list of chances"),
        ('{"p": 0.5}', "no list of chances"),
        ('{"p": [0.5]}', "1 chance,"),
        ('{"p": [0.1, 1.2]}', "chance 2 is 1.2, which is not between 0 and 1"),
        ('{"p": [-0.1, 1]}', "chance 1 is -0.1"),
        ('{"p": [0, NaN]}', "chance 2 is no finite number"),
        ('{"p": [0, "1"]}', "chance 2 is not a number"),
        ('{"x": [1], "p": [0, 1]}', "are not 2 numbers"),
        ('{"x": [1, 1], "p": [0, 1]}', "do not rise"),
        ('{"x": [0, 5e-324], "p": [0, 1]}', "do not rise"),
        ('{"p": [' + "0," * 10_000 + "1]}", "10,001 chances"),
    ],
)
def test_what_cannot_be_drawn_says_why(text: str, why: str) -> None:
    with pytest.raises(CannotBeDrawn, match=why):
        read_curve(text)
