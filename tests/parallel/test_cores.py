"""Work side by side: results in order, gradients or none as the caller has it, no sharing inside a share."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from holdfast.models.gradients import accumulate
from holdfast.parallel import cores
from holdfast.parallel.cores import CORES, available


@pytest.fixture
def two_workers() -> Iterator[None]:
    CORES.set_workers(2)
    yield
    CORES.set_workers(1)


def test_results_come_back_in_order_from_threads_of_their_own(two_workers: None) -> None:
    def piece(i: int) -> tuple[int, str]:
        time.sleep(0.02 * (3 - i))
        return i, threading.current_thread().name

    results = CORES.share([partial(piece, i) for i in range(3)])
    assert [i for i, _ in results] == [0, 1, 2]
    assert all(name.startswith("holdfast") for _, name in results)


def test_one_worker_does_everything_where_it_is() -> None:
    here = threading.current_thread().name
    assert CORES.share([lambda: threading.current_thread().name] * 2) == [here, here]


def test_the_caller_decides_about_gradients(two_workers: None) -> None:
    with torch.no_grad():
        assert CORES.share([torch.is_grad_enabled] * 4) == [False] * 4
    assert CORES.share([torch.is_grad_enabled] * 4) == [True] * 4


def test_a_piece_that_shares_does_its_own_work_alone(two_workers: None) -> None:
    def outer() -> set[str]:
        return set(CORES.share([lambda: threading.current_thread().name] * 3))

    assert all(len(names) == 1 for names in CORES.share([outer, outer]))


def test_what_a_piece_raises_reaches_the_caller(two_workers: None) -> None:
    def fail() -> None:
        raise ZeroDivisionError("piece two")

    with pytest.raises(ZeroDivisionError, match="piece two"):
        CORES.share([lambda: None, fail])


def test_gradients_are_the_same_bits_whoever_is_done_first(two_workers: None) -> None:
    weight = torch.nn.Parameter(torch.randn(40, 30, generator=torch.Generator().manual_seed(0)))
    batches = [torch.randn(50, 40, generator=torch.Generator().manual_seed(i)) for i in range(5)]

    def loss(batch: torch.Tensor, slow: float = 0.0) -> tuple[torch.Tensor, int]:
        time.sleep(slow * float(batch[0, 0].abs()))
        return (batch @ weight).pow(2).sum(), len(batch)

    assert accumulate([weight], batches, loss) == [50] * 5
    first = weight.grad
    assert first is not None
    for slow in (0.01, 0.003):
        weight.grad = None
        accumulate([weight], batches, partial(loss, slow=slow))
        assert torch.equal(weight.grad, first)  # type: ignore[arg-type]


@pytest.mark.parametrize(("quota", "cores_expected"), [("max 100000", 3), ("200000 100000", 2), ("50000 100000", 1)])
def test_a_container_s_quota_counts(
    quota: str, cores_expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _pid: {0, 1, 2})
    file = tmp_path / "cpu.max"
    file.write_text(quota + "\n")
    monkeypatch.setattr(cores, "QUOTA", file)
    assert available() == cores_expected


def test_a_piece_knows_how_many_share_the_memory_with_it() -> None:
    own = cores.Cores()
    own.set_workers(3)
    assert own.sharers == 1
    assert own.share([lambda: own.sharers] * 2) == [2, 2]
    assert own.share([lambda: own.sharers] * 5) == [3] * 5
    assert own.sharers == 1


def test_a_forked_process_has_threads_of_its_own() -> None:
    assert CORES.attempt([lambda: 1], 10.0) == [1]
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if CORES.attempt([lambda: 2], 10.0) == [2] else 1)
    assert os.waitpid(child, 0)[1] == 0
