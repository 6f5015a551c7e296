"""A reward of the user's as a service: in every trainer's words, with what could not be scored told as such."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import given_rewards
import small_run
from holdfast.config import load_config
from holdfast.errors import HoldfastError
from holdfast.reward.scores import Asked
from holdfast.reward.sources.service import ServiceSource
from holdfast.reward.sources.workers import Allowance
from holdfast.serving.versions import open_given
from reward_server import OWNER, TOKEN, Served, serving_versions


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    versions = open_given(load_config(None, {"reward.source": given_rewards.LABELLED}))
    with serving_versions(versions) as running:
        yield running
    versions.source.close()


def test_our_own_protocol_has_components_and_reasons(served: Served) -> None:
    document = {
        "prompts": ["p", "p", "q"], "responses": ["a b c", "fail", "a"],
        "columns": [{"label": "b"}, {"label": "b"}, {}],
    }  # fmt: skip
    status, answer, _ = served.post("/score", document)
    assert status == 200
    first, second, third = answer["answers"]
    assert first["score"] == pytest.approx(1.3)
    assert first["components"] == {"right": 1.0, "words": pytest.approx(0.3)}
    assert second["score"] is None
    assert "cannot read this" in second["reason"]
    assert third["score"] == pytest.approx(0.1)


def test_each_trainer_in_its_own_words(served: Served) -> None:
    queries = {"query": ["what? a b", "what? c"], "prompts": ["what?", "what?"], "labels": ["b", "b"]}
    status, answer, _ = served.post("/get_reward", queries)
    assert status == 200
    assert answer["rewards"] == pytest.approx([1.2, 0.1])
    assert answer["extra_logs"]["right"] == [1.0, 0.0]
    assert served.post("/slime", {"prompt": "p", "response": "a b", "label": "a"})[1] == pytest.approx(1.2)


def test_who_knows_no_answer_without_a_score_is_refused(served: Served) -> None:
    status, answer, _ = served.post("/slime", {"prompt": "p", "response": "fail"})
    assert status == 502
    assert "could not be scored" in answer["detail"]
    assert "cannot read this" in answer["detail"]
    queries = {"query": ["what? fail"], "prompts": ["what?"], "labels": [None]}
    assert served.post("/get_reward", queries)[0] == 502


def test_bad_requests(served: Served) -> None:
    assert served.post("/get_reward", {"query": ["other"], "prompts": ["what?"]})[0] == 422
    assert served.post("/score", {"prompts": ["p"], "responses": [""]})[0] == 422
    assert served.post("/score", {"prompts": ["p"], "responses": ["a"], "columns": [1]})[0] == 422
    assert served.post("/score", {"prompts": ["p"], "responses": ["a"]}, token="wrong")[0] == 401
    status, answer, _ = served.post("/versions", {"version": 2}, token=OWNER)
    assert (status, "version 1 alone" in answer["detail"]) == (409, True)


def test_our_own_client_gets_what_the_source_says(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_REWARD_TOKEN", TOKEN)
    source = ServiceSource(f"{served.address}/score", Allowance(10.0, 4))
    scores = source.score(Asked(["p", "p"], ["a b", "fail"], [{}, {}]))
    assert scores.total_B[0] == pytest.approx(0.2)
    assert scores.components["words"][0] == pytest.approx(0.2)
    assert "cannot read this" in scores.unscored[1]


def test_a_run_s_own_source_is_served(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, run__rounds="1", guard__mode="off", reward__source=given_rewards.COUNTS)
    versions = open_given(load_config(run / "config.toml"))
    with serving_versions(versions) as running:
        status, answer, _ = running.post("/score", {"prompts": ["p"], "responses": ["a b b"]})
    assert (status, answer["answers"][0]["score"]) == (200, pytest.approx(0.3 + 0.4))
    with pytest.raises(HoldfastError, match="version 1 alone"):
        versions.load(2)
    versions.source.close()
