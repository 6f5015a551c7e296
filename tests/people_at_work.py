"""People who answer what a run asks, in a thread beside it: simulated ones who like the shorter answer."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from holdfast.config.schema import PeopleConfig
from holdfast.people.queue import LabelQueue, Lease, Said
from holdfast.preferences.store import PreferenceStore

# As a run's settings: one opinion each.
SETTINGS = {"world__labeller": "people", "people__overlap": "0.0"}


def shorter(lease: Lease) -> Said:
    left, right = lease.shown.a.text, lease.shown.b.text
    return "tie" if left == right else "left" if len(left) < len(right) else "right"


@contextlib.contextmanager
def answering(url: str, run: str, *names: str, choose: Callable[[Lease], Said] = shorter) -> Iterator[list[str]]:
    """Answers in the background until the block ends; gives the ids that have been answered, as they are."""
    done, answered = threading.Event(), []

    def work() -> None:
        with PreferenceStore.open(url) as store:
            queue = LabelQueue(store.database, run, PeopleConfig())
            while not done.is_set():
                for name in names or ("anna",):
                    if lease := queue.next(name):
                        queue.submit(f"{name}-{lease.token}", name, lease.token, choose(lease), 3.0)
                        answered.append(lease.comparison.id)
                    else:
                        time.sleep(0.02)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("holdfast.people.team.POLL_SECONDS", 0.05)
            yield answered
    finally:
        done.set()
        thread.join()
