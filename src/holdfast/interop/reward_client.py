"""Asking `holdfast serve-reward` for scores.

A trainer's workers import this beside their own models: no torch, nothing but httpx. Where Holdfast is not wanted
whole, `pip install httpx` and `pip install --no-deps holdfast-rl` are enough.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.interop.client import asked, endpoint_of, place_of
from holdfast.remote.endpoint import Endpoint
from holdfast.remote.reward_service import TOKEN

URL = "HOLDFAST_REWARD_URL"


@dataclass(frozen=True)
class RewardClient:
    """A service's address and token; `timeout` is in seconds for an answer, however many tries it takes."""

    url: str
    token: str
    timeout: float = 300.0
    retries: int = 5
    sleep: Callable[[float], None] = time.sleep

    @classmethod
    def of(cls, url: str | None = None, token: str | None = None, **settings: Any) -> RewardClient:
        """What was given, else what the environment says."""
        return cls(*place_of(url, token, URL, TOKEN, "the reward service"), **settings)

    def score(self, prompts: Sequence[Any], responses: Sequence[str]) -> dict[str, Any]:
        """The service's plain answer: {"version", "answers": [{"score", "spread", "members"}, ...]}.

        A prompt is a text or a list of messages. An empty response is scored: a policy may say nothing.
        """
        document = {"prompts": list(prompts), "responses": list(responses), "allow_empty": True}

        def scored(reply: dict[str, Any]) -> dict[str, Any]:
            answers = reply.get("answers")
            if not isinstance(answers, list) or len(answers) != len(responses):
                raise self._endpoint.strange()
            if not all(isinstance(answer, dict) and _is_number(answer.get("score")) for answer in answers):
                raise self._endpoint.strange("a score that is not a number")
            return reply

        return self._ask("/score", document, scored)

    def post(self, path: str, document: Mapping[str, Any], *fields: str) -> dict[str, Any]:
        """Send, and try again with growing pauses while there is hope; the reply has the fields that are named."""

        def complete(reply: dict[str, Any]) -> dict[str, Any]:
            if not set(fields) <= reply.keys():
                raise self._endpoint.strange()
            return reply

        return self._ask(path, document, complete)

    def _ask(
        self, path: str, document: Mapping[str, Any], read: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> dict[str, Any]:
        return asked(self._endpoint, "POST", path, document, self.timeout, self.retries, read)

    @property
    def _endpoint(self) -> Endpoint:
        return endpoint_of(
            self.url, self.token, self.sleep, name="The reward service", key=TOKEN, setting=URL,
            like="`holdfast serve-reward`", late="give it more time (timeout) or ask for fewer answers at once",
        )  # fmt: skip


def _is_number(value: object) -> bool:
    # A whole number may be larger than any float.
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max
