"""A whole site in this process, with a client for every role."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argon2 import PasswordHasher
from starlette.testclient import TestClient

import tally
from holdfast.config import load_config
from holdfast.config.schema import PeopleConfig
from holdfast.people.accounts import AccountStore, Role
from holdfast.preferences.comparison import Comparison, Provenance, Response
from holdfast.preferences.store import PreferenceStore
from holdfast.run.directory import RunDirectory
from holdfast.web.app import create_app
from holdfast.web.security import cookie_name
from holdfast.web.site import Site, open_site

PASSWORD = "correct horse battery"
# Argon2 is slow on purpose; tests of other things need not wait for it.
QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
BASE = "http://127.0.0.1:8712"
COOKIE = cookie_name(8712)


@dataclass
class TestSite:
    """A site with its people: `as_role` gives a browser of theirs."""

    __test__ = False

    site: Site
    app: Any
    csrf: dict[str, str]
    tokens: dict[str, str]

    def anonymous(self) -> TestClient:
        client = TestClient(self.app, base_url=BASE, follow_redirects=False, client=("127.0.0.1", 50000))
        client.event_hooks = {"response": [_count]}
        return client

    def as_role(self, role: str) -> TestClient:
        client = self.anonymous()
        client.cookies.set(COOKIE, self.tokens[role])
        return client

    def bearer(self, role: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[role]}"}

    def form(self, role: str, /, **fields: object) -> dict[str, object]:
        return {"csrf": self.csrf[role], **fields}


def _count(reply: Any) -> None:
    tally.count("requests refused", reply.status_code in (400, 401, 403, 413, 429))


def make_run(path: Path, url: str = "", people: PeopleConfig | None = None, **settings: str) -> RunDirectory:
    """A run directory that nothing has been written to yet."""
    config = load_config(None, [f"preferences.url={json.dumps(url)}", *(f"{k}={v}" for k, v in settings.items())])
    return RunDirectory.create(path, config, {"key": "run", "world": "test", "seed": 0})


@contextlib.contextmanager
def opened(path: Path, url: str, **settings: str) -> Iterator[TestSite]:
    """A site with an owner, a labeller and a viewer, each named as their role."""
    site = open_site(make_run(path, url, **settings))
    site.accounts = AccountStore(site.store.database, hasher=QUICK)
    csrf, tokens = {}, {}
    roles: tuple[Role, ...] = ("owner", "labeller", "viewer")
    for role in roles:
        tokens[role], session = site.accounts.open_session(site.accounts.create(role, PASSWORD, role))
        csrf[role] = session.csrf
    app = create_app(site)
    with TestClient(app, base_url=BASE):  # runs what begins and ends with the server
        yield TestSite(site, app, csrf, tokens)


def pairs(n: int, stem: str = "run/audit-r0001-", texts: Sequence[tuple[str, str]] = ()) -> list[Comparison]:
    """Pairs of an audit after round 1, which belong to round 2, or with another stem pairs that round 1 trains on."""
    audit = "/audit-" in stem
    sides = [texts[i % len(texts)] if texts else (f"first answer {i}", f"second answer {i}") for i in range(n)]
    return [
        Comparison(
            f"{stem}{i:05d}", f"prompt {i}", Response(a, Provenance("round-0001", 1, i)),
            Response(b, Provenance("reference", 0, i)), 1 + audit, "audit" if audit else "training", "run",
        )
        for i, (a, b) in enumerate(sides)
    ]  # fmt: skip


def ask(site: Site, items: Sequence[Comparison]) -> None:
    """Put comparisons into the site's queue."""
    put(site.store, site.queue, items)


def put(store: PreferenceStore, queue: Any, items: Sequence[Comparison]) -> None:
    store.add_comparisons(list(items))
    queue.put(items[0].id, list(items), [0.75] * len(items))
