"""Everyday requests and what stands in for people: each scorer by an answer that differs in that alone."""

from __future__ import annotations

import json

import pytest

from holdfast.config import load_config
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Message, plain_text
from holdfast.preferences.comparison import Choice, Comparison, Provenance, Response
from holdfast.worlds import everyday, scorers
from holdfast.worlds.everyday.gold import Opinion
from holdfast.worlds.protocol import LabellerSettings, World
from holdfast.worlds.registry import load_task, load_world

REQUEST = "How do I sleep well in a noisy flat?"
GOOD = "You can sleep well with soft earplugs. I hope you have a good night in your flat!"


def test_gold_by_hand() -> None:
    # 0.4 * 0.5 + 0.25 * 0.8 + 0.25 * 1 + 0.1 * 0.5 = 0.2 + 0.2 + 0.25 + 0.05 = 0.7
    whole = Opinion(tone=0.5, ease=0.8, prose=1.0, topic=0.5, size=1.0, finished=True)
    assert whole.gold == pytest.approx(0.7)
    assert Opinion(0.5, 0.8, 1.0, 0.5, 0.5, finished=True).gold == pytest.approx(0.35)
    assert Opinion(0.5, 0.8, 1.0, 0.5, 1.0, finished=False).gold == pytest.approx(0.4)


def test_requests_are_many_different_and_short() -> None:
    rows = [json.loads(line)["prompt"] for line in everyday.REQUESTS.read_text(encoding="utf-8").splitlines()]
    assert len(rows) >= 300
    assert len(set(rows)) == len(rows)
    assert all(2 <= len(row.split()) <= 24 for row in rows)
    openings = {" ".join(row.split()[:3]) for row in rows}
    assert len(openings) > 100


@pytest.fixture(scope="module")
def world() -> everyday.Everyday:
    pytest.importorskip("harper")
    return everyday.Everyday(3)


def test_the_seed_decides_what_is_held_out(world: everyday.Everyday) -> None:
    assert isinstance(world, World)
    assert len(world.heldout_prompts()) == 40
    assert not set(world.heldout_prompts()) & set(world.prompts())
    assert world.prompts() == everyday.Everyday(3).prompts()
    assert world.prompts() != everyday.Everyday(4).prompts()
    first = world.prompts()[0]
    assert isinstance(first, tuple)
    assert [turn.role for turn in first] == ["system", "user"]
    assert everyday.Everyday(3, heldout=0, instruction="").prompts()[0][0].role == "user"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("worse", "of_what"),
    [
        ("You can sleep badly with awful earplugs. I fear you have a terrible night in your flat!", "tone"),
        (
            "Sleeping satisfactorily necessitates comfortable soundproofing paraphernalia; I congratulate you "
            "wholeheartedly on accomplishing nocturnal tranquillity within your inherently noisy flat accommodation.",
            "ease",
        ),
        ("You can sleeps well with an soft earplugs. I hopes you has a good nite in you're flat!", "prose"),
        ("You can rest well with soft earplugs. I hope you have a good night in your house!", "topic"),
        ("Sleep well!", "size"),
    ],
)
def test_each_fault_is_seen_by_its_scorer(world: everyday.Everyday, worse: str, of_what: str) -> None:
    good, bad = (world._scorers.opinion(REQUEST, text, True) for text in (GOOD, worse))
    assert getattr(bad, of_what) < getattr(good, of_what)
    assert world.gold(REQUEST, worse) < world.gold(REQUEST, GOOD)


def test_an_answer_has_to_end_and_to_be_there(world: everyday.Everyday) -> None:
    assert world.gold(REQUEST, GOOD, finished=False) == pytest.approx(world.gold(REQUEST, GOOD) - 0.3, abs=0.02)
    assert world.gold(REQUEST, "") == 0.0
    # What stands before the cut is judged; the broken sentence at the end is not counted as a fault once more.
    text = GOOD + " And then you shoulds of"
    cut, ended = (world._scorers.opinion(REQUEST, text, finished) for finished in (False, True))
    assert cut.prose > ended.prose


def test_its_people_prefer_the_better_answer(world: everyday.Everyday) -> None:
    labeller = world.labeller(LabellerSettings(temperature=0.0))
    prompt = (Message("user", REQUEST),)
    answers = [Response(text, Provenance("p", 0, 0)) for text in (GOOD, "no")]
    asked = [Comparison("1", prompt, *answers, round=0), Comparison("2", prompt, *reversed(answers), round=0)]
    assert [label.choice for label in labeller.label(asked)] == [Choice.A, Choice.B]


def test_it_is_found_by_its_name_and_gives_training_no_gold(world: everyday.Everyday) -> None:
    config = load_config(None, ["world.name=everyday", "world.options={heldout = 10}"])
    task = load_task(config, load_world(config))
    assert len(task.heldout_prompts) == 10
    assert REQUEST not in [plain_text(p) for p in task.prompts]
    assert not hasattr(task, "gold")


def test_a_scorer_that_is_missing_is_named() -> None:
    with pytest.raises(HoldfastError, match="no_such_scorer, which is not installed"):
        scorers.load("no_such_scorer")
