"""The line between the benchmark and a driver, with drivers that only pretend."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks.speed.line import Driver
from benchmarks.speed.measure import best_threads

from holdfast.errors import HoldfastError

PRETENDER = """
import sys
sys.path.insert(0, ".")
from benchmarks.speed.wire import Stopped, Wire
wire = Wire()
print("a library says hello")
wire.ready({"threads": 1})
n = 0
while True:
    try:
        wire.wait()
    except Stopped:
        print("told to stop")
        break
    n += 1
    print("a library says", n)
    wire.done({"seconds": n, "cpu_seconds": n / 2, "phases": {"sample": n}, "cpu_phases": {},
               "lengths": [[2, n], [3, 4]], "peak_memory": 10 * n})
    if n == 3:
        raise RuntimeError("no more of this.")
"""


def driver_of(source: str, tmp_path: Path) -> Driver:
    script = tmp_path / "driver.py"
    script.write_text(source)
    return Driver("the pretender", [sys.executable, str(script)], tmp_path / "logs" / "driver.log")


def test_one_report_for_each_go_whatever_libraries_print(tmp_path: Path) -> None:
    with driver_of(PRETENDER, tmp_path) as driver:
        assert driver.facts == {"threads": 1}
        first, second = driver.go(), driver.go()
    assert (first.seconds, first.cpu_seconds, second.phases, second.peak_memory) == (1.0, 0.5, {"sample": 2}, 20)
    assert (second.samples, second.response_tokens) == (2, 6)
    assert driver.reports == [first, second]
    said = driver.log.read_text()
    assert "a library says hello" in said
    assert "told to stop" in said


def test_a_driver_that_dies_is_quoted(tmp_path: Path) -> None:
    with driver_of(PRETENDER, tmp_path) as driver:
        for _ in range(3):
            driver.go()
        with pytest.raises(HoldfastError) as error:
            driver.go()
    assert str(error.value) == (
        f"the pretender stopped: RuntimeError: no more of this; all that it said is in {driver.log}."
    )


def test_what_was_still_to_be_said_to_a_dead_driver_is_dropped(tmp_path: Path) -> None:
    with driver_of("import json; print(json.dumps({'ready': {}}), flush=True)", tmp_path) as driver:
        driver._process.wait(60)
        with pytest.raises(HoldfastError, match="the pretender stopped: it said nothing;"):
            driver.go()


def test_a_driver_that_never_gets_ready_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match=r"the pretender stopped: .*No module named 'nowhere'; all"):
        driver_of("import nowhere", tmp_path).__enter__()


def test_a_silent_end_is_reported_too(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="the pretender stopped: it said nothing;"):
        driver_of("", tmp_path).__enter__()


def test_a_driver_that_is_killed_says_so(tmp_path: Path) -> None:
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(HoldfastError, match=r"the pretender stopped: something killed it \(SIGKILL\), for want of"):
        driver_of(killed, tmp_path).__enter__()


def test_somebody_else_gets_the_number_of_threads_that_suits_it() -> None:
    used = [0]
    cost = {0: 9.0, 1: 2.0, 4: 3.0}
    assert best_threads(4, lambda n: used.append(n), lambda: cost[used[-1]]) == 1
    assert used == [0, 1, 4, 1]
    assert best_threads(1, lambda n: used.append(n), lambda: 0.0) == 1
    assert used == [0, 1, 4, 1]
