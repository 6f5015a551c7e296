"""A rollback is a transaction: everything that has to come back does, bit for bit, and nothing that has to stay goes.

The labeller in these runs prefers whatever is not the newest policy, so that every audit goes against the policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import Claims, Point, resume, run_until

import nostalgic
import small_run
from holdfast.checkpoint import transaction
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli.main import main
from holdfast.events.levels import ALARMS
from holdfast.preferences.comparison import LabelledComparison
from holdfast.preferences.store import PreferenceStore
from holdfast.run.rollback import RunState
from small_run import differences, events_of, result_of, rows_of

GUARD = {
    "guard__mode": "act",
    "guard__baseline_batches": "4",
    "guard__rollbacks": "3",
    "audit__pairs": "12",
    "audit__more_pairs": "24",
    "audit__budget": "500",
    "run__rounds": "4",
}
LAST = "round-0004"
HACKED = Claims(0.7)  # nobody likes the policy, so it is hacked, and not just worse


@pytest.fixture(scope="module")
def changes() -> Iterator[dict[str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        small_run.claiming(patch, HACKED.claim)
        yield {**GUARD, "world__labeller": nostalgic.SPEC}


@pytest.fixture(scope="module")
def rolled_back(changes: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run.run(tmp_path_factory.mktemp("rolled-back"), **changes)


def test_the_audit_finds_it_and_the_run_goes_back(rolled_back: Path) -> None:
    verdicts = [event["level"] for event in events_of(rolled_back, "verdict")]
    assert verdicts[0] != "hacking"
    assert "hacking" in verdicts[1:]
    rollback = events_of(rolled_back, "rollback")[0]
    assert rollback["to"] == "round-0001"
    assert rollback["step_to"] == small_run.STEPS
    assert rollback["kl_undone"] > 0.0
    assert "the labeller preferred" in rollback["reason"]


def test_the_state_is_bit_for_bit_that_of_the_good_checkpoint_but_for_what_was_changed(rolled_back: Path) -> None:
    store = CheckpointStore(rolled_back / "checkpoints")
    rollback = events_of(rolled_back, "rollback")[-1]
    good, after = store.load(rollback["to"]), store.load(f"round-{rollback['round']:04d}")
    # The remedy is all that differs: the controller was tightened after the return.
    different = {name.split("/")[0] for name in transaction.differences(good, after, small_run.TAKEN_BACK)}
    assert different == {"controller"}


def test_something_changes_and_is_read_back(rolled_back: Path) -> None:
    actions = events_of(rolled_back, "action")
    by_rung = {action["rung"]: action for action in reversed(actions)}  # the first of each
    assert by_rung["tighten"]["after"]["beta"] == pytest.approx(1.5 * by_rung["tighten"]["before"]["beta"])
    assert all(action["changed"] for action in actions if action["rung"] in ("tighten", "refresh", "adversarial"))
    rounds = {event["round"] for event in events_of(rolled_back, "rollback")}
    refreshed = [e for e in events_of(rolled_back) if e["event"] in ("refresh", "gate") and e["round"] - 1 in rounds]
    assert refreshed
    rows = rows_of(rolled_back / "metrics.jsonl")
    first = next(row for row in rows if row["round"] == min(rounds) + 1)
    assert first["control/beta"] == by_rung["tighten"]["after"]["beta"]


def test_nothing_is_asked_twice_after_a_rollback(rolled_back: Path) -> None:
    """The policy is the one of before, so draws of before would give its answers once more, under other ids."""
    rounds = {event["round"] + 1 for event in events_of(rolled_back, "rollback")} & {2, 3, 4}
    assert rounds
    with PreferenceStore.open(f"sqlite:///{rolled_back / 'run.db'}") as store:
        everything = [item.comparison for item in store.labelled()]
    asked = [c for c in everything if c.purpose in ("first", "training")]
    assert rounds & {comparison.round for comparison in asked}
    contents = [(c.prompt, c.a.token_ids, c.b.token_ids) for c in asked]
    assert len(set(contents)) == len(contents)


def test_one_member_alone_is_asked_for_more_labels_and_the_run_goes_on(changes: dict[str, str], tmp_path: Path) -> None:
    run = small_run.run(tmp_path, **changes, reward__members="1")
    more = [a for a in events_of(run, "action") if a["rung"] == "label_more"]
    assert more
    assert all(action["words"] == "more labels in the next round" for action in more)
    collected = {e["round"]: e["comparisons"] for e in events_of(run, "labels_collected")}
    assert collected[more[0]["round"] + 1] == 2 * collected[2]


def test_a_refresh_that_the_guard_orders_waits_for_the_end_of_a_freeze(changes: dict[str, str], tmp_path: Path) -> None:
    """Nothing else asks for one: the order of round 2 is carried out in round 4."""
    frozen = {"refresh__every_rounds": "0", "refresh__on_miscalibration": "false", "refresh__freeze": "[[2, 3]]"}
    run = small_run.run(tmp_path, **changes, **frozen)
    assert 2 in [a["round"] for a in events_of(run, "action") if a["rung"] == "refresh"]
    tried = [e for e in events_of(run) if e["event"] in ("refresh", "refresh_skipped")]
    assert [e["round"] for e in tried] == [4]
    assert tried[0]["reason"].startswith("the guard asked for it")


def test_no_label_is_lost(changes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was labelled before a rollback is there at the end, answer by answer, and so is what was labelled for it."""
    before: dict[str, LabelledComparison] = {}
    roll_back = RunState.roll_back

    def watched(state: RunState, name: str) -> float:
        with PreferenceStore.open(f"sqlite:///{tmp_path / small_run.NAME / 'run.db'}") as store:
            before.update({item.comparison.id: item for item in store.labelled()})
        return roll_back(state, name)

    monkeypatch.setattr(RunState, "roll_back", watched)
    run = small_run.run(tmp_path, **changes)
    with PreferenceStore.open(f"sqlite:///{run / 'run.db'}") as store:
        after = {item.comparison.id: item for item in store.labelled()}
    assert before == {key: item for key, item in after.items() if key in before}
    rounds = {event["round"] for event in events_of(run, "rollback")}
    assert rounds
    for number in rounds:
        for purpose in ("audit", "adversarial"):
            assert [key for key in before if f"/{purpose}-r{number:04d}" in key]
    assert [key for key in before if "/r0001" in key or "/r0002" in key], "labels of the rounds that are undone"


def test_the_ledger_counts_what_was_spent_and_undone(rolled_back: Path) -> None:
    ledger = CheckpointStore(rolled_back / "checkpoints").load(LAST).tensors["ledger"]
    undone = ledger["undone"].bool()
    events = events_of(rolled_back, "rollback")
    assert float(ledger["kl_step"][undone].sum()) == pytest.approx(sum(e["kl_undone"] for e in events))
    rows = rows_of(rolled_back / "metrics.jsonl")
    assert float(ledger["kl_step"].sum()) == pytest.approx(rows[-1]["objective/kl_cumulative"])
    assert [row["step"] for row in rows] == list(range(1, 4 * small_run.STEPS + 1))


@pytest.mark.parametrize(
    "point",
    [
        Point("holdfast.run.rollback:RunState.roll_back"),
        Point("holdfast.run.rollback:RunState.roll_back", when="after"),
        Point("holdfast.preferences.collector:Collector.collect_adversarial", when="after"),
        Point("holdfast.guard.review:Review._act", call=4, when="after"),
        Point("holdfast.checkpoint.store:rename", about="round-0002"),
    ],
    ids=["before it", "after it", "adversarial examples labelled", "remedies done", "commit half done"],
)
def test_a_killed_rollback_resumes(point: Point, changes: dict[str, str], rolled_back: Path, tmp_path: Path) -> None:
    run = run_until(tmp_path, point, HACKED, **changes)
    resume(run, HACKED)
    assert differences(result_of(run, LAST), result_of(rolled_back, LAST)) == []


def test_attempts_are_bounded_and_resuming_is_the_answer(changes: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / small_run.NAME
    more: dict[str, Any] = {**changes, "guard__rollbacks": "0"}
    assert main(small_run.run_arguments(tmp_path, **more)) == 3
    stopped = events_of(run, "stopped")
    assert len(stopped) == 1
    assert not events_of(run, "run_finished")
    assert (run / "report.html").exists()
    reached = stopped[0]["round"]
    main(["resume", str(run)])
    assert max(event["round"] for event in events_of(run)) > reached


def test_advice_touches_nothing(changes: dict[str, str], tmp_path: Path) -> None:
    run = small_run.run(tmp_path, **{**changes, "guard__mode": "advise"})
    advice = events_of(run, "advice")
    assert "rollback" in {event["rung"] for event in advice}
    assert not events_of(run, "rollback")
    assert not events_of(run, "action")
    off = small_run.run(tmp_path / "off", **{**changes, "guard__mode": "off"})
    assert not events_of(off, "verdict")
    # Whoever only looks leaves the policy's own draws alone; what the audits taught the ensemble is another matter.
    first = [json.dumps(row["objective/scores"]) for row in rows_of(run / "metrics.jsonl")][: small_run.STEPS]
    assert first == [json.dumps(row["objective/scores"]) for row in rows_of(off / "metrics.jsonl")][: small_run.STEPS]


def test_a_run_ends_with_the_policy_that_people_like_better(
    changes: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # These answers are too few for an alarm that is false in one run of 10,000; the choice at the end takes none.
    few = {"guard__false_alarm": "0.0001", "audit__pairs": "3", "audit__more_pairs": "4", "run__rounds": "2"}
    unsure = {**changes, **few}
    run = small_run.run(tmp_path, **unsure)
    assert ALARMS.isdisjoint(event["level"] for event in events_of(run, "verdict"))
    (rollback,) = events_of(run, "rollback")
    assert (rollback["round"], rollback["to"]) == (2, "round-0001")
    assert rollback["reason"].startswith("the run ends with the policy that was liked better: the labeller preferred")
    # Everyone was asked as often as in a suspicious round.
    assert events_of(run, "audit")[-1]["anchor_pairs"] == 8
    # And twice as often again before the run ends with an earlier policy, in pairs that were not asked about yet.
    assert capfd.readouterr().err.count("before the run ends with an earlier policy") == 1, "said once"
    (choice,) = events_of(run, "choice")
    assert (choice["labels"], choice["back"]) == (16, True)
    assert rollback["reason"].endswith(choice["sentence"])
    assert "of 24 fresh pairs" in choice["sentence"]
    store = CheckpointStore(run / "checkpoints")
    then, now = store.load("round-0001"), store.load("round-0002")
    assert transaction.differences(then, now, small_run.TAKEN_BACK) == []
    advised = small_run.run(tmp_path / "advised", **{**unsure, "guard__mode": "advise"})
    assert [event["rung"] for event in events_of(advised, "advice")][-1] == "rollback"
    assert not events_of(advised, "rollback")
