"""A trainer's side of `holdfast guard serve`: post batches, answer audits, carry out advice.

    guard = GuardClient.of().training("my-run", prompts=prompts, answers=256, steps=1000, every=20)
    guard.post(prompts, answers, rewards, step=step)                     # in every step, from any process
    AnswerPoster(guard).add(prompt, answer, reward)                      # where answers come one by one
    guard.settle(answer=generate, score=reward, act=carry_out)           # in one process, where it may take a while

A trainer's workers import this beside their own models: no torch, nothing but httpx. Where Holdfast is not wanted
whole, `pip install httpx` and `pip install --no-deps holdfast-rl` are enough.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from holdfast.errors import HoldfastError
from holdfast.interop.client import asked, endpoint_of, place_of

URL = "HOLDFAST_GUARD_URL"
TOKEN = "HOLDFAST_GUARD_TOKEN"
# How long the server is waited for in one request, and how long nobody asks while people answer.
WAIT_SECONDS = 20.0
PAUSE_SECONDS = 5.0

# Answers of the policy, the reference or the last good policy to prompts: texts, or (text, finished).
Answer = Callable[[str, Sequence[Any], Mapping[str, Any]], Sequence[Any]]
# Rewards of answers to prompts: numbers, or objects of a number for each component with "score" for the whole.
Score = Callable[[Sequence[Any], Sequence[str]], Sequence[Any]]
# Carries out an advice. Returns {"before": ..., "after": ...}, or None where it declines.
Act = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


class GuardStopped(HoldfastError):
    """The guard has said that the training is to stop, and a person to look."""


@dataclass(frozen=True)
class GuardClient:
    """A server's address and token; `timeout` is in seconds for a reply, however many tries it takes."""

    url: str
    token: str
    timeout: float = 300.0
    retries: int = 5
    sleep: Callable[[float], None] = time.sleep

    @classmethod
    def of(cls, url: str | None = None, token: str | None = None, **settings: Any) -> GuardClient:
        """What was given, else what the environment says."""
        return cls(*place_of(url, token, URL, TOKEN, "the guard"), **settings)

    def training(self, name: str, **settings: Any) -> GuardedTraining:
        """A training that is begun now, or goes on if it was begun with the same settings; without any, one that is
        there."""
        training = GuardedTraining(self, name)
        if settings:
            self.ask("PUT", training.path, settings)
        return training

    def ask(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One question, asked again with growing pauses while there is hope."""
        endpoint = endpoint_of(
            self.url, self.token, self.sleep, name="The guard", key=TOKEN, setting=URL, like="`holdfast guard serve`",
            late="see what keeps it",
        )  # fmt: skip
        return asked(endpoint, method, path, document or {}, self.timeout, self.retries)


@dataclass
class GuardedTraining:
    """One training. `state` is what the server said last."""

    client: GuardClient
    name: str
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"/trainings/{quote(self.name, safe='')}"

    def post(
        self,
        prompts: Sequence[Any],
        answers: Sequence[str],
        rewards: Sequence[float | None],
        *,
        id: str | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Answers with their rewards, None where there is none; the training's state.

        `more`: components, finished, tokens, logprobs, reference_logprobs, kl, of, step, checkpoint. With an `id` of
        your own a batch that is posted again, after a crash, is stored once.
        """
        own = {name: value for name, value in more.items() if value is not None}
        columns = {"prompts": list(prompts), "answers": list(answers), "rewards": list(rewards)}
        return self._tell("/batches", {"id": id or uuid.uuid4().hex, **columns, **own})

    def settings(self) -> dict[str, Any]:
        """How the training was begun: its prompts, for one, in a process that did not begin it."""
        return self.client.ask("GET", f"{self.path}/settings")

    def look(self, wait: float = 0.0) -> dict[str, Any]:
        """Where the training is; waits for so long while the server is at work."""
        self.state = self.client.ask("GET", f"{self.path}?wait={wait:g}")
        return self.state

    def settle(
        self, answer: Answer | None = None, score: Score | None = None, act: Act | None = None
    ) -> dict[str, Any]:
        """Do what the server asks for until it waits for nothing but further batches; the training's state.

        A policy's answers are asked of `answer`, the rewards of answers of `score`, and advice is carried out by `act`.
        Where people answer the audits this waits for them. Raises GuardStopped where the guard stops.
        """
        while True:
            state = self.look(WAIT_SECONDS)
            for need in state["needs"]:
                self._answer(need, answer, score)
            for action in [] if state["needs"] else state["actions"]:
                self._carry_out(action, act)
            if state["needs"] or state["actions"]:
                continue
            if state["state"] == "failed":
                raise HoldfastError(f"The guard of {self.name} cannot go on: {state['waits_for']}")
            if state["state"] == "stopped":
                raise GuardStopped(
                    f"The guard has stopped {self.name}: {(state['verdict'] or {}).get('sentence', '')}."
                )
            if state["state"] not in ("reviewing", "labelling"):
                return state
            self.client.sleep(PAUSE_SECONDS if state["state"] == "labelling" else 0.0)

    def end(self, answer: Answer | None = None, score: Score | None = None, act: Act | None = None) -> dict[str, Any]:
        """The last step was made: a last review, after which the training may be told to end with an earlier policy."""
        self._tell("/end", {})
        return self.settle(answer, score, act)

    def resume(self) -> dict[str, Any]:
        """A person has looked, and lets a training that was stopped go on."""
        return self._tell("/resume", {})

    def _answer(self, need: Mapping[str, Any], answer: Answer | None, score: Score | None) -> None:
        prompts, reply = need["prompts"], dict[str, Any]()
        if need["what"] == "answers":
            if answer is None:
                raise HoldfastError(
                    f"The guard of {self.name} asks for answers of the {need['of']}, and nobody here gives any: pass "
                    "answer=, or start the server with the address of an endpoint of it."
                )
            given = [each if isinstance(each, tuple) else (each, True) for each in answer(need["of"], prompts, need)]
            reply = {"answers": [text for text, _ in given], "finished": [finished for _, finished in given]}
        texts = reply.get("answers", need.get("answers", []))
        rewards = [None] * len(texts) if score is None else list(score(prompts, texts))
        self._tell("/answers", {"need": need["need"], **reply, **in_columns(rewards)})

    def _carry_out(self, action: Mapping[str, Any], act: Act | None) -> None:
        done = None if act is None else act(action)
        note = "" if act is not None else "nothing here carries it out"
        report = {"id": action["id"], "done": done is not None, "note": note, **(done or {})}
        self._tell("/actions", report)

    def _tell(self, route: str, document: Mapping[str, Any]) -> dict[str, Any]:
        self.state = self.client.ask("POST", self.path + route, document)
        return self.state


def in_columns(rewards: Sequence[Any]) -> dict[str, Any]:
    """Rewards, and their components by name, as the server takes them."""
    objects = [reward for reward in rewards if isinstance(reward, Mapping)]
    names = dict.fromkeys(str(name) for reward in objects for name in reward if name != "score")
    whole = [_whole(reward) if isinstance(reward, Mapping) else reward for reward in rewards]
    parts = {name: [reward.get(name) if isinstance(reward, Mapping) else None for reward in rewards] for name in names}
    return {"rewards": whole, **({"components": parts} if parts else {})}


def _whole(reward: Mapping[str, Any]) -> Any:
    """The reward among its components, else their sum."""
    if "score" in reward:
        return reward["score"]
    return None if any(value is None for value in reward.values()) else sum(reward.values())


@dataclass
class _Group:
    """Answers on their way together."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    full: threading.Event = field(default_factory=threading.Event)
    stored: Future[dict[str, Any]] = field(default_factory=Future)


@dataclass
class AnswerPoster:
    """Posts answers that come one by one, from many threads, some at a time: at most so many, for so long collected."""

    training: GuardedTraining
    most: int = 128
    seconds: float = 0.05
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: dict[Any, _Group] = field(default_factory=dict)

    def add(
        self, prompt: Any, answer: str, reward: Any, about: Mapping[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        """One answer; returns once it is stored, with the training's state.

        `reward` is a number, components by name, or None; `more`: finished, tokens, logprobs, reference_logprobs, kl.
        `about` is what it has in common with others of its batch: of, step, checkpoint.
        """
        key = tuple(sorted((about or {}).items()))
        with self._lock:
            leads = key not in self._open
            group = self._open.setdefault(key, _Group())
            group.answers.append({"prompt": prompt, "answer": answer, "reward": reward, **more})
            if len(group.answers) >= self.most:
                del self._open[key]
                group.full.set()
        if leads:
            group.full.wait(self.seconds)
            with self._lock:
                if self._open.get(key) is group:
                    del self._open[key]
            try:
                group.stored.set_result(self._post(group.answers, dict(key)))
            except BaseException as error:
                group.stored.set_exception(error)
                raise
        return group.stored.result()

    def _post(self, answers: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> dict[str, Any]:
        columns = in_columns([each["reward"] for each in answers])
        names = dict.fromkeys(name for each in answers for name in each if name not in ("prompt", "answer", "reward"))
        more: dict[str, Any] = {name: [each.get(name) for each in answers] for name in names}
        prompts, texts = [each["prompt"] for each in answers], [each["answer"] for each in answers]
        return self.training.post(prompts, texts, **columns, **more, **about)
