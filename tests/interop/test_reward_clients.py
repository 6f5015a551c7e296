"""The thin clients of the reward service: verl's and OpenRLHF's functions, against a service that runs."""

import asyncio
import importlib.util
import inspect
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import small_run
from holdfast.errors import HoldfastError
from holdfast.interop import openrlhf, verl
from holdfast.interop.reward_client import RewardClient
from reward_server import TOKEN, Truth, serving_rewards

SOURCE = Path(__file__).parents[2] / "src"
PROMPT, ANSWER = "do we need to book and are dogs allowed?", "We are there at noon"
NEAR = 1e-4


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return small_run.run(tmp_path_factory.mktemp("clients"), run__rounds="1", guard__mode="off")


@pytest.fixture(scope="module")
def served(run):
    with serving_rewards(run) as running:
        yield running


@pytest.fixture(scope="module")
def expected(run, served):
    return Truth(run, served.service.scorer.version).score(PROMPT, ANSWER)


@pytest.fixture
def environment(served, monkeypatch):
    monkeypatch.setenv("HOLDFAST_REWARD_URL", served.address + "/")
    monkeypatch.setenv("HOLDFAST_REWARD_TOKEN", TOKEN)


def loaded_by_path(path, name):
    """As verl and OpenRLHF load a file that is named by its path."""
    spec = importlib.util.spec_from_file_location("custom_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


@pytest.mark.parametrize(
    "prompt",
    [
        PROMPT,
        [{"role": "user", "content": PROMPT}],
        np.array([{"role": "user", "content": PROMPT}], dtype=object),
        f"<guest>{PROMPT}<answer>",
    ],
)
def test_verl_gets_score_spread_and_version(environment, expected, prompt):
    """Called by keyword as verl's reward manager does, with what it adds to extra_info."""
    compute_score = loaded_by_path(verl.__file__, "compute_score")
    told = compute_score(
        data_source="mine", solution_str=ANSWER, ground_truth="", extra_info={"prompt": prompt, "num_turns": None}
    )
    assert told["score"] == pytest.approx(expected, abs=NEAR)
    assert set(told) == {"score", "spread", "version"}
    assert all(isinstance(value, float) for value in told.values())


def test_verl_awaits_many_at_once(environment, expected):
    assert inspect.iscoroutinefunction(verl.compute_score_async)  # which verl asks, to decide how to call it

    async def many():
        asked = [verl.compute_score_async("mine", ANSWER, "", {"prompt": PROMPT}) for _ in range(30)]
        return await asyncio.gather(*asked)

    told = asyncio.run(many())
    assert [t["score"] for t in told] == pytest.approx([expected] * 30, abs=NEAR)


def test_verl_passes_settings_as_keywords(served, expected):
    settings = {"url": served.address, "token": TOKEN, "prompt_key": "question", "reward_router_address": "not ours"}
    told = verl.compute_score("mine", ANSWER, None, {"question": PROMPT}, **settings)
    assert told["score"] == pytest.approx(expected, abs=NEAR)


def test_a_policy_that_says_nothing_has_a_score_in_verl(environment):
    assert np.isfinite(verl.compute_score("mine", "", "", {"prompt": PROMPT})["score"])


def test_openrlhf_loads_a_function_that_gives_tensors(environment, expected):
    reward_func = loaded_by_path(openrlhf.__file__, "reward_func")
    prompt = f"<guest>{PROMPT}<answer>"
    told = reward_func([f"{prompt}{ANSWER}<eos>"], [prompt], [None])
    assert told["rewards"].tolist() == pytest.approx([expected], abs=NEAR)
    assert told["scores"].shape == told["extra_logs"]["ensemble_spread"].shape == (1,)


def test_what_is_missing_is_said(served, monkeypatch):
    with pytest.raises(HoldfastError, match="extra_info holds no 'prompt'"):
        verl.compute_score("mine", ANSWER, "", {})
    with pytest.raises(HoldfastError, match="extra_info holds no 'prompt'"):
        verl.compute_score("mine", ANSWER, "")
    monkeypatch.delenv("HOLDFAST_REWARD_URL", raising=False)
    with pytest.raises(HoldfastError, match="HOLDFAST_REWARD_URL is empty"):
        verl.compute_score("mine", ANSWER, "", {"prompt": PROMPT})


def test_a_refusal_is_not_tried_again_and_says_why(served):
    pauses = []
    client = RewardClient(served.address, TOKEN, sleep=pauses.append)
    with pytest.raises(HoldfastError, match="answered 422: The prompt of answer 0 is empty"):
        client.score([""], ["b"])
    with pytest.raises(HoldfastError, match=r"401: This token is not known here and .* set HOLDFAST_REWARD_TOKEN"):
        RewardClient(served.address, "wrong", sleep=pauses.append).score(["a"], ["b"])
    assert pauses == []


class Moody(BaseHTTPRequestHandler):
    """Answers what it is told to, one status after the other, then well."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.asked.append(json.loads(body))
        status, headers = self.server.moods.pop(0) if self.server.moods else (200, {})
        if status == 0:
            self.connection.close()
            return
        answer = {"version": 1, "answers": [{"score": 0.5, "spread": 0.1, "members": [0.5]}]}
        data = json.dumps(answer if status == 200 else {"detail": "busy"}).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def moody():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Moody)
    server.moods, server.asked = [], []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_what_passes_is_tried_again_with_growing_pauses(moody):
    server, url = moody
    server.moods = [(503, {"Retry-After": "7"}), (0, {}), (502, {}), (500, {})]
    pauses = []
    assert RewardClient(url, "t", sleep=pauses.append).score(["a"], ["b"])["version"] == 1
    assert len(server.asked) == 5
    assert 7.0 <= pauses[0] <= 8.0  # as the server asked for, but not all at once
    assert 0.0 <= pauses[1] <= 2.0
    assert 0.0 <= pauses[2] <= 4.0
    assert 0.0 <= pauses[3] <= 8.0


def test_after_the_last_try_it_says_what_the_reason_was(moody):
    server, url = moody
    server.moods = [(503, {})] * 3
    pauses = []
    with pytest.raises(HoldfastError, match=r"answered 503: busy; give it more time"):
        RewardClient(url, "t", retries=2, sleep=pauses.append).score(["a"], ["b"])
    assert len(pauses) == 2
    with pytest.raises(HoldfastError, match=r"cannot be reached \(Connection refused\); start it"):
        RewardClient("http://127.0.0.1:9", "t", retries=0).score(["a"], ["b"])


def test_another_server_is_recognised(moody):
    _, url = moody
    with pytest.raises(HoldfastError, match="did not answer as `holdfast serve-reward` does"):
        RewardClient(url, "t", sleep=lambda _: None).score(["a", "b"], ["c", "d"])


def test_the_clients_are_imported_with_nothing_but_python():
    """Without site-packages: a trainer's worker has its own, and Holdfast's would only be in the way."""
    code = (
        "import sys, holdfast.interop.verl, holdfast.interop.openrlhf; "
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'transformers', 'numpy', 'fastapi'}))"
    )
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
