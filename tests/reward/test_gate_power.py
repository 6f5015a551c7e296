"""How often the gate is right, on simulated refreshes: the figures that its documentation gives."""

import pytest
from simulated_labels import Labels, World, opinions, repeats

import tally
from holdfast.reward.gate import decision_on

RUNS = 200


def accepted(world: World, labels: Labels) -> float:
    decisions = [decision_on(opinions(world, labels, seed), repeats(labels, seed)) for seed in range(RUNS)]
    return sum(decision.accept for decision in decisions) / RUNS


def counted(kind: str, share: float) -> float:
    """The share, with its refreshes counted for the table of faults."""
    tally.count(f"{kind} refreshes", RUNS)
    tally.count(f"{kind} let in", round(share * RUNS))
    return share


@pytest.mark.parametrize(
    "world",
    [
        World(),
        World(right=0.75, right_on_newest=0.71, gain_on_newest=0.02),
        World(right=0.66, right_on_newest=0.63, gain_on_newest=0.03),
        # Members that know little, and learn.
        World(right=0.62, right_on_newest=0.58, gain_on_newest=0.04),
        # The ensemble has lost its way on the newest answers, and finds it again.
        World(right=0.72, right_on_newest=0.55, gain_on_newest=0.10),
    ],
)
def test_clean_refreshes_are_accepted(world: World) -> None:
    assert counted("clean", accepted(world, Labels())) >= 0.9


@pytest.mark.parametrize("flipped", [0.005, 0.01, 0.03, 0.05])
def test_a_few_flipped_labels_do_no_harm_and_are_let_in(flipped: float) -> None:
    assert counted("clean", accepted(World(), Labels(flipped=flipped))) >= 0.9


HARMFUL = {
    "25% flipped": (World(0.70, 0.68, gain=-0.01, gain_on_newest=-0.02), Labels(flipped=0.25)),
    "40% flipped": (World(gain=-0.02, gain_on_newest=-0.03), Labels(flipped=0.4)),
    "40% flipped, a weak model": (World(0.66, 0.64, -0.02, -0.03), Labels(flipped=0.4)),
    "always left": (World(gain=-0.02, gain_on_newest=-0.03), Labels(always_left=1.0)),
    "often left": (World(gain=-0.02, gain_on_newest=-0.03), Labels(always_left=0.7)),
    "loves length": (World(gain=-0.01, gain_on_newest=-0.02, length_learnt=0.7), Labels(loves_length=12.0)),
    "forgets": (World(gain=-0.06, gain_on_newest=0.0), Labels()),
}


@pytest.mark.parametrize(("world", "labels"), HARMFUL.values(), ids=HARMFUL.keys())
def test_harmful_refreshes_are_not(world: World, labels: Labels) -> None:
    assert counted("harmful", accepted(world, labels)) <= 0.05


def test_what_it_cannot_do() -> None:
    """Without comparisons asked again, labels that are a quarter wrong pass members that are right on 58%. A refresh on
    honest labels that does a little harm is let in."""
    weak = World(0.62, 0.58, gain=-0.01, gain_on_newest=-0.02)
    unseen = [decision_on(opinions(weak, Labels(flipped=0.25), seed)).accept for seed in range(RUNS)]
    assert sum(unseen) / RUNS > 0.1
    assert accepted(weak, Labels(flipped=0.25)) <= 0.05
    assert accepted(World(0.70, 0.70, 0.0, -0.01), Labels()) > 0.5
