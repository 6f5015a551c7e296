"""Many clients at once, a swap of versions under them, too many of them, and an end while they are being answered."""

import asyncio
import dataclasses
import threading
import time

import pytest

from holdfast.serving.batcher import Limits
from reward_server import OWNER, TOKEN, Truth, Wire, serving_rewards, texts_of

CLIENTS, EACH = 200, 4
NEAR = 1e-4


@pytest.fixture(scope="module")
def texts(rewarded_run):
    return texts_of(rewarded_run, CLIENTS * EACH)


@pytest.fixture(scope="module")
def truths(rewarded_run, texts):
    """By version, what each text has to be given."""
    return {version: Truth(rewarded_run, version).scores(texts) for version in (1, 2, 3)}


def request_of(place, texts):
    """Every trainer's way of asking, in turns; the last asks about several answers at once."""
    prompt, response = texts[place]
    kind = place % 3
    if kind == 0:
        query = f"<guest>{prompt}<answer>{response}<eos>"
        asked = {"query": [query], "prompts": [f"<guest>{prompt}<answer>"], "labels": [None]}
        return f"/t/{TOKEN}/get_reward", asked, lambda told: told["rewards"], [place]
    if kind == 1:
        return f"/t/{TOKEN}/slime", {"prompt": prompt, "response": response, "label": ""}, lambda told: [told], [place]
    places = [(place + k) % len(texts) for k in range(5)]
    asked = {"prompts": [texts[i][0] for i in places], "responses": [texts[i][1] for i in places]}
    return f"/score?token={TOKEN}", asked, lambda told: [answer["score"] for answer in told["answers"]], places


async def clients(address, texts, meanwhile=None):
    """All clients at once, each with a connection of its own; (status, version, places, scores) of every request."""

    async def client(number):
        got = []
        async with Wire(address) as wire:
            for turn in range(EACH):
                path, asked, read, places = request_of(number * EACH + turn, texts)
                status, answer, headers = await wire.post(path, asked)
                scores = read(answer) if status == 200 else []
                got.append((status, int(headers.get("x-holdfast-version", 0)), places, scores))
        return got

    work = [client(number) for number in range(CLIENTS)]
    done = await asyncio.gather(*work, *([meanwhile(address)] if meanwhile else []))
    return [row for rows in done[:CLIENTS] for row in rows]


def check(rows, truths):
    assert len(rows) == CLIENTS * EACH  # none is lost
    assert {status for status, _, _, _ in rows} == {200}
    for _, version, places, scores in rows:
        assert scores == pytest.approx([truths[version][i] for i in places], abs=NEAR)


def test_two_hundred_clients_get_their_own_answers_in_bounded_time(rewarded_run, texts, truths):
    with serving_rewards(rewarded_run) as served:
        began = time.monotonic()
        rows = asyncio.run(clients(served.address, texts))
        seconds = time.monotonic() - began
        check(rows, truths)
        assert {version for _, version, _, _ in rows} == {3}
        assert seconds < 30
        # They came together: far fewer passes than requests.
        assert served.service.batcher.passes < CLIENTS * EACH / 3
        assert served.service.batcher.waiting == 0


def test_versions_change_under_load_and_no_request_fails(rewarded_run, texts, truths):
    async def swap(address):
        async with Wire(address) as wire:
            for version in (1, 2, 3, 1):
                assert (await wire.post("/versions", {"version": version}, OWNER))[0] == 200
                await asyncio.sleep(0.05)

    with serving_rewards(rewarded_run) as served:
        rows = asyncio.run(clients(served.address, texts, swap))
        check(rows, truths)
        assert len({version for _, version, _, _ in rows}) >= 2
        assert served.service.tally.swaps == 4
        # The versions do not agree, or the test would show nothing.
        assert abs(truths[1][0] - truths[3][0]) > 10 * NEAR


def slow_down(service, seconds):
    """Every pass takes at least this long from now on."""
    scorer = service.scorer
    ensemble = dataclasses.replace(scorer.ensemble)
    judge = ensemble.judge

    def slowly(prompts, responses):
        time.sleep(seconds)
        return judge(prompts, responses)

    ensemble.judge = slowly
    service.scorer = dataclasses.replace(scorer, ensemble=ensemble)


def test_beyond_the_queue_clients_are_told_when_to_come_back(rewarded_run, texts, truths):
    with serving_rewards(rewarded_run, limits=Limits(wait_ms=1, batch=4, queue=8)) as served:
        slow_down(served.service, 0.2)

        async def one(place):
            path, asked, _, _ = request_of(place, texts)
            async with Wire(served.address) as wire:
                return place, *(await wire.post(path, asked))

        async def burst():
            return await asyncio.gather(*(one(3 * i + 1) for i in range(40)))

        answers = asyncio.run(burst())
        refused = [(answer, headers) for _, status, answer, headers in answers if status == 503]
        assert {status for _, status, _, _ in answers} == {200, 503}
        assert all(int(headers["retry-after"]) >= 1 for _, headers in refused)
        assert all("waiting" in answer["detail"] for answer, _ in refused)
        for place, status, answer, _ in answers:
            assert status == 503 or answer == pytest.approx(truths[3][place], abs=NEAR)
        # A request that is larger than the queue is still answered when nothing waits.
        many = {"prompts": [p for p, _ in texts[:20]], "responses": [r for _, r in texts[:20]]}
        assert served.post("/score", many)[0] == 200


def test_what_was_accepted_is_answered_before_the_server_ends(rewarded_run, texts, truths):
    answers = []
    with serving_rewards(rewarded_run) as served:
        slow_down(served.service, 0.5)
        path, asked, _, places = request_of(1, texts)
        threads = [threading.Thread(target=lambda: answers.append(served.post(path, asked, None))) for _ in range(5)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 10
        while served.service.batcher.waiting < 5 and time.monotonic() < end:
            time.sleep(0.01)
        served.server.should_exit = True
        for thread in threads:
            thread.join()
    assert [status for status, _, _ in answers] == [200] * 5
    assert [answer for _, answer, _ in answers] == pytest.approx([truths[3][places[0]]] * 5, abs=NEAR)
