"""Connections that are given up when the other side takes too long: to ask, to go on asking, or to read the answer.

uvicorn itself ends only those that are idle after an answer. Who sends a request a byte at a time, or opens a
connection and says nothing, would keep it for good, and enough of them would keep everybody else out. How long an
answer takes is the application's affair: a stream of events may last for days.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# A request's head has this long to arrive, and so has its body, which gets more time for what has come.
REQUEST_SECONDS = 20.0
SLOWEST_BYTES_PER_SECOND = 8 * 1024
# An answer of which nothing is read for so long is not read at all.
READING_SECONDS = 60.0
# Beyond this many nobody is listened to: a process may usually have 1024 files open, and needs some for its work.
MOST_CONNECTIONS = 800
LATE = b"The request took too long to arrive."
FULL = b"Too many connections at once; try again in a moment."


class TimedConnection(H11Protocol):
    """One connection of uvicorn's, with a clock for each thing that is waited for."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._request_clock: asyncio.TimerHandle | None = None
        self._body_began: float | None = None
        self._body_bytes = 0
        self._reading_clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that whatever is not read yet is told of
        if len(self.connections) > MOST_CONNECTIONS:
            self._end(503, FULL)
        else:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_reading_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._body_began is not None:
            self._body_bytes += len(data)
        super().data_received(data)
        self._follow(began=True)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Another request may have come with the one before; what follows an answer is uvicorn's to wait for.
        self._follow(began=False)

    def _follow(self, began: bool) -> None:
        """Wait for what is missing of a request: the rest of its head, the rest of its body, or nothing."""
        if self.transport.is_closing():
            self._stop_waiting()
        elif self.conn.their_state is h11.SEND_BODY:
            if self._body_began is None:
                self._stop_waiting()
                self._body_began, self._body_bytes = self.loop.time(), 0
                self._request_clock = self.loop.call_later(REQUEST_SECONDS, self._body_is_late)
        elif self.conn.their_state is h11.IDLE and began:
            if self._request_clock is None:
                self._wait_for_head()
        else:
            self._stop_waiting()

    def _wait_for_head(self) -> None:
        self._request_clock = self.loop.call_later(REQUEST_SECONDS, self._end, 408, LATE)

    def _body_is_late(self) -> None:
        """More time for a body that comes slowly but steadily, or that the application has not taken yet."""
        assert self._body_began is not None
        allowed = REQUEST_SECONDS + self._body_bytes / SLOWEST_BYTES_PER_SECOND
        left = self._body_began + allowed - self.loop.time()
        if self.flow.read_paused:
            left = max(left, REQUEST_SECONDS)
        if left > 0:
            self._request_clock = self.loop.call_later(left, self._body_is_late)
        else:
            self._end(408, LATE)

    def _stop_waiting(self) -> None:
        if self._request_clock is not None:
            self._request_clock.cancel()
        self._request_clock = self._body_began = None

    def _end(self, status: int, words: bytes) -> None:
        """Say why, where nothing has been said yet, and hang up."""
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(words)))]
            phrase = HTTPStatus(status).phrase.encode()
            response = h11.Response(status_code=status, headers=[*headers, ("Connection", "close")], reason=phrase)
            events = (response, h11.Data(data=words), h11.EndOfMessage())
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reading()

    def resume_writing(self) -> None:
        self._stop_reading_clock()
        super().resume_writing()

    def _wait_for_reading(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._reading_clock = self.loop.call_later(READING_SECONDS, self._reading_is_late, unread)

    def _reading_is_late(self, unread: int) -> None:
        if self.transport.get_write_buffer_size() < unread:
            self._wait_for_reading()
        else:
            self.transport.abort()

    def _stop_reading_clock(self) -> None:
        if self._reading_clock is not None:
            self._reading_clock.cancel()
        self._reading_clock = None
