"""What the trainers send is answered as they expect it, and what cannot be scored is refused in a sentence."""

import base64
import json
import math
import socket
from pathlib import Path

import msgpack
import pytest

from holdfast.models.prompt import Message
from holdfast.serving.app import LARGEST_BODY
from reward_server import OWNER, TOKEN, Truth, serving_rewards

# Made by running the trainers' own client code against a recorder; each file says which code, of which commit.
RECORDED = Path(__file__).parent / "recorded"
# The texts that are in the recordings.
PROMPTS = (
    "A quick question: do we need to book and are dogs allowed?",
    "Before we come, can I bring my dog and can we sit outside?",
)
ANSWERS = (
    "vegan valley hour for cook from eat dishes for there nine price",
    "We are message the looks over comes harbour hour valley can",
)
NEAR = 1e-4


@pytest.fixture(scope="module")
def served(rewarded_run):
    with serving_rewards(rewarded_run) as running:
        yield running


@pytest.fixture(scope="module")
def truth(rewarded_run):
    return Truth(rewarded_run, 3)


def replay(served, name):
    """Send what was recorded to the service, with its token where the recording has a placeholder."""
    answers = []
    for request in json.loads((RECORDED / f"{name}.json").read_text())["requests"]:
        body = base64.b64decode(request["body_base64"]) if "body_base64" in request else request["body"].encode()
        path = request["path"].replace("TOKEN", TOKEN)
        token = None if TOKEN in path else TOKEN
        status, answer, headers = served.post(path, token=token, body=body, **request["headers"])
        answers.append((status, answer, headers))
    return answers


def test_openrlhf_gets_rewards_scores_and_logs_for_each_query(served, truth):
    answers = replay(served, "openrlhf")
    assert len(answers) == 2
    for (status, answer, headers), prompt, text in zip(answers, PROMPTS, ANSWERS, strict=True):
        assert status == 200
        assert headers["content-type"] == "application/json"  # aiohttp reads no other as JSON
        assert set(answer) == {"rewards", "scores", "extra_logs"}
        reward = truth.score(prompt, text)
        assert answer["rewards"] == pytest.approx([reward], abs=NEAR)
        assert answer["scores"] == pytest.approx([1 / (1 + math.exp(-reward))], abs=NEAR)
        assert answer["extra_logs"]["ensemble_version"] == [3.0]
        one, other = truth.members(prompt, text)
        assert answer["extra_logs"]["ensemble_spread"] == pytest.approx([abs(one - other) / 2], abs=NEAR)


def test_slime_gets_a_number(served, truth):
    answers = replay(served, "slime")
    expected = [truth.score(PROMPTS[i], ANSWERS[i]) for i in (0, 1, 1)]
    assert [status for status, _, _ in answers] == [200, 200, 200]
    assert [answer for _, answer, _ in answers] == pytest.approx(expected, abs=NEAR)
    assert all(headers["content-type"] == "application/json" for _, _, headers in answers)


def test_oat_gets_scores_win_probabilities_and_a_ready_server(served, truth):
    (s1, scores, _), (s2, wins, _), (s3, ready, _) = replay(served, "oat")
    assert (s1, s2, s3) == (200, 200, 200)
    expected = [truth.score(p, a) for p, a in zip(PROMPTS, ANSWERS, strict=True)]
    told = msgpack.unpackb(scores)
    assert told["batch_score"] == pytest.approx(expected, abs=NEAR)
    assert told["batch_first_win_prob"] == []
    told = msgpack.unpackb(wins)
    assert told["batch_score"] == []
    # sigma of the mean raw difference, for each prompt the first of its two candidates against the second.
    for i, prompt in enumerate(PROMPTS):
        first, second = truth.raw(prompt, ANSWERS[i]), truth.raw(prompt, ANSWERS[1 - i])
        margin = sum(a - b for a, b in zip(first, second, strict=True)) / len(first)
        assert told["batch_first_win_prob"][i] == pytest.approx(1 / (1 + math.exp(-margin)), abs=NEAR)
    assert len(msgpack.unpackb(ready)["batch_score"]) == 1


def test_plain_scores_with_members_spread_and_version(served, truth):
    status, answer, headers = served.post("/score", {"prompts": list(PROMPTS), "responses": list(ANSWERS)})
    assert status == 200
    assert answer["version"] == 3
    assert headers["x-holdfast-version"] == "3"
    for told, prompt, text in zip(answer["answers"], PROMPTS, ANSWERS, strict=True):
        assert told["score"] == pytest.approx(truth.score(prompt, text), abs=NEAR)
        assert told["members"] == pytest.approx(truth.members(prompt, text), abs=NEAR)


def test_conversations_and_single_answers_are_the_same_to_it(served, truth):
    turns = [{"role": "user", "content": PROMPTS[0]}, {"role": "assistant", "content": ANSWERS[0]}]
    longer = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "We are there."}, *turns]
    parts = [{"role": "user", "content": [{"type": "text", "text": PROMPTS[0]}]}, turns[1]]
    same = [
        {"messages": turns},
        {"messages": [turns]},
        {"messages": parts},
        {"prompt": PROMPTS[0], "response": ANSWERS[0]},
        {"prompts": [turns[:1]], "responses": [ANSWERS[0]]},
    ]
    for document in same:
        status, answer, _ = served.post("/score", document)
        assert status == 200, answer
        assert answer["answers"][0]["score"] == pytest.approx(truth.score(PROMPTS[0], ANSWERS[0]), abs=NEAR)
    _, answer, _ = served.post("/score", {"messages": longer})
    prompt = tuple(Message(turn["role"], turn["content"]) for turn in longer[:-1])
    assert answer["answers"][0]["score"] == pytest.approx(truth.score(prompt, ANSWERS[0]), abs=NEAR)


def test_an_answer_cannot_move_where_its_prompt_ends(served, truth):
    """A policy that writes the template's own marks is scored for all that it wrote."""
    sneaky = f"{ANSWERS[0]}<answer>{ANSWERS[1]}"
    prompt = f"<guest>{PROMPTS[0]}<answer>"
    for query in (prompt + sneaky, f"<guest> {PROMPTS[0]}<answer> {sneaky}<eos>"):
        _, answer, _ = served.post("/get_reward", {"query": [query], "prompts": [prompt], "labels": [None]})
        assert answer["rewards"] == pytest.approx([truth.score(PROMPTS[0], sneaky)], abs=NEAR)


def test_a_prompt_that_the_trainer_has_cut_is_still_told_from_its_answer(served, truth):
    prompt = f"<guest>{PROMPTS[0]}<answer>"
    document = {"query": [f"are dogs allowed?<answer> {ANSWERS[0]}<eos>"], "prompts": [prompt], "labels": [""]}
    _, answer, _ = served.post("/get_reward", document)
    assert answer["rewards"] == pytest.approx([truth.score(PROMPTS[0], ANSWERS[0])], abs=NEAR)


def test_a_policy_that_says_nothing_does_not_stop_its_trainer(served, truth):
    silent = truth.score(PROMPTS[0], "")
    prompt = f"<guest>{PROMPTS[0]}<answer>"
    _, answer, _ = served.post("/get_reward", {"query": [f"{prompt}<eos>"], "prompts": [prompt], "labels": [None]})
    assert answer["rewards"] == pytest.approx([silent], abs=NEAR)
    _, answer, _ = served.post("/slime", {"prompt": PROMPTS[0], "response": "", "label": None})
    assert answer == pytest.approx(silent, abs=NEAR)
    document = {"prompt": PROMPTS[0], "response": ""}
    assert served.post("/score", document)[0] == 422
    assert served.post("/score", {**document, "allow_empty": True})[0] == 200
    document = {"prompts": [PROMPTS[0]], "responses": [""], "allow_empty": True}
    assert served.post("/score", document)[1]["answers"][0]["score"] == pytest.approx(silent, abs=NEAR)


ONE = {"prompts": ["x"], "responses": ["y"]}
REFUSALS = {
    "not JSON": ("/score", b"{", 400, "not JSON"),
    "not an object": ("/score", b"[1]", 422, "a list, but it has to be an object"),
    "nothing": ("/score", b"{}", 422, "'prompts' is missing"),
    "no answers": ("/score", {"prompts": [], "responses": []}, 422, "nothing to score"),
    "one prompt, two answers": (
        "/score",
        {"prompts": ["a"], "responses": ["b", "c"]},
        422,
        "1 prompts and 2 responses",
    ),
    "an empty answer": ("/score", {"prompts": ["a"], "responses": [" "]}, 422, "answer 0 is empty"),
    "an empty prompt": ("/score", {"prompts": [""], "responses": ["b"]}, 422, "prompt of answer 0 is empty"),
    "a number for a text": ("/score", {"prompts": ["a"], "responses": [3]}, 422, "responses[0] is a number"),
    "null for a prompt": ("/score", {"prompts": [None], "responses": ["b"]}, 422, "prompts[0] is null"),
    "not a message": ("/score", {"messages": [[{"role": "user"}]]}, 422, "not a message with role and content"),
    "no answer in it": ("/score", {"messages": [[{"role": "user", "content": "a"}]]}, 422, "does not end with"),
    "an image": (
        "/score",
        {"messages": [{"role": "user", "content": [{"type": "image"}]}, {"role": "assistant", "content": "b"}]},
        422,
        "parts that are not text",
    ),
    "half a surrogate pair": ("/score", b'{"prompts": ["a"], "responses": ["\\ud800"]}', 422, "not valid text"),
    "too long": ("/score", {"prompts": ["a"], "responses": ["noon " * 200]}, 422, "but the ensemble sees 96"),
    "too many": ("/score", {"prompts": ["a"] * 1025, "responses": ["b"] * 1025}, 413, "at most 1024 at once"),
    "too large": ("/score", b" " * (LARGEST_BODY + 1), 413, "larger than 8 MB"),
    "a query with another prompt": ("/get_reward", {"query": ["ab"], "prompts": ["x"]}, 422, "does not begin with"),
    "a query without a prompt": ("/get_reward", {"query": ["ab"]}, 422, "'prompts' is missing"),
    "slime without an answer": ("/slime", {"prompt": "a"}, 422, "'response' is missing"),
    "not msgpack": ("/get_feedback", b"\xc1", 400, "not msgpack"),
    "three candidates": (
        "/get_feedback",
        msgpack.packb({"batch_prompt": ["a"], "batch_response": [], "batch_candidates": [["b", "c", "d"]]}),
        422,
        "holds 3 answers",
    ),
    "nothing for OAT": (
        "/get_feedback",
        msgpack.packb({"batch_prompt": ["a"], "batch_response": [], "batch_candidates": []}),
        422,
        "1 batch_prompt and 0 batch_response",
    ),
    "nowhere": ("/nowhere", b"{}", 404, "nothing here"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_scored_is_refused_in_a_sentence(served, case):
    path, given, status, sentence = REFUSALS[case]
    body = given if isinstance(given, bytes) else json.dumps(given).encode()
    got, answer, _ = served.post(path, body=body)
    assert got == status
    assert sentence in answer["detail"]
    assert served.post("/score", ONE)[0] == 200


def test_a_bad_request_does_not_spoil_those_that_come_with_it(rewarded_run, truth):
    """All in one pass: one is too long, the other is answered."""
    import asyncio

    from holdfast.serving.encoder import AnswerToScore
    from holdfast.serving.service import Service
    from holdfast.serving.versions import open_run
    from holdfast.web.security import Refused

    async def both(service):
        await service.start()
        asked = [[AnswerToScore("a", "noon " * 200)], [AnswerToScore(PROMPTS[0], ANSWERS[0])], [AnswerToScore("a", "")]]
        done = await asyncio.gather(*(service.score(a) for a in asked), return_exceptions=True)
        passes = service.batcher.passes
        await service.close()
        return done, passes

    (too_long, fine, empty), passes = asyncio.run(both(Service(open_run(rewarded_run))))
    assert isinstance(too_long, Refused)
    assert isinstance(empty, Refused)
    assert fine.scores == pytest.approx([truth.score(PROMPTS[0], ANSWERS[0])], abs=NEAR)
    assert passes <= 1


def test_a_score_that_is_no_number_is_refused_and_so_is_a_version_that_gives_none(rewarded_run):
    from holdfast.errors import HoldfastError
    from holdfast.serving.encoder import AnswerToScore
    from holdfast.serving.versions import open_run
    from holdfast.web.security import Refused

    scorer = open_run(rewarded_run).load(3)
    scorer.ensemble.members[1].head.weight.data.fill_(float("nan"))
    (outcome,) = scorer.answer([[AnswerToScore(PROMPTS[0], ANSWERS[0])]]).outcomes
    assert isinstance(outcome, Refused)
    assert outcome.status == 422
    assert "not a number" in outcome.words
    with pytest.raises(HoldfastError, match="Version 3 gives scores that are not numbers"):
        scorer.check()


# --- who is let in ----------------------------------------------------------------------------------------------

ROUTES = [
    ("POST", "/score"), ("POST", "/get_reward"), ("POST", "/slime"), ("POST", "/get_feedback"), ("GET", "/versions"),
    ("POST", "/versions"), ("GET", "/watch"), ("POST", "/watch/restart"), ("GET", "/metrics"), ("GET", "/nowhere"),
]  # fmt: skip


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1], TOKEN + "x"])
def test_without_the_token_nothing_is_answered(served, token):
    for method, path in ROUTES:
        status, answer, headers = served.get(path, token) if method == "GET" else served.post(path, ONE, token)
        assert (status, headers["www-authenticate"]) == (401, "Bearer"), path
        assert "token" in answer["detail"], path
        assert TOKEN not in json.dumps(answer), path


def test_the_token_may_come_in_header_path_or_query(served):
    assert served.post("/score", ONE)[0] == 200
    assert served.post(f"/t/{TOKEN}/score", ONE, None)[0] == 200
    assert served.post(f"/score?token={TOKEN}", ONE, None)[0] == 200
    assert served.post("/t/wrong/score", ONE, None)[0] == 401
    assert served.post("/score?token=wrong", ONE, None)[0] == 401
    assert served.get("/health", None)[0] == 200


def test_only_the_owner_changes_versions_and_baselines(served):
    assert served.post("/versions", {"version": 2})[0] == 403
    assert served.post("/watch/restart", {})[0] == 403
    assert served.get("/versions")[1] == {"in_use": 3, "versions": [1, 2, 3]}
    assert served.post("/versions", {"version": 2}, OWNER)[1] == {"in_use": 2}
    assert served.post("/score", ONE)[1]["version"] == 2
    status, answer, _ = served.post("/versions", {"version": 7}, OWNER)
    assert status == 409
    assert "There is no version 7" in answer["detail"]
    assert served.post("/versions", {"version": "2"}, OWNER)[0] == 422
    assert served.post("/versions", {}, OWNER)[1] == {"in_use": 3}
    assert served.post("/watch/restart", {}, OWNER)[0] == 200


def test_metrics_can_be_scraped(served):
    served.post("/score", ONE)
    _, text, headers = served.get("/metrics")
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = text.decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(values['holdfast_reward_requests_total{protocol="plain",status="200"}']) >= 1
    assert float(values["holdfast_reward_version"]) == served.get("/versions")[1]["in_use"]
    counts = [float(v) for k, v in values.items() if k.startswith("holdfast_reward_request_seconds_bucket")]
    assert counts == sorted(counts)
    assert counts[-1] == float(values["holdfast_reward_request_seconds_count"])


def test_without_msgpack_oat_is_told_what_to_install(served, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "msgpack", None)
    status, answer, _ = served.post("/get_feedback", body=b"\x80")
    assert status == 501
    assert "pip install msgpack" in answer["detail"]


def test_a_trainer_that_never_ends_its_request_is_given_up(served, monkeypatch):
    monkeypatch.setattr("holdfast.web.connections.REQUEST_SECONDS", 0.3)
    host, _, port = served.address.removeprefix("http://").partition(":")
    head = f"POST /score HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 999\r\n\r\n"
    for beginning in (head.encode()[:40], head.encode() + b'{"prompts"'):
        with socket.create_connection((host, int(port)), timeout=5) as wire:
            wire.sendall(beginning)
            assert wire.makefile("rb").read().startswith(b"HTTP/1.1 408 Request Timeout")
    assert served.get("/health")[0] == 200
