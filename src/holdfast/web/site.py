"""Everything that the pages are about: a run, its database, and who is let in how often."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.config import Config
from holdfast.preferences.accounts import AccountStore
from holdfast.preferences.queue import LabelQueue
from holdfast.preferences.requests import RequestStore
from holdfast.preferences.store import PreferenceStore
from holdfast.rundir import RunDirectory
from holdfast.web.live import LiveRun

LOOPBACK = ("127.0.0.1", "localhost", "::1")
WINDOW_SECONDS = 60.0
MOST_FAILURES = 5
MOST_REMEMBERED = 10_000


@dataclass
class RateLimit:
    """How often somebody has failed to log in within the last minute, by where they come from and by name."""

    clock: Callable[[], float] = time.monotonic
    _failures: dict[str, list[float]] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def wait(self, *keys: str) -> float:
        """Seconds until another try is allowed; 0 for now."""
        now = self.clock()
        with self._guard:
            found = [self._recent(key, now) for key in keys]
            full = [times[-MOST_FAILURES] for times in found if len(times) >= MOST_FAILURES]
        return max((first + WINDOW_SECONDS - now for first in full), default=0.0)

    def failed(self, *keys: str) -> None:
        now = self.clock()
        with self._guard:
            if len(self._failures) > MOST_REMEMBERED:
                self._failures = {key: times for key, times in self._failures.items() if self._recent(key, now)}
            for key in keys:
                self._failures.setdefault(key, []).append(now)

    def _recent(self, key: str, now: float) -> list[float]:
        times = [at for at in self._failures.get(key, []) if now - at < WINDOW_SECONDS]
        if key in self._failures:
            self._failures[key] = times
        return times


@dataclass
class Site:
    """What the routes work with."""

    run: RunDirectory
    config: Config
    store: PreferenceStore
    accounts: AccountStore
    queue: LabelQueue
    requests: RequestStore
    live: LiveRun
    host: str = "127.0.0.1"
    logins: RateLimit = field(default_factory=RateLimit)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK

    def close(self) -> None:
        self.live.close()
        self.store.close()


def open_site(run: RunDirectory, host: str = "127.0.0.1") -> Site:
    """The site of a run directory, with its database open."""
    config = run.config()
    store = PreferenceStore.open(run.database_url(config))
    return Site(
        run=run,
        config=config,
        store=store,
        accounts=AccountStore(store.database),
        queue=LabelQueue(store.database, run.key, config.people),
        requests=RequestStore(store.database, run.key),
        live=LiveRun(run.path),
        host=host,
    )
