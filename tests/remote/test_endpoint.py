"""What servers do to those who ask: bad lines, broken chunks, endless headers, one byte at a time; on raw sockets."""

import itertools
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
import torch

from holdfast.config.schema import JudgeConfig, VLLMConfig
from holdfast.errors import HoldfastError
from holdfast.interop.reward_client import RewardClient
from holdfast.people.judge import JudgeLabeller
from holdfast.preferences.comparison import Comparison, Provenance, Response
from holdfast.rollout.vllm_api import VLLMServer

Script = Callable[[socket.socket], None]
JUDGED = b'{"choices": [{"message": {"content": "Verdict: A"}}]}'
SCORED = b'{"version": 1, "answers": [{"score": 0.5}]}'


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def says(raw: bytes) -> Script:
    """As a connection's last words: one that seemed open would cost a try."""
    return lambda wire: wire.sendall(raw.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))


def drips(head: bytes, drop: bytes) -> Script:
    """Goes on until nobody listens any more."""

    def script(wire: socket.socket) -> None:
        wire.sendall(head)
        while True:
            wire.sendall(drop)
            time.sleep(0.05)

    return script


BAD_STATUS_LINE = b"HTTP/one 2OO fine\r\n\r\n"
BROKEN_CHUNK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"
OVERLONG_HEADER = b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 300_000 + b"\r\n\r\n"
NESTED = answer(b"[" * 100_000 + b"]" * 100_000)
TRUNCATED = answer(JUDGED)[:-9]
BREAKAGES = {
    "bad status line": BAD_STATUS_LINE,
    "broken chunk": BROKEN_CHUNK,
    "overlong header": OVERLONG_HEADER,
    "deeply nested JSON": NESTED,
    "truncated body": TRUNCATED,
    "nothing at all": b"",
    "no JSON": answer(b"<html>"),
    "no text": answer(b"\xff\xfe"),
    "JSON of another shape": answer(b'{"choices": {}, "answers": 3, "data": 7}'),
    "a null where the words should be": answer(b'{"choices": [{"message": {"content": null}}]}'),
    "busy": answer(b"", "503 Busy"),
    "too early": answer(b"{}", "425 Too Early"),
    "a status that nobody has heard of": answer(b"{}", "599 Whatever"),
}


class RawServer:
    """Answers each request by the next script, then by `otherwise`; counts connections and requests."""

    def __init__(self, otherwise: bytes, *scripts: Script) -> None:
        self.scripts, self.otherwise = list(scripts), otherwise
        self.connections, self.requests = 0, list[bytes]()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                wire, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(wire,), daemon=True).start()

    def _serve(self, wire: socket.socket) -> None:
        with wire, suppress(OSError):
            while request := self._request(wire):
                with self._lock:
                    self.requests.append(request)
                    script = self.scripts.pop(0) if self.scripts else None
                if script is not None:
                    script(wire)
                    return  # whatever it was, the connection is spent
                wire.sendall(self.otherwise)

    @staticmethod
    def _request(wire: socket.socket) -> bytes:
        arrived = b""
        while b"\r\n\r\n" not in arrived:
            if not (part := wire.recv(65536)):
                return b""
            arrived += part
        head, _, body = arrived.partition(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        while len(body) < length:
            body += wire.recv(65536)
        return head + b"\r\n\r\n" + body

    def close(self) -> None:
        self._listener.close()


@contextmanager
def server(otherwise: bytes, *scripts: Script) -> Iterator[RawServer]:
    running = RawServer(answer(otherwise), *scripts)
    try:
        yield running
    finally:
        running.close()


def pair(key: str = "1") -> Comparison:
    return Comparison(key, "q", *(Response(text, Provenance("v", 0, 0)) for text in "ab"), round=0)


def judge_at(url: str, sleep: Callable[[float], None] = lambda seconds: None, **settings: object) -> JudgeLabeller:
    return JudgeLabeller(JudgeConfig(url=url, model="m", both_orders=False, **settings), sleep)


@pytest.mark.parametrize("raw", BREAKAGES.values(), ids=BREAKAGES.keys())
def test_a_reply_that_breaks_is_asked_for_again(raw):
    """One of a few, as one of forty: the run has every label and nobody hears of it."""
    with server(JUDGED, says(raw)) as there:
        labels = judge_at(there.url, parallel=1).label([pair("1"), pair("2"), pair("3")])
    assert [label.comparison_id for label in labels] == ["1", "2", "3"]
    assert len(there.requests) == 4


@pytest.mark.parametrize("raw", BREAKAGES.values(), ids=BREAKAGES.keys())
def test_one_that_breaks_every_time_is_a_sentence_for_whoever_asked(raw):
    with server(b"", *[says(raw)] * 12) as there:
        with pytest.raises(HoldfastError, match=rf"^1 of 1 .* to the judge failed: the endpoint {there.url}/chat"):
            judge_at(there.url).label([pair()])
        with pytest.raises(HoldfastError, match=rf"^The vLLM server {there.url} .*(vllm\.url|vllm\.timeout|start it)"):
            VLLMServer(VLLMConfig(url=there.url), sleep=lambda seconds: None).check(10)
        with pytest.raises(HoldfastError, match=rf"^The reward service at {there.url} .*(URL|timeout|start it)"):
            RewardClient(there.url, "t", retries=3, sleep=lambda seconds: None).score(["a"], ["b"])
    assert len(there.requests) == 12


HEAD = b"HTTP/1.1 200 OK\r\n"
DRIPS = {
    "head": drips(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x"),
    "header after header": drips(HEAD, b"X: y\r\n"),
    "interim replies": drips(b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "body": drips(HEAD + b"Content-Length: 1000\r\n\r\n", b" "),
    "chunks": drips(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
}


@pytest.mark.parametrize("drip", DRIPS.values(), ids=DRIPS.keys())
def test_an_endpoint_that_drips_does_not_outlive_the_timeout(drip):
    with server(JUDGED, *[drip] * 8) as there:
        began = time.monotonic()
        with pytest.raises(HoldfastError, match=r"did not answer within 0\.4 seconds; raise judge\.timeout_seconds"):
            judge_at(there.url, timeout_seconds=0.4).label([pair()])
        assert time.monotonic() - began < 1.5
        # The connections that were cut off are not in the way of the next question.
        there.scripts.clear()
        assert len(judge_at(there.url, timeout_seconds=5).label([pair()])) == 1


def test_the_seconds_are_for_all_tries_together():
    slow = [lambda wire: (time.sleep(0.25), says(answer(b"", "503 Busy"))(wire))] * 8
    with server(JUDGED, *slow) as there:
        began = time.monotonic()
        with pytest.raises(HoldfastError, match=r"answered 503|did not answer within"):
            judge_at(there.url, timeout_seconds=0.6).label([pair()])
        assert time.monotonic() - began < 1.5
    assert 1 < len(there.requests) < 4


def test_a_reply_without_end_is_cut_off():
    def goes_on(wire: socket.socket) -> None:
        for part in itertools.chain([HEAD + b"Content-Length: 5000000000\r\n\r\n"], itertools.repeat(b" " * 65536)):
            wire.sendall(part)

    refused = pytest.raises(HoldfastError, match=r"as an OpenAI-compatible one does \(more than 4 MB\)")
    with server(JUDGED, *[goes_on] * 4) as there, refused:
        judge_at(there.url).label([pair()])


@pytest.mark.parametrize("score", ["NaN", "1e999", f"1{'0' * 400}", '"1"', "null"])
def test_a_score_that_is_no_number_is_refused(score):
    reply = says(answer(f'{{"version": 1, "answers": [{{"score": {score}}}]}}'.encode()))
    with server(b"", reply) as there, pytest.raises(HoldfastError, match="a score that is not a number"):
        RewardClient(there.url, "t", retries=0).score(["a"], ["b"])


@pytest.mark.parametrize("status", ["400 Bad", "401 Who", "404 Where", "413 Large", "422 What", "307 There"])
def test_what_would_be_refused_again_is_asked_once(status):
    refusing = [says(answer(b"{}", status, "Location: http://127.0.0.1:1/"))] * 4
    with server(JUDGED, *refusing) as there, pytest.raises(HoldfastError, match="failed: the endpoint"):
        judge_at(there.url).label([pair()])
    assert len(there.requests) == 1


def test_many_answers_come_over_one_connection_each_thread():
    with server(JUDGED) as there:
        assert len(judge_at(there.url, parallel=1).label([pair(str(n)) for n in range(20)])) == 20
        assert (there.connections, len(there.requests)) == (1, 20)
    with server(JUDGED) as there:
        assert len(judge_at(there.url, parallel=4).label([pair(str(n)) for n in range(40)])) == 40
        assert there.connections <= 4
    with server(SCORED) as there:
        for _ in range(10):  # as verl asks: each sample by a client of its own
            RewardClient.of(there.url, "t").score(["a"], ["b"])
        assert there.connections == 1


def test_waits_grow_are_random_and_leave_the_run_s_draws_alone():
    random.seed(3)
    torch.manual_seed(3)
    expected = random.random(), float(torch.rand(1))
    random.seed(3)
    torch.manual_seed(3)
    seen: list[list[float]] = []
    for _ in range(6):
        waits: list[float] = []
        with server(JUDGED, *[says(answer(b"", "503 Busy"))] * 3) as there:
            judge_at(there.url, waits.append).label([pair()])
        seen.append(waits)
    assert all(0 <= wait <= 2**n for waits in seen for n, wait in enumerate(waits))
    assert len({tuple(waits) for waits in seen}) == 6
    assert (random.random(), float(torch.rand(1))) == expected


@pytest.mark.parametrize(
    "named", ["20", "Fri, 31 Dec 9999 23:59:59 GMT", "soon", f"Fri, 31 Dec 2026 {'9' * 20}:00:00 GMT"]
)
def test_a_server_says_when_to_come_back(named):
    waits: list[float] = []
    with server(JUDGED, says(answer(b"{}", "429 Slow Down", f"Retry-After: {named}"))) as there:
        labeller = judge_at(there.url, waits.append)
        if named.startswith("Fri, 31 Dec 9999"):  # longer than anybody would wait: said at once
            with pytest.raises(HoldfastError, match="answered 429 and wants to be asked again in"):
                labeller.label([pair()])
            assert waits == []
        else:
            assert len(labeller.label([pair()])) == 1
            assert (20 if named == "20" else 0) <= waits[0] <= (21 if named == "20" else 1)


def test_the_key_is_never_printed(monkeypatch):
    for key in ("sec-ret\nX-Evil: 1", "sécret", " secret "):
        monkeypatch.setenv("HOLDFAST_JUDGE_KEY", key)
        refused = pytest.raises(HoldfastError, match="set ")
        with server(JUDGED, says(answer(b"{}", "401 Who"))) as there, refused as caught:
            judge_at(there.url.replace("//", "//name:pass-word@")).label([pair()])
        assert not any(word in str(caught.value) for word in ("sec", "séc", "pass-word"))
        assert not any(b"X-Evil" in request for request in there.requests)


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:99x/v1", "http://nobody.invalid/v1"])
def test_an_address_that_is_none_is_said(url):
    with pytest.raises(HoldfastError, match=r"write it like|correct judge\.url"):
        judge_at(url, timeout_seconds=2).label([pair()])


def test_the_judge_goes_by_the_environment_s_proxy_and_others_straight(monkeypatch):
    with server(JUDGED) as proxy, server(b'{"data": [{"id": "m"}]}') as direct:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        assert len(judge_at("http://judge.invalid/v1").label([pair()])) == 1
        assert proxy.requests[0].startswith(b"POST http://judge.invalid/v1/chat/completions ")
        assert VLLMServer(VLLMConfig(url=direct.url)).check(10) == "m"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with server(JUDGED) as near:
            assert len(judge_at(near.url).label([pair()])) == 1
    assert len(proxy.requests) == 1


def test_threads_ask_side_by_side_through_a_server_that_breaks_now_and_then():
    broken = [says(raw) for raw in BREAKAGES.values()]
    mixed = [script for bad in broken for script in (bad, says(answer(SCORED)))]
    with server(SCORED, *mixed) as there:
        client = RewardClient(there.url, "t", retries=20, sleep=lambda seconds: None)
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda n: client.score([f"{n}"], ["b"]), range(40)))
    assert [reply["version"] for reply in replies] == [1] * 40
