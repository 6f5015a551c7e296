"""Alpha against published examples, other figures by hand, and bad labellers found among good ones."""

import random

import pytest

import tally
from holdfast.people.agreement import krippendorff_alpha, pairwise, worth
from holdfast.people.label_weights import LabellerWeights, read_quality
from holdfast.people.quality import GivenAnswer, team_quality
from holdfast.preferences.comparison import Choice, Comparison, Label, Provenance, Response
from holdfast.preferences.store import PreferenceStore

# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", sections B and C.
BINARY = ["0 1 0 0 0 0 0 0 1 0", "1 1 1 0 0 1 0 0 0 0"]
NOMINAL = [
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
]


def units(observers):
    return [[value for value in column if value != "."] for column in zip(*map(str.split, observers), strict=True)]


@pytest.mark.parametrize(("observers", "alpha"), [(BINARY, 0.095), (NOMINAL, 0.743)])
def test_alpha_equals_the_published_examples(observers, alpha):
    assert krippendorff_alpha(units(observers)) == pytest.approx(alpha, abs=0.0005)


def test_alpha_at_its_ends():
    assert krippendorff_alpha([["a", "a"], ["b", "b"]]) == 1.0
    assert krippendorff_alpha([["a", "b"], ["b", "a"]]) < 0
    assert krippendorff_alpha([["a", "a"], ["a", "a"]]) is None
    assert krippendorff_alpha([["a"], []]) is None


def test_agreement_of_two_by_hand():
    items = {"1": {"x": "a", "y": "a"}, "2": {"x": "a", "y": "b"}, "3": {"x": "tie", "y": "b"}, "4": {"x": "a"}}
    assert pairwise(items) == {("x", "y"): (0.5, 3)}  # (1 + 0 + 1/2) / 3
    assert worth("tie", "tie") == 1.0


def crowd(seed, honest=8, each=500, overlap=0.3, bad=("left", "random", "long")):
    """Answers of honest people, right 85% of the time, and of bad ones; an item goes to one person or to two."""
    rng = random.Random(seed)
    names = [f"honest{i}" for i in range(honest)] + list(bad)
    tally.count("bad labellers", len(bad))
    tally.count("honest labellers", honest)
    given, left = [], dict.fromkeys(names, each)
    item = 0
    while sum(left.values()):
        item += 1
        able = [name for name in names if left[name]]
        who = rng.sample(able, min(len(able), 2 if rng.random() < overlap else 1))
        better, lengths = rng.choice("ab"), (rng.randint(80, 400), rng.randint(80, 400))
        for name in who:
            left[name] -= 1
            shown = rng.choice("ab")
            if name.startswith("honest"):
                choice = better if rng.random() < 0.85 else "ab".replace(better, "")
            else:
                longer = "a" if lengths[0] > lengths[1] else "b"
                choice = {"left": shown, "random": rng.choice("ab"), "long": longer}[name]
            given.append(GivenAnswer(name, str(item), choice, len(given), shown, *lengths, seconds=rng.uniform(3, 20)))
    return given


@pytest.mark.parametrize("seed", range(10))
def test_always_left_random_and_length_lovers_are_found_among_eight_honest_ones(seed):
    quality = team_quality(crowd(seed))
    assert {found.name for found in quality.unreliable} == {"left", "random", "long"}
    by_name = {labeller.name: labeller for labeller in quality.labellers}
    assert by_name["left"].measure("position").finding
    assert by_name["random"].measure("agreement").finding
    assert by_name["long"].measure("length").finding


def test_honest_people_are_left_alone():
    """Of 40 teams of 8 at level 0.01 a person, about 3 findings are expected by the level; allowances make it fewer."""
    found = [found.name for seed in range(40) for found in team_quality(crowd(seed, bad=())).unreliable]
    assert len(found) <= 3


def plot(seed, honest, plotters, checks):
    """Answers of honest people and of some who have agreed on an answer to every item, whatever is right."""
    rng = random.Random(seed)
    names = [f"honest{i}" for i in range(honest)] + [f"plotter{i}" for i in range(plotters)]
    tally.count("bad labellers", plotters)
    given = []
    for item in range(250 * len(names)):
        better, agreed, expected = rng.choice("ab"), rng.choice("ab"), rng.random() < checks
        for name in rng.sample(names, 2 if rng.random() < 0.3 else 1):
            right = better if rng.random() < 0.85 else "ab".replace(better, "")
            choice = right if name.startswith("honest") else agreed
            known = {"expected": better} if expected else {}
            given.append(GivenAnswer(name, str(item), choice, len(given), rng.choice("ab"), 200, 200, 9.0, **known))
    return given


def test_people_who_collude_are_found_by_the_others_while_they_are_few_and_by_check_items_when_they_are_not():
    """Three of nine who always agree with each other pass for a taste, but for items with a known answer."""
    few = [f.name for seed in range(5) for f in team_quality(plot(seed, 8, 1, 0.0)).unreliable]
    assert few.count("plotter0") == 5
    many = [f.name for seed in range(5) for f in team_quality(plot(seed, 6, 3, 0.1)).unreliable]
    assert set(many) == {"plotter0", "plotter1", "plotter2"}
    assert len(many) >= 13  # of 15


def test_few_answers_say_nothing():
    given = [GivenAnswer("left", str(i), "a", i, "a", 100, 200, 5.0) for i in range(20)]
    assert team_quality(given, fewest=30).unreliable == ()
    assert team_quality(given, fewest=20).unreliable


def test_check_items_speed_and_drift():
    rng = random.Random(1)
    wrong = [GivenAnswer("careless", f"c{i}", rng.choice("ab"), i, "a", expected="a") for i in range(40)]
    fast = [GivenAnswer("hasty", f"h{i}", rng.choice("ab"), i, rng.choice("ab"), 300, 300, 0.2) for i in range(40)]
    steady = [GivenAnswer(name, f"d{i}", "a", i, rng.choice("ab"), 9, 9, 5.0) for i in range(80) for name in ("x", "y")]
    tired = [GivenAnswer("tired", f"d{i}", "a" if i < 40 else "b", i, rng.choice("ab"), 9, 9, 5.0) for i in range(80)]
    by_name = {q.name: q for q in team_quality([*wrong, *fast, *steady, *tired]).labellers}
    assert "check items right" in by_name["careless"].measure("checks").finding
    assert "faster than they can be read" in by_name["hasty"].measure("speed").finding
    assert "of the first half and in" in by_name["tired"].measure("drift").finding
    assert by_name["x"].measure("drift").finding == ""


# ---- in the store


def pair(key, run="run"):
    sides = [Response(text, Provenance("v", 0, 0)) for text in (f"{key} short", f"{key} and rather long")]
    return Comparison(f"{run}/{key}", "q", *sides, round=0)


def fill(store):
    """Anna and Ben agree; Zoe says the opposite, as often as not alone."""
    items = [pair(f"{i:03d}") for i in range(80)]
    store.add_comparisons(items)
    for n, item in enumerate(items):
        choice = Choice.A if n % 2 else Choice.B
        store.add_labels([Label(item.id, name, choice) for name in ("anna", "ben")])
        if n % 4 < 3:
            store.add_labels([Label(item.id, "zoe", choice.swap())])
    return items


@pytest.mark.parametrize(
    ("unreliable", "weight", "share"), [("keep", 1.0, 1 / 3), ("weigh", 0.3, 0.3 / 2.3), ("leave_out", 0.0, 0.0)]
)
def test_labels_of_an_unreliable_person_count_as_the_config_says(url, unreliable, weight, share):
    with PreferenceStore.open(url) as store:
        fill(store)
        weights = LabellerWeights(store, "run", unreliable)
        (change,) = weights.update()
        assert (change["labeller"], change["weight"]) == ("zoe", weight)
        assert "agrees with the others in 0%" in change["reasons"][0]
        assert weights.update() == []  # nothing new to say
        # Of item 0 Anna and Ben say b and Zoe a: her weight over that of all three.
        assert store.labelled()[0].share_a == pytest.approx(share)
        assert store.counts().labels == 80 * 2 + 60  # all are kept


def test_a_comparison_that_only_left_out_people_answered_is_not_there(url):
    with PreferenceStore.open(url) as store:
        fill(store)
        store.add_comparisons([pair("999")])
        store.add_labels([Label("run/999", "zoe", Choice.A)])
        LabellerWeights(store, "run", "leave_out").update()
        assert store.labelled_among(["run/999"]) == []
        assert "run/999" not in {item.comparison.id for item in store.labelled()}


def test_who_is_reliable_again_counts_again(url):
    with PreferenceStore.open(url) as store:
        items = fill(store)
        weights = LabellerWeights(store, "run", "leave_out")
        weights.update()
        for n, item in enumerate(items):
            if n % 4 < 3:
                store.add_labels([Label(item.id, "zoe", Choice.A if n % 2 else Choice.B)])
        assert weights.update() == [{"labeller": "zoe", "weight": 1.0, "reasons": []}]
        assert store.weights == {}


def test_quality_is_of_one_run_only(url):
    with PreferenceStore.open(url) as store:
        fill(store)
        assert read_quality(store.database, "other").labellers == ()
        assert {q.name for q in read_quality(store.database, "run").labellers} == {
            "anna",
            "ben",
            "zoe",
        }
