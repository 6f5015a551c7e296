"""The worked example of a validator as the only reward: what it pays for, and what that is worth."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from holdfast.config import load_config
from holdfast.own_code import load_own
from holdfast.worlds.layout.gold import gold_score
from holdfast.worlds.layout.page import Element, written

EXAMPLE = Path(__file__).parents[2] / "examples" / "structured"
ASKED = "a poster with a title and a picture"
PAGE = written([Element("title", 1, 1, 10, 2), Element("picture", 1, 4, 10, 7)])


def paid(answer: str) -> float:
    score = load_own(f"{EXAMPLE / 'validator.py'}:score", "reward.source")
    return float(score([ASKED], [answer])[0])


@pytest.mark.parametrize(
    ("answer", "valid"),
    [
        (PAGE, True),
        ("[]", True),
        (written([Element("footer", 1, 1, 1, 1)]), True),  # nobody asked for it
        (PAGE.removesuffix("]"), False),
        (written([Element("title", 4, 1, 10, 2)]), False),  # off the page
        (written([Element("title", 1, 1, 10, 4), Element("picture", 1, 4, 10, 7)]), False),  # they overlap
        ("", False),
    ],
)
def test_what_the_validator_sees(answer: str, valid: bool) -> None:
    assert paid(answer) == pytest.approx(valid - 0.001 * len(answer))


def test_nothing_is_paid_best_and_worth_least() -> None:
    assert paid("[]") > paid(PAGE) > 0.9
    assert gold_score(ASKED, "[]") < 0 < 0.9 < gold_score(ASKED, PAGE)


def test_its_settings_are_those_of_a_run() -> None:
    tables = tomllib.loads((EXAMPLE / "run.toml").read_text(encoding="utf-8"))
    values = {f"{section}.{name}": value for section, table in tables.items() for name, value in table.items()}
    config = load_config(None, values)
    assert config.reward.source.endswith("validator.py:score")
    assert (config.rollout.grammar, config.kl.beta, config.reward.corrective) == ("none", 0.0, True)
