"""Requests: whatever is sent to a server of ours, the answer is one, and never a server error."""

from __future__ import annotations

import json
import random
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.system.scripted_trainer import labeller_in
from mutations import TEXTS, json_bytes, mutated_bytes, mutated_document, odd_value
from sentences import Wrong
from starlette.testclient import TestClient

import small_run
import web_site
from holdfast.serving.app import create_app
from holdfast.serving.guard.app import create_app as create_guard_app
from holdfast.serving.guard.service import GuardService
from holdfast.serving.service import Service
from holdfast.serving.tokens import Tokens
from holdfast.serving.versions import open_run
from reward_server import OWNER, TOKEN

GOOD: dict[str, Any] = {
    "/api/v1/session": {"name": "owner", "password": web_site.PASSWORD},
    "/api/v1/answers": {"lease": "a" * 32, "choice": "left", "submission": "b" * 32, "seconds": 4.0},
    "/api/v1/requests": {"kind": "rollback", "to": "round-0001", "reason": "it hacks"},
    "/api/v1/remarks": {"lease": "a" * 32, "flag": True, "note": "odd"},
    "/api/v1/invitations": {"role": "labeller"},
    "/get_reward": {"query": ["when?At nine."], "prompts": ["when?"]},
    "/score": {"prompts": ["when?"], "responses": ["At nine."], "allow_empty": True},
    "/rm": {"prompt": "when?", "response": "At nine."},
    "/versions": {"version": 2},
}
# What a client of the guard sends; each as `METHOD path`.
GUARDED: dict[str, Any] = {
    "PUT /trainings/{name}": {"prompts": ["when?", "where?"], "answers": 4, "steps": 9, "every": 3, "pairs": 2},
    "POST /trainings/mine/batches": {
        "id": "one", "prompts": ["when?", [{"role": "user", "content": "where?"}]], "answers": ["At nine.", ""],
        "rewards": [1.0, None], "components": {"tone": [0.5, None]}, "finished": [True, False], "tokens": [3, 1],
        "logprobs": [[-1.0, -0.5], -2.0], "reference_logprobs": [-1.5, -2.5], "step": 3, "checkpoint": "c-3",
    },
    "POST /trainings/mine/answers": {"need": "r0000-kept-reference", "answers": ["Nine.", "There."], "rewards": [1, 2]},
    "POST /trainings/mine/actions": {"id": "r0001-rollback", "done": True, "before": {"beta": 0}, "after": {"beta": 1}},
    "POST /trainings/mine/resume": {},
    "GET /trainings": {},
    "GET /trainings/mine": {},
    "GET /trainings/mine/settings": {},
}  # fmt: skip
QUERIES = ("n", "page", "wait", "round", "sort", "run", "step", "after", "token", "kind", "to", "next", "limit")
PAGES = (
    "/", "/live", "/live/aside", "/live/more", "/label", "/label/pair", "/label/whole/1", "/login", "/join/x", "/act",
    "/people", "/quality", "/compare", "/samples", "/answers", "/api", "/api/openapi.json", "/static/style.css",
)  # fmt: skip
FORMS = {
    "/login": {"name": "owner", "password": "no"},
    "/label/answer": {"lease": "a" * 32, "choice": "left", "submission": "b" * 32, "seconds": "3"},
    "/label/reveal": {"id": "b" * 32},
    "/label/undo": {},
    "/label/remark": {"lease": "a" * 32, "note": "x"},
    "/act": {"kind": "pause", "reason": "x"},
    "/act/withdraw": {"number": "1"},
    "/people/invite": {"role": "viewer"},
    "/people/disable": {"name": "viewer"},
    "/people/enable": {"name": "viewer"},
    "/people/password": {"name": "viewer"},
    "/join/x": {"name": "new", "password": web_site.PASSWORD},
}


class RequestsTarget:
    """The servers in this process; an exception in a route comes out here instead of becoming a 500."""

    seconds = 20.0

    def __init__(self, work: Path) -> None:
        self.stack = ExitStack()
        run = small_run.run(work / "runs", gate__use="false", guard__mode="off")
        site = work / "site" / "run"
        self.site = self.stack.enter_context(web_site.opened(site, f"sqlite:///{work / 'site' / 'run.db'}"))
        web_site.ask(self.site.site, web_site.pairs(400))
        for name in ("metrics.jsonl", "events.jsonl", "samples.jsonl"):
            (site / name).write_bytes((run / name).read_bytes())
        operations = self.site.app.openapi()["paths"]
        self.operations = [(path, method) for path, methods in operations.items() for method in methods]
        app = create_app(Service(open_run(run), say=lambda _: None), Tokens.of(TOKEN, OWNER))
        self.rewards = self.stack.enter_context(TestClient(app))
        self.reward_paths = sorted({route.path for route in app._app.routes})  # type: ignore[attr-defined]

        service = GuardService(work / "guard", labeller_in(work))
        self.guard = self.stack.enter_context(TestClient(create_guard_app(service, Tokens.of(TOKEN))))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        begun = self.guard.put("/trainings/mine", json=GUARDED["PUT /trainings/{name}"], headers=headers)
        assert begun.status_code == 201

    def attempt(self, rng: random.Random, place: Path) -> str:
        kinds = (self._reward, self._api, self._page, self._form, self._guard)
        where, client, request = rng.choice(kinds)(rng)
        (place / "request.txt").write_text(f"{where} {request!r}"[:1_000_000], encoding="utf-8", errors="replace")
        try:
            answer = client.request(**request)
        except (ValueError, TypeError, UnicodeError) as error:
            if _is_ours(error):
                raise
            return "not sendable"
        if answer.status_code >= 500 and answer.status_code != 503:
            raise Wrong(f"{request['method']} {where} answered {answer.status_code}")
        if answer.status_code in (400, 422) and "json" in answer.headers.get("content-type", ""):
            assert answer.json(), "refused without a word"
        return f"{where.split()[0]} {answer.status_code // 100}xx"

    def _reward(self, rng: random.Random) -> tuple[str, Any, dict[str, Any]]:
        path = rng.choice(self.reward_paths)
        token = rng.choice((TOKEN, TOKEN, OWNER, OWNER, rng.choice(TEXTS)))
        headers = {"Authorization": f"Bearer {token}"}
        return (
            f"serve-reward {path}",
            self.rewards,
            self._request(rng, rng.choice(("POST", "POST", "GET")), path, headers),
        )

    def _guard(self, rng: random.Random) -> tuple[str, Any, dict[str, Any]]:
        operation = rng.choice(sorted(GUARDED))
        method, _, path = operation.partition(" ")
        real = path.replace("{name}", rng.choice(("mine", "odd", _in_a_path(rng))))
        headers = {"Authorization": f"Bearer {rng.choice((TOKEN, TOKEN, TOKEN, rng.choice(TEXTS)))}"}
        return f"guard {path}", self.guard, self._request(rng, method, real, headers, GUARDED[operation])

    def _api(self, rng: random.Random) -> tuple[str, Any, dict[str, Any]]:
        path, method = rng.choice(self.operations)
        headers = self.site.bearer(rng.choice(("owner", "labeller", "viewer")))
        if method == "delete" and path.endswith("/session"):
            headers = {"Authorization": f"Bearer {rng.choice(TEXTS)}"}  # the others still need theirs
        real = re.sub(r"\{\w+\}", lambda _: _in_a_path(rng), path)
        request = self._request(rng, method.upper(), real, headers, GOOD.get(path))
        if path.endswith("/session"):
            request["headers"]["X-Forwarded-For"] = "10.0.0.1"
        return f"serve {path}", self.site.anonymous(), request

    def _page(self, rng: random.Random) -> tuple[str, Any, dict[str, Any]]:
        path = rng.choice(PAGES)
        query = {rng.choice(QUERIES): str(odd_value(rng))[:2000] for _ in range(rng.choice((0, 1, 1, 2)))}
        client = self.site.as_role(rng.choice(("owner", "labeller", "viewer")))
        if rng.random() < 0.1:
            path += _in_a_path(rng)
        return f"page {path.split('?')[0][:30]}", client, {"method": "GET", "url": path, "params": query}

    def _form(self, rng: random.Random) -> tuple[str, Any, dict[str, Any]]:
        path = rng.choice(sorted(FORMS))
        role = rng.choice(("owner", "labeller", "viewer"))
        fields = self.site.form(role, **FORMS[path]) if rng.random() < 0.9 else dict(FORMS[path])
        changed = mutated_document(rng, fields)
        request: dict[str, Any] = {"method": "POST", "url": path, "headers": {"Origin": web_site.BASE}}
        if isinstance(changed, dict) and rng.random() < 0.8:
            request["data"] = {str(key): str(value)[:50_000] for key, value in changed.items()}
        else:
            request["content"] = mutated_bytes(rng, json.dumps(fields).encode())
            kind = rng.choice(
                ("multipart/form-data; boundary=x", "multipart/form-data", "application/x-www-form-urlencoded")
            )
            request["headers"]["Content-Type"] = kind
        return f"form {path}", self.site.as_role(role), request

    def _request(
        self, rng: random.Random, method: str, path: str, headers: dict[str, str], good: Any = None
    ) -> dict[str, Any]:
        good = good or GOOD.get(path, {"query": "when?", "n": 1})
        body = json_bytes(rng, mutated_document(rng, good))
        if rng.random() < 0.2:
            body = mutated_bytes(rng, body)
        kind = rng.choice(
            ("application/json",) * 6 + ("text/plain", "application/msgpack", "application/json; charset=utf-16", "")
        )
        query = {rng.choice(QUERIES): str(odd_value(rng))[:2000]} if rng.random() < 0.3 else {}
        safe = {
            name: value.encode("latin-1", "replace").replace(b"\n", b"").replace(b"\r", b"")
            for name, value in headers.items()
        }
        return {
            "method": method, "url": path, "headers": {**safe, "Content-Type": kind}, "params": query,
            "content": None if method == "GET" else body,
        }  # fmt: skip


def _in_a_path(rng: random.Random) -> str:
    return rng.choice(
        ("1", "-1", "9" * 40, "%00", "%ff", "..%2f..", "é", "x" * 3000, "null", "a/b", "%f0%9f%a6%8a", "1.5")
    )


def _is_ours(error: BaseException) -> bool:
    """Whether it came out of the server, and not out of the client that would not send it."""
    frame, ours = error.__traceback__, False
    while frame is not None:
        ours = ours or "/holdfast/" in frame.tb_frame.f_code.co_filename
        frame = frame.tb_next
    return ours


def open_target(work: Path) -> RequestsTarget:
    return RequestsTarget(work)
