"""Fifty people at once against PostgreSQL, and a server that is killed in the middle of it.

Every acknowledged label is stored exactly once, no pair is leased to two, and the latencies are printed.
"""

import asyncio
import os
import statistics
import time

import httpx
import pytest
from sqlalchemy import func, select

import served
import tally
import web_site
from holdfast.config.schema import PeopleConfig
from holdfast.people.queue import LabelQueue
from holdfast.preferences.people_schema import queue as queue_table
from holdfast.preferences.people_schema import submissions
from holdfast.preferences.schema import labels
from holdfast.preferences.store import PreferenceStore

pytestmark = pytest.mark.slow
PEOPLE = int(os.environ.get("HOLDFAST_LOAD_PEOPLE", "50"))
EACH = int(os.environ.get("HOLDFAST_LOAD_EACH", "3"))
LONGEST_SECONDS = 150.0


class Person:
    """Takes a pair, answers it, and sends the same answer again until it is acknowledged."""

    def __init__(self, name: str, token: str, address: str) -> None:
        self.name, self.address = name, address
        self.headers = {"Authorization": f"Bearer {token}"}
        self.acknowledged: dict[str, str] = {}  # submission id -> lease
        self.leases: list[str] = []
        self.times: dict[str, list[float]] = {"next item": [], "submit": []}

    async def post(self, client: httpx.AsyncClient, kind: str, path: str, json: object = None) -> httpx.Response:
        while True:
            began = time.perf_counter()
            try:
                reply = await client.post(self.address + path, json=json, headers=self.headers)
            except httpx.TransportError:
                await asyncio.sleep(0.3)  # the server is away
                continue
            self.times[kind].append(time.perf_counter() - began)
            assert reply.status_code < 500, reply.text
            return reply

    async def work(self, client: httpx.AsyncClient) -> None:
        pair = (await self.post(client, "next item", "/api/v1/next")).json()
        while pair is not None:
            self.leases.append(pair["lease"])
            answer = {"id": f"{self.name}-{pair['lease']}"[:64], "lease": pair["lease"], "said": "left", "seconds": 2.0}
            reply = await self.post(client, "submit", "/api/v1/answers", answer)
            assert reply.status_code == 200, reply.text
            self.acknowledged[answer["id"]] = pair["lease"]
            pair = reply.json()["next"]


def prepare(tmp_path, url, pairs):
    run = web_site.make_run(tmp_path / "run", url, **{"people.overlap": "0.1"})
    with PreferenceStore.open(url) as store:
        queue = LabelQueue(store.database, "run", PeopleConfig(overlap=0.1))
        web_site.put(store, queue, web_site.pairs(pairs, "run/r0001-"))
    tokens = served.sessions(url, **{f"p{n:02d}": "labeller" for n in range(PEOPLE)})
    return run, tokens


async def all_at_work(people, disturb=None):
    limits = httpx.Limits(max_connections=PEOPLE, max_keepalive_connections=PEOPLE)
    async with httpx.AsyncClient(limits=limits, timeout=60.0) as client:
        jobs = [asyncio.create_task(person.work(client)) for person in people]
        if disturb is not None:
            jobs.append(asyncio.create_task(disturb()))
        await asyncio.wait_for(asyncio.gather(*jobs), LONGEST_SECONDS)


def check(url, people, pairs):
    """Exactly once, all of it, and never two at once."""
    acknowledged = [key for person in people for key in person.acknowledged]
    assert len(acknowledged) == len(set(acknowledged))
    leases = [lease for person in people for lease in dict.fromkeys(person.leases)]
    assert len(leases) == len(set(leases)), "a lease was given to two"
    with PreferenceStore.open(url) as store, store.database.read() as connection:
        stored = list(connection.execute(select(submissions.c.id)).scalars())
        assert sorted(stored) == sorted(acknowledged)
        twice = select(func.count()).select_from(labels).group_by(labels.c.comparison_id, labels.c.labeller)
        assert set(connection.execute(twice).scalars()) == {1}
        slots = connection.execute(select(func.count()).select_from(queue_table)).scalar()
        assert connection.execute(select(func.count()).select_from(labels)).scalar() == len(acknowledged) == slots
        # Each slot was answered by the one who held it, and a comparison's two opinions are of two people.
        same = queue_table.c.comparison_id == submissions.c.comparison_id
        slot = submissions.join(queue_table, same & (queue_table.c.slot == submissions.c.slot))
        wrong = select(func.count()).select_from(slot).where(queue_table.c.holder != submissions.c.labeller)
        assert connection.execute(wrong).scalar() == 0
    assert len(acknowledged) >= pairs
    tally.count("labels acknowledged", len(acknowledged))


def told(people, seconds):
    for kind in ("submit", "next item"):
        times = sorted(t for person in people for t in person.times[kind])
        p50, p95 = statistics.median(times), times[int(0.95 * (len(times) - 1))]
        print(f"{kind:<10} n={len(times)}  p50 {1000 * p50:.0f} ms  p95 {1000 * p95:.0f} ms")
    count = sum(len(person.acknowledged) for person in people)
    print(f"{count} labels by {len(people)} people in {seconds:.1f} s: {count / seconds:.0f} a second")


def test_fifty_people_at_once(postgres_url, tmp_path, capsys):
    run, tokens = prepare(tmp_path, postgres_url, PEOPLE * EACH)
    with served.serving(run.path) as server:
        people = [Person(name, token, server.address) for name, token in tokens.items()]
        began = time.perf_counter()
        asyncio.run(all_at_work(people))
        seconds = time.perf_counter() - began
    check(postgres_url, people, PEOPLE * EACH)
    with capsys.disabled():
        print(f"\n{PEOPLE} people at once, PostgreSQL, no time to think:")
        told(people, seconds)


def test_the_server_is_killed_in_the_middle(postgres_url, tmp_path, capsys):
    run, tokens = prepare(tmp_path, postgres_url, PEOPLE * EACH)
    server = served.Server(run.path)
    server.start()
    people = [Person(name, token, server.address) for name, token in tokens.items()]
    killed = []

    async def kill():
        for share in (0.2, 0.5):
            while sum(len(person.acknowledged) for person in people) < share * PEOPLE * EACH:
                await asyncio.sleep(0.02)
            server.kill()
            killed.append(sum(len(person.acknowledged) for person in people))
            await asyncio.to_thread(server.start)

    try:
        began = time.perf_counter()
        asyncio.run(all_at_work(people, kill))
        seconds = time.perf_counter() - began
    finally:
        server.stop()
    assert len(killed) == 2
    check(postgres_url, people, PEOPLE * EACH)
    with capsys.disabled():
        print(f"\nthe same, with the server killed at {killed[0]} and {killed[1]} labels and started again:")
        told(people, seconds)
