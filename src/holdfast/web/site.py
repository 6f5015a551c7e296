"""Everything that the pages are about: a run, its database, and who is let in how often."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.config import Config
from holdfast.drawings.registry import drawing_of
from holdfast.errors import HoldfastError
from holdfast.people.accounts import AccountStore
from holdfast.people.instructions import Instructions, read_instructions
from holdfast.people.queue import LabelQueue
from holdfast.people.requests import RequestStore
from holdfast.preferences.store import PreferenceStore
from holdfast.run.directory import RunDirectory
from holdfast.web.live_run import LiveRun

LOOPBACK = ("127.0.0.1", "localhost", "::1")
WINDOW_SECONDS = 60.0
MOST_FAILURES = 5
MOST_REMEMBERED = 10_000


@dataclass
class RateLimit:
    """How often somebody has tried to log in within the last minute, by where they come from and by name.

    A try counts from before its password is checked, so that many at once are not checked all; a right one is
    taken off the count again.
    """

    clock: Callable[[], float] = time.monotonic
    _tries: dict[str, list[float]] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, *keys: str) -> float:
        """Count a try and return 0; or, where there were too many, the seconds until another one is allowed."""
        now = self.clock()
        with self._guard:
            recent = [self._recent(key, now) for key in keys]
            full = [times[-MOST_FAILURES] for times in recent if len(times) >= MOST_FAILURES]
            if not full:
                self._count(keys, now)
        return max((first + WINDOW_SECONDS - now for first in full), default=0.0)

    def succeeded(self, *keys: str) -> None:
        """Take the newest try off the count."""
        with self._guard:
            for key in keys:
                if times := self._tries.get(key):
                    times.pop()

    def _count(self, keys: tuple[str, ...], now: float) -> None:
        if len(self._tries) > MOST_REMEMBERED:
            self._tries = {key: times for key in list(self._tries) if (times := self._recent(key, now))}
        for key in keys:
            self._tries.setdefault(key, []).append(now)

    def _recent(self, key: str, now: float) -> list[float]:
        times = [at for at in self._tries.get(key, []) if now - at < WINDOW_SECONDS]
        if key in self._tries:
            self._tries[key] = times
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
    drawing: str = ""
    instructions: Instructions | None = None
    host: str = "127.0.0.1"
    logins: RateLimit = field(default_factory=RateLimit)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK

    def refuse_trainers(self) -> None:
        """Nobody carries out what an owner asks of somebody else's trainer."""
        if trainer := self.run.trainer:
            raise HoldfastError(
                f"This is the guard of a {trainer}, which nobody acts on from here: act on the trainer."
            )

    def close(self) -> None:
        self.live.close()
        self.store.close()


def open_site(run: RunDirectory, host: str = "127.0.0.1") -> Site:
    """The site of a run directory, with its database open."""
    config = run.config()
    instructions = read_instructions(config.people.instructions)
    store = run.open_store(config)
    return Site(
        run=run,
        config=config,
        store=store,
        accounts=AccountStore(store.database),
        queue=LabelQueue(store.database, run.key, config.people),
        requests=RequestStore(store.database, run.key),
        live=LiveRun(run.path),
        drawing=drawing_of(run.manifest()),
        instructions=instructions,
        host=host,
    )
