"""A reward service over HTTP in three shapes, how they are told apart, and what a service may do."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import small_run
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Message
from holdfast.reward.scores import Asked, Scores
from holdfast.reward.sources.service import ServiceSource
from holdfast.reward.sources.workers import Allowance
from judge_stand_in import Status, answering
from reward_server import TOKEN, Truth, serving_rewards, texts_of

ALLOWANCE = Allowance(5.0, 4)
Service = Callable[[str, Any], Any]


def at_once(seconds: float) -> None:
    """Nobody waits before asking again."""


def totals(scores: Scores) -> list[float | None]:
    return [None if math.isnan(value) else round(value, 5) for value in scores.total_B.tolist()]


def ours(path: str, body: Any) -> Any:
    return {"version": 1, "answers": [{"score": float(len(text)), "spread": 0.0} for text in body["responses"]]}


def openrlhf(path: str, body: Any) -> Any:
    rewards = [
        len(q) - len(p) + (label or 0)
        for q, p, label in zip(body["query"], body["prompts"], body["labels"], strict=True)
    ]
    return {"rewards": rewards, "scores": [0.5] * len(rewards), "extra_logs": {"x": rewards}}


def slime(path: str, body: Any) -> Any:
    return float(len(body["response"])) + (body["label"] or 0)


@pytest.mark.parametrize(
    ("path", "service", "arrives"),
    [
        ("", ours, "/score"), ("/", ours, "/score"), ("/v2/score", ours, "/v2/score"),
        ("/get_reward", openrlhf, "/get_reward"), ("/slime", slime, "/slime"), ("/slime/", slime, "/slime"),
    ],
)  # fmt: skip
def test_the_address_says_the_shape(path: str, service: Service, arrives: str) -> None:
    with answering(service) as there:
        scores = ServiceSource(there.url + path, ALLOWANCE).score(Asked(["p", "p", "q"], ["a", "", "ccc"]))
    assert totals(scores) == [1.0, 0.0, 3.0]
    assert {path for path, _ in there.requests} == {arrives}
    assert len(there.requests) == 3, "one for each answer"


@pytest.mark.parametrize("service", [ours, openrlhf, slime])
def test_any_other_address_is_asked_which_it_is(service: Service) -> None:
    with answering(service) as there:
        source = ServiceSource(f"{there.url}/rewards/mine", ALLOWANCE)
        assert len(there.requests) == 1, "at the start"
        assert totals(source.score(Asked(["p", "p"], ["a", "bb"]))) == [1.0, 2.0]


def test_labels_and_conversations() -> None:
    turns = (Message("user", "hi"), Message("assistant", "yes?"), Message("user", "more"))
    batch = Asked([turns, "p"], ["a", "b"], [{"answer": 5}, {"other": 1, "ground_truth": 7}])
    with answering(slime) as there:
        assert totals(ServiceSource(f"{there.url}/slime", ALLOWANCE).score(batch)) == [6.0, 8.0]
    sent = next(body for _, body in there.requests if body["response"] == "a")
    assert [turn["role"] for turn in sent["prompt"]] == ["user", "assistant", "user"]
    with answering(openrlhf) as there:
        assert totals(ServiceSource(f"{there.url}/get_reward", ALLOWANCE).score(batch)) == [6.0, 8.0]


def test_a_service_of_ours_may_say_more() -> None:
    replies: dict[str, Any] = {
        "a": {"score": 1.5, "components": {"kind": 1.0, "cites": 0.5}},
        "b": {"score": None, "reason": "too long"},
        "c": {"score": None},
        "d": {"score": 1e30},
    }
    with answering(lambda path, body: {"answers": [replies[body["responses"][0]]]}) as there:
        scores = ServiceSource(there.url, ALLOWANCE).score(Asked(["p"] * 4, list("abcd")))
    assert totals(scores) == [1.5, None, None, None]
    assert scores.components["cites"][0] == 0.5
    assert (scores.unscored[1], scores.unscored[2]) == ("too long", "the service gave no score")
    assert "beyond any score" in scores.unscored[3]
    assert scores.weights == {}, "what share of its score a component is, nobody knows"


def test_what_fails_in_passing_is_asked_again_and_what_is_refused_is_not() -> None:
    tries: dict[str, int] = {}

    def service(path: str, body: Any) -> Any:
        answer = body["response"]
        tries[answer] = tries.get(answer, 0) + 1
        if answer == "busy" and tries[answer] < 3:
            raise Status(503)
        if answer == "refused":
            raise Status(422)
        return "high" if answer == "words" else 1.0

    with answering(service) as there:
        source = ServiceSource(f"{there.url}/slime", ALLOWANCE, sleep=at_once)
        scores = source.score(Asked(["p"] * 4, ["busy", "refused", "fine", "words"]))
    assert totals(scores) == [1.0, None, 1.0, None]
    assert tries == {"busy": 3, "refused": 1, "fine": 1, "words": 4}
    assert "answered 422" in scores.unscored[1]
    assert "did not answer as a reward service does" in scores.unscored[3]


def test_a_service_that_is_late_leaves_an_answer_unscored() -> None:
    release = threading.Event()

    def service(path: str, body: Any) -> Any:
        return 1.0 if body["response"] == "quick" else float(release.wait(10))

    with answering(service) as there:
        source = ServiceSource(f"{there.url}/slime", Allowance(0.3, 4), sleep=at_once)
        scores = source.score(Asked(["p", "p"], ["slow", "quick"]))
        release.set()
    assert totals(scores) == [None, 1.0]
    assert "within 0.3 seconds; raise reward.timeout_seconds" in scores.unscored[0]


def test_what_is_no_service_is_said_at_the_start() -> None:
    with (
        answering(lambda path, body: {"hello": "there"}) as there,
        pytest.raises(HoldfastError, match=r"did not answer as a reward service does .* check reward\.source"),
    ):
        ServiceSource(f"{there.url}/else", ALLOWANCE, sleep=at_once)
    with pytest.raises(HoldfastError, match=r"cannot be reached .* correct reward\.source"):
        ServiceSource("http://127.0.0.1:1/else", ALLOWANCE, sleep=at_once)


def test_our_own_service_gives_what_the_ensemble_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run.run(tmp_path, run__rounds="1", run__steps_per_round="1")
    texts = texts_of(run, 6)
    with serving_rewards(run) as served:
        monkeypatch.setenv("HOLDFAST_REWARD_TOKEN", TOKEN)
        asked = Asked([prompt for prompt, _ in texts], [answer for _, answer in texts])
        scores = ServiceSource(served.address, ALLOWANCE).score(asked)
        by_slime = ServiceSource(f"{served.address}/slime", ALLOWANCE).score(asked)
        monkeypatch.setenv("HOLDFAST_REWARD_TOKEN", "wrong-0123456789")
        refused = ServiceSource(served.address, ALLOWANCE).score(asked)
    assert scores.total_B.tolist() == pytest.approx(Truth(run, 1).scores(texts), abs=1e-4)
    assert by_slime.total_B.tolist() == pytest.approx(scores.total_B.tolist(), abs=1e-4)
    assert "wants a key, or another one: set HOLDFAST_REWARD_TOKEN" in refused.reasons()[0]
