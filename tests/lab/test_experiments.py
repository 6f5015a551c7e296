"""What is made of trials: figures worked out by hand, tables and figures from the result alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import load_config
from holdfast.errors import HoldfastError
from holdfast.lab.experiment import Arm, Experiment, Plan, ResultCell, Results
from holdfast.lab.experiments import all_experiments, experiment_named
from holdfast.lab.experiments.detection import EXPERIMENT as DETECTION
from holdfast.lab.experiments.efficacy import EXPERIMENT as EFFICACY
from holdfast.lab.experiments.false_alarms import EXPERIMENT as FALSE_ALARMS
from holdfast.lab.experiments.false_alarms import kind_of
from holdfast.lab.experiments.gate import EXPERIMENT as GATE
from holdfast.lab.experiments.overhead import EXPERIMENT as OVERHEAD
from holdfast.lab.experiments.pitfalls import EXPERIMENT as PITFALLS
from holdfast.lab.experiments.sweep import KNOBS
from holdfast.lab.results import arm_document, figure_of, plain
from holdfast.lab.scenarios import FIRST, FLAW_SCENARIOS, HELD_BACK, NO_KL, TUNING, flaw_scenarios
from holdfast.lab.trial import Labels, Trial, by_round
from holdfast.worlds.flaws import FLAWS
from made_trials import results, trial

EXPERIMENTS = all_experiments()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan makes the directories of its trials, which are not to be where the tests are started."""
    monkeypatch.chdir(tmp_path)


def shown(experiment: Experiment, found: Results) -> dict[str, Any]:
    """The result as it is kept; whatever it is, it can be shown."""
    result: dict[str, Any] = plain(experiment.analyse(found))
    for table in experiment.tables(result):
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert all(isinstance(text, str) for row in table.rows for text in row)
    assert experiment.recommend(result).endswith(".")
    assert figure_of(experiment, result).startswith("<svg")
    return result


# --- all of them --------------------------------------------------------------------------------------------------


def test_all_are_there() -> None:
    wanted = {"efficacy", "cures", "tuning", "detection", "false_alarms", "gate", "pitfalls", "overhead"}
    assert wanted | {f"sweep-{knob}" for knob in KNOBS} == EXPERIMENTS.keys()
    with pytest.raises(HoldfastError, match="no experiment 'efficasy'; did you mean efficacy"):
        experiment_named("efficasy")
    with pytest.raises(HoldfastError, match="`holdfast lab list` names them all"):
        experiment_named("xyz")


def test_every_arm_of_every_scenario_is_a_config() -> None:
    for name, experiment in EXPERIMENTS.items():
        for scenario in experiment.scenarios:
            for arm in experiment.arms:
                load_config(None, [*experiment.settings, *arm.overrides, *scenario.overrides])
        titles = [s.title for s in experiment.scenarios]
        assert len(set(titles)) == len(titles), name
        assert len({arm.name for arm in experiment.arms}) == len(experiment.arms), name
        assert experiment.question.endswith("?"), name


@pytest.mark.parametrize("seeds", [0, 1, 2])
def test_whatever_has_ended_can_be_shown(seeds: int) -> None:
    for name, experiment in EXPERIMENTS.items():
        ended = {
            ResultCell(s.title, a.name, seed): trial([0.1, 0.5, 0.6, 0.2], seed=seed)
            for s in experiment.chosen()
            for a in experiment.arms
            for seed in range(1000, 1000 + seeds)
        }
        titles = [s.title for s in experiment.chosen()]
        result = shown(experiment, Results(titles, [a.name for a in experiment.arms], [1000, 1001], ended))
        assert json.dumps(result, allow_nan=False), name


KEPT = sorted((Path(__file__).parents[2] / "benchmarks" / "results").glob("lab-*.json"))


def test_results_that_were_kept_can_still_be_shown() -> None:
    assert KEPT
    for path in KEPT:
        document = json.loads(path.read_text(encoding="utf-8"))
        experiment = EXPERIMENTS[document["experiment"]]
        assert all(table.rows for table in experiment.tables(document["result"])), path.stem
        assert experiment.recommend(document["result"]), path.stem
        assert figure_of(experiment, document["result"]).startswith("<svg"), path.stem


# --- plans --------------------------------------------------------------------------------------------------------


def test_every_flaw_has_two_forms_and_one_default() -> None:
    assert [s.name for s in FLAW_SCENARIOS[::2]] == [*FIRST, *TUNING, *HELD_BACK]
    assert sorted([*FIRST, *TUNING, *HELD_BACK]) == sorted(FLAWS)
    assert [s.name for s in EFFICACY.chosen()] == list(FIRST)
    assert len(EFFICACY.chosen("both")) == 12
    assert {s.form for s in EFFICACY.chosen("planted")} == {"planted"}
    assert len(EFFICACY.chosen("emergent", ["verbosity", "keywords"])) == 2
    with pytest.raises(HoldfastError, match="efficacy has no scenario 'gambling'; it has verbosity, "):
        EFFICACY.chosen(only=["gambling"])


def test_further_flaws_are_there_for_those_who_name_them_or_their_half() -> None:
    held_back = EFFICACY.chosen(only=["held_back"])
    assert {s.name: s.form for s in held_back} == HELD_BACK
    assert {s.name: s.form for s in EFFICACY.chosen(only=["tuning"])} == TUNING
    assert len(EFFICACY.chosen("both", ["held_back"])) == 2 * len(HELD_BACK)
    assert [s.name for s in EFFICACY.chosen(only=["denial", "verbosity"])] == ["verbosity", "denial"]
    assert HELD_BACK.keys().isdisjoint(s.name for e in EXPERIMENTS.values() for s in e.chosen("both"))
    with pytest.raises(HoldfastError, match=r"has no scenario 'held'; .*, held_back"):
        EFFICACY.chosen(only=["held"])


def test_a_flaw_of_ones_own_is_a_scenario_like_any_other() -> None:
    emergent, planted = flaw_scenarios("Mine", "my dir/mine.py:Mine")
    config = load_config(None, planted.overrides)
    assert (config.flaw.name, config.flaw.where, config.flaw.onset) == ("my dir/mine.py:Mine", "reward", 2)
    assert load_config(None, emergent.overrides).flaw.where == "labels"
    assert emergent.default
    assert planted.default


def plan(experiment: Experiment = EFFICACY, settings: tuple[str, ...] = ()) -> Plan:
    return Plan(experiment, experiment.chosen(only=["verbosity"]), (1000, 1001), Path("lab"), settings)


def test_the_tuned_arm_gets_the_labels_that_the_guarded_one_spent() -> None:
    here = plan()
    assert {cell.arm for cell in here.cells()} == {"bare", "guarded", "guarded again"}
    tuned = here.cells(later=True)
    assert [cell.seed for cell in tuned] == [1000, 1001]
    spent = {ResultCell(tuned[0].scenario, "guarded", 1000): trial([0.0, 1.0], labels=Labels(2000, 345))}
    config = here.job(tuned[0], spent).config()
    assert config.reward.initial_comparisons == 2345
    assert config.guard.mode == "off"


def test_arms_take_turns() -> None:
    order = [cell.arm for cell in plan().cells()]
    assert order == ["bare", "guarded", "guarded again", "guarded again", "guarded", "bare"]


def test_equal_settings_share_a_directory_and_others_do_not() -> None:
    here = plan()
    guarded, again, bare = (
        here.job(ResultCell("verbosity, emergent", a, 1000)) for a in ("guarded", "guarded again", "bare")
    )
    assert len({guarded.path, again.path, bare.path}) == 3
    assert again.again
    # A default written out is the same run, whichever experiment asks for it.
    other = replace(EFFICACY, name="other", arms=(Arm("same thing", ("kl.beta=0.05",)),))
    same = Plan(other, here.scenarios, (1000,), here.runs).job(ResultCell("verbosity, emergent", "same thing", 1000))
    assert same.path == guarded.path
    assert plan(settings=("run.rounds=3",)).job(ResultCell("verbosity, emergent", "bare", 1000)).path != bare.path


def test_what_a_scenario_sets_holds_for_every_arm() -> None:
    experiment = replace(EFFICACY, scenarios=(NO_KL,), arms=(Arm("bare", ("kl.beta=1.0",)),))
    job = Plan(experiment, experiment.scenarios, (1,), Path("lab")).job(ResultCell(NO_KL.title, "bare", 1))
    assert (job.config().kl.controller, job.config().kl.beta) == ("fixed", 0.0)


def test_a_flaw_that_was_edited_is_another_trial(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("one")
    experiment = replace(EFFICACY, scenarios=tuple(flaw_scenarios("Mine", f"{file}:Mine")))
    here = Plan(experiment, experiment.chosen(), (1,), tmp_path)
    cell = ResultCell("Mine, planted", "bare", 1)
    first = here.job(cell).path
    assert here.job(cell).path == first
    file.write_text("two")
    assert here.job(cell).path != first


# --- what each of them finds --------------------------------------------------------------------------------------


def test_efficacy() -> None:
    found = results(
        {
            ("s", "bare", 0): trial([0.0, 0.5, 0.1], 0),
            ("s", "bare", 1): trial([0.0, 0.7, 0.2], 1),
            ("s", "guarded", 0): trial([0.0, 0.4, 0.5], 0, rollbacks=[{}]),
            ("s", "guarded", 1): trial([0.0, 0.8, 0.6], 1),
            ("s", "tuned", 0): trial([0.0, 0.3, 0.3], 0),
            ("s", "guarded again", 1): trial([0.0, 0.8, 0.65], 1),
        }
    )
    result = shown(EFFICACY, found)
    # Seed 0 ends at .5, the bare best; seed 1 at .6, below the bare best of .7 and .2 below its own peak of .8.
    assert [pair["reaches_best"] for pair in result["pairs"]] == [True, False]
    assert [pair["kept_peak"] for pair in result["pairs"]] == [True, False]
    assert result["reaches_best"]["mean"] == 0.5
    assert result["differences"]["bare"]["mean"] == pytest.approx((0.4 + 0.4) / 2)
    assert result["differences"]["tuned"]["mean"] == pytest.approx(0.2)
    assert result["differences"]["guarded again"]["mean"] == pytest.approx(-0.05)
    assert result["arms"]["s"]["guarded"]["rollbacks"] == 1
    assert result["arms"]["s"]["bare"]["curve"] == {"steps": [0, 2, 4], "gold": pytest.approx([0.0, 0.6, 0.15])}
    assert result["costs"]["bare"]["labels"] == 120
    assert "in 50% of 2 pairs" in EFFICACY.recommend(result)
    # Arms that are there and were measured, in their order.
    result["arms"]["s"]["tuned"]["curve"] = {"steps": [], "gold": []}
    (chart,) = EFFICACY.figure(result)
    assert [line.name for line in chart.series] == ["bare", "guarded"]
    assert chart.title == "s: +0.55 (bare +0.15)"


def test_detection() -> None:
    hacked = [0.0, 1.0, 0.8, 0.5, 0.3]  # falls in round 2
    found = results(
        {
            ("s", "watched", 0): trial(
                hacked, 0, verdicts={1: "healthy", 2: "watch", 3: "hacking"}, liked=[None, 0.6, 0.4, 0.4, 0.35]
            ),
            ("s", "watched", 1): trial(hacked, 1, verdicts={4: "watch"}, liked=[None, 0.6, 0.5, 0.5, 0.48]),
            ("s", "watched", 2): trial(hacked, 2, verdicts={1: "hacking"}),
            ("s", "watched", 3): trial([0.0, 0.5, 1.0, 1.0, 0.7], 3, verdicts={}),  # falls in the last round
            ("s", "watched", 4): trial([0.0, 0.5, 0.6, 0.7, 0.8], 4, verdicts={2: "hacking"}),  # healthy
            ("s", "watched", 5): trial([0.0, 0.5, 0.4, 0.7, 0.8], 5, verdicts={2: "hacking"}),  # in a dip
            ("s", "watched", 6): trial(
                [0.0, 0.5, 1.0, 1.0, 0.7], 6, verdicts={4: "hacking"}
            ),  # no better than 3 for it
        }
    )
    result = shown(DETECTION, found)
    assert [(run["onset"], run["called"], run["delay"]) for run in result["runs"]] == [
        (2, 3, 1), (2, None, None), (2, 1, -1), (4, None, None), (None, 2, None), (None, 2, None), (4, 4, 0),
    ]  # fmt: skip
    assert (result["hacked"], result["too_late_to_judge"], result["too_late_called"]) == (5, 2, 1)
    assert result["never_called"] == 1
    assert result["soon"]["mean"] == pytest.approx(2 / 3)
    assert result["median_delay"] == 0
    # Two rounds after the onset 65 of 100 mind the fall, which 100 pairs show; 52 of 100, which takes 5,625.
    assert [run["people"] for run in result["runs"]] == [0.35, 0.48, None, None, None, None, None]
    assert [run["pairs_needed"] for run in result["runs"][:2]] == pytest.approx([100, 5625])
    assert [run["hidden"] for run in result["runs"]] == [False, True, None, None, None, None, None]
    assert (result["late"], result["late_and_hidden"], result["late_and_unknown"]) == (1, 1, 0)
    assert (result["not_fallen"], result["not_fallen_called"], result["not_fallen_called_in_a_dip"]) == (2, 2, 1)
    (chart,) = DETECTION.figure(result)
    assert [line.name for line in chart.series] == ["s, 0"], "the first that had the time to be called"
    # Called in round 1, at its peak, and fallen from round 2 on.
    assert (result["before_the_onset"], result["before_the_onset_and_no_dip"]) == (1, 1)


def test_a_round_that_ended_early_is_a_round_of_its_own() -> None:
    """Of three steps one is in round 1, and the proxy of the two of round 2 is above it."""
    early = trial([0.0, 0.3, 0.5], steps=[1, 2, 3], rounds=[1, 2, 2], proxy=[0.3, 0.2, 0.6], kl=[0.1, 0.2, 0.4])
    assert by_round(early, early.proxy) == pytest.approx([0.3, 0.4])
    assert kind_of(early) == "healthy"
    assert kind_of(replace(early, proxy=[0.5, 0.2, 0.6])) == "flat"


def test_one_run_is_never_sure() -> None:
    """The interval of one value has no width, which is no certainty."""
    one = {("no flaw", arm, 0): trial([0.0, end], 0) for arm, end in (("default", 0.6), ("no KL", 0.1))}
    result = shown(PITFALLS, results(one))
    assert "no KL cannot be told apart" in PITFALLS.recommend(result)
    assert "(one run)" in str(PITFALLS.tables(result))
    one = {("s", arm, 0): trial([0.0, end], 0) for arm, end in (("bare", 0.1), ("guarded", 0.6), ("tuned", 0.2))}
    words = EFFICACY.recommend(shown(EFFICACY, results(one)))
    assert "It ends not clearly apart from tuned: +0.400 (one run)." in words
    timed = {("no flaw", arm, 0): trial([], 0, prepared_seconds=1.0) for arm in ("guarded", "unguarded")}
    assert "1.00 times as long (one run)" in OVERHEAD.recommend(shown(OVERHEAD, results(timed)))


def test_false_alarms() -> None:
    rising = [0.0, 0.3, 0.5]
    found = results(
        {
            ("no flaw", "default", 0): trial(rising, 0, verdicts={1: "healthy", 2: "watch"}),
            ("no flaw", "default", 1): trial(rising, 1, verdicts={1: "hacking"}, sentences={1: "why"}),
            ("no flaw", "default", 2): trial([0.0, 0.5, 0.2], 2, verdicts={2: "hacking"}),  # it was hacked
            ("no flaw", "default", 3): trial([0.0, 0.02, 0.05], 3),  # gold does not rise
            ("no flaw", "default", 4): trial(rising, 4, proxy=[0.4, 0.3, 0.2, 0.1]),  # the proxy falls
        }
    )
    result = shown(FALSE_ALARMS, found)
    assert [run["kind"] for run in result["runs"]] == ["healthy", "healthy", "fallen", "flat", "flat"]
    assert (result["healthy"]["mean"], result["healthy"]["count"]) == (0.5, 2)
    assert (result["fallen"]["mean"], result["fallen"]["count"]) == (1.0, 1)
    assert result["watch"] == pytest.approx(0.25)
    words = FALSE_ALARMS.recommend(result)
    assert "Of 2 healthy runs 50.0% were called hacking" in words
    assert "recovered" not in words


def test_a_run_that_dipped_is_no_healthy_one_and_is_told_apart() -> None:
    """Gold fell for a round or two: who called it then was right, and who did not had no time to be late."""
    found = results(
        {
            ("no flaw", "default", 0): trial([0.0, 0.3, 0.5, 0.6], 0),
            ("no flaw", "default", 1): trial([0.0, 0.5, 0.3, 0.6], 1, verdicts={2: "hacking"}, sentences={2: "w"}),
            ("no flaw", "default", 2): trial([0.0, 0.5, 0.3, 0.6], 2, verdicts={3: "hacking"}),
            ("no flaw", "default", 3): trial([0.0, 0.5, 0.3, 0.3, 0.6], 3),
            ("no flaw", "default", 4): trial([0.0, 0.5, 0.3, 0.3, 0.3, 0.6], 4),  # a fall that lasted is no dip
        }
    )
    result = shown(FALSE_ALARMS, found)
    assert [run["kind"] for run in result["runs"]] == ["healthy", "dipped", "dipped", "dipped", "fallen"]
    assert (result["healthy"]["mean"], result["healthy"]["count"]) == (0.0, 1)
    assert (result["dipped"]["mean"], result["dipped"]["count"]) == (pytest.approx(2 / 3), 3)
    assert result["dipped_called_in_the_dip"] == 1
    assert (result["not_fallen"]["mean"], result["not_fallen"]["count"]) == (0.5, 4)
    assert (result["fallen"]["mean"], result["fallen"]["count"]) == (0.0, 1)
    # In round 3 of the third run gold was back.
    assert result["called_while_up"] == 1
    assert "In 1 of all 5 runs the first call came in a round in which gold did not stand fallen." in (
        FALSE_ALARMS.recommend(result)
    )
    assert "with these counted as false alarms too it is 50.0% of 4" in FALSE_ALARMS.recommend(result)
    (chart,) = FALSE_ALARMS.figure(result)
    assert chart.title == "Called hacking: 0 of 1 healthy runs, 2 of 3 that dipped and recovered"
    assert list(chart.series[0].xs) == [-2, -1, 0, 1]


def judged(round: int, accepted: bool, before: float, after: float) -> dict[str, Any]:
    return {
        "round": round, "version": round, "accepted": accepted, "reason": "",
        "before": {"accuracy": before, "ece": 0.1}, "after": {"accuracy": after, "ece": 0.05},
        "harmful": after < before,
    }  # fmt: skip


def test_gate() -> None:
    found = results(
        {
            ("no flaw", "clean", 0): trial(
                [0.0, 0.5], judged=[judged(2, True, 0.6, 0.7), judged(5, True, 0.7, 0.69), judged(6, False, 0.7, 0.8)]
            ),
            # The refresh in round 2 came before the labeller went wrong: it is the clean arm's, over again.
            ("no flaw", "flipped-40", 0): trial(
                [0.0, 0.5],
                judged=[
                    judged(2, True, 0.6, 0.7), judged(4, True, 0.7, 0.6), judged(5, False, 0.7, 0.5),
                    judged(6, True, 0.6, 0.65),
                ],
            ),
        }
    )  # fmt: skip
    result = shown(GATE, found)
    assert (result["clean_accepted"]["mean"], result["clean_accepted"]["count"]) == (pytest.approx(2 / 3), 3)
    assert (result["harmful_accepted"]["mean"], result["harmful_accepted"]["count"]) == (0.5, 2)
    assert (result["harmful_runs"]["mean"], result["harmful_runs"]["count"]) == (1.0, 1)
    kind = result["kinds"]["flipped-40"]
    assert (kind["count"], kind["accepted"], kind["harmful"], kind["harmful_accepted"]) == (3, 2, 2, 1)
    assert kind["harmful_runs"] == 1
    assert "The harmful ones are of 1 run," in GATE.recommend(result)
    assert kind["accepted_rightness"]["accuracy_before"] == pytest.approx(0.65)
    assert kind["refused_rightness"]["accuracy_after"] == pytest.approx(0.5)


def test_pitfalls() -> None:
    found = results(
        {
            **{("no flaw", "default", i): trial([0.0, 0.6 + i / 10], i) for i in range(3)},
            **{("no flaw", "no KL", i): trial([0.0, 0.1 + i / 10], i) for i in range(3)},
            **{("no flaw", "no rollback", i): trial([0.0, 0.6 + i / 10], i) for i in range(3)},
            **{("no flaw", "audit ignored", i): trial([0.0, 0.4 + i / 10], i) for i in range(3)},
        }
    )
    result = shown(PITFALLS, found)
    arms = result["scenarios"]["no flaw"]
    assert arms["default"]["cost"] is None
    assert arms["no KL"]["cost"]["mean"] == pytest.approx(0.5)
    assert arms["no rollback"]["cost"]["mean"] == pytest.approx(0.0)
    # Of the 0.5 that no KL costs the missing guard alone costs 0.2.
    assert arms["audit ignored"]["cost"]["mean"] == pytest.approx(0.2)
    assert arms["no KL"]["alone"]["mean"] == pytest.approx(0.3)
    assert [arms[name]["alone"] for name in ("default", "audit ignored", "no rollback")] == [None, None, None]
    words = PITFALLS.recommend(result)
    assert "no KL, audit ignored lose" in words
    assert "no rollback cannot be told apart" in words


@pytest.mark.parametrize("settings", [(), ("run.rounds=6", "run.steps_per_round=10", "preferences.per_round=60")])
def test_a_refresh_too_often_is_of_as_many_steps_and_labels(settings: tuple[str, ...]) -> None:
    here = plan(PITFALLS, settings)
    configs = {a.name: here.job(ResultCell("verbosity, planted", a.name, 1000)).config() for a in PITFALLS.arms}
    often, usual = configs["updated too often"], configs["default"]
    assert often.run.steps_per_round == 2
    assert len({c.run.rounds * c.run.steps_per_round for c in configs.values()}) == 1
    assert len({(c.flaw.onset - 1) * c.run.steps_per_round for c in configs.values()}) == 1
    # The first round has the labels of the start, and collects none.
    fresh, fresh_usual = ((c.run.rounds - 1) * c.preferences.per_round for c in (often, usual))
    assert fresh_usual - often.run.rounds < fresh <= fresh_usual
    told = arm_document(here, PITFALLS.arm("updated too often"))
    assert f"flaw.onset={often.flaw.onset}" in told["all_settings"]["verbosity, planted"]


def test_a_sweep() -> None:
    experiment = EXPERIMENTS["sweep-beta"]
    found = results(
        {
            **{("no flaw", "0.0", i): trial([0.0, -0.5 + i / 10], i) for i in range(3)},
            **{("no flaw", "0.05", i): trial([0.0, 0.6 + i / 10], i) for i in range(3)},
            **{("no flaw", "0.1", i): trial([0.0, 0.6 + i / 10 - 0.1 * (i - 1)], i) for i in range(3)},
        }
    )
    result = shown(experiment, found)
    assert result["best"] == "0.05"
    assert result["chance_of_best"]["0.0"] == 0.0
    assert result["below"]["0.0"]["mean"] == pytest.approx(1.1)
    words = experiment.recommend(result)
    assert words.startswith("Take beta = 0.05: it is best in ")
    assert "0.1 cannot be told apart from it" in words


def test_a_sweep_tells_both_bad_ends_apart() -> None:
    experiment = EXPERIMENTS["sweep-beta"]
    curves = {"0.0": [0.0, 0.7, 0.2], "0.05": [0.0, 0.6, 0.8], "0.1": [0.0, 0.5, 0.6], "0.5": [0.0, 0.03, 0.01]}
    found = results(
        {("no flaw", arm, i): trial([g + i / 100 for g in gold], i) for arm, gold in curves.items() for i in range(3)}
    )
    result = shown(experiment, found)
    told = result["scenarios"]["no flaw"]
    # The last one ends below its peak as well, by no more than chance, and of no rise to speak of.
    assert {arm: of["fell"] for arm, of in told.items()} == {"0.0": 3, "0.05": 0, "0.1": 0, "0.5": 3}
    assert {arm: of["rise"] for arm, of in told.items()} == pytest.approx(
        {"0.0": 0.7, "0.05": 0.8, "0.1": 0.6, "0.5": 0.03}
    )
    words = experiment.recommend(result)
    assert "every other value is clearly below it" in words
    assert words.endswith("With no flaw gold rises and ends fallen at 0.0. With no flaw gold hardly rises at 0.5.")
    (chart,) = experiment.figure(result)
    assert list(chart.x_names) == list(curves)
    (line,) = chart.series
    assert (list(line.xs), list(line.ys)) == ([0, 1, 2, 3], pytest.approx([0.21, 0.81, 0.61, 0.02]))
    assert len(line.intervals) == 4


def test_a_value_that_is_hacked_with_a_flaw_alone_is_not_one_that_hardly_rises() -> None:
    experiment = EXPERIMENTS["sweep-beta"]
    curves = {
        ("no flaw", "0.05"): [0.0, 0.6, 0.7], ("planted", "0.05"): [0.0, 0.45, -0.7],
        ("no flaw", "0.2"): [0.0, 0.5, 0.6], ("planted", "0.2"): [0.0, 0.4, 0.5],
    }  # fmt: skip
    found = results(
        {(*cell, i): trial([g + i / 100 for g in gold], i) for cell, gold in curves.items() for i in (0, 1)}
    )
    words = experiment.recommend(shown(experiment, found))
    assert "With planted gold rises and ends fallen at 0.05." in words
    assert "hardly" not in words


def test_a_sweep_of_what_nobody_chooses_says_what_it_costs() -> None:
    experiment = EXPERIMENTS["sweep-noise"]
    ends = {"0.0": 0.7, "0.1": 0.75, "0.3": 0.4}  # by chance not the best without any
    found = results({("no flaw", arm, i): trial([0.0, end + i / 100], i) for arm, end in ends.items() for i in (0, 1)})
    result = shown(experiment, found)
    assert (result["best"], result["against"]) == ("0.1", "0.0")
    assert [table.columns[2] for table in experiment.tables(result)] == ["below 0.0"]
    words = experiment.recommend(result)
    assert words == (
        "Against noise = 0.0, 0.1 costs -0.05 of gold [-0.05, -0.05], which is not clear; "
        "0.3 costs 0.30 of gold [0.30, 0.30]."
    )
    assert experiment.question.startswith("What does noise cost")


def test_one_run_of_each_value_is_never_sure() -> None:
    experiment = EXPERIMENTS["sweep-beta"]
    found = results({("no flaw", arm, 0): trial([0.0, end]) for arm, end in (("0.1", 0.5), ("0.2", 0.499))})
    words = experiment.recommend(shown(experiment, found))
    assert words == "In the one run of each value beta = 0.1 was best; how sure that is takes more seeds."


def test_overhead() -> None:
    def of(seed: int, prepared: float = 10.0, **more: Any) -> Trial:
        return trial([], seed, **{"steps": [1, 2], "cpu_seconds": 10.0, "prepared_seconds": prepared, **more})

    found = results(
        {
            ("no flaw", "guarded", 0): of(0, seconds=12.0),
            ("no flaw", "guarded", 1): of(1, seconds=16.0, cpu_seconds=12.0),
            ("no flaw", "guarded", 2): of(2, seconds=None),  # cut and resumed
            ("no flaw", "guarded", 3): of(3, seconds=9.0, steps=[1]),  # stopped early
            **{("no flaw", "unguarded", i): of(i, seconds=10.0) for i in range(4)},
            ("no flaw", "bare", 1): of(1, prepared=3.0, seconds=10.0, cpu_seconds=4.0, prepared_cpu_seconds=2.0),
        }
    )
    result = shown(OVERHEAD, found)
    # (10 + 16) / (3 + 10), and 12 / (4 + 2), since nobody knows what was prepared for the guarded one.
    assert [row["bare_ratio"] for row in result["bare_rows"]] == [2.0]
    assert result["bare_cpu_ratio"]["mean"] == 2.0
    assert [row["ratio"] for row in result["rows"]] == pytest.approx([1.1, 1.3])
    assert [row["rounds_ratio"] for row in result["rows"]] == pytest.approx([1.2, 1.6])
    assert result["ratio"]["mean"] == pytest.approx(1.2)
    assert result["rounds_cpu_ratio"]["mean"] == pytest.approx(1.1)
    assert OVERHEAD.workers == 1


@pytest.mark.parametrize("level", ["hacking", "worse"])
def test_every_alarm_that_acts_is_a_call(level: str) -> None:
    made = trial([0.0, 0.5, 0.4], verdicts={1: "watch", 2: level, 3: "hacking"})
    assert made.first_alarm == 2
    assert trial([0.0, 0.5], verdicts={1: "unaudited", 2: "unreliable"}).first_alarm is None
