"""Trials side by side: in order, one failure does not end the others, and a line for each."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from benchmarks.trials import run_trials

from holdfast.errors import HoldfastError
from holdfast.lab import runner
from holdfast.lab.runner import KILLED, Clock, TrialOutcome, attempt_trials, summary
from holdfast.lab.trial import TRIAL_FILE, Job, Trial
from made_trials import trial


class InProcess:
    """Stands in for a pool of one process; what a job's only override says happens."""

    made = 0

    def __init__(self, workers: int, mp_context: Any, initializer: Any) -> None:
        InProcess.made += 1

    def submit(self, work: object, job: Job) -> Future[Any]:
        future: Future[Any] = Future()
        match job.overrides[0]:
            case "refused":
                future.set_exception(HoldfastError("The world is closed."))
            case "bug":
                future.set_exception(ZeroDivisionError("division by zero"))
            case "killed":
                future.set_exception(BrokenProcessPool())
            case _:
                future.set_result(trial([0.0, 0.5, 0.4], seed=job.seed))
        return future

    def shutdown(self, wait: bool, cancel_futures: bool) -> None:
        pass


@pytest.fixture(autouse=True)
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    InProcess.made = 0
    monkeypatch.setattr(runner, "ProcessPoolExecutor", InProcess)


def jobs(tmp_path: Path, *fates: str) -> list[Job]:
    return [Job([fate], i, tmp_path / f"trial-{i}", name=f"job {i}") for i, fate in enumerate(fates)]


def test_outcomes_come_in_the_order_of_the_jobs(tmp_path: Path) -> None:
    said: list[str] = []
    outcomes = attempt_trials(jobs(tmp_path, *["fine"] * 5), 2, said.append)
    assert [o.trial.seed for o in outcomes if o.trial] == [0, 1, 2, 3, 4]
    assert len(said) == 5
    assert said[-1].startswith("[5/5] job ")


def test_a_failure_is_told_and_ends_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    outcomes = attempt_trials(jobs(tmp_path, "refused", "fine", "bug", "killed", "fine"), 1, said.append)
    assert [o.failure for o in outcomes] == [
        "The world is closed.", "", "ZeroDivisionError: division by zero.", KILLED, "",
    ]  # fmt: skip
    assert [o.trial is None for o in outcomes] == [True, False, True, True, False]
    assert "job 0: FAILED: The world is closed." in said[0]
    # A process that died is replaced; the others are used again.
    assert InProcess.made == 2


def test_a_trial_that_has_ended_takes_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = jobs(tmp_path, "fine", "fine")
    for job in done:
        job.path.mkdir()
        (job.path / TRIAL_FILE).touch()

    def read(job: Job) -> Trial:
        if job.seed == 1:
            raise HoldfastError("It holds a trial with other settings.")
        return trial([0.0, 0.5])

    monkeypatch.setattr(runner, "run_trial", read)
    outcomes = attempt_trials(done, 2, lambda line: None)
    assert InProcess.made == 0
    assert outcomes[0].trial is not None
    assert outcomes[1].failure == "It holds a trial with other settings."


def test_where_all_are_needed_a_failure_is_refused(tmp_path: Path) -> None:
    assert [t.seed for t in run_trials(jobs(tmp_path, "fine", "fine"))] == [0, 1]
    with pytest.raises(HoldfastError, match=r"The trial trial-1 failed: The world is closed\."):
        run_trials(jobs(tmp_path, "fine", "refused"))


def test_a_line_says_what_happened_and_how_long_is_left(tmp_path: Path) -> None:
    job = jobs(tmp_path, "fine")[0]
    clock = Clock(jobs=3, workers=1, started=0.0)
    found = trial([0.0, 0.5, 0.4], verdicts={1: "healthy", 2: "hacking"}, rollbacks=[{}, {}])
    line = clock.line(TrialOutcome(job, found), fresh=True)
    assert line.startswith(
        "[1/3] job 0: gold +0.00 -> +0.40 (best +0.50), proxy +0.10 -> +0.40, KL 2.0, "
        "hacking called in round 2, 2 rollbacks; "
    )
    assert line.endswith(" left")
    # Nothing was run yet, so nothing is known about the time.
    assert "left" not in Clock(jobs=3, workers=1).line(TrialOutcome(job, found), fresh=False)
    assert summary(TrialOutcome(job, trial([0.0, 0.5], stopped="asked"))).endswith(", stopped")


def test_a_worker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text(
        "import os, time\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from multiprocessing import get_context\n"
        "from holdfast.lab.runner import leave_with_parent\n"
        "if __name__ == '__main__':\n"
        "    pool = ProcessPoolExecutor(1, mp_context=get_context('spawn'), initializer=leave_with_parent)\n"
        "    print(pool.submit(os.getpid).result(), flush=True)\n"
        "    pool.submit(time.sleep, 600).result()\n"
    )
    parent = subprocess.Popen([sys.executable, str(driver)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert int(parent.stdout.readline()) != parent.pid
    parent.kill()
    # The worker writes to the same pipe, which ends when it does.
    assert parent.communicate(timeout=30) == ("", None)
