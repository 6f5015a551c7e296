"""Replies: servers that the program asks, which answer late, half, twice, in another language, or not at all."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from mutations import json_bytes, mutated_bytes, mutated_document
from sentences import refused

from holdfast.config import load_config
from holdfast.errors import HoldfastError
from holdfast.interop.reward_client import RewardClient
from holdfast.people.judge import JudgeLabeller
from holdfast.preferences.comparison import Comparison, Provenance, Response
from holdfast.reward.scores import Asked, ScoreSource
from holdfast.reward.sources.judge import JudgeRubric, JudgeScore
from holdfast.reward.sources.rubric import Criterion
from holdfast.reward.sources.service import ServiceSource
from holdfast.reward.sources.workers import Allowance
from holdfast.rollout import vllm_api
from holdfast.rollout.choice import Sampling
from holdfast.rollout.vllm_api import VLLMServer

TIMEOUT = 0.25
PAIR = Comparison(
    "run/a", "when do you open?", Response("At nine.", Provenance("p", 1, 1)),
    Response("Soon.", Provenance("q", 0, 2)), 1, "training", "run",
)  # fmt: skip
COMPLETION = {
    "choices": [
        {
            "index": 0, "text": " At nine.", "token_ids": [5, 6, 1], "prompt_token_ids": [3, 4],
            "finish_reason": "stop",
            "logprobs": {"token_logprobs": [-0.5, -0.1, -0.2], "tokens": ["5", "6", "1"], "top_logprobs": None},
        }
    ]
}  # fmt: skip
GOOD: dict[str, Any] = {
    "judge": {"choices": [{"message": {"role": "assistant", "content": "Verdict: A"}}]},
    "vllm check": {"object": "list", "data": [{"id": "tiny", "object": "model", "max_model_len": 4096}]},
    "vllm complete": COMPLETION,
    "vllm load": {"results": [None]},
    "reward": {"version": 3, "answers": [{"score": 0.5, "spread": 0.1, "members": [0.4, 0.6]}]},
    "service": {"version": 3, "answers": [{"score": 0.5, "components": {"kind": 0.5}}]},
    "OpenRLHF's service": {"rewards": [0.5], "scores": [0.5], "extra_logs": {"kind": [0.5]}},
    "slime's service": 0.5,
    "judge's score": {"choices": [{"message": {"role": "assistant", "content": "Fine.\nScore: 7.5"}}]},
    "rubric": {"choices": [{"message": {"role": "assistant", "content": "1: yes\n2: no"}}]},
}


STATUSES = (
    b"HTTP/1.1 500 Oh", b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/", b"HTTP/1.1 204 No", b"HTTP/9.9 200 OK",
    *(b"HTTP/1.1 429 Busy\r\nRetry-After: " + wait for wait in (b"1", b"-1", b"1e9", b"soon", b"9" * 400)),
    b"HTTP/1.1 100 Continue", b"HTTP/1.1 2e9 OK", b"ICY 200 OK", b"\x16\x03\x01", b"", b"HTTP/1.1 404 No",
    b"HTTP/1.1 400 Bad", b"HTTP/1.1 401 Who",
)  # fmt: skip
FRAMES = (
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\nContent-Length: 3", b"Connection: close",
    b"X: " + b"y" * 100_000, b"\r\n".join(b"X-%d: y" % i for i in range(300)), b"Content-Encoding: gzip",
    b"Content-Length: 3\r\nContent-Length: 4", b"no colon", b"\0: \0", b"Content-Type: text/html; charset=nope",
)  # fmt: skip


class BadServer:
    """One port that answers every connection with the bytes it was told, as slowly as it was told."""

    def __init__(self) -> None:
        self.reply, self.pause, self.pieces = b"", 0.0, 1
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.settimeout(2.0)
            connection.recv(1 << 16)
            reply, step = self.reply, max(1, len(self.reply) // self.pieces)
            for start in range(0, len(reply), step):
                connection.sendall(reply[start : start + step])
                if self.pause:
                    time.sleep(self.pause)


class RepliesTarget:
    """The judge, vLLM and reward clients and sources, asked for one thing each."""

    seconds = 20.0

    def __init__(self) -> None:
        self.server = BadServer()
        vllm_api.RELOAD_SECONDS = TIMEOUT  # half an hour, for large weights
        url = self.server.url
        short = f"timeout_seconds={TIMEOUT}"
        config = load_config(None, [f'judge.url="{url}"', f"judge.{short}", f'vllm.url="{url}"', f"vllm.{short}"])

        def waits(seconds: float) -> None:
            assert 0 <= seconds < 120, f"would wait {seconds} s"

        judge, vllm = JudgeLabeller(config.judge, waits), VLLMServer(config.vllm, waits)
        reward = RewardClient(url, "token", TIMEOUT, 1, waits)
        sampling = Sampling(max_new_tokens=8)
        self.clients: dict[str, Callable[[], Any]] = {
            "judge": lambda: judge.label([PAIR]),
            "vllm check": lambda: vllm.check(64),
            "vllm complete": lambda: vllm.complete("tiny", [3, 4], sampling, 1, 1),
            "vllm load": lambda: vllm.load("somewhere", "v1"),
            "reward": lambda: reward.score(["when?"], ["At nine."]),
        }
        allowance = Allowance(TIMEOUT, 1)
        criteria = (Criterion("kind", "It is kind."), Criterion("long", "It is long.", -1.0))
        sources: dict[str, ScoreSource] = {
            "service": ServiceSource(url, allowance, sleep=waits),
            "OpenRLHF's service": ServiceSource(f"{url}/get_reward", allowance, sleep=waits),
            "slime's service": ServiceSource(f"{url}/slime", allowance, sleep=waits),
            "judge's score": JudgeScore(config.judge, waits),
            "rubric": JudgeRubric(criteria, config.judge, "rubric", waits),
        }
        self.clients |= {name: partial(scored_or_why, source) for name, source in sources.items()}

    def attempt(self, rng: random.Random, place: Path) -> str:
        name = rng.choice(list(self.clients))
        self.server.reply = _reply(rng, GOOD[name])
        drips = rng.random() < 0.03
        self.server.pieces, self.server.pause = (10_000, 0.2) if drips else (rng.choice((1, 1, 1, 7)), 0.0)
        (place / "reply.http").write_bytes(self.server.reply)
        (place / "asked.json").write_text(json.dumps({"client": name, "drips": drips}))
        began = time.monotonic()
        try:
            self.clients[name]()
        except HoldfastError as refusal:
            outcome = refused(refusal)
        else:
            outcome = "taken"
        # A total deadline: a reply that comes byte by byte is late like any other. Some ask two or three things.
        assert time.monotonic() - began < 4 * TIMEOUT + 2, f"{name} waited {time.monotonic() - began:.1f} s"
        return f"{name}: {outcome}"


def scored_or_why(source: ScoreSource) -> None:
    """A reward source never raises for an answer: it has a score, or a reason why it has none."""
    scores = source.score(Asked(["when?"], ["At nine."]))
    assert bool(scores.scored_B[0]) == (0 not in scores.unscored)
    assert all(scores.unscored.values())


def _reply(rng: random.Random, good: Any) -> bytes:
    """A whole HTTP reply in which the document, the frame or both are not as they should be."""
    document = mutated_document(rng, good) if rng.random() < 0.8 else good
    body = json_bytes(rng, document)
    if rng.random() < 0.1:
        body = mutated_bytes(rng, body)
    status = rng.choice((b"HTTP/1.1 200 OK",) * 9 + STATUSES)
    length = rng.choice((len(body),) * 8 + (len(body) + 7, max(0, len(body) - 3), -1, 10**20, "x"))
    frame: bytes = rng.choice((f"Content-Length: {length}".encode(),) * 8 + FRAMES)
    if b"chunked" in frame:
        size = rng.choice((b"%x" % len(body), b"zz", b"-1", b"f" * 400, b"", b"%x" % (len(body) + 5)))
        body = size + b"\r\n" + body + b"\r\n0\r\n\r\n"
    whole = status + b"\r\nContent-Type: application/json\r\n" + frame + b"\r\n\r\n" + body
    return mutated_bytes(rng, whole) if rng.random() < 0.15 else whole


def open_target(work: Path) -> RepliesTarget:
    return RepliesTarget()
