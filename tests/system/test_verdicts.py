"""Every verdict is reached in a whole run by what causes it, stands everywhere by its name, and has its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nostalgic
import opinionated
import small_run
import taciturn
from holdfast.checkpoint.store import CheckpointStore
from holdfast.checkpoint.transaction import differences
from holdfast.cli.main import main
from holdfast.events.levels import LEVELS
from holdfast.guard.ladder import BUDGET_FACTOR
from holdfast.preferences.store import PreferenceStore
from holdfast.report.data import read_run
from holdfast.report.delivered import delivered
from holdfast.report.rounds import ending, summary
from holdfast.reward.ensemble import Ensemble, Judgement
from holdfast.rollout.sampler import Rollout
from holdfast.run.answers import Answers
from small_run import TAKEN_BACK, events_of, rows_of

FOND = {"world__labeller": opinionated.FOND, "gate__repeats": "0", "reward__unfinished_penalty": "0.0"}
# From round 2 on the policy of before is preferred. The run may go back twice, and nothing but the guard changes a
# target or the ensemble.
DISLIKED = {
    "world__labeller": nostalgic.SPEC,
    "run__rounds": "4",
    "guard__rollbacks": "2",
    "audit__pairs": "8",
    "audit__more_pairs": "16",
    "refresh__every_rounds": "0",
    "refresh__on_miscalibration": "false",
    "kl__budget_per_1000_labels": "0.0",
    "checkpoint__keep": "9",
    "reward__unfinished_penalty": "0.0",
}
ALWAYS = {
    "no audit": {"audit__budget": "0"},
    "a labeller that returns nothing": {"world__labeller": taciturn.SILENT, "gate__repeats": "0"},
    "learnt nothing": {"ppo__lr": "1e-9", "reward__unfinished_penalty": "0.0"},
    "always A": {"world__labeller": opinionated.FIRST, "gate__repeats": "0"},
    "always A, in both orders": {"world__labeller": opinionated.TIES, "gate__repeats": "0"},
    "no answer ends": {**FOND, "reward__unfinished_penalty": "1.0"},
    "liked": FOND,
}
ENDS = {
    "no audit": ("unaudited", "no audit labels (none are left in the budget)"),
    "a labeller that returns nothing": ("unaudited", "no audit labels (none were given)"),
    "learnt nothing": ("unmoved", "the policy did not move"),
    "always A": ("unreliable", "first chose the first answer in "),
    "always A, in both orders": ("unreliable", "ties answered 30 of 30 pairs with a tie"),
    "no answer ends": ("watch", "no answer ends within rollout.max_new_tokens: raise it"),
    "liked": ("healthy", "no signal is unusual"),
}


def last_verdict(run: Path) -> dict[str, Any]:
    return events_of(run, "verdict")[-1]


@pytest.mark.parametrize("why", ALWAYS)
def test_a_run_ends_by_the_name_of_what_is_known_of_it(
    why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "no answer ends":
        sample = Answers.sample

        def cut_off(answers: Answers, *rest: Any, **more: Any) -> Rollout:
            rollout = sample(answers, *rest, **more)
            return replace(rollout, finished=[False] * len(rollout.finished))

        monkeypatch.setattr(Answers, "sample", cut_off)
    run = small_run.run(tmp_path, **ALWAYS[why])
    level, words = ENDS[why]
    verdict = last_verdict(run)
    assert (verdict["level"], words in verdict["sentence"]) == (level, True), verdict["sentence"]
    heard = " ".join(capfd.readouterr().out.split())
    assert f" verdict {level}; no rollback" in heard
    assert all(f" advice {advice}" in heard for advice in verdict["evidence"]["advice"])
    data = read_run(run)
    guard, policy, end = summary(data), delivered(data), ending(data, "finished")
    assert guard is not None
    assert end is not None
    assert (guard.verdict, policy.verdict, end.level) == (level, level, level)
    assert end.headline.startswith(f"{level.capitalize()} at the end")
    assert f'<span class="level {level}">{level}</span>' in (run / "report.html").read_text(encoding="utf-8")
    assert main(["export", str(run), str(tmp_path / "policy")]) == 0
    card = (tmp_path / "policy" / "README.md").read_text(encoding="utf-8")
    assert f"The guard's verdict on this policy, in round 3: {level}." in card
    assert events_of(run, "rollback") == []


def test_a_round_whose_steps_were_all_dropped_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge, seen = Ensemble.judge, 0

    def broken_at_the_end(ensemble: Ensemble, *rest: Any) -> Judgement:
        nonlocal seen
        seen += len(rest[0]) == 8  # a step's batch; the baselines' come first
        judgement = judge(ensemble, *rest)
        baselines, steps = int(small_run.SETTINGS["guard.baseline_batches"]), 2 * small_run.STEPS
        return (
            judgement._replace(scores_KB=judgement.scores_KB * float("nan")) if seen > baselines + steps else judgement
        )

    monkeypatch.setattr(Ensemble, "judge", broken_at_the_end)
    run = small_run.run(tmp_path, **FOND)
    assert [event["round"] for event in events_of(run, "step_skipped")] == [3, 3]
    verdict = last_verdict(run)
    assert (verdict["round"], verdict["level"]) == (3, "unaudited")
    assert verdict["sentence"].startswith("every step of the round was dropped: see step_skipped among the events")


# ---- alarms


def disliked(runs: Path, claim: float, **changes: str) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        small_run.claiming(patch, claim)
        assert main(small_run.run_arguments(runs, **{**DISLIKED, **changes})) == 3
    return runs / small_run.NAME


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return disliked(tmp_path_factory.mktemp("worse"), 0.44)


@pytest.fixture(scope="module")
def hacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return disliked(tmp_path_factory.mktemp("hacked"), 0.7)


def deeds(run: Path) -> list[tuple[int, str]]:
    kinds = ("action", "rollback", "stopped")
    return [(e["round"], e.get("rung", e["event"])) for e in events_of(run) if e["event"] in kinds]


def levels(run: Path) -> list[str]:
    return [event["level"] for event in events_of(run, "verdict")]


def asked_as_hacked(run: Path) -> int:
    with PreferenceStore.open(f"sqlite:///{run / 'run.db'}") as store:
        return sum(item.comparison.purpose == "adversarial" for item in store.labelled())


def actions(run: Path, rung: str) -> Iterator[dict[str, Any]]:
    return (event for event in events_of(run, "action") if event["rung"] == rung)


def test_a_policy_that_is_liked_less_is_hacking_where_the_reward_claims_more(hacked: Path) -> None:
    assert levels(hacked)[1:] == ["hacking"] * 3
    assert "while the ensemble claimed 70% for the policy" in last_verdict(hacked)["sentence"]
    assert asked_as_hacked(hacked) > 0


def test_it_is_worse_where_the_reward_agrees(worse: Path) -> None:
    assert levels(worse)[1:] == ["worse"] * 3
    assert "the ensemble agrees that it has become worse (it claims 44% of " in last_verdict(worse)["sentence"]


def test_a_worse_policy_goes_back_with_a_lower_rate_and_its_answers_are_not_called_hacked(worse: Path) -> None:
    assert deeds(worse) == [
        *((2, rung) for rung in ("rollback", "slow_down")),
        *((3, rung) for rung in ("rollback", "slow_down")),
        *((4, rung) for rung in ("rollback", "slow_down", "stopped")),
    ]
    assert asked_as_hacked(worse) == 0
    assert events_of(worse, "stopped")[-1]["reason"].startswith("2 rollbacks have not cured it: ")


def test_its_rate_is_halved_and_halved_again_and_its_target_stays(worse: Path) -> None:
    first, second, _ = actions(worse, "slow_down")
    assert first["after"]["lr"] == pytest.approx(first["before"]["lr"] / 2)
    assert second["after"]["lr"] == pytest.approx(second["before"]["lr"] / 4)
    rows = {row["step"]: row for row in rows_of(worse / "metrics.jsonl") if "control/kl_target" in row}
    assert len({row["control/kl_target"] for row in rows.values()}) == 1


def test_after_worse_the_run_stands_on_the_policy_that_was_liked(worse: Path) -> None:
    store = CheckpointStore(worse / "checkpoints")
    assert differences(store.load("round-0001"), store.load("round-0002"), TAKEN_BACK - {"learning_rate"}) == []


@pytest.mark.parametrize("claim", [0.44, 0.7])
def test_the_target_is_never_below_the_kl_of_the_policy_that_is_gone_back_to(claim: float, tmp_path: Path) -> None:
    """The target of 0.45 would be lowered to 0.315, and the KL of round 1's policy is about 0.37."""
    budget = {"kl__budget_start": "0.45", "kl__budget_ceiling": "0.45", "guard__rollbacks": "1"}
    run = disliked(tmp_path, claim, **budget, ppo__lr="0.01", run__steps_per_round="4")
    good = next(event["kl"] for event in events_of(run, "round_finished") if event["round"] == 1)
    assert BUDGET_FACTOR * 0.45 < good < 0.45, "the floor lies between the target and what it would be lowered to"
    held = [action["after"]["kl_target"] for action in actions(run, "tighten")]
    assert held == [pytest.approx(good, rel=1e-9)] * len(held)
    assert bool(held) == (claim == 0.7)


def test_a_level_of_the_registry_is_reached_by_each_of_these() -> None:
    assert {level for level, _ in ENDS.values()} | {"hacking", "worse"} == LEVELS.keys()


def test_a_small_budget_audits_every_round(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, **{**FOND, "audit__budget": "30", "run__rounds": "3"})
    audits = events_of(run, "audit")
    assert all(audit["labels"] >= 5 for audit in audits)
    assert sum(audit["labels"] for audit in audits) <= 30
    assert delivered(read_run(run)).audited_in == 3
