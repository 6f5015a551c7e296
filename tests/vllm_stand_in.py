"""A small server with vLLM's interface that answers by our own sampler, and can be told to misbehave.

    python tests/vllm_stand_in.py MODEL_DIRECTORY       prints its address, and serves until it is killed

It does what a vLLM server does with `VLLM_SERVER_DEV_MODE=1`: token ids in and out, raw log-probs, weights from a
directory, a prefix cache that keeps the old weights' prompts until it is reset, and versions of weights.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from holdfast.grammar.walk import Grammar
from holdfast.models.policy import Policy
from holdfast.rollout.choice import Sampling
from holdfast.rollout.likelihood import own_pass
from holdfast.rollout.sampler import sample
from holdfast.rollout.support import support_of_answers

NAME = "tiny"
PORT = 0  # any that is free


def draw_one(
    policy: Policy, prompt: list[int], sampling: Sampling, eos_id: int, seed: int, grammar: Grammar | None = None
) -> tuple[list[int], bool]:
    """An answer by a seed of its own, which is how a server draws."""
    rng = torch.Generator().manual_seed(seed)
    rollout = sample(policy, [prompt], sampling, eos_id, eos_id, rng, [grammar])
    return rollout.responses[0], rollout.finished[0]


def policy_in(directory: str) -> Policy:
    return Policy(AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32))


@dataclass
class StandIn:
    """What it serves, what it was asked, and how it misbehaves."""

    policy: Policy
    room: int = 4096
    key: str = ""
    dev_mode: bool = True
    versions: bool = True
    logprobs: bool = True
    token_ids: bool = True
    deaf: bool = False  # says that it has loaded weights, and has not
    busy: int = 0  # further calls that are answered 503
    slow: float = 0.0
    cut_prompts: bool = False
    stop_early: bool = False
    other_token: int | None = None
    grammar: Grammar | None = None  # what it takes any structured output for
    structured: Any = None  # what it was asked for last
    usurped: bool = False  # another run loads weights in the middle of a batch
    loaded: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    version: str = "default"
    fresh: Policy | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str, body: dict[str, Any], key: str) -> tuple[int, Any]:
        self.calls.append(path)
        if self.busy:
            self.busy -= 1
            return 503, {"error": {"message": "busy"}}
        if path.startswith("/v1/") and self.key and key != f"Bearer {self.key}":
            return 401, {"error": "Unauthorized"}
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": NAME, "object": "model", "max_model_len": self.room}]}
        if path == "/v1/completions":
            return self.complete(body)
        if not self.dev_mode or (path in ("/weight_info", "/update_weight_version") and not self.versions):
            return 404, {"detail": "Not Found"}
        if path == "/collective_rpc":
            return self.call(body)
        if path == "/reset_prefix_cache":
            self.policy, self.fresh = self.fresh or self.policy, None
            return 200, {"success": True}
        if path == "/update_weight_version":
            self.version = body["new_version"]
            return 200, {"success": True, "new_version": self.version}
        if path == "/weight_info":
            return 200, {"weight_version": self.version}
        return 404, {"detail": "Not Found"}

    def call(self, body: dict[str, Any]) -> tuple[int, Any]:
        if body.get("method") != "reload_weights":
            return 400, {"detail": "Missing 'method' in request body"}
        path = body["kwargs"]["weights_path"]
        try:
            fresh = policy_in(path)
        except (OSError, ValueError) as error:
            return 500, {"error": {"message": str(error)}}
        self.loaded.append(path)
        if "lm_head.weight" not in load_file(f"{path}/model.safetensors"):
            # As vLLM does with tied embeddings: they are reloaded, and the head stays as it was.
            head = self.policy.lm.get_output_embeddings().weight.detach().clone()
            fresh.lm.get_output_embeddings().weight = torch.nn.Parameter(head)
        # Until the prefix cache is reset, prompts would be read with the weights before.
        self.fresh = None if self.deaf else fresh
        return 200, {"results": [None]}

    def complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        assert body["model"] == NAME
        assert (body["n"], body["ignore_eos"], body["min_p"], body["repetition_penalty"]) == (1, True, 0.0, 1.0)
        time.sleep(self.slow)
        sampling = Sampling(body["max_tokens"], body["temperature"], body["top_p"], body["top_k"])
        prompt, (eos,) = body["prompt"], body["stop_token_ids"]
        with self.lock, torch.no_grad():
            self.structured = body.get("structured_outputs")
            grammar = self.grammar if self.structured else None
            tokens, finished = draw_one(self.policy, prompt, sampling, eos, body["seed"], grammar)
            # Raw log-probs are of what is left when a grammar has been applied.
            logprobs_BT, _ = own_pass(
                self.policy, [prompt], [tokens], eos, 4096, 1.0, support_of_answers([grammar], [tokens])
            )
            logprobs = logprobs_BT[0].tolist()
        if self.stop_early:
            tokens, logprobs, finished = tokens[:1], logprobs[:1], False
        if self.other_token is not None:
            tokens = [self.other_token, *tokens[1:]]
        if self.usurped:
            self.version = "another-run"
        choice: dict[str, Any] = {
            "index": 0, "text": "", "finish_reason": "stop" if finished else "length",
            "stop_reason": eos if finished else None,
        }  # fmt: skip
        if body["return_token_ids"] and self.token_ids:
            choice |= {"token_ids": tokens, "prompt_token_ids": prompt[1:] if self.cut_prompts else prompt}
        if body["logprobs"] and self.logprobs:
            choice["logprobs"] = {"token_logprobs": logprobs, "tokens": [f"token_id:{t}" for t in tokens]}
        return 200, {"object": "text_completion", "model": NAME, "choices": [choice]}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, stand_in: StandIn) -> None:
        self.stand_in = stand_in
        super().__init__(("127.0.0.1", PORT), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        status, said = self.server.stand_in.answer(self.path, body, self.headers.get("Authorization", ""))
        data = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        with suppress(ConnectionError):  # somebody who gave up waiting, whose error would show in another test
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(stand_in: StandIn) -> Iterator[str]:
    """The address of a server in a thread of this process."""
    with Server(stand_in) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    torch.set_num_threads(1)
    with Server(StandIn(policy_in(sys.argv[1]))) as alone:
        print(f"http://127.0.0.1:{alone.server_address[1]}", flush=True)
        alone.serve_forever()
