"""A reward function of the user's in worker processes: what it is given, what it may give, and all that it may do."""

from __future__ import annotations

import gc
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import load_config
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Message
from holdfast.reward.scores import Asked, Scores
from holdfast.reward.sources import process, workers
from holdfast.reward.sources.function import CallableSource, FunctionSource
from holdfast.reward.sources.workers import Allowance

OWN = Path(__file__).with_name("own_rewards.py")
Opener = Callable[..., FunctionSource]


@pytest.fixture
def opened() -> Iterator[Opener]:
    there: list[FunctionSource] = []

    def opener(name: str, seconds: float = 5.0, parallel: int = 2) -> FunctionSource:
        there.append(FunctionSource(f"{OWN}:{name}", Allowance(seconds, parallel)))
        return there[-1]

    yield opener
    for source in there:
        source.close()


def asked(*answers: str, **columns: Any) -> Asked:
    rows = [{name: values[i] for name, values in columns.items()} for i in range(len(answers))]
    return Asked(["p"] * len(answers), list(answers), rows if columns else ())


def totals(scores: Scores) -> list[float | None]:
    return [None if math.isnan(value) else value for value in scores.total_B.tolist()]


# --- what it is given -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["length", "batched", "Counting", "Asynchronous", "overlapping", "overlapping_batch", "runs_a_loop",
             "late_coroutine"],
)  # fmt: skip
def test_every_shape_of_function_scores(name: str, opened: Opener) -> None:
    assert totals(opened(name).score(asked("a", "bb", "ccc"))) == [1.0, 2.0, 3.0]


def test_columns_come_by_name(opened: Opener) -> None:
    batch = asked("a", "b", target=["pa", "px"], bonus=[1.0, None], other=[1, 2])
    assert totals(opened("with_columns").score(batch)) == [2.0, 0.0]
    assert totals(opened("one_with_columns").score(asked("a", "b", target=["a", "a"]))) == [1.0, 0.0]
    assert totals(opened("one_with_all").score(asked("a", one=[1], two=[2]))) == [3.0], (
        "by **columns, all of them, and the prompt"
    )


def test_a_column_that_is_not_there_is_no_zero(opened: Opener) -> None:
    scores = opened("one_with_columns").score(Asked(["p", "p"], ["a", "b"], [{"target": "a"}, {}]))
    assert totals(scores) == [1.0, None]
    assert "needs a column 'target'" in scores.unscored[1]
    scores = opened("with_columns").score(asked("a", "b"))
    assert totals(scores) == [None, None]
    assert "needs a column 'target'" in scores.unscored[0]


def test_a_column_that_cannot_be_handed_over(opened: Opener) -> None:
    scores = opened("one_with_columns").score(asked("a", "b", target=["a", datetime.now(UTC)]))
    assert totals(scores) == [1.0, None]
    assert "datetime" in scores.unscored[1]


def test_a_conversation_is_messages(opened: Opener) -> None:
    turns = (Message("system", "be brief"), Message("user", "echo"))
    assert totals(opened("conversation").score(Asked([turns, turns], ["echo", "no"]))) == [1.0, 0.0]


def test_files_beside_the_users_are_found(opened: Opener) -> None:
    assert totals(opened("beside").score(asked("abc"))) == [6.0]


def test_components(opened: Opener) -> None:
    scores = opened("components").score(asked("please", "no"))
    assert totals(scores) == [7.0, 2.0]
    assert {name: values_B.tolist() for name, values_B in scores.components.items()} == {
        "long": [6.0, 2.0],
        "polite": [1.0, 0.0],
    }
    scores = opened("lists_by_component").score(asked("please", "no"))
    assert totals(scores) == [1.0, 1.0], "what is called the score is the reward"
    assert scores.components["long"].tolist() == [6.0, 2.0]


def test_a_function_may_set_alarms_and_two_workers_agree_about_sets(opened: Opener) -> None:
    assert totals(opened("alarmed").score(asked("a"))) == [1.0]
    one, other = (opened("order_of_a_set").score(asked("a")) for _ in range(2))
    assert totals(one) == totals(other)


# --- what it may do ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("raise boom", r"raised ValueError: boom \(.*own_rewards.py:\d+\)"),
        ("hang", "did not answer within 0.3 seconds"),
        ("exit", r"ended by itself \(exit code 3\)"),
        ("leave", "raised SystemExit: 3"),
        ("segfault", "was ended by SIGSEGV"),
        ("None", "None"),
        ("NaN", "NaN"),
        ("1e30", "beyond any score"),
        ("text", "str, which is no number"),
        ("list", "list, which is no number"),
    ],
)
def test_what_fails_for_one_answer_is_told_of_that_one(answer: str, why: str, opened: Opener) -> None:
    source = opened("hostile", seconds=0.3)
    began = time.monotonic()
    scores = source.score(asked("fine", answer, "fine", "fine"))
    assert totals(scores) == [0.5, None, 0.5, 0.5]
    assert re.search(why, scores.unscored[1]), scores.unscored[1]
    assert list(scores.unscored) == [1]
    assert time.monotonic() - began < 10.0
    assert totals(source.score(asked("fine"))) == [0.5], "and it goes on"


def test_all_that_it_prints_is_no_reply(opened: Opener, capfd: pytest.CaptureFixture[str]) -> None:
    assert totals(opened("hostile").score(asked("shout", "fine"))) == [0.5, 0.5]
    printed = capfd.readouterr()
    assert printed.out == "", "the program's own output is not touched"
    assert '"outcomes": [[9.0' in printed.err


def test_who_eats_memory_runs_out_of_it_alone(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MEMORY_SHARE", (1 << 28) / process._machine_memory())
    source = opened("hostile")
    scores = source.score(asked("memory", "fine"))
    assert totals(scores) == [None, 0.5]
    assert "MemoryError" in scores.unscored[0]


def test_every_answer_may_crash(opened: Opener) -> None:
    scores = opened("hostile").score(asked(*["exit"] * 6))
    assert totals(scores) == [None] * 6
    assert scores.reasons() == ["6 answers: the reward's process ended by itself (exit code 3)"]


def test_a_worker_that_was_ended_while_idle_is_replaced(opened: Opener) -> None:
    source = opened("process")
    (first,) = source.score(asked("a")).total_B.tolist()
    os.killpg(int(first), signal.SIGKILL)
    time.sleep(0.2)
    (second,) = source.score(asked("b")).total_B.tolist()
    assert second != first


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (["short", "x"], "gave 1 score for 2 answers"),
        (["number", "x"], "gave float, and not a list"),
        (["text", "x"], "gave str, and not a list"),
        (["uneven", "x"], "gave components that are not lists of the same length"),
        (["single", "x"], "gave components that are not lists of the same length"),
        (["hang", "x"], "did not answer within 0.3 seconds"),
    ],
)
def test_a_batch_that_fails_has_no_scores_at_all(answers: list[str], why: str, opened: Opener) -> None:
    source = opened("hostile_batch", seconds=0.3)
    scores = source.score(asked(*answers))
    assert totals(scores) == [None, None]
    assert why in scores.unscored[0]
    assert totals(source.score(asked("a", "b"))) == [0.5, 0.5]


def test_single_scores_of_a_batch_may_be_missing(opened: Opener) -> None:
    source = opened("hostile_batch")
    assert totals(source.score(asked("some", "b", "c", "d"))) == [1.0, None, None, None]
    assert totals(source.score(asked("generator", "b"))) == [1.0, 1.0]
    assert totals(source.score(asked("array", "b"))) == [1.0, 1.0]


def test_an_asynchronous_function_gives_one_answer_up_and_not_the_others(opened: Opener) -> None:
    scores = opened("hangs_asleep", seconds=0.3, parallel=4).score(asked("good", "bad", "good"))
    assert totals(scores) == [1.0, None, 1.0]
    assert "within 0.3 seconds" in scores.unscored[1]


@pytest.mark.parametrize(
    ("name", "why"), [("hangs_awake", "within 0.3 seconds"), ("exits_among_others", "exit code 7")]
)
def test_of_answers_that_were_under_way_together_the_guilty_one_is_found(name: str, why: str, opened: Opener) -> None:
    scores = opened(name, seconds=0.3, parallel=4).score(asked("good", "bad", "good", "good"))
    assert totals(scores) == [1.0, None, 1.0, 1.0]
    assert why in scores.unscored[1]


def test_what_fails_in_passing_is_tried_again(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "FIRST_WAIT_SECONDS", 0.01)
    assert totals(opened("fails_twice").score(asked("a"))) == [1.0]
    monkeypatch.setattr(workers, "TRIES", 2)
    scores = opened("fails_twice").score(asked("a"))
    assert "ConnectionError: the line is busy" in scores.unscored[0]


def test_a_worker_ends_with_whoever_asked(opened: Opener) -> None:
    source = opened("process")
    (number,) = source.score(asked("a")).total_B.tolist()
    source.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(number), 0)


def test_workers_end_with_a_source_that_nobody_holds_any_more() -> None:
    before = set(processes_of(os.getpid()))
    source = FunctionSource(f"{OWN}:process", Allowance(5.0, 2))
    source.score(asked("a"))
    every = set(processes_of(os.getpid())) - before
    assert len(every) == 2
    del source
    gc.collect()
    end = time.monotonic() + 20.0
    while there := [number for number in every if Path(f"/proc/{number}").exists() and not is_zombie(number)]:
        assert time.monotonic() < end, there
        time.sleep(0.02)


def test_workers_end_with_a_run_that_was_killed(tmp_path: Path) -> None:
    """In the middle of a call too: nobody is left to kill them."""
    told = tmp_path / "worker"
    child = os.fork()
    if not child:
        try:
            source = FunctionSource(f"{OWN}:process", Allowance(60.0, 1))
            (number,) = source.score(asked("a")).total_B.tolist()
            told.with_suffix(".part").write_text(str(int(number)))
            told.with_suffix(".part").rename(told)
            FunctionSource(f"{OWN}:hostile", Allowance(60.0, 1)).score(asked("hang"))
        finally:
            os._exit(1)
    while not told.exists():
        time.sleep(0.01)
    end = time.monotonic() + 20.0
    while len(every := set(processes_of(child))) < 4:  # of each function a worker, and where it comes from
        assert time.monotonic() < end, every
        time.sleep(0.02)
    assert int(told.read_text()) in every
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    end += 20.0
    while there := [number for number in every if Path(f"/proc/{number}").exists() and not is_zombie(number)]:
        assert time.monotonic() < end, there
        time.sleep(0.02)


def processes_of(parent: int) -> list[int]:
    """Those that any thread of a process has started, and theirs."""
    tasks = Path(f"/proc/{parent}/task").iterdir()
    children = [int(number) for task in tasks for number in (task / "children").read_text().split()]
    return [*children, *(number for child in children for number in processes_of(child))]


def is_zombie(number: int) -> bool:
    """Whether a process has ended and nobody has asked how."""
    return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_where_workers_come_from_may_be_lost(opened: Opener) -> None:
    """Those that are there go on; further ones come from another."""
    source = opened("process")
    (first,) = source.score(asked("a")).total_B.tolist()
    parent = Path(f"/proc/{int(first)}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(parent), signal.SIGKILL)
    time.sleep(0.2)
    assert source.score(asked("b")).total_B.tolist() == [first]
    os.killpg(int(first), signal.SIGKILL)
    time.sleep(0.2)
    assert source.score(asked("c")).total_B.tolist() != [first]


def test_several_threads_may_ask_at_once(opened: Opener) -> None:
    source = opened("sleeps", parallel=4)
    with ThreadPoolExecutor(3) as pool:
        batches = [asked(*(f"{name}{'x' * i}" for i in range(4))) for name in "abc"]
        assert [totals(scores) for scores in pool.map(source.score, batches)] == [[1.0, 2.0, 3.0, 4.0]] * 3


def test_a_worker_that_nobody_listens_to_says_nothing() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    order = json.dumps({"spec": f"{OWN}:hostile_batch", "setting": "reward.source", "memory": 2**40})
    with os.fdopen(write_end, "wb") as nowhere:
        ended = subprocess.run(
            [sys.executable, "-c", "from holdfast.reward.sources.worker import main; main()"],
            input=order.encode() + b"\n", stdout=nowhere, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, b"")


# --- side by side -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sleeps", "overlapping"])
def test_waiting_overlaps(name: str) -> None:
    """A function that sleeps 50 ms an answer, at batch 64 with the settings as they are: 3.2 s one by one.

    It is the first batch, which most of the processes are started for.
    """
    reward = load_config().reward
    source = FunctionSource(f"{OWN}:{name}", Allowance(reward.timeout_seconds, reward.parallel))
    try:
        began = time.monotonic()
        scores = source.score(asked(*map(str, range(64))))
        took = time.monotonic() - began
    finally:
        source.close()
    assert not scores.unscored
    assert took / (64 * 0.05) < 0.2


def test_no_more_are_under_way_than_the_setting_says(opened: Opener) -> None:
    source = opened("process", parallel=2)
    assert len(set(source.score(asked(*map(str, range(40)))).total_B.tolist())) <= 2
    began = time.monotonic()
    opened("overlapping", parallel=2).score(asked(*"abcdef"))
    assert time.monotonic() - began >= 0.15, "two at a time, 50 ms each"


# --- what is refused at the start -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("nowhere.py:score", "the file nowhere.py, which does not exist"),
        (f"{OWN}:nothing", "has no function or class nothing"),
        (f"{OWN}:not_a_function", "int, which cannot be called"),
        (f"{OWN}:nothing_known", "has to take completions"),
        (f"{OWN}:only_by_place", "has to take completions"),
    ],
)
def test_what_cannot_be_used_is_said_at_the_start(spec: str, sentence: str) -> None:
    with pytest.raises(HoldfastError, match=sentence):
        FunctionSource(spec, Allowance(1.0, 1))


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import nowhere_at_all", "cannot be imported: ModuleNotFoundError"),
        ("def score(completion:", "cannot be imported: SyntaxError"),
        ("import os; os._exit(4)", "while it was imported, .*exit code 4"),
        ("import sys; sys.exit(4)", "cannot be used: SystemExit: 4"),
        ("class score:\n    def __init__(self): raise ValueError('no model')", "cannot be used: ValueError: no model"),
    ],
)
def test_a_file_that_fails_is_said_at_the_start(code: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(HoldfastError, match=sentence):
        FunctionSource(f"{tmp_path / 'mine.py'}:score", Allowance(1.0, 1))


def test_a_file_that_hangs_is_said_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "START_SECONDS", 0.3)
    (tmp_path / "mine.py").write_text("import time\ntime.sleep(60)")
    with pytest.raises(HoldfastError, match=r"was not imported within 0.3 seconds"):
        FunctionSource(f"{tmp_path / 'mine.py'}:score", Allowance(1.0, 1))


# --- in this process --------------------------------------------------------------------------------------------


def test_a_function_of_this_process() -> None:
    def long(completions: list[str], floor: list[int]) -> list[float | None]:
        return [len(text) if len(text) > least else None for text, least in zip(completions, floor, strict=True)]

    source = CallableSource(long)
    assert (source.name, source.nature.alone) == ("long", False)
    assert totals(source.score(asked("aaa", "a", floor=[1, 1]))) == [3.0, None]
    assert totals(CallableSource(lambda answer: len(answer), "lengths").score(asked("aaa", "a"))) == [3.0, 1.0]
