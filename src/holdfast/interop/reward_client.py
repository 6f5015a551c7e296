"""Asking `holdfast serve-reward` for scores, with nothing but the standard library.

A trainer's workers import this beside their own models: no torch, no other package. Where Holdfast is not wanted whole,
`pip install --no-deps holdfast-rl` is enough.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from holdfast.errors import HoldfastError

URL = "HOLDFAST_REWARD_URL"
TOKEN = "HOLDFAST_REWARD_TOKEN"
# Worth another try: the service is busy, starting or gone for a moment. Anything else would be refused again.
PASSING = (408, 429, 500, 502, 503, 504)
LONGEST_WAIT = 30.0

# Straight to the service: a proxy that the environment names is for the world outside.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class RewardClient:
    """A service's address and token; `timeout` is in seconds for one try."""

    url: str
    token: str
    timeout: float = 60.0
    retries: int = 5
    sleep: Callable[[float], None] = time.sleep

    @classmethod
    def of(cls, url: str | None = None, token: str | None = None, **settings: Any) -> RewardClient:
        """What was given, else what the environment says."""
        url, token = url or os.environ.get(URL, ""), token or os.environ.get(TOKEN, "")
        for name, value in ((URL, url), (TOKEN, token)):
            if not value:
                raise HoldfastError(f"Where is the reward service? Set {URL} and {TOKEN}; {name} is empty.")
        return cls(url.rstrip("/"), token.strip(), **settings)

    def score(self, prompts: Sequence[Any], responses: Sequence[str]) -> dict[str, Any]:
        """The service's plain answer: {"version", "answers": [{"score", "spread", "members"}, ...]}.

        A prompt is a text or a list of messages. An empty response is scored: a policy may say nothing.
        """
        asked = {"prompts": list(prompts), "responses": list(responses), "allow_empty": True}
        reply = self.post("/score", asked)
        answers = reply.get("answers")
        if not isinstance(answers, list) or len(answers) != len(responses):
            raise HoldfastError(f"The reward service at {self.url} did not answer as it should; is it serve-reward?")
        if any(not math.isfinite(answer["score"]) for answer in answers):
            raise HoldfastError(f"The reward service at {self.url} gave a score that is not a number.")
        return reply

    def post(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Send, and try again with growing pauses while there is hope."""
        body = json.dumps(document).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        reason = ""
        for attempt in range(self.retries + 1):
            request = urllib.request.Request(self.url + path, body, headers)
            pause = min(LONGEST_WAIT, 0.5 * 2**attempt) * random.uniform(0.5, 1.0)
            try:
                with _direct.open(request, timeout=self.timeout) as answer:
                    reply = json.loads(answer.read())
                if not isinstance(reply, dict):
                    raise HoldfastError(f"The reward service at {self.url} did not answer as it should.")
                return reply
            except urllib.error.HTTPError as error:
                reason = _sentence(error)
                if error.code not in PASSING:
                    raise HoldfastError(f"The reward service at {self.url} refused ({error.code}): {reason}") from None
                pause = max(pause, min(LONGEST_WAIT, _seconds(error.headers.get("Retry-After"))))
            except (OSError, HTTPException, ValueError) as error:
                reason = str(getattr(error, "reason", "") or error) or type(error).__name__
            if attempt < self.retries:
                self.sleep(pause)
        raise HoldfastError(
            f"The reward service at {self.url} has not answered in {self.retries + 1} tries; "
            f"the last reason was: {reason}"
        )


def _sentence(error: urllib.error.HTTPError) -> str:
    """What the service says about a refusal."""
    try:
        return str(json.loads(error.read())["detail"])
    except (OSError, ValueError, KeyError, TypeError, HTTPException):
        return str(error.reason)


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdigit() else 0.0
