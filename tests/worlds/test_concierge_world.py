"""The concierge as a world: what it draws from a seed, and what training can see of it."""

import dataclasses
import random

import pytest

from holdfast.errors import HoldfastError
from holdfast.worlds.concierge import Concierge
from holdfast.worlds.concierge.facts import FILLERS, TOPICS, asked_topics
from holdfast.worlds.concierge.gold import gold_score, read_answer
from holdfast.worlds.concierge.phrases import break_sentence, join_asks, possible_prompts, write_answer, write_prompts
from holdfast.worlds.protocol import LabellerSettings, Task, World, task_of

KNOWN = {*FILLERS, *(s for t in TOPICS for s in (*t.true, *t.false))}


@pytest.fixture(scope="module")
def world() -> Concierge:
    return Concierge(3, prompts=300, demonstrations=400, heldout=60)


def test_sizes_are_as_asked(world: Concierge) -> None:
    sizes = len(world.prompts()), len(world.demonstrations()), len(world.heldout_prompts())
    assert sizes == (300, 400, 60)
    assert len(Concierge(3, prompts=50, demonstrations=20, heldout=0).prompts()) == 50


def test_prompts_are_unique_and_heldout_ones_apart(world: Concierge) -> None:
    prompts, heldout = set(world.prompts()), set(world.heldout_prompts())
    assert len(prompts) == 300
    assert len(heldout) == 60
    assert not prompts & heldout
    assert not {d.prompt for d in world.demonstrations()} & heldout


def test_every_prompt_asks_one_to_three_things(world: Concierge) -> None:
    counts = {len(asked_topics(str(p))) for p in world.prompts()}
    assert counts == {1, 2, 3}
    assert all(str(p).endswith("?") for p in world.prompts())


@pytest.mark.parametrize(("topics", "most_asked"), [(8, 3), (12, 4), (5, 2)])
def test_prompts_and_demonstrations_keep_to_the_chosen_topics(topics: int, most_asked: int) -> None:
    world = Concierge(3, prompts=100, demonstrations=100, heldout=20, topics=topics, most_asked=most_asked)
    asked = [asked_topics(str(p)) for p in (*world.prompts(), *world.heldout_prompts())]
    known = TOPICS[:topics]
    assert frozenset().union(*asked) == {t.name for t in known}
    assert max(len(a) for a in asked) == most_asked
    strange = {s for t in TOPICS[topics:] for s in (*t.true, *t.false)}
    said = {part.strip() for d in world.demonstrations() for part in d.response.split(".")}
    assert said & {s for t in known for s in (*t.true, *t.false)}
    assert not said & strange


def test_how_many_prompts_can_be_written() -> None:
    # 6 openings; 1 of 3 topics in 2 ways, or 2 of 3 in order (6) in 2 x 2 ways: 6 (6 + 24).
    assert possible_prompts(3, 2) == 180
    assert len(write_prompts(random.Random(1), 180, topics=TOPICS[:3], most_asked=2)) == 180


@pytest.mark.parametrize(
    "options",
    [{"topics": 13}, {"topics": 3, "most_asked": 3}, {"most_asked": 0}, {"prompts": 0}, {"heldout": -1},
     {"topics": 3, "most_asked": 2, "prompts": 80, "demonstrations": 0, "heldout": 11}],
)  # fmt: skip
def test_a_world_that_cannot_be_written_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(HoldfastError, match="The concierge world"):
        Concierge(0, **options)


def test_the_same_seed_is_the_same_world_and_another_is_not(world: Concierge) -> None:
    again = Concierge(3, prompts=300, demonstrations=400, heldout=60)
    assert again.prompts() == world.prompts()
    assert again.demonstrations() == world.demonstrations()
    assert again.heldout_prompts() == world.heldout_prompts()
    other = Concierge(4, prompts=300, demonstrations=400, heldout=60)
    assert other.prompts() != world.prompts()


def test_join_asks() -> None:
    assert join_asks(["a"]) == "a"
    assert join_asks(["a", "b"]) == "a and b"
    assert join_asks(["a", "b", "c", "d"]) == "a, b, c and d"


def test_write_prompts_leaves_out_what_it_is_told_to() -> None:
    first = write_prompts(random.Random(1), 40)
    again = write_prompts(random.Random(1), 40, frozenset(first[:10]))
    assert not set(again) & set(first[:10])


def test_a_broken_sentence_is_shorter_and_no_longer_the_sentence() -> None:
    rng = random.Random(0)
    for sentence in sorted(KNOWN):
        for _ in range(5):
            broken = break_sentence(rng, sentence)
            assert len(broken.split()) < len(sentence.split())
            assert broken


def test_demonstrations_parse_back_to_what_was_written(world: Concierge) -> None:
    """A demonstration is whole sentences with full stops: the reader must find each of them."""
    for d in world.demonstrations():
        sentences = d.response.removesuffix(".").split(". ")
        assert d.response == " ".join(f"{s}." for s in sentences)
        reading = read_answer(str(d.prompt), d.response, finished=True)
        whole = sum(s in KNOWN for s in sentences)
        assert whole + (reading.broken > 0) == len(sentences), "at most one sentence is broken"
        counted = reading.right + reading.wrong + reading.unasked + reading.repeated + reading.filler
        assert counted == whole


def test_demonstrations_are_mediocre_but_not_worthless(world: Concierge) -> None:
    golds = [world.gold(d.prompt, d.response) for d in world.demonstrations()]
    perfect = sum(g == pytest.approx(1.0) for g in golds) / len(golds)
    # Loose, since how good the staff is may be tuned.
    assert 0.0 < perfect < 0.9
    assert -0.5 < sum(golds) / len(golds) < 0.95
    assert min(golds) < 0


def test_the_perfect_answer_to_every_prompt_has_gold_1(world: Concierge) -> None:
    for prompt in world.heldout_prompts():
        asked = asked_topics(str(prompt))
        answer = " ".join(f"{t.true[0]}." for t in TOPICS if t.name in asked)
        assert gold_score(str(prompt), answer) == pytest.approx(1.0)


def test_write_answer_always_says_something(world: Concierge) -> None:
    rng = random.Random(5)
    assert all(write_answer(rng, str(p)).endswith(".") for p in world.prompts())


def test_a_concierge_is_a_world(world: Concierge) -> None:
    assert isinstance(world, World)


def test_a_task_has_no_way_to_gold(world: Concierge) -> None:
    task = task_of(world, LabellerSettings())
    # Training sees these fields, whatever the world's class has besides.
    assert [f.name for f in dataclasses.fields(Task)] == [
        "name",
        "prompts",
        "heldout_prompts",
        "demonstrations",
        "labeller",
        "policy_directory",
        "notes",
        "columns",
        "grammar",
        "pieces",
        "left_out",
        "drawing",
    ]
    for value in (task, *vars(task).values()):
        public = [name for name in dir(value) if not name.startswith("_")]
        assert not any("gold" in name or name == "judgement" for name in public)
        assert not isinstance(value, Concierge)
    assert [n for n in dir(task.labeller) if not n.startswith("_")] == ["called", "label", "name"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.name = "x"  # type: ignore[misc]


def test_a_task_keeps_its_own_lists(world: Concierge) -> None:
    task = task_of(world, LabellerSettings())
    assert task.prompts == list(world.prompts())
    assert task.prompts is not world.prompts()
    assert task.policy_directory is None
