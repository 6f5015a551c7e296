"""Answers that the guard fetches itself, from OpenAI-compatible endpoints of a policy and of its reference."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from benchmarks.system.scripted_trainer import SETTINGS, ScriptedTrainer, labeller_in

from guard_server import events_of, serving_guard
from holdfast.errors import HoldfastError
from holdfast.serving.guard.policy_server import PolicyServer


@contextlib.contextmanager
def engine(say: Callable[[], str]) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """As vLLM and SGLang serve a model: completions of texts, and of conversations; what it was asked."""
    asked: list[tuple[str, dict[str, Any]]] = []

    class Engine(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append((self.path, body))
            text = say()
            told = {"message": {"content": text}} if "messages" in body else {"text": text}
            ending = "length" if text.startswith("cut") else "stop"
            data = json.dumps({"choices": [{**told, "finish_reason": ending}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_trainer_whose_policy_is_served_is_asked_for_rewards_alone(tmp_path: Path) -> None:
    trainer, rng = ScriptedTrainer(hacked=True, seed=1040), random.Random(1)
    with (
        engine(lambda: trainer.say(trainer.dial, rng)) as (policy, asked),
        engine(lambda: trainer.say(0.0, rng)) as (reference, _),
        serving_guard(
            tmp_path / "guard",
            labeller_in(tmp_path),
            servers={
                "policy": PolicyServer("--policy-url", policy, "mine"),
                "reference": PolicyServer("--reference-url", reference, "sft"),
            },
        ) as served,
    ):
        settings = {**SETTINGS, "max_tokens": 64, "temperature": 0.7}
        training = served.client().training("served", **settings)
        for _ in range(8):
            training.post(**trainer.batch())
            training.settle(score=trainer.score, act=trainer.act)  # nobody here generates
    assert events_of(tmp_path / "guard/served", "verdict")[0]["level"] == "hacking"
    assert "the component 'tone'" in events_of(tmp_path / "guard/served", "verdict")[0]["sentence"]
    path, body = asked[0]
    assert path == "/v1/completions"
    assert {"model": "mine", "max_tokens": 64, "temperature": 0.7}.items() <= body.items()


def test_without_rewards_it_goes_by_whom_people_prefer(tmp_path: Path) -> None:
    trainer, rng = ScriptedTrainer(hacked=True, seed=1041), random.Random(2)
    with engine(lambda: trainer.say(trainer.dial, rng)) as (policy, _):
        servers = {"policy": PolicyServer("--policy-url", policy, "mine")}
        with serving_guard(tmp_path / "guard", labeller_in(tmp_path), servers=servers) as served:
            training = served.client().training("served", **SETTINGS, score="nobody")
            # What the reference says is fetched while the policy is still that.
            assert training.settle()["state"] == "baseline"
            for _ in range(8):
                training.post(**trainer.batch())
                training.settle(act=trainer.act)
    (verdict, *_) = events_of(tmp_path / "guard/served", "verdict")
    assert verdict["level"] in ("hacking", "worse")
    assert "components" not in verdict["evidence"] or not verdict["evidence"].get("component")
    assert trainer.done[0]["do"] == "rollback"


def test_conversations_go_through_the_chat_template_and_answers_may_be_cut_off() -> None:
    with engine(lambda: "cut off") as (url, asked):
        from holdfast.models.prompt import Message

        prompt = (Message("system", "Be brief."), Message("user", "When?"))
        (answer,) = PolicyServer("--policy-url", url, "m").answer([prompt], 8, 0.0)
    assert (answer.text, answer.finished, answer.reward) == ("cut off", False, None)
    assert asked[0][0] == "/v1/chat/completions"
    assert asked[0][1]["messages"][0] == {"role": "system", "content": "Be brief."}


def test_an_endpoint_that_is_away_is_said_and_the_review_goes_on_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.serving.guard.policy_server.SECONDS", 0.2)
    trainer = ScriptedTrainer(hacked=False, seed=1042)
    server = PolicyServer("--policy-url", "http://127.0.0.1:9/v1", "mine")
    with serving_guard(tmp_path / "guard", labeller_in(tmp_path), servers={"policy": server}) as served:
        training = served.client().training("away", **SETTINGS)
        with pytest.raises(HoldfastError, match=r"cannot go on: the endpoint http://127.0.0.1:9/v1 (cannot|did not)"):
            training.settle(score=trainer.score)
        monkeypatch.setattr("holdfast.serving.guard.policy_server.SECONDS", 60.0)
        rng = random.Random(3)
        with engine(lambda: trainer.say(0.0, rng)) as (url, _):
            served.service.training("away")._servers["policy"] = PolicyServer("--policy-url", url, "mine")  # type: ignore[index]
            training.resume()
            assert training.settle(score=trainer.score)["state"] == "baseline"
