"""Settings of every test; being here also puts `small_run` on the path of the tests below."""

import os
from collections.abc import Callable, Iterator

import pytest

import tally

# The tests' models are so small that a second thread only waits for the first.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="try every case of a fault, not a few (benchmarks faults)")


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--thorough"))


@pytest.fixture(autouse=True)
def _tallied(record_property: Callable[[str, object], None]) -> Iterator[None]:
    yield
    for what, times in tally.taken().items():
        record_property(what, times)
