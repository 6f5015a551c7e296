"""Cures against the guarded run: figures by hand, the same labels for each, and each arm whole at toy size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import small_run
from holdfast.config import load_config
from holdfast.lab.cures import CURES, NO_CURE
from holdfast.lab.experiment import Arm, Plan, ResultCell, first_of
from holdfast.lab.experiments.cures import EXPERIMENT
from holdfast.lab.results import plain
from holdfast.lab.trial import Job, Labels, Trial, run_trial
from made_trials import results, trial

SMALL = tuple(
    f"{name}={value}" for name, value in small_run.SETTINGS.items() if name not in ("run.seed", "run.threads")
)


def ending(gold: float, seed: int, **more: Any) -> Trial:
    return trial([0.0, 0.5, gold], seed, **more)


def found() -> dict[str, Any]:
    """Guarded ends at .7 and .8, in another scenario at .6 and .5."""
    worse = {"labels": Labels(300, 0), "seconds": 4.0}
    result: dict[str, Any] = plain(
        EXPERIMENT.analyse(
            results(
                {
                    ("s", "guarded", 0): ending(0.7, 0, seconds=20.0),
                    ("s", "guarded", 1): ending(0.8, 1, seconds=30.0),
                    ("t", "guarded", 0): ending(0.6, 0, seconds=40.0),
                    ("t", "guarded", 1): ending(0.5, 1, seconds=50.0),
                    # Less by .1 and .3 in one, which may be chance; more by .1 and .11 in the other, which is not.
                    ("s", "nudge", 0): ending(0.6, 0, **worse),
                    ("s", "nudge", 1): ending(0.5, 1, **worse),
                    ("t", "nudge", 0): ending(0.7, 0, **worse),
                    ("t", "nudge", 1): ending(0.61, 1, **worse),
                    # Less by .4 and .5; of the other scenario one seed, less by .6.
                    ("s", "worst case", 0): ending(0.3, 0),
                    ("s", "worst case", 1): ending(0.3, 1),
                    ("t", "worst case", 0): ending(0.0, 0),
                    ("s", "no cure", 0): ending(0.69, 0),
                    ("s", "stop at KL", 5): ending(0.9, 5),
                }
            )
        )
    )
    return result


def test_differences_by_hand() -> None:
    result = found()
    of = result["differences"]
    assert of["nudge"]["mean"] == pytest.approx((0.1 + 0.3 - 0.1 - 0.11) / 4)
    assert of["worst case"]["mean"] == pytest.approx((0.4 + 0.5 + 0.6) / 3)
    assert (of["nudge"]["count"], of["worst case"]["count"], of["no cure"]["count"]) == (4, 3, 1)
    assert "stop at KL" not in of, "no guarded run of its seed"
    assert result["scenarios"]["t"]["nudge"]["difference"]["mean"] == pytest.approx(-0.105)
    assert result["scenarios"]["t"]["worst case"]["difference"]["mean"] == pytest.approx(0.6)
    assert result["scenarios"]["s"]["guarded"]["difference"] is None


def test_one_table_has_difference_interval_labels_and_time() -> None:
    result = found()
    table, by_scenario, _ = EXPERIMENT.tables(result)
    rows = {row[0]: row[1:] for row in table.rows}
    # Ends .6 .5 .7 .61; .19 / 4; 300 labels, 4 seconds.
    assert rows["nudge"][0] == "+0.603"
    assert rows["nudge"][1] == "+0.048"
    assert rows["nudge"][3:] == ["4", "300", "4"]
    assert rows["guarded"] == ["+0.650", "-", "-", "-", "120", "35"]
    assert rows["stop at KL"][1:4] == ["-", "-", "-"]
    assert {row[0]: row[1:] for row in by_scenario.rows}["worst case"] == ["+0.45", "+0.60"]
    assert {row[0]: row[1:] for row in by_scenario.rows}["nudge"] == ["+0.20", "-0.10*"]


def test_the_recommendation_names_the_closest_cure_its_cost_and_where_guarded_is_below() -> None:
    words = EXPERIMENT.recommend(found())
    # "no cure" is closer than any of them, and is none.
    assert words.startswith("Of the cures alone nudge comes closest: guarded less it is +0.048 [")
    assert "It spends 300 labels and 4 seconds a trial, guarded 120 and 35." in words
    assert "Guarded ends clearly above worst case on average." in words
    assert "Guarded ends not clearly apart from nudge on average." in words
    assert words.endswith("With t it ends clearly below nudge.")


def test_the_figure_has_every_difference_beside_the_line_of_none() -> None:
    (chart,) = EXPERIMENT.figure(found())
    assert list(chart.x_names) == ["nudge", "worst case", "no cure"]
    assert list(chart.series[0].ys) == pytest.approx([0.0475, 0.5, 0.01])
    assert len(chart.series[0].intervals) == 3


def test_every_cure_ends_with_as_many_labels_as_guarded(tmp_path: Path) -> None:
    """At the default settings: 700 of the rounds and 480 asked again are the refreshed arm's own."""
    plan = Plan(EXPERIMENT, EXPERIMENT.chosen(only=["verbosity"]), (3,), tmp_path)
    (scenario,) = plan.scenarios
    guarded = {ResultCell(scenario.title, "guarded", 3): trial([0.0, 1.0], labels=Labels(2740, 1712))}
    first = {
        arm.name: plan.job(ResultCell(scenario.title, arm.name, 3), guarded).config().reward.initial_comparisons
        for arm in (NO_CURE, *CURES)
    }
    assert first.pop("refreshed") == 4452 - 700 - 480
    assert set(first.values()) == {4452}


def test_nobody_begins_with_fewer_labels_than_by_its_own_settings() -> None:
    config = load_config(None, ["guard.mode=off", "reward.initial_comparisons=100"])
    assert first_of(1180 + 101, config) == 101
    assert first_of(1180 + 99, config) == 100


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cures")


# What each changes that can be seen in the run: at this size a stop at KL is never reached.
TOY = {"stop at KL": ("run.stop_at_kl=0.001",)}


@pytest.mark.parametrize("arm", [NO_CURE, *CURES], ids=lambda arm: str(arm.name))
def test_every_arm_runs_whole_and_is_another_run_than_no_cure(arm: Arm, place: Path) -> None:
    def of(which: Arm) -> Trial:
        settings = (*SMALL, *which.overrides, *TOY.get(which.name, ()), "reward.initial_comparisons=30")
        return run_trial(Job(settings, 5, place / which.name, heldout=8, references=place / "references"))

    made, plain_trial = of(arm), of(NO_CURE)
    assert made.delivered == made.delivered
    assert made.rollbacks == []
    assert made.labels.training == (46 if arm.name == "refreshed" else 30)
    if arm.name == "stop at KL":
        assert made.kl[-1] >= 0.001 > max(made.kl[:-1])
    assert (len(made.steps) < 6) is (arm.name == "stop at KL")
    if arm != NO_CURE:
        seen = [(t.proxy, t.kl, t.delivered) for t in (made, plain_trial)]
        assert seen[0] != seen[1]
