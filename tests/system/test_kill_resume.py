"""A run that is killed, stopped or damaged, and resumed, ends exactly as the run that nothing happened to.

`Point` names a function of the program; the process sends itself SIGKILL there, which nothing can catch.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import ClockJump, Point, SlowSteps, command, resume, run_until

import small_run
import tally
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli.main import main
from small_run import differences, events_of, result_of, rows_of, tree_of

POINTS = {
    "in the middle of SFT": Point("holdfast.train.sft:sft_loss", call=5),
    "first labels stored, version 1 not trained": Point("holdfast.reward.refresher:Refresher.first_version"),
    "version 1 saved, no checkpoint yet": Point("holdfast.reward.refresher:Refresher.first_version", when="after"),
    "in the middle of the probe of the rate": Point("holdfast.train.ppo:PPO._accumulate", call=3),
    "in the middle of the first step": Point("holdfast.train.ppo:PPO._accumulate", call=7),
    "version 3 saved, not in a checkpoint": Point("holdfast.reward.ensemble:VersionStore.save", call=3, when="after"),
    "metrics row written, gold row not": Point("holdfast.track.tracker:Tracker.metrics", call=5, when="after"),
    "last rows written, checkpoint not": Point("holdfast.run.loop:OnlineLoop.commit", about="round-0003"),
    "checkpoint half written": Point("holdfast.checkpoint.snapshot:write_tensors", call=2, about="round-0003"),
}

# One after the other in the life of one run; each attempt gets a little further than the one before.
CHAIN = (
    Point("holdfast.models.load:rename"),  # the fine-tuned model is written but not in place
    Point("holdfast.worlds.simulated_labeller:SimulatedLabeller.label"),  # comparisons stored, not yet labelled
    Point("holdfast.reward.training:_fit_member", call=2),  # one member of version 1 is trained
    Point("holdfast.run.loop:OnlineLoop.commit", when="after"),  # the first checkpoint is there
    Point("holdfast.train.ppo:PPO._accumulate", call=11),  # in the middle of step 2
    Point("holdfast.run.loop:OnlineLoop.collect", call=2, when="after"),  # a round's labels are stored
    Point("holdfast.reward.training:_fit_member", call=2),  # in the middle of a refresh
    Point("holdfast.reward.training:_fit_member", call=2),  # at the same place again
    Point("holdfast.checkpoint.store:rename", about="round-0003-step-0001"),  # written, not yet in place
    Point("holdfast.track.sinks:JsonlFile.append", call=5, about="'split'"),  # some of the last rows are there
    Point("holdfast.run.run:write_report"),  # all done but the report
)


@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS.keys())
def test_killed_and_resumed_equals_unbroken(point: Point, unbroken_result: dict[str, object], tmp_path: Path) -> None:
    run = run_until(tmp_path, point)
    resume(run)
    assert differences(result_of(run), unbroken_result) == []
    assert (run / "report.html").exists()


def test_at_most_one_step_is_done_again(unbroken_result: dict[str, object], tmp_path: Path) -> None:
    run = run_until(tmp_path, Point("holdfast.train.ppo:PPO._accumulate", call=22), SlowSteps())
    assert (run / "checkpoints" / "round-0002").is_dir()
    resume(run)
    assert differences(result_of(run), unbroken_result) == []
    # Timings are never taken back: they tell how often each step was finished.
    done = Counter(row["step"] for row in rows_of(run / "timings.jsonl"))
    assert done == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1}


def test_killed_again_and_again(unbroken_result: dict[str, object], tmp_path: Path) -> None:
    run = run_until(tmp_path, CHAIN[0], SlowSteps())
    for point in CHAIN[1:]:
        resume(run, point, SlowSteps(), code=-signal.SIGKILL)
    resume(run)
    assert differences(result_of(run), unbroken_result) == []


SEED = 26


def test_killed_at_random_times(thorough: bool, unbroken_result: dict[str, object], tmp_path: Path) -> None:
    """From outside, at whatever it is doing; a run takes about a second."""
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    for life in range(12 if thorough else 1):
        argv = small_run.run_arguments(tmp_path / str(life))
        run = tmp_path / str(life) / small_run.NAME
        for _ in range(5 if thorough else 3):
            command(argv, tmp_path / "killed.txt", SlowSteps(), dies_after=rng.uniform(0.0, 1.2))
            argv = ["resume", str(run)] if (run / "manifest.json").exists() else argv
        ended = command(argv, tmp_path / "ended.txt")
        assert ended.code == 0, ended
        assert differences(result_of(run), unbroken_result) == []


@pytest.mark.parametrize("seconds", [-400 * 86400.0, 400 * 86400.0], ids=["back", "ahead"])
def test_the_clock_may_jump_between_two_starts(
    seconds: float, unbroken_result: dict[str, object], tmp_path: Path
) -> None:
    run = run_until(tmp_path, Point("holdfast.run.loop:OnlineLoop.collect", call=2, when="after"))
    resume(run, ClockJump(seconds))
    assert differences(result_of(run), unbroken_result) == []


def test_a_critic_of_its_own_comes_back_too(tmp_path: Path) -> None:
    whole = small_run.run(tmp_path / "whole", policy__critic="model")
    point = Point("holdfast.train.ppo:PPO._accumulate", call=19)
    run = run_until(tmp_path, point, SlowSteps(), policy__critic="model")
    resume(run)
    assert any(name.startswith("critic/") for name in result_of(run))
    assert differences(result_of(run), result_of(whole)) == []


@pytest.mark.parametrize(
    ("where", "number"),
    [
        ("holdfast.train.sft:sft_loss", signal.SIGTERM),
        ("holdfast.reward.training:_fit_member", signal.SIGINT),
        ("holdfast.train.ppo:PPO._accumulate", signal.SIGTERM),
    ],
)
def test_a_signal_stops_the_run_where_it_can_be_resumed(
    where: str, number: int, unbroken_result: dict[str, object], tmp_path: Path
) -> None:
    asked = command(small_run.run_arguments(tmp_path / "runs"), tmp_path / "run.txt", Point(where, number=number))
    assert asked.code == 130
    run = tmp_path / "runs" / small_run.NAME
    assert f"`holdfast resume {run}` goes on from here." in asked.printed
    assert "Traceback" not in asked.printed
    resume(run)
    assert differences(result_of(run), unbroken_result) == []


def test_a_second_signal_stops_at_once_and_can_be_resumed_too(
    unbroken_result: dict[str, object], tmp_path: Path
) -> None:
    twice = [Point("holdfast.train.ppo:PPO._accumulate", call=n, number=signal.SIGINT) for n in (1, 2)]
    asked = command(small_run.run_arguments(tmp_path / "runs"), tmp_path / "run.txt", *twice)
    assert asked.code == 130
    assert "Stopped at once" in asked.printed
    assert "Traceback" not in asked.printed
    run = tmp_path / "runs" / small_run.NAME
    assert not (run / "checkpoints" / "round-0001").exists()
    resume(run)
    assert differences(result_of(run), unbroken_result) == []


def flip_a_byte(path: Path) -> None:
    tally.count("damaged files")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    tally.count("damaged files")
    path.write_bytes(path.read_bytes()[:-1])


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run killed in round 3 after its refresh: two checkpoints, three versions, labels of all rounds."""
    return run_until(
        tmp_path_factory.mktemp("cut"), Point("holdfast.run.loop:OnlineLoop.refresh_if_due", call=3, when="after")
    )


@pytest.fixture
def cut_run(cut_off: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(cut_off, tmp_path / small_run.NAME))


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("checkpoints/round-0002/policy.safetensors", flip_a_byte),
        ("checkpoints/round-0002/manifest.json", Path.unlink),
        ("rewards/v002/member-1.safetensors", cut_short),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_and_told_of(
    file: str,
    damage: Callable[[Path], None],
    cut_run: Path,
    unbroken_result: dict[str, object],
) -> None:
    """Round 2 is done again with round 3's labels already in the store, and must not see them."""
    damage(cut_run / file)
    resume(cut_run)
    assert differences(result_of(cut_run), unbroken_result) == []
    told = [str(event["reason"]) for event in events_of(cut_run, "checkpoint_skipped")]
    assert len(told) == 1
    assert "round-0002 was passed over" in told[0]
    assert [event["checkpoint"] for event in events_of(cut_run, "resumed")] == ["round-0001"]


def test_a_damaged_last_good_checkpoint_is_replaced_by_the_one_the_run_goes_on_from(cut_run: Path) -> None:
    """People liked round 1 best, so a rollback would go there; without its weights it goes to the nearest one."""
    flip_a_byte(cut_run / "checkpoints" / "round-0001" / "policy.safetensors")
    resume(cut_run)
    (told,) = [str(event["reason"]) for event in events_of(cut_run, "checkpoint_skipped")]
    assert told.startswith("The last good checkpoint cannot be used, and round-0002 takes its place: ")
    assert told.endswith("round-0001 is damaged: the SHA-256 of policy.safetensors is not the one saved with it.")
    assert [event["checkpoint"] for event in events_of(cut_run, "resumed")] == ["round-0002"]
    assert events_of(cut_run, "run_finished")
    store = CheckpointStore(cut_run / "checkpoints")
    (pinned,) = store.pinned
    assert pinned in ("round-0002", "round-0003")
    store.load(pinned)
    assert main(["resume", str(cut_run)]) == 0
    assert len(events_of(cut_run, "checkpoint_skipped")) == 1, "from then on there is nothing amiss"


def test_a_lost_last_good_checkpoint_is_replaced_by_the_nearest(unbroken: Path, tmp_path: Path) -> None:
    """Of a run that has ended, with its last good checkpoint gone: round 2 is nearer to round 1 than round 3 is."""
    run = Path(shutil.copytree(unbroken, tmp_path / small_run.NAME))
    (pinned,) = CheckpointStore(run / "checkpoints").pinned
    assert pinned == "round-0001"
    shutil.rmtree(run / "checkpoints" / pinned)
    assert main(["resume", str(run)]) == 0
    (told,) = events_of(run, "checkpoint_skipped")
    assert "round-0002 takes its place: There is no checkpoint round-0001" in str(told["reason"])


@pytest.mark.parametrize("damage", [flip_a_byte, cut_short, Path.unlink])
def test_a_run_whose_checkpoints_are_all_damaged_is_left_alone(
    damage: Callable[[Path], None], cut_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for checkpoint in (cut_run / "checkpoints").glob("round-*"):
        damage(checkpoint / "policy.safetensors")
    # SQLite folds its log of the killed run into the database when that is opened; the labels stay the same.
    aside = ["run.lock", "run.db", "run.db-wal", "run.db-shm"]
    before = tree_of(cut_run, but_not=aside)
    assert main(["resume", str(cut_run)]) == 2
    told = capsys.readouterr().err
    assert told.splitlines()[-1].startswith("holdfast: No usable checkpoint in")
    assert tree_of(cut_run, but_not=aside) == before


def test_a_changed_reference_is_refused(cut_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip_a_byte(cut_run / "reference" / "model.safetensors")
    assert main(["resume", str(cut_run)]) == 2
    assert "model.safetensors is missing or not as it was written" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["metrics.jsonl", "events.jsonl", "gold.jsonl"])
def test_a_log_that_was_changed_before_the_last_commit_is_refused(
    cut_run: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = cut_run / name
    whole = log.read_bytes()
    log.write_bytes(whole.replace(b'"round": 1', b'"round": 7', 1))
    before = {path: path.read_bytes() for path in cut_run.glob("*.jsonl")}
    assert main(["resume", str(cut_run)]) == 2
    printed = capsys.readouterr().err
    assert f"{log} was changed" in printed
    assert "bring the file back" in printed
    assert "Traceback" not in printed
    assert {path: path.read_bytes() for path in cut_run.glob("*.jsonl")} == before
    log.write_bytes(whole)
    assert main(["resume", str(cut_run)]) == 0


def test_a_finished_run_can_be_resumed_and_stays_as_it_is(unbroken: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(unbroken, tmp_path / small_run.NAME))
    assert main(["resume", str(run)]) == 0
    assert differences(result_of(run), result_of(unbroken)) == []
    assert len(events_of(run, "run_finished")) == 1


ONCE = """
from pathlib import Path

from holdfast.preferences.comparison import Choice, Label


class Once:
    name = "once"

    def __init__(self, seed):
        self.asked = Path("asked.txt")

    def label(self, comparisons):
        with self.asked.open("a") as file:
            file.writelines(f"{c.id}\\n" for c in comparisons)
        return [Label(c.id, self.name, self.choice(c)) for c in comparisons]

    def choice(self, c):
        return Choice.A if len(c.a.text) > len(c.b.text) else Choice.B
"""


def test_nobody_is_asked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("once.py").write_text(ONCE)
    run = run_until(
        tmp_path,
        Point("holdfast.reward.refresher:Refresher.first_version"),
        world__labeller=f"{tmp_path}/once.py:Once",
    )
    resume(run, Point("holdfast.run.loop:OnlineLoop.refresh_if_due", call=3), code=-signal.SIGKILL)
    resume(run)
    asked = Path("asked.txt").read_text().splitlines()
    assert len(asked) == len(set(asked)) >= 24 + 2 * 8


def test_a_run_in_use_is_left_to_its_owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The real program as a real process: the second is refused in one sentence, Ctrl-C ends the first."""
    arguments = small_run.run_arguments(tmp_path, run__rounds="1000", track__samples="0")
    first = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli.main", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    run = tmp_path / small_run.NAME
    try:
        wait_for(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 0, first)
        assert main(["resume", str(run)]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"holdfast: The run directory {run} is in use by process {first.pid} ")
        assert told.count("\n") == 1
        assert main(arguments) == 2
        assert "holds a run already" in capsys.readouterr().err
    finally:
        first.send_signal(signal.SIGINT)
        _, error = first.communicate(timeout=60)
    assert first.returncode == 130
    assert b"goes on from here" in error
    assert b"Traceback" not in error


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
