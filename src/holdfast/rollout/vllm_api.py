"""As much of a vLLM server's HTTP interface as rollouts need.

/v1/models, /v1/completions                    the OpenAI-compatible part, with vLLM's token ids
/collective_rpc reload_weights                 weights from a directory (vLLM 0.16, with VLLM_SERVER_DEV_MODE=1)
structured_outputs                             what an answer has to be (vLLM 0.12; as part of a completion)
/reset_prefix_cache                            or prompts would be read with the weights before
/update_weight_version, /weight_info           which weights are in use (vLLM 0.27; older servers do not say)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.config.schema import VLLMConfig
from holdfast.errors import HoldfastError
from holdfast.remote.endpoint import Endpoint, RemoteService, Reply, shown
from holdfast.rollout.choice import Sampling

# The environment variable that holds the server's key, where it wants one.
KEY = "HOLDFAST_VLLM_KEY"
# Large weights take their time to be read.
RELOAD_SECONDS = 1800.0
# Beyond this a whole number is no longer a float.
LARGEST_WHOLE = 2**53
LONGEST_REPLY = 64 << 20
NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Completion:
    """An answer as the server gave it: its tokens, their log-probs at temperature 1, and whether it has ended."""

    tokens: list[int]
    logprobs: list[float]
    finished: bool


class VLLMServer:
    """A server that may be slow, busy or away for a moment: what fails in passing is tried again, later each time."""

    def __init__(self, config: VLLMConfig, sleep: Callable[[float], None] = time.sleep) -> None:
        self._seconds = config.timeout_seconds
        self.name = f"The vLLM server {shown(config.url)}"
        service = RemoteService(
            name=self.name,
            url=config.url.rstrip("/").removesuffix("/v1"),
            key=KEY,
            setting="vllm.url",
            like="vLLM",
            late="raise vllm.timeout_seconds or lower vllm.parallel, and go on with `holdfast resume`",
            away="start it, and go on with the same command or, where a run had begun, `holdfast resume`",
            longest_reply=LONGEST_REPLY,
        )
        self._endpoint = Endpoint(service, sleep)

    def check(self, longest: int) -> str:
        """The name of the model to ask; refuses a server that could not do the work. `longest` is in tokens."""
        cards = self._entries("GET", "/v1/models", {}, "data")
        # A server has one model, which may go by several names.
        model, room = str(cards[0].get("id")), cards[0].get("max_model_len")
        if isinstance(room, int) and room < longest:
            raise HoldfastError(
                f"{self.name} takes {room} tokens at most, and the longest prompt with a full answer has {longest}: "
                f"start it with --max-model-len {longest} or more."
            )
        # Without a method the question is a bad one; a server that does not know the address has it switched off.
        if self._reply("POST", "/collective_rpc", {}).status in (404, 405):
            raise HoldfastError(
                f"{self.name} takes no weights while it runs: start it with VLLM_SERVER_DEV_MODE=1 in its environment, "
                "where only this run can reach it."
            )
        return model

    def complete(
        self,
        model: str,
        prompt: Sequence[int],
        sampling: Sampling,
        seed: int,
        eos_id: int,
        structured: Mapping[str, Any] = NOTHING,
    ) -> Completion:
        """One answer to a prompt of tokens, drawn with a seed of its own; `structured` says what it has to be."""
        asked = {
            "model": model, "prompt": list(prompt), "n": 1, "seed": seed, "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k,
            # A model's own generation config must not have a say, and only our end token ends an answer.
            "min_p": 0.0, "repetition_penalty": 1.0, "ignore_eos": True, "stop_token_ids": [eos_id],
            "logprobs": 1, "return_token_ids": True, "return_tokens_as_token_ids": True, **structured,
        }  # fmt: skip
        choice = self._entries("POST", "/v1/completions", asked, "choices")[0]
        tokens, seen = choice.get("token_ids"), choice.get("prompt_token_ids")
        if not isinstance(tokens, list) or not isinstance(seen, list):
            raise HoldfastError(f"{self.name} gives no token ids; it needs vLLM 0.16 or newer.")
        if seen != list(prompt):
            raise HoldfastError(
                f"{self.name} read other prompt tokens than it was sent: a proxy or a plug-in changes them; remove it."
            )
        logprobs = choice.get("logprobs")
        logprobs = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
        if not isinstance(logprobs, list) or not all(isinstance(value, (int, float)) for value in logprobs):
            raise HoldfastError(f"{self.name} gives no log-probs; start it with --max-logprobs of 1 or more.")
        whole = all(isinstance(token, int) and token >= 0 for token in tokens)
        large = any(isinstance(value, int) and abs(value) > LARGEST_WHOLE for value in (*tokens, *logprobs))
        if large or not whole or not 0 < len(tokens) == len(logprobs) <= sampling.max_new_tokens:
            raise self._endpoint.strange()
        finished = tokens[-1] == eos_id
        if not finished and len(tokens) < sampling.max_new_tokens:
            reason = choice.get("stop_reason") or choice.get("finish_reason")
            raise HoldfastError(
                f"{self.name} ended an answer before its end token (by {reason!r}): it serves another vocabulary, or "
                "was stopped."
            )
        return Completion(tokens, [float(value) for value in logprobs], finished)

    def load(self, directory: str, version: str) -> bool:
        """Have the server use the weights in a directory; whether it can say from now on that it does."""
        asked = {"method": "reload_weights", "kwargs": {"weights_path": directory}}
        reply = self._reply("POST", "/collective_rpc", asked, RELOAD_SECONDS)
        if reply.status != 200:
            raise HoldfastError(
                f"{self.name} could not load the weights in {directory} (it answered {reply.status}{reply.remark}): it "
                "has to see that directory (vllm.weights) and to serve a model of the same shape."
            )
        self._forget_prompts()
        reply = self._reply("POST", "/update_weight_version", {"new_version": version})
        if reply.status not in (200, 404):
            raise self._endpoint.refusal(reply)
        return reply.status == 200

    def version(self) -> str:
        """The weights in use, by the name that was given to them last."""

        def named(reply: Reply) -> str:
            if reply.status == 404:
                raise HoldfastError(
                    f"{self.name} no longer says which weights it uses; leave it to the run, and resume."
                )
            return str(self._field(reply, "weight_version", str))

        return self._endpoint.ask("GET", "/weight_info", {}, self._seconds, named)

    def _forget_prompts(self) -> None:
        """What is kept of prompts was computed with the weights before."""

        def done(reply: Reply) -> None:
            if not reply.good:
                raise self._endpoint.refusal(reply)
            if isinstance(reply.document, dict) and not reply.document.get("success", True):
                raise HoldfastError(
                    f"{self.name} is still busy with other answers and cannot take weights; leave it to the run."
                )

        self._endpoint.ask("POST", "/reset_prefix_cache", {}, self._seconds, done)

    def _reply(self, method: str, path: str, body: object, seconds: float | None = None) -> Reply:
        """Whatever comes back in the end."""
        return self._endpoint.ask(method, path, body, seconds or self._seconds, lambda reply: reply)

    def _entries(self, method: str, path: str, body: object, name: str) -> list[dict[str, Any]]:
        """The entries of a list that the server gives, of which there is at least one."""

        def entries(reply: Reply) -> list[dict[str, Any]]:
            found = self._field(reply, name, list)
            if not found or not all(isinstance(entry, dict) for entry in found):
                raise self._endpoint.strange()
            return list(found)

        return self._endpoint.ask(method, path, body, self._seconds, entries)

    def _field(self, reply: Reply, name: str, kind: type) -> Any:
        if not reply.good:
            raise self._endpoint.refusal(reply)
        if not isinstance(reply.document, dict) or not isinstance(reply.document.get(name), kind):
            raise self._endpoint.strange()
        return reply.document[name]
