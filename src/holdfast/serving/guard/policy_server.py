"""A policy behind an OpenAI-compatible endpoint, which the server asks itself: a trainer's engine, or one beside it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from holdfast.models.prompt import Prompt, messages_of
from holdfast.remote.endpoint import Endpoint, RemoteService, Reply, shown
from holdfast.serving.guard.posts import PostedAnswer

# The environment variable that holds the key, where an endpoint wants one.
KEY = "HOLDFAST_POLICY_KEY"
AT_ONCE = 16
# For one answer, further tries included.
SECONDS = 600.0
LONGEST_REPLY = 16 << 20


@dataclass
class PolicyServer:
    """`POST URL/completions` for prompts that are texts, `POST URL/chat/completions` for conversations."""

    option: str
    url: str
    model: str
    _endpoint: Endpoint = field(init=False, repr=False)

    def __post_init__(self) -> None:
        service = RemoteService(
            name=f"the endpoint {shown(self.url).rstrip('/')}",
            url=self.url,
            key=KEY,
            setting=self.option,
            like="an OpenAI-compatible one",
            late="see what keeps it",
            away=f"start it, or correct {self.option}",
            longest_reply=LONGEST_REPLY,
            proxied=True,
        )
        self._endpoint = Endpoint(service)

    def answer(self, prompts: Sequence[Prompt], max_tokens: int, temperature: float) -> list[PostedAnswer]:
        """One answer to each prompt; an error where any of them could not be had."""
        limits = {"model": self.model, "max_tokens": max_tokens, "temperature": temperature}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda prompt: self._one(prompt, limits), prompts))

    def _one(self, prompt: Prompt, limits: dict[str, object]) -> PostedAnswer:
        talks = not isinstance(prompt, str)
        path = "/chat/completions" if talks else "/completions"
        asked: dict[str, object] = {"messages": messages_of(prompt)} if talks else {"prompt": prompt}

        def read(reply: Reply) -> PostedAnswer:
            if not reply.good:
                raise self._endpoint.refusal(reply)
            try:
                choice = reply.document["choices"][0]
                text = choice["message"]["content"] if talks else choice["text"]
                ending = choice.get("finish_reason")
            except (LookupError, TypeError, AttributeError):
                raise self._endpoint.strange() from None
            if not isinstance(text, str):
                raise self._endpoint.strange()
            return PostedAnswer(prompt, text, finished=ending != "length")

        return self._endpoint.ask("POST", path, {**asked, **limits}, SECONDS, read)
