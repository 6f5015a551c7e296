"""Who is slow to ask or to read is given up; who waits for a slow answer is not. On raw sockets, against uvicorn."""

import asyncio
import socket
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn

from holdfast.cli.serve import bind, server_config
from holdfast.web import connections

PATIENCE_SECONDS = 5.0
SOON = 0.3
POST = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\n"
GET = b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def plain(scope, receive, send):
    """Reads the body, then answers: at /late after a while, at /stream bit by bit, at /large a lot."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message.get("body", b""), message.get("more_body", False)
    path = scope["path"]
    await asyncio.sleep(4 * SOON if path == "/late" else 0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    parts = {"/stream": 8, "/large": 1000}.get(path, 1)
    for _ in range(parts):
        await asyncio.sleep(SOON / 2 if path == "/stream" else 0)
        part = b"x" * 2**20 if path == "/large" else b"tick %d" % len(body)
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b" end"})


@contextmanager
def serving(app):
    listener, address = bind("127.0.0.1", 0)
    server = uvicorn.Server(server_config(app, grace_seconds=1))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server, ("127.0.0.1", int(address.rpartition(":")[2]))
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_SECONDS", SOON)
    monkeypatch.setattr(connections, "READING_SECONDS", SOON)


@pytest.fixture
def server():
    with serving(plain) as running:
        yield running


def connected(place) -> socket.socket:
    return socket.create_connection(place, timeout=PATIENCE_SECONDS)


def until_closed(wire: socket.socket, drop: bytes = b"") -> bytes:
    """What the server says while drops go on arriving, until it hangs up."""
    said, end = b"", time.monotonic() + PATIENCE_SECONDS
    wire.settimeout(0.02)
    while time.monotonic() < end:
        try:
            if drop:
                wire.sendall(drop)
            part = wire.recv(65536)
            if not part:
                return said
            said += part
        except TimeoutError:
            continue
        except OSError:
            return said
    pytest.fail("the connection stays open")


BEGINNINGS = {
    "says nothing": (b"", b""),
    "sends its first line a byte at a time": (b"GET /", b"x"),
    "sends header after header": (GET[:-2], b"X: y\r\n"),
    "sends a body a byte at a time": (POST + b"Content-Length: 100000\r\n\r\n", b"x"),
    "sends a body in chunks of a byte": (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "promises a body and sends none": (POST + b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n", b""),
}


@pytest.mark.parametrize("how", BEGINNINGS)
def test_who_is_slow_to_ask_is_given_up(server, how):
    beginning, drop = BEGINNINGS[how]
    began = time.monotonic()
    with connected(server[1]) as wire:
        wire.sendall(beginning)
        said = until_closed(wire, drop)
    assert time.monotonic() - began < 2.0
    if not drop:  # who goes on sending to a closed connection may lose what was said last
        assert b"HTTP/1.1 408 Request Timeout" in said
        assert said.endswith(connections.LATE)


def test_a_second_request_on_one_connection_has_no_more_time_than_the_first(sqlite_site, caplog):
    """On the real pages: a good request first, then one that does not go on, in its head or its form."""
    with serving(sqlite_site.app) as (_, place):
        form = b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 9999\r\n\r\nname="
        for second in (b"GET /", POST + form):
            with connected(place) as wire:
                wire.sendall(GET)
                assert wire.recv(15) == b"HTTP/1.1 200 OK"
                time.sleep(0.1)
                wire.sendall(second)
                assert until_closed(wire).endswith(connections.LATE)
            with connected(place) as wire:
                wire.sendall(GET + second)  # which is there when the first one has been answered
                said = until_closed(wire, b"x")
                assert said.startswith(b"HTTP/1.1 200 OK")
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_who_sends_slowly_but_steadily_is_answered(server, monkeypatch):
    monkeypatch.setattr(connections, "SLOWEST_BYTES_PER_SECOND", 20_000)
    with connected(server[1]) as wire:
        wire.sendall(POST + b"Content-Length: 200000\r\n\r\n")
        for _ in range(20):
            wire.sendall(b"x" * 10_000)
            time.sleep(0.04)
        assert until_closed(wire).endswith(b"tick 200000\r\n4\r\n end\r\n0\r\n\r\n")


@pytest.mark.parametrize(("path", "ticks"), [("/late", 1), ("/stream", 8)])
def test_a_slow_answer_is_the_application_s_affair(server, path, ticks):
    with connected(server[1]) as wire:
        wire.sendall(GET.replace(b"/login", path.encode()))
        said = until_closed(wire)
    assert said.startswith(b"HTTP/1.1 200 OK")
    assert said.count(b"tick") == ticks


def test_who_does_not_read_is_given_up(server):
    running, place = server
    with connected(place) as wire:
        wire.sendall(GET.replace(b"/login", b"/large"))
        end = time.monotonic() + PATIENCE_SECONDS
        time.sleep(0.1)
        while running.server_state.connections:
            assert time.monotonic() < end, "the connection stays open"
            time.sleep(0.02)


def test_beyond_so_many_connections_nobody_is_kept_waiting(server, monkeypatch):
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(connections, "REQUEST_SECONDS", PATIENCE_SECONDS)
    idle = [connected(server[1]) for _ in range(3)]
    with connected(server[1]) as wire:
        assert b"503 Service Unavailable" in until_closed(wire)
    idle.pop().close()
    time.sleep(0.1)
    with connected(server[1]) as wire:
        wire.sendall(GET)
        assert b"200 OK" in until_closed(wire)
    for wire in idle:
        wire.close()
