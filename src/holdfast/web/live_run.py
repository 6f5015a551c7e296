"""The dashboard's picture of a run, drawn in the background as the run writes, and only while somebody looks.

    files -> RunFollower (what is new) -> RunData -> charts and words as HTML -> every visitor

Drawing a long run takes seconds; visitors get the last finished picture at once, and the next one when it is there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.report.data import RunData, RunFollower

LOG = logging.getLogger("holdfast.web")
LOOK_SECONDS = 1.0
# Of the time between two pictures at most a quarter is spent on drawing, so that the run keeps the machine.
REST_FACTOR = 3.0
# Nobody has looked for so long: nothing is drawn until somebody does.
IDLE_SECONDS = 30.0
LONGEST_WAIT = 60.0
SOON_SECONDS = 0.05


@dataclass(frozen=True)
class Picture:
    """One drawing of the run: its data, the HTML of the live part, and charts for a closer look."""

    number: int
    data: RunData
    live: str
    more: str


Draw = Callable[[RunData], tuple[str, str]]


class LiveRun:
    """Follows one run directory in a thread of its own; `start` it with the function that draws."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._follower = RunFollower(path)
        self._picture: Picture | None = None
        self._drawn: tuple[int, ...] | None = None
        self._looked = 0.0
        self._news = threading.Condition()
        self._closed = threading.Event()
        self._wake = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, draw: Draw) -> None:
        """Begin to follow; the first picture is drawn at once."""
        self._looked = time.monotonic()
        self._thread = threading.Thread(target=self._follow, args=(draw,), name="live run", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def picture(self) -> Picture:
        """The newest picture; waits for the first one."""
        picture = self.picture_soon(LONGEST_WAIT)
        if picture is None:
            raise RuntimeError("the run could not be drawn") from self._error
        return picture

    def picture_soon(self, seconds: float = SOON_SECONDS) -> Picture | None:
        """The newest picture; None if the first one is not there in a moment."""
        self._looked = time.monotonic()
        self._wake.set()
        with self._news:
            self._news.wait_for(lambda: self._picture or self._error, timeout=seconds)
            return self._picture

    def _follow(self, draw: Draw) -> None:
        while not self._closed.is_set():
            cost = 0.0
            if self._picture is None or time.monotonic() - self._looked < IDLE_SECONDS:
                began = time.monotonic()
                try:
                    self._look(draw)
                except Exception as error:
                    LOG.exception("the run could not be drawn; the last picture of it stays")
                    with self._news:
                        self._error = error
                        self._news.notify_all()
                cost = time.monotonic() - began
                self._closed.wait(max(LOOK_SECONDS, REST_FACTOR * cost))
            else:
                self._wake.clear()
                self._wake.wait()

    def _look(self, draw: Draw) -> None:
        sizes = self._follower.sizes()
        if sizes == self._drawn and self._picture is not None:
            return
        data = self._follower.read()
        live, more = draw(data)
        with self._news:
            self._picture = Picture((self._picture.number if self._picture else 0) + 1, data, live, more)
            self._drawn, self._error = sizes, None
            self._news.notify_all()
