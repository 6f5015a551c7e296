"""An experiment carried out: what fails is left out, what waits for another comes after it, and all is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.lab import results as module
from holdfast.lab.experiment import Arm, Plan
from holdfast.lab.experiments import experiment_named
from holdfast.lab.results import QUICK, carry_out, check_plan, command_of, document_of, keep, keep_figure, kept
from holdfast.lab.runner import TrialOutcome
from holdfast.lab.trial import Job, Labels
from made_trials import trial

EFFICACY = experiment_named("efficacy")


@pytest.fixture
def waves(monkeypatch: pytest.MonkeyPatch) -> list[list[Job]]:
    """What is run, wave by wave; seed 1001 of the guarded arm fails."""
    asked: list[list[Job]] = []

    def attempt(jobs: Sequence[Job], workers: int, say: Callable[[str], None], desk: object) -> list[TrialOutcome]:
        asked.append(list(jobs))
        return [outcome_of(job) for job in jobs]

    monkeypatch.setattr(module, "attempt_trials", attempt)
    return asked


def outcome_of(job: Job) -> TrialOutcome:
    if "| guarded | seed 1001" in job.name:
        return TrialOutcome(job, None, "The disk is full.")
    return TrialOutcome(job, trial([0.1, 0.5, 0.4], seed=job.seed, labels=Labels(2000, 300)))


def plan(runs: Path) -> Plan:
    return Plan(EFFICACY, EFFICACY.chosen(only=["keywords"]), (1000, 1001), runs, QUICK)


def test_arms_that_wait_come_second_and_failures_are_left_out(waves: list[list[Job]], tmp_path: Path) -> None:
    found = carry_out(plan(tmp_path), 2, print)
    assert [len(jobs) for jobs in waves] == [6, 1]
    assert [job.config().reward.initial_comparisons for job in waves[1]] == [2300]
    assert found.failures == ["keywords, emergent | guarded | seed 1001: The disk is full."]
    assert [t.seed for t in found.of("keywords, emergent", "tuned")] == [1000]
    assert len(found.paired("keywords, emergent", "bare", "guarded")) == 1


def test_what_is_kept_can_be_shown_again(waves: list[list[Job]], tmp_path: Path) -> None:
    here = plan(tmp_path)
    document = document_of(here, carry_out(here, 2, print), "holdfast lab run efficacy")
    path = keep(document, "efficacy", tmp_path)
    again = kept("efficacy", tmp_path)
    assert again == json.loads(path.read_text())
    assert EFFICACY.tables(again["result"]) == EFFICACY.tables(document["result"])
    assert again["made_by"]["command"] == "holdfast lab run efficacy"
    assert again["failures"] == ["keywords, emergent | guarded | seed 1001: The disk is full."]
    assert {row["arm"] for row in again["trials"]} == {"bare", "guarded", "guarded again", "tuned"}
    assert keep_figure(EFFICACY, again["result"], "efficacy", tmp_path).read_text().startswith("<svg")
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["lab-efficacy.json", "lab-efficacy.svg"]


def test_two_arms_of_equal_settings_are_one_trial(waves: list[list[Job]], tmp_path: Path) -> None:
    same = replace(EFFICACY, arms=(Arm("one"), Arm("other", ("kl.beta=0.05",))))
    found = carry_out(Plan(same, same.chosen(only=["keywords"]), (1000,), tmp_path), 2, print)
    assert len(waves[0]) == 1
    assert len(found.trials) == 2


@pytest.mark.parametrize(
    ("content", "sentence"), [(None, "There is no result"), ("{", "cannot be read"), ("[]", "is not a result")]
)
def test_a_result_that_is_not_one(content: str | None, sentence: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "lab-efficacy.json").write_text(content)
    with pytest.raises(HoldfastError, match=sentence):
        kept("efficacy", tmp_path)


def test_a_result_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    for name in ("efficacy-from-1110", "efficacy-quick", "gate"):
        (tmp_path / f"lab-{name}.json").write_text("{}")
    with pytest.raises(HoldfastError, match=r"there is efficacy-from-1110, efficacy-quick, or name"):
        kept("efficacy", tmp_path)


def test_a_slip_is_found_before_anything_runs(tmp_path: Path) -> None:
    chosen = EFFICACY.chosen(only=["rare_tokens"])
    for settings, sentence in (
        (("kl.betta=1",), "did you mean beta"),
        (("world.name=casino",), "one of concierge, everyday, stories, boat_race, layout, forecast, files"),
        (("world.labeller=gone.py:Judge",), "does not exist"),
        (("world.labeller=people",), "would wait for people"),
        (("preferences.url=sqlite:///all.db",), "keeps its labels apart"),
    ):
        with pytest.raises(HoldfastError, match=sentence):
            check_plan(Plan(EFFICACY, chosen, (1000,), tmp_path, settings))


def test_the_command_is_kept_without_directories() -> None:
    words = ["lab", "run", "gate", "--runs", "/somewhere", "--seeds", "3", "--out", "x", "--json"]
    assert command_of(words) == "holdfast lab run gate --seeds 3"
