"""What goes wrong in the middle of a run: bad numbers, a full disk, a labeller that fails."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import small_run
from holdfast.checkpoint import files
from holdfast.cli.main import main
from holdfast.preferences.store import PreferenceStore
from holdfast.reward.ensemble import Ensemble, Judgement
from small_run import differences, events_of, result_of, rows_of, run_arguments


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence that a failed run ends with, below its progress."""
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    assert printed.count("holdfast: ") == 1
    return printed.splitlines()[-1]


class BrokenFrom:
    """One member's scores turn into NaN at the n-th call, and heal after `calls` of them."""

    def __init__(self, first: int, calls: int = 1000) -> None:
        self.first, self.last, self.count = first, first + calls - 1, 0

    def put_in(self, patch: pytest.MonkeyPatch) -> None:
        whole = Ensemble.judge

        def judge(ensemble: Ensemble, *args: Any) -> Judgement:
            judgement = whole(ensemble, *args)
            self.count += 1
            if self.first <= self.count <= self.last:
                judgement.scores_KB[1] = float("nan")
            return judgement

        patch.setattr(Ensemble, "judge", judge)


# Rewards are asked for once a step; there is no refresh, no label and no guard between.
STILL = {"guard__mode": "off", "refresh__every_rounds": "0", "preferences__per_round": "0", "reward__holdout": "0.0"}


def test_steps_with_bad_scores_are_dropped_and_too_many_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 2 and all after it meet NaN: step 2 ends round 1, steps 3 and 4 are the third in a row."""
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.run.learner.MOST_SKIPPED", 3)
        BrokenFrom(first=2).put_in(patch)
        assert main(run_arguments(tmp_path, **STILL)) == 2
    assert "3 steps in a row met values that are not numbers" in last_line(capsys)
    run = tmp_path / small_run.NAME
    assert [event["step"] for event in events_of(run, "step_skipped")] == [2, 3, 4]
    rows = rows_of(run / "metrics.jsonl")
    assert [row["steps/skipped"] for row in rows] == [0.0, 1, 2, 3]
    assert "objective/scores" not in rows[-1]
    # What the checkpoint holds is whole, and the run goes on from it once the cause is gone.
    saved = small_run.checkpoint_of(run, "round-0001")
    assert saved["parts"]["position"]["step"] == 2  # type: ignore[index]
    assert main(["resume", str(run)]) == 0
    assert [row["step"] for row in rows_of(run / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6]


def test_a_guarded_run_goes_back_and_on_with_a_lower_learning_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of twelve steps in two rounds three in a row are bad, twice; the policy of before is good both times."""
    rounds = {**STILL, "guard__mode": "act", "run__rounds": "2", "run__steps_per_round": "6", "audit__pairs": "0"}
    rounds |= {"audit__more_pairs": "0"}
    batches = 4  # of the reference, for the baselines
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.run.learner.MOST_SKIPPED", 3)
        for first in (batches + 2, batches + 6):
            BrokenFrom(first, calls=3).put_in(patch)
        run = small_run.run(tmp_path, **rounds)
    assert [event["step"] for event in events_of(run, "step_skipped")] == [2, 3, 4, 6, 7, 8]
    first, second = events_of(run, "rollback")
    assert (first["to"], first["step_from"], second["step_from"]) == ("round-0000", 4, 8)
    assert "3 steps in a row met values that are not numbers" in first["reason"]
    rates = {row["step"]: row["control/lr"] for row in rows_of(run / "metrics.jsonl") if "control/lr" in row}
    assert (rates[5], rates[9]) == pytest.approx((rates[1] / 2, rates[1] / 4))


def test_one_bad_step_does_not_move_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose second step is dropped has after it the policy and optimiser it had before it."""
    one = small_run.run(tmp_path / "one", run__rounds="1", run__steps_per_round="1", **STILL)
    with monkeypatch.context() as patch:
        BrokenFrom(first=2, calls=1).put_in(patch)
        two = small_run.run(tmp_path / "two", run__rounds="1", run__steps_per_round="2", **STILL)
    before, after = small_run.checkpoint_of(one, "round-0001"), small_run.checkpoint_of(two, "round-0001")
    moved = [name for name in differences(before, after) if name.startswith(("policy/", "optimiser/"))]
    assert moved == []
    assert after["parts"]["position"]["skipped"] == 1  # type: ignore[index]


@pytest.mark.parametrize(("lr", "fast"), [("1e3", "false"), ("1e10", "false"), ("1e10", "true")])
def test_a_learning_rate_that_blows_the_policy_up(
    lr: str, fast: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One update is enough; what comes of it (gradients, or only the KL) is not a number.

    The fast path takes the length of a vector without squaring its entries, so it stays finite for longer.
    """
    wild = {"ppo__lr": lr, "ppo__lr_warmup_steps": "0", "ppo__epochs": "1", "ppo__minibatches": "1"}
    wild |= {"policy__fast": fast, "guard__rollbacks": "0"}
    assert main(run_arguments(tmp_path, **wild)) == 2
    assert "steps in a row met values that are not numbers" in last_line(capsys)


class DiskFull:
    """From the n-th write on there is no space left."""

    def __init__(self, first: int) -> None:
        self.first, self.count = first, 0

    def __call__(self, write: Callable[[int, memoryview], int]) -> Callable[[int, memoryview], int]:
        def limited(descriptor: int, data: memoryview) -> int:
            self.count += 1
            if self.count >= self.first:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(descriptor, data)

        return limited


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.95])
def test_a_full_disk_ends_the_run_in_a_sentence_and_space_lets_it_go_on(
    share: float,
    unbroken_writes: int,
    unbroken_result: dict[str, object],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(files, "_write", DiskFull(int(share * unbroken_writes))(files._write))
        assert main(run_arguments(tmp_path)) == 2
    assert "No space left on device" in last_line(capsys)
    run = tmp_path / small_run.NAME
    assert main(["resume", str(run)]) == 0
    assert differences(result_of(run), unbroken_result) == []


@pytest.fixture(scope="module")
def unbroken_writes(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How often a whole run writes to the disk."""
    counter = DiskFull(10**9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_write", counter(files._write))
        small_run.run(tmp_path_factory.mktemp("counted"))
    return counter.count


LABELLER = """
from holdfast.preferences.comparison import Choice, Label


class Judge:
    name = "judge"

    def __init__(self, seed):
        pass

    def label(self, comparisons):
        {body}
"""

BAD_LABELLERS = {
    "answers another question": (
        "return [Label('another', self.name, Choice.A) for c in comparisons]",
        "The labeller judge answered a comparison it was not asked about.",
    ),
    "raises": ("raise ConnectionError('the line went dead')", "The labeller judge failed: the line went dead."),
    "answers in words": ("return ['left' for c in comparisons]", "answered 'left'; use a Label with Choice.A"),
    "makes up a choice": ("return [Label(c.id, self.name, 'left') for c in comparisons]", "use a Label with Choice.A"),
    "returns nothing": ("return None", "The labeller judge failed: "),
    "answers nobody": ("return []", "A reward model needs at least 2 labelled comparisons"),
}


@pytest.mark.parametrize(("body", "sentence"), BAD_LABELLERS.values(), ids=BAD_LABELLERS.keys())
def test_a_labeller_that_fails(body: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """This is found out only by asking, after the run directory is there; no label of that round is stored."""
    judge = tmp_path / "judge.py"
    judge.write_text(LABELLER.format(body=body))
    assert main(run_arguments(tmp_path, world__labeller=f"{judge}:Judge")) == 2
    assert sentence in last_line(capsys)
    run = tmp_path / small_run.NAME
    assert counts_of(run) == (24, 0)
    assert list((run / "checkpoints").glob("*")) == []


def counts_of(run: Path) -> tuple[int, int]:
    with PreferenceStore.open(f"sqlite:///{run / 'run.db'}") as store:
        counts = store.counts()
    return counts.comparisons, counts.labels


def test_a_run_goes_on_once_its_labeller_is_mended(tmp_path: Path) -> None:
    judge = tmp_path / "judge.py"
    judge.write_text(LABELLER.format(body="raise ConnectionError('the line went dead')"))
    assert main(run_arguments(tmp_path, world__labeller=f"{judge}:Judge")) == 2
    judge.write_text(
        LABELLER.format(body="return [Label(c.id, self.name, Choice('ab'[len(c.a.text) > 9])) for c in comparisons]")
    )
    assert main(["resume", str(tmp_path / small_run.NAME)]) == 0
