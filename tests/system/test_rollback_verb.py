"""`holdfast rollback`: asked for on the command line, carried out by the run, also by one that has ended."""

from pathlib import Path

import pytest

import small_run
from holdfast.checkpoint.lock import RunLock
from holdfast.checkpoint.store import CheckpointStore
from holdfast.checkpoint.transaction import state_of
from holdfast.cli.main import main
from holdfast.reward.ensemble import VersionStore


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    assert main(small_run.run_arguments(runs, checkpoint__keep="5")) == 0
    return runs / small_run.NAME


def test_the_checkpoints_are_listed(ended: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollback", str(ended)]) == 0
    *lines, versions = capsys.readouterr().out.splitlines()
    assert versions.startswith("reward versions ")
    assert versions.endswith(", ".join(str(n) for n in VersionStore(ended / "rewards").accepted()))
    assert [line.split()[0] for line in lines] == CheckpointStore(ended / "checkpoints").names()
    assert len([line for line in lines if "last good" in line]) == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["round-0099"], "There is no checkpoint round-0099"),
        (["--reason", "so"], "name that too"),
        (["--reward", "99"], "There is no version 99 of the ensemble"),
        (["round-0001", "--reward", "1"], "leave --reward out"),
    ],
)
def test_what_makes_no_sense_is_said_at_once(
    ended: Path, capsys: pytest.CaptureFixture[str], more: list[str], words: str
) -> None:
    assert main(["rollback", str(ended), *more]) == 2
    assert words in capsys.readouterr().err


def test_an_ended_run_goes_back_when_it_is_resumed(ended: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = CheckpointStore(ended / "checkpoints")
    wanted, rounds = store.load("round-0001"), small_run.events_of(ended, "round_finished")
    with RunLock(ended):
        assert main(["rollback", str(ended), "round-0001", "--reason", "too long"]) == 0
        assert "after the step that is under way" in capsys.readouterr().out
    assert main(["rollback", str(ended), "round-0001", "--reason", "too long"]) == 0
    assert f"`holdfast resume {ended}`" in capsys.readouterr().out
    assert main(["resume", str(ended)]) == 0
    events = small_run.events_of(ended, "rollback")
    assert [(e["to"], e["reason"]) for e in events[-2:]] == [
        ("round-0001", "the command line asked for it: too long")
    ] * 2
    # Round 4 begins with the policy of round 1, and the two rounds that were undone are done again.
    assert [event["round"] for event in small_run.events_of(ended, "round_finished")] == [1, 2, 3, 4, 5]
    assert small_run.events_of(ended, "round_finished")[:3] == rounds
    after = store.load("round-0003")  # as it was saved again when the run had gone back
    for name, tensor in wanted.tensors["policy"].items():
        assert tensor.equal(after.tensors["policy"][name])


def test_the_reward_alone_goes_back_when_the_run_is_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Nothing but the owner takes anything back.
    assert main(small_run.run_arguments(tmp_path, gate__use="false", guard__mode="off")) == 0
    ended = tmp_path / small_run.NAME
    store = CheckpointStore(ended / "checkpoints")
    before = store.load(small_run.LAST)
    assert main(["rollback", str(ended), "--reward", "2", "--reason", "the newest likes lists"]) == 0
    assert "goes back to version 2 of the ensemble before it goes on" in capsys.readouterr().out
    assert main(["resume", str(ended)]) == 0
    after = store.load(store.names()[-1])
    ensemble = state_of(after, "ensemble")
    assert state_of(before, "ensemble")["version"] == 3
    # Version 2 was made at the start of round 2, after the two steps of round 1.
    assert (ensemble["version"], ensemble["last_round"], ensemble["last_step"]) == (2, 2, 2)
    for name, tensor in before.tensors["policy"].items():
        assert tensor.equal(after.tensors["policy"][name])
    (event,) = small_run.events_of(ended, "owner")
    assert (event["reason"], event["after"]) == ("the newest likes lists", {"version": 2})
