"""How many comparisons a run asks for: what was forecast, and no more than its budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import nostalgic
import people_at_work
import small_run
from holdfast.cli.main import main
from holdfast.config import load_config
from holdfast.errors import Interrupted
from holdfast.guard.plan import KINDS
from holdfast.people.queue import LabelQueue
from holdfast.preferences.collector import Collector
from holdfast.preferences.comparison import Comparison
from holdfast.preferences.store import PreferenceStore
from holdfast.run.demand import RoundsDone, done_of, label_budget, label_demand
from holdfast.run.directory import RunDirectory


def asked(run: Path) -> Counter[str]:
    """What a run has asked for, by purpose."""
    with PreferenceStore.open(f"sqlite:///{run / 'run.db'}") as store:
        return Counter(item.comparison.purpose for item in store.each_labelled())


def demand_of(**changes: str) -> Any:
    return label_demand(load_config(None, small_run.settings(**changes)[1::2]))


@pytest.mark.parametrize(
    "changes",
    [
        {"audit__more_pairs": "4", "gate__repeats": "3"},
        {"world__labeller": nostalgic.SPEC, "audit__pairs": "12"},
        {"guard__mode": "advise", "run__rounds": "2", "audit__budget": "40"},
        {"guard__mode": "off", "gate__use": "false"},
        {"preferences__per_round": "0", "audit__pairs": "0", "run__rounds": "2"},
    ],
)
def test_a_run_asks_for_as_many_as_were_forecast(tmp_path: Path, changes: dict[str, str]) -> None:
    demand, found = demand_of(**changes), asked(small_run.run(tmp_path, **changes))
    assert demand.total.least <= found.total() <= demand.total.most
    rounds = int(changes.get("run__rounds", small_run.ROUNDS))
    assert found["first"] == demand.first.most
    assert (rounds - 1) * demand.round.least <= found["training"] <= (rounds - 1) * demand.round.most
    assert found["repeat"] <= demand.first_again.most + (rounds - 1) * demand.again.most
    audits = (
        (rounds - 1) * demand.audit.least + demand.last_audit.least,
        ((rounds - 1) * demand.audit.most + demand.last_audit.most),
    )
    budget = int(changes.get("audit__budget", 10**6))
    assert min(audits[0], budget) <= found["audit"] <= min(audits[1], budget)
    assert found["adversarial"] <= demand.remedies.most


def test_the_forecast_is_said_before_anything_is_asked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    small_run.run(tmp_path, run__rounds="1", gate__repeats="5", labels__budget="500")
    said = capfd.readouterr().err
    forecast = said[said.index("Comparisons that this run will ask for") : said.index("imitating")]
    assert all(len(line) <= 80 for line in forecast.splitlines()[1:]), forecast
    assert "labels.budget = 500" in forecast
    # 24 first ones and up to 5 of them again; the only audit asks 12, 12 further ones and at least 12 for the choice.
    numbers = {line[38:].strip() for line in forecast.splitlines()[1:]}
    assert {"24", "up to 5", "36 to 126"} <= numbers


def test_a_resumed_run_forecasts_what_is_left(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = small_run.run(tmp_path, run__rounds="1", labels__budget="500", gate__repeats="0")
    spent = asked(run).total()
    capfd.readouterr()
    assert main(["resume", str(run)]) == 0
    said = capfd.readouterr().err
    assert "Comparisons that this run" not in said, "it has finished"
    assert "(0 steps)" not in said
    directory = RunDirectory.open(run)
    assert label_demand(directory.config(), done=done_of(directory)) is None, "nor does the dashboard"
    assert main(["resume", str(run), "--rounds", "3"]) == 0
    said = capfd.readouterr().err
    forecast = said[said.index("Comparisons that this run will still ask for") : said.index("optimising")]
    assert f"labels.budget = 500 in all, of which {spent} are asked" in forecast
    names = [line[:38].strip() for line in forecast.splitlines()[1:] if line.startswith("  ")]
    assert names == [
        "each of 2 rounds",
        "the audit before the last",
        "the last audit",
        "hacked answers, after rollbacks",
        "in all",
    ]
    whole = demand_of(run__rounds="3", labels__budget="500", gate__repeats="0")
    left = label_demand(load_config(None, small_run.settings(gate__repeats="0")[1::2]), done=RoundsDone(True, 1))
    assert left is not None
    assert left.total.least < whole.total.least
    found = asked(run).total() - spent
    assert left.total.least <= found <= left.total.most


@pytest.mark.parametrize("budget", [40, 70])
def test_a_budget_is_one_cap_over_everything(tmp_path: Path, budget: int, capfd: pytest.CaptureFixture[str]) -> None:
    run = small_run.run(tmp_path, labels__budget=str(budget))
    assert asked(run).total() <= budget
    audits = small_run.events_of(run, "audit")
    assert len(audits) == small_run.ROUNDS
    assert all(audit["labels"] >= budget // 2 // small_run.ROUNDS for audit in audits), "later audits have their share"
    cuts = small_run.events_of(run, "labels_cut")
    assert cuts
    assert all(cut["comparisons"] < cut["wanted"] and cut["budget"] == budget for cut in cuts)
    assert small_run.events_of(run, "run_finished")
    assert f"labels.budget = {budget}" in capfd.readouterr().err
    assert f"labels.budget = {budget}" in (run / "report.html").read_text()


@pytest.mark.parametrize("budget", [10, 40, 64])
def test_no_row_of_the_forecast_is_above_the_budget(
    tmp_path: Path, budget: int, capfd: pytest.CaptureFixture[str]
) -> None:
    demand = demand_of(labels__budget=str(budget))
    found = asked(small_run.run(tmp_path, labels__budget=str(budget), reward__holdout="0.0"))
    rows = (demand.first, demand.first_again, demand.round, demand.again, demand.audit, demand.last_audit)
    assert max(bounds.most for bounds in (*rows, demand.remedies)) <= budget
    assert found["first"] == demand.first.most
    assert demand.round.most + demand.first.most <= budget
    assert found["training"] >= (small_run.ROUNDS - 1) * demand.round.least
    # The first 24 and 12 of an audit.
    assert ("is below what the first comparisons and one audit ask for" in capfd.readouterr().err) == (budget < 36)


def test_every_round_that_a_budget_cuts_short_is_told(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, labels__budget="40", gate__repeats="0")
    cuts = {event["reason"]: event["comparisons"] for event in small_run.events_of(run, "labels_cut")}
    found = asked(run)
    per_round = int(small_run.SETTINGS["preferences.per_round"])
    assert found["training"] < per_round * (small_run.ROUNDS - 1)
    assert [cuts.get(f"round {round}", per_round) for round in (2, 3)] == [found["training"], 0]


def test_audits_of_a_budget_that_is_used_up_say_that_they_have_no_new_evidence(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, labels__budget="8", reward__holdout="0.0")
    assert asked(run).total() <= 8
    last = small_run.events_of(run, "audit")[-1]
    assert last["labels_left"] == 0
    sentences = [event["sentence"] for event in small_run.events_of(run, "verdict")]
    empty = [n for n, event in enumerate(small_run.events_of(run, "audit")) if not event["labels"]]
    assert all("none are left in the budget" in sentences[n] for n in empty)


def test_a_run_with_a_budget_that_is_cut_and_resumed_asks_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut after each request but the first two: what was asked already is neither paid for nor asked again."""
    whole = small_run.run(tmp_path / "whole", labels__budget="64")
    ask, calls = Collector.ask, []

    def cut(self: Collector, wanted: Sequence[Comparison], *given: Any) -> int:
        answered = ask(self, wanted, *given)
        calls.append(answered)
        if 2 < len(calls) < 8:
            raise Interrupted
        return answered

    monkeypatch.setattr(Collector, "ask", cut)
    main(small_run.run_arguments(tmp_path / "cut", labels__budget="64"))
    while len(calls) < 8:
        main(["resume", str(tmp_path / "cut" / small_run.NAME)])
    run = tmp_path / "cut" / small_run.NAME
    monkeypatch.setattr(Collector, "ask", ask)
    assert main(["resume", str(run)]) == 0
    assert small_run.differences(small_run.result_of(whole), small_run.result_of(run)) == []


def test_people_are_told_why_and_a_second_opinion_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is answered by two people, so 60 answers are 30 comparisons."""
    url, reasons = f"sqlite:///{tmp_path / 'labels.db'}", []
    put = LabelQueue.put

    def noted(self: LabelQueue, *given: Any) -> float:
        began = put(self, *given)
        reasons.extend(batch.reason for batch in self.waiting())
        return began

    monkeypatch.setattr(LabelQueue, "put", noted)
    brief = {"reward__initial_comparisons": "8", "preferences__per_round": "3", "run__rounds": "2"}
    people = {**people_at_work.SETTINGS, "people__overlap": "1.0", "preferences__url": url}
    pairs = {"audit__pairs": "2", "audit__more_pairs": "2", "labels__budget": "60"}
    with people_at_work.answering(url, small_run.NAME, "anna", "ben"):
        run = small_run.run(tmp_path / "runs", **brief, **people, **pairs)
    with PreferenceStore.open(url) as store:
        questions = store.asked_by(small_run.NAME)
    assert len(questions) <= 30
    assert reasons[0] == "the first comparisons"
    assert "audit of round 1" in reasons
    assert any(why.startswith("round 2: comparisons; ") and "(gate.repeats)" in why for why in reasons)
    assert any(why.startswith("audit of round 2: further audit pairs: ") for why in reasons)
    told = small_run.events_of(run, "waiting")
    assert [event["reason"] for event in told] == reasons


def test_the_first_pairs_of_later_audits_are_kept() -> None:
    config = load_config(None, small_run.settings(labels__budget="1000")[1::2])
    first = KINDS * config.audit.pairs
    budget = label_budget(config)
    assert [budget.kept(round) for round in (0, 1, 2, 3, 4)] == [3 * first, 3 * first, 2 * first, first, 0]
