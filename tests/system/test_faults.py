"""What goes wrong in the middle of a run: bad numbers, a full disk, a labeller that fails."""

from __future__ import annotations

import errno
import html
import importlib
import os
import re
import shutil
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import small_run
import tally
from holdfast.checkpoint import files
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.models.reward_model import RewardModel
from holdfast.preferences.store import PreferenceStore
from holdfast.reward.ensemble import Ensemble, Judgement
from holdfast.run.directory import RunDirectory
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
                tally.count("bad values")
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


@pytest.mark.parametrize(("lr", "fast"), [("1e6", "false"), ("1e10", "false"), ("1e10", "true")])
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


def test_a_run_whose_steps_were_all_dropped_does_not_pass_for_one_that_worked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    BrokenFrom(first=1).put_in(monkeypatch)
    assert main(run_arguments(tmp_path, run__rounds="2", **STILL)) == 2
    assert "Every step of the run was dropped (4 steps)" in last_line(capsys)
    assert events_of(tmp_path / small_run.NAME, "run_finished") == []


class MemberBreaks:
    """From the n-th pass over a batch on, a member of the ensemble does something else than to score."""

    def __init__(self, first: int, instead: Callable[[Tensor], Tensor]) -> None:
        self.first, self.instead, self.count = first, instead, 0

    def put_in(self, patch: pytest.MonkeyPatch) -> None:
        whole, judge = RewardModel.read, Ensemble.judge
        broken: list[RewardModel] = []

        def counted(ensemble: Ensemble, *args: Any) -> Judgement:
            self.count += 1
            broken[:] = [ensemble.members[1]] if self.count >= self.first else []
            return judge(ensemble, *args)

        def read(model: RewardModel, hidden_BD: Tensor) -> Tensor:
            said = whole(model, hidden_BD)
            return self.instead(said) if any(model is one for one in broken) else said

        patch.setattr(Ensemble, "judge", counted)
        patch.setattr(RewardModel, "read", read)


def it_raises(said: Tensor) -> Tensor:
    raise ValueError("no such layer")


def it_has_no_room(said: Tensor) -> Tensor:
    raise torch.OutOfMemoryError("CUDA out of memory.")


MEMBERS = {
    "constant": (torch.ones_like, "gives every answer the same score"),
    "zero": (torch.zeros_like, "gives every answer the same score"),
    "raises": (it_raises, "raised ValueError: no such layer"),
    "no memory": (it_has_no_room, "ran out of memory"),
    "not a number": (lambda said: said * torch.nan, "gave scores that are not numbers in 2 steps in a row"),
}


@pytest.mark.parametrize(("instead", "why"), MEMBERS.values(), ids=MEMBERS.keys())
def test_a_reward_member_that_breaks_is_left_out_told_of_and_shown(
    instead: Callable[[Tensor], Tensor],
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.run.learner.MOST_SKIPPED", 2)
    MemberBreaks(first=3, instead=instead).put_in(monkeypatch)
    run = small_run.run(tmp_path, reward__members="3", ppo__batch="12", **STILL)
    (event,) = events_of(run, "member_degraded")
    assert (event["member"], event["left"], event["members"], event["version"]) == (1, 2, 3, 1)
    assert event["why"] == why
    learned = [row for row in rows_of(run / "metrics.jsonl") if "objective/scores" in row]
    assert [row.get("ensemble/degraded") for row in learned] == [None] * 2 + [1.0] * (len(learned) - 2)
    assert len(learned) >= 4
    assert all(row["ensemble/spread"] > 0 and row["objective/scores"] != 0 for row in learned)
    said = f"left out, since it {why}"
    assert said in " ".join(capsys.readouterr().out.split())
    assert said in html.unescape((run / "report.html").read_text())
    assert small_run.checkpoint_of(run)["parts"]["ensemble"]["degraded"] == {"1": why}  # type: ignore[index]


def no_room_on_the_cpu() -> None:
    torch.empty(2**60, dtype=torch.uint8)


def no_room_on_the_gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def no_room_in_python() -> None:
    raise MemoryError


# Where memory runs out, at the n-th call -> the setting that is named.
NO_ROOM = {
    "imitating": ("holdfast.train.sft:sft_loss", 3, no_room_on_the_cpu, "lower policy.micro_batch_tokens"),
    "sampling": ("holdfast.rollout.sampler:sample_with", 4, no_room_on_the_gpu, "lower rollout.max_batch"),
    "refreshing": ("holdfast.reward.training:_accumulate", 7, no_room_on_the_cpu, "or reward.members"),
    "optimising": ("holdfast.train.ppo:PPO._accumulate", 13, no_room_in_python, "policy.gradient_checkpointing = true"),
}


@pytest.mark.parametrize(("where", "call", "fail", "setting"), NO_ROOM.values(), ids=NO_ROOM.keys())
def test_memory_that_runs_out_is_a_sentence_with_the_setting_and_the_run_goes_on(
    where: str,
    call: int,
    fail: Callable[[], None],
    setting: str,
    unbroken_result: dict[str, object],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        module, _, name = where.partition(":")
        owner: Any = importlib.import_module(module)
        *holders, name = name.split(".")
        for holder in holders:
            owner = getattr(owner, holder)
        whole, calls = getattr(owner, name), []

        def without_room(*args: Any, **needed: Any) -> Any:
            calls.append(1)
            if len(calls) == call:
                fail()
            return whole(*args, **needed)

        patch.setattr(owner, name, without_room)
        assert main(run_arguments(tmp_path)) == 2
    run = tmp_path / small_run.NAME
    sentence = last_line(capsys)
    assert sentence.startswith("holdfast: Memory ran out while ")
    assert setting in sentence
    assert f"`holdfast resume {run} --changed`" in sentence
    assert main(["resume", str(run)]) == 0
    assert differences(result_of(run), unbroken_result) == []


def test_a_failure_while_the_effort_is_recorded_does_not_hide_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(run: RunDirectory, seconds: float, peak_memory: int) -> None:
        raise HoldfastError("the manifest could not be written")

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "record_effort", full)
        with monkeypatch.context() as worse:
            worse.setattr("holdfast.run.learner.MOST_SKIPPED", 3)
            BrokenFrom(first=2).put_in(worse)
            assert main(run_arguments(tmp_path / "broken", **STILL)) == 2
        assert "steps in a row met values that are not numbers" in last_line(capsys)
        # Where nothing else has failed, it is told.
        assert main(run_arguments(tmp_path / "whole", run__rounds="1", **STILL)) == 2
        assert "the manifest could not be written" in last_line(capsys)


def save_within_rounds_alone(patch: pytest.MonkeyPatch) -> None:
    """By the clock a run saves more often or less, and would not write equally often."""
    due = cycle([True, False])  # after a round's first step, and not before its audit
    patch.setattr("holdfast.checkpoint.pace.SavePace.due", property(lambda pace: next(due)))


class FailingWrites:
    """From the n-th write on there is no space left, or the disk fails."""

    def __init__(self, first: int, code: int = errno.ENOSPC) -> None:
        self.first, self.code, self.count = first, code, 0

    def __call__(self, write: Callable[[int, memoryview], int]) -> Callable[[int, memoryview], int]:
        def limited(descriptor: int, data: memoryview) -> int:
            self.count += 1
            if self.count >= self.first:
                raise OSError(self.code, os.strerror(self.code))
            return write(descriptor, data)

        return limited


def test_a_run_directory_that_could_not_be_made_is_not_in_the_way_of_the_next_try(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_write", FailingWrites(2)(files._write))  # the settings are written, the manifest is not
        assert main(run_arguments(tmp_path)) == 2
    assert main(run_arguments(tmp_path, run__rounds="1")) == 0


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_a_disk_that_fails_ends_the_run_in_a_sentence_and_a_good_one_lets_it_go_on(
    code: int,
    part: int,
    thorough: bool,
    unbroken_writes: int,
    unbroken_result: dict[str, object],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """At a write in each quarter of the run, or at every one: odd ones fail in one way, even ones in the other."""
    quarter = range(1 + part * unbroken_writes // 4, 1 + (part + 1) * unbroken_writes // 4)
    tried = [first for first in quarter if first % 2 == (code == errno.EIO)]
    for first in tried if thorough else tried[len(tried) // 3 :][:1]:
        runs = tmp_path / str(first)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "_write", FailingWrites(first, code)(files._write))
            save_within_rounds_alone(patch)
            assert main(run_arguments(runs)) == 2
        tally.count("failed writes")
        assert os.strerror(code) in last_line(capsys)
        run = runs / small_run.NAME
        argv = ["resume", str(run)] if (run / "manifest.json").exists() else run_arguments(runs)
        assert main(argv) == 0
        assert differences(result_of(run), unbroken_result) == [], f"write {first}"
        shutil.rmtree(runs)


@pytest.fixture(scope="module")
def unbroken_writes(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How often a whole run writes to the disk."""
    counter = FailingWrites(10**9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_write", counter(files._write))
        save_within_rounds_alone(patch)
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
    "raises": (
        "raise ConnectionError('the line went dead')",
        "The labeller judge failed: ConnectionError: the line went dead.",
    ),
    "leaves": ("raise SystemExit", "The labeller judge failed: SystemExit."),
    "answers in words": ("return ['left' for c in comparisons]", "answered 'left'; use a Label with Choice.A"),
    "makes up a choice": ("return [Label(c.id, self.name, 'left') for c in comparisons]", "use a Label with Choice.A"),
    "returns nothing": ("return None", "The labeller judge failed: TypeError: "),
    "answers nobody": ("return []", "A reward model needs at least 2 labelled comparisons"),
}


@pytest.mark.parametrize(("body", "sentence"), BAD_LABELLERS.values(), ids=BAD_LABELLERS.keys())
def test_a_labeller_that_fails(body: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """This is found out only by asking, after the run directory is there; no label of that round is stored."""
    judge = tmp_path / "judge.py"
    judge.write_text(LABELLER.format(body=body))
    assert main(run_arguments(tmp_path, world__labeller=f"{judge}:Judge")) == 2
    printed = capsys.readouterr().err
    assert sentence in printed
    assert "Traceback" not in printed
    run = tmp_path / small_run.NAME
    assert counts_of(run) == (24, 0)
    assert list((run / "checkpoints").glob("*")) == []


DEEP = """
import json
from holdfast.preferences.comparison import Choice, Label


class Judge:
    name = "judge"

    def __init__(self, seed):
        pass

    def label(self, comparisons):
        return [Label(c.id, self.name, self.choose(c)) for c in comparisons]

    def choose(self, comparison):
        return Choice(json.loads('{"choice": \\x1b[2J')["choice"])
"""


def test_where_a_labeller_failed_is_told_and_its_traceback_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("judge.py").write_text(DEEP)
    assert main(run_arguments(Path("runs"), world__labeller="judge.py:Judge")) == 2
    run = f"runs/{small_run.NAME}"
    told = capsys.readouterr().err.partition("holdfast: ")[2].splitlines()
    assert told[:5] == [
        "The labeller judge failed: JSONDecodeError: Expecting value: line 1 column 12 (char 11).",
        "  judge.py:13 in label",
        "    return [Label(c.id, self.name, self.choose(c)) for c in comparisons]",
        "  judge.py:16 in choose",
        '    return Choice(json.loads(\'{"choice": \\x1b[2J\')["choice"])',
    ]
    assert re.fullmatch(r"  .*json/decoder\.py:\d+ in raw_decode", told[5])
    assert told[7:] == [
        f"The whole traceback is in {run}/failures.txt.",
        f"Mend it, and go on with `holdfast resume {run}`.",
    ]
    kept = Path(run, "failures.txt").read_text()
    assert kept.startswith("20")
    assert kept.count("Traceback (most recent call last)") == 1
    assert "in raw_decode" in kept
    # It fails again, and both are kept; a link in its place is not followed.
    assert main(["resume", run]) == 2
    assert Path(run, "failures.txt").read_text().count("Traceback (most recent call last)") == 2
    Path(run, "failures.txt").rename("elsewhere.txt")
    Path(run, "failures.txt").symlink_to(Path("elsewhere.txt").absolute())
    assert main(["resume", run]) == 2
    assert "could not be written" in capsys.readouterr().err
    assert Path("elsewhere.txt").read_text().count("Traceback (most recent call last)") == 2


def test_where_a_flaw_failed_in_a_step_is_told_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flaw.py").write_text(
        "class Nasty:\n    name = 'nasty'\n    def __init__(self, seed): pass\n"
        "    def bonus(self, prompt, response):\n        return 1 / 0\n"
    )
    assert main(run_arguments(Path("runs"), flaw__name="flaw.py:Nasty")) == 2
    told = capsys.readouterr().err
    assert "The flaw nasty failed: ZeroDivisionError: division by zero.\n  flaw.py:5 in bonus\n" in told
    assert "ZeroDivisionError" in Path("runs", small_run.NAME, "failures.txt").read_text()


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
