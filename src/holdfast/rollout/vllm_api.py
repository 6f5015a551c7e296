"""As much of a vLLM server's HTTP interface as rollouts need.

/v1/models, /v1/completions                    the OpenAI-compatible part, with vLLM's token ids
/collective_rpc reload_weights                 weights from a directory (vLLM 0.16, with VLLM_SERVER_DEV_MODE=1)
/reset_prefix_cache                            or prompts would be read with the weights before
/update_weight_version, /weight_info           which weights are in use (vLLM 0.27; older servers do not say)
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from holdfast.config.schema import VLLMConfig
from holdfast.errors import HoldfastError, first_line
from holdfast.rollout.endpoint import RETRIES, attempts, json_headers
from holdfast.rollout.sampler import Sampling

# The environment variable that holds the server's key, where it wants one.
KEY = "HOLDFAST_VLLM_KEY"
# Statuses that may be others a little later.
PASSING = (408, 425, 429, 500, 502, 503, 504)
# Large weights take their time to be read.
RELOAD_SECONDS = 1800.0
LONGEST_REPLY = 64 << 20


@dataclass(frozen=True)
class Completion:
    """An answer as the server gave it: its tokens, their log-probs at temperature 1, and whether it has ended."""

    tokens: list[int]
    logprobs: list[float]
    finished: bool


class VLLMServer:
    """A server that may be slow, busy or away for a moment: what fails in passing is tried again, later each time."""

    def __init__(self, config: VLLMConfig, sleep: Callable[[float], None] = time.sleep) -> None:
        self._config, self._sleep = config, sleep
        parts = urlsplit(config.url)
        self._secure, self._host, self._path = parts.scheme == "https", parts.netloc, parts.path.rstrip("/")
        self._path = self._path.removesuffix("/v1")
        self.name = f"The vLLM server {config.url}"

    def check(self, longest: int) -> str:
        """The name of the model to ask; refuses a server that could not do the work. `longest` is in tokens."""
        cards = self._fields(self._ask("GET", "/v1/models"), "data", list)
        if not cards or not isinstance(cards[0], dict):
            raise self._strange()
        # A server has one model, which may go by several names.
        model, room = str(cards[0].get("id")), cards[0].get("max_model_len")
        if isinstance(room, int) and room < longest:
            raise HoldfastError(
                f"{self.name} takes {room} tokens at most, and the longest prompt with a full answer has {longest}: "
                f"start it with --max-model-len {longest} or more."
            )
        # Without a method the question is a bad one; a server that does not know the address has it switched off.
        if self._once("POST", "/collective_rpc", {}, self._config.timeout_seconds)[0] in (404, 405):
            raise HoldfastError(
                f"{self.name} takes no weights while it runs: start it with VLLM_SERVER_DEV_MODE=1 in its environment, "
                "where only this run can reach it."
            )
        return model

    def complete(self, model: str, prompt: Sequence[int], sampling: Sampling, seed: int, eos_id: int) -> Completion:
        """One answer to a prompt of tokens, drawn with a seed of its own."""
        asked = {
            "model": model, "prompt": list(prompt), "n": 1, "seed": seed, "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k,
            # A model's own generation config must not have a say, and only our end token ends an answer.
            "min_p": 0.0, "repetition_penalty": 1.0, "ignore_eos": True, "stop_token_ids": [eos_id],
            "logprobs": 1, "return_token_ids": True, "return_tokens_as_token_ids": True,
        }  # fmt: skip
        choices = self._fields(self._ask("POST", "/v1/completions", asked), "choices", list)
        if len(choices) != 1 or not isinstance(choices[0], dict):
            raise self._strange()
        choice = choices[0]
        tokens, seen = choice.get("token_ids"), choice.get("prompt_token_ids")
        if not isinstance(tokens, list) or not isinstance(seen, list):
            raise HoldfastError(f"{self.name} gives no token ids; it needs vLLM 0.16 or newer.")
        if seen != list(prompt):
            raise HoldfastError(
                f"{self.name} read other prompt tokens than it was sent: a proxy or a plug-in changes them; remove it."
            )
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        if not isinstance(logprobs, list) or not all(isinstance(value, (int, float)) for value in logprobs):
            raise HoldfastError(f"{self.name} gives no log-probs; start it with --max-logprobs of 1 or more.")
        if not tokens or len(logprobs) != len(tokens) or len(tokens) > sampling.max_new_tokens:
            raise self._strange()
        finished = tokens[-1] == eos_id
        if not finished and len(tokens) < sampling.max_new_tokens:
            reason = choice.get("stop_reason") or choice.get("finish_reason")
            raise HoldfastError(
                f"{self.name} ended an answer before its end token (by {reason!r}): it serves another vocabulary, or "
                "was stopped."
            )
        return Completion([int(token) for token in tokens], [float(value) for value in logprobs], finished)

    def load(self, directory: str, version: str) -> bool:
        """Have the server use the weights in a directory; whether it can say from now on that it does."""
        asked = {"method": "reload_weights", "kwargs": {"weights_path": directory}}
        status, reply = self._tried("POST", "/collective_rpc", asked, RELOAD_SECONDS)
        if status != 200:
            raise HoldfastError(
                f"{self.name} could not load the weights in {directory} (it answered {status}{_remark(reply)}): it "
                "has to see that directory (vllm.weights) and to serve a model of the same shape."
            )
        self._forget_prompts()
        status, reply = self._tried("POST", "/update_weight_version", {"new_version": version})
        if status not in (200, 404):
            raise self._refused("/update_weight_version", status, reply)
        return status == 200

    def version(self) -> str:
        """The weights in use, by the name that was given to them last."""
        return str(self._fields(self._ask("GET", "/weight_info"), "weight_version", str))

    def _forget_prompts(self) -> None:
        """What is kept of prompts was computed with the weights before."""
        for _ in attempts(RETRIES, self._sleep):
            status, reply = self._tried("POST", "/reset_prefix_cache", {})
            if status != 200:
                raise self._refused("/reset_prefix_cache", status, reply)
            if not isinstance(reply, dict) or reply.get("success", True):
                return
        raise HoldfastError(
            f"{self.name} is still busy with other answers and cannot take weights; leave it to the run."
        )

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        status, reply = self._tried(method, path, body)
        if status != 200:
            raise self._refused(path, status, reply)
        return reply

    def _tried(self, method: str, path: str, body: object = None, seconds: float | None = None) -> tuple[int, Any]:
        """The last of several tries: the status and the JSON that came with it."""
        seconds = seconds or self._config.timeout_seconds
        for last in attempts(RETRIES, self._sleep):
            try:
                status, reply = self._once(method, path, body, seconds)
                if status not in PASSING or last:
                    return status, reply
            except HoldfastError:
                if last:
                    raise
        raise AssertionError("the last try either returns or raises")

    def _once(self, method: str, path: str, body: object, seconds: float) -> tuple[int, Any]:
        # http.client follows no redirect, so the key goes nowhere else.
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        headers = json_headers(KEY)
        connection = kind(self._host, timeout=seconds)
        try:
            connection.request(method, self._path + path, json.dumps(body or {}).encode(), headers)
            reply = connection.getresponse()
            text = reply.read(LONGEST_REPLY)
        except TimeoutError as error:
            raise HoldfastError(
                f"{self.name} did not answer within {seconds:g} seconds; raise vllm.timeout_seconds or lower "
                "vllm.parallel, and go on with `holdfast resume`."
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise HoldfastError(
                f"{self.name} cannot be reached ({first_line(error)[:-1]}); start it, and go on with the same command "
                "or, where a run had begun, `holdfast resume`."
            ) from error
        finally:
            connection.close()
        try:
            return reply.status, json.loads(text) if text else None
        except ValueError:
            if reply.status == 200:
                raise self._strange() from None
            return reply.status, text[:200].decode("utf-8", "replace")

    def _fields(self, reply: Any, name: str, kind: type) -> Any:
        if not isinstance(reply, dict) or not isinstance(reply.get(name), kind):
            raise self._strange()
        return reply[name]

    def _strange(self) -> HoldfastError:
        return HoldfastError(f"{self.name} did not answer as vLLM does; check vllm.url.")

    def _refused(self, path: str, status: int, reply: Any) -> HoldfastError:
        if status in (401, 403):
            return HoldfastError(f"{self.name} wants a key, or another one: set {KEY} in the environment.")
        if status == 404 and path == "/weight_info":
            return HoldfastError(f"{self.name} no longer says which weights it uses; leave it to the run, and resume.")
        return HoldfastError(f"{self.name} answered {status} at {path}{_remark(reply)}.")


def _remark(reply: Any) -> str:
    """A server's own words about an error, shortened."""
    error = reply.get("error", reply.get("detail", reply)) if isinstance(reply, dict) else reply
    text = error.get("message", error) if isinstance(error, dict) else error
    return f": {' '.join(str(text).split())[:160].rstrip('.')}" if text else ""
