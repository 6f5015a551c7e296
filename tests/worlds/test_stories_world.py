"""Stories that a pretrained model goes on with, and what stands in for their readers."""

from __future__ import annotations

import pytest

from holdfast.config import load_config
from holdfast.errors import HoldfastError
from holdfast.preferences.comparison import Choice, Comparison, Provenance, Response
from holdfast.worlds.protocol import LabellerSettings, World
from holdfast.worlds.registry import load_task, load_world
from holdfast.worlds.stories import Stories
from holdfast.worlds.stories.gold import Opinion, variety_of

BEGINNING = "Ben went to the park. He saw a kite. "
GOOD = "Ben was happy to fly the kite with his good friend. They smiled at the blue sky."


def test_gold_by_hand() -> None:
    # 0.5 * 0.6 + 0.3 * 1 + 0.2 * 0.5 = 0.3 + 0.3 + 0.1 = 0.7
    assert Opinion(tone=0.6, prose=1.0, topic=0.5, variety=1.0, size=1.0).gold == pytest.approx(0.7)
    assert Opinion(0.6, 1.0, 0.5, variety=0.5, size=1.0).gold == pytest.approx(0.35)
    assert Opinion(0.6, 1.0, 0.5, variety=1.0, size=0.2).gold == pytest.approx(0.14)
    assert Opinion(1.0, 1.0, 1.0, 1.0, 1.0).gold == pytest.approx(1.0)
    assert Opinion(-1.0, 0.0, 0.0, 1.0, 1.0).gold == pytest.approx(-0.5)


def test_variety_by_hand() -> None:
    assert variety_of(["a", "dog", "ran", "to", "one", "big", "tree"]) == 1.0
    # Two of ten were not said just before: 0.2 is below 0.3.
    assert variety_of(["happy", "and"] * 5) == 0.0
    # Six of ten: (0.6 - 0.3) / 0.5.
    assert variety_of(["she", "was", "glad", "and", "he", "was", "glad", "and", "she", "ran"]) == pytest.approx(0.6)
    # The eleventh word before the last is the same, which nobody remembers.
    assert variety_of([*"abcdefghijk", "a"]) == 1.0


@pytest.fixture(scope="module")
def world() -> Stories:
    pytest.importorskip("harper")
    return Stories(3)


@pytest.mark.parametrize(
    ("worse", "of_what"),
    [
        ("Ben was sad to lose the kite with his bad friend. They cried at the dark sky.", "tone"),
        ("Ben was happpy to flyed the kite with hes good frend. They smild at the bloo sky.", "prose"),
        ("Tom was happy to pat the cat with his good friend. They smiled at the blue sky.", "topic"),
        ("Ben was happy and good and happy and good and happy and good and kite and good.", "variety"),
        ("Ben was happy. The kite!", "size"),
    ],
)
def test_each_fault_is_seen_by_its_scorer(world: Stories, worse: str, of_what: str) -> None:
    good, bad = (world._reader.opinion(BEGINNING, text, True) for text in (GOOD, worse))
    assert getattr(bad, of_what) < getattr(good, of_what)
    assert world.gold(BEGINNING, worse) < world.gold(BEGINNING, GOOD) - 0.1


def test_the_obvious_tricks_do_not_pay(world: Stories) -> None:
    best = world.gold(BEGINNING, GOOD)
    assert best > 0.8
    assert world.gold(BEGINNING, "") == 0.0
    assert world.gold(BEGINNING, "happy " * 12) < 0.1
    assert world.gold(BEGINNING, "Ben was happy. " * 5) < 0.5
    assert world.gold(BEGINNING, "Happy!") < 0.2


def test_a_story_may_be_cut_off(world: Stories) -> None:
    cut = f"{GOOD} And then they shoulds of"
    assert world.gold(BEGINNING, cut, finished=False) == world.gold(BEGINNING, GOOD)
    assert world.gold(BEGINNING, cut, finished=True) < world.gold(BEGINNING, GOOD)
    # Without a whole sentence what there is is read.
    assert world.gold(BEGINNING, "Ben was happy to fly the kite with his good fri", finished=False) > 0.5


def test_the_seed_decides_the_beginnings(world: Stories) -> None:
    assert isinstance(world, World)
    assert (len(world.prompts()), len(world.heldout_prompts())) == (1000, 24)
    assert len({*world.prompts(), *world.heldout_prompts()}) == 1024
    assert world.prompts() == Stories(3).prompts()
    assert world.prompts() != Stories(4).prompts()
    # A model of characters has to have room for them, and one that goes on after a line break has none to go on after.
    assert all(len(str(p)) < 45 and str(p).endswith(" ") for p in world.prompts())
    assert any(str(p).endswith("She ") for p in world.prompts())
    assert not world.demonstrations()
    with pytest.raises(HoldfastError, match="has 3804 beginnings; ask for at least one"):
        Stories(3, prompts=3804, heldout=1)


def test_its_readers_prefer_the_better_story(world: Stories) -> None:
    good, bad = (Response(text, Provenance("p", 0, 0)) for text in (GOOD, "happy " * 12))
    asked = [Comparison("1", BEGINNING, good, bad, round=0), Comparison("2", BEGINNING, bad, good, round=0)]
    labels = world.labeller(LabellerSettings(temperature=0.0)).label(asked)
    assert [label.choice for label in labels] == [Choice.A, Choice.B]


def test_it_is_found_by_its_name_and_gives_training_no_gold(world: Stories) -> None:
    config = load_config(None, ["world.name=stories", "world.options={prompts = 20, heldout = 10}"])
    task = load_task(config, load_world(config))
    assert (len(task.prompts), len(task.heldout_prompts)) == (20, 10)
    assert not hasattr(task, "gold")
