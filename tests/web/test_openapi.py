"""The API against its own description: whatever is sent, no server error, and replies as described."""

import json
from dataclasses import replace

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance
from starlette.testclient import TestClient

import served
import web_site
from holdfast.preferences.comparison import Choice

pytestmark = pytest.mark.slow
EXAMPLES = 40


@pytest.fixture(scope="module")
def served_site(tmp_path_factory):
    directory = tmp_path_factory.mktemp("openapi")
    with web_site.opened(directory / "run", f"sqlite:///{directory / 'run.db'}") as opened:
        web_site.ask(opened.site, web_site.pairs(200))
        (opened.site.run.path / "metrics.jsonl").write_text('{"step": 1, "round": 1, "objective/kl": 0.5}\n')
        yield opened


OPERATIONS = (
    "GET /api/v1/me", "POST /api/v1/session", "POST /api/v1/next", "POST /api/v1/answers", "POST /api/v1/undo",
    "POST /api/v1/remarks", "GET /api/v1/instructions", "GET /api/v1/progress",
    "GET /api/v1/run", "GET /api/v1/metrics", "GET /api/v1/events",
    "GET /api/v1/quality", "GET /api/v1/requests", "POST /api/v1/requests", "DELETE /api/v1/requests/{number}",
    "POST /api/v1/invitations", "DELETE /api/v1/session", "POST /api/v1/answers/{id}/reveal",
)  # fmt: skip


@pytest.fixture(scope="module")
def live(served_site):
    """The same site behind a real server, and what schemathesis makes of its description."""
    schema = schemathesis.openapi.from_dict(served_site.app.openapi())
    found = {f"{op.ok().method.upper()} {op.ok().path}": op.ok() for op in schema.get_all_operations()}
    with served.serving(served_site.site.run.path) as server:
        yield server, found


def test_every_operation_is_tried(live):
    assert sorted(live[1]) == sorted(OPERATIONS)


@pytest.mark.parametrize("role", ["owner", None])
@pytest.mark.parametrize("name", OPERATIONS)
def test_no_server_error(live, served_site, name, role):
    """Replies that the description allows, whatever is sent, with a session and without."""
    server, operations = live
    if name == "DELETE /api/v1/session" and role:
        role = "viewer"  # one that nobody else needs
    headers = served_site.bearer(role) if role else {}
    codes = set()

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operations[name].as_strategy())
    def send(case):
        reply = case.call(base_url=server.address, headers=headers)
        assert reply.status_code < 500, (case, reply.text)
        codes.add(reply.status_code)
        checks = [schemathesis.checks.not_a_server_error, status_code_conformance, response_schema_conformance]
        case.validate_response(reply, checks=checks)

    send()
    assert codes


def test_the_description_names_every_route_of_the_api(served_site):
    client: TestClient = served_site.as_role("owner")
    description = client.get("/api/openapi.json").json()
    assert set(description["paths"]) == {name.split()[1] for name in OPERATIONS}
    assert all(path.startswith("/api/v1/") for path in description["paths"])
    page = client.get("/api").text
    for path in description["paths"]:
        assert path in page
    assert "https://" not in page  # nothing from elsewhere
    assert json.dumps(description)


def test_a_check_item_looks_like_any_other_pair(tmp_path, sqlite_url, monkeypatch):
    monkeypatch.setattr("holdfast.people.queue.CHECK_EVERY", 2)
    settings = {"people.overlap": "0.0"}
    with web_site.opened(tmp_path / "run", sqlite_url, **settings) as opened:
        first, *others = web_site.pairs(3, "run/r0001-")
        check = replace(first, purpose="check")
        opened.site.store.add_comparisons([check])
        opened.site.queue.put_checks([(check, Choice.A)])
        web_site.ask(opened.site, others)
        client, who = opened.anonymous(), opened.bearer("labeller")
        pair = client.post("/api/v1/next", headers=who).json()
        done = client.post(
            "/api/v1/answers", json={"id": "first-one", "lease": pair["lease"], "said": "tie"}, headers=who
        ).json()
        assert done["next"]["prompt"] == check.prompt
        assert done["next"]["purpose"] == pair["purpose"] == "training"


def test_a_program_can_do_all_that_a_person_can(served_site):
    client = served_site.anonymous()
    name = {"name": "labeller", "password": web_site.PASSWORD}
    token = client.post("/api/v1/session", json=name).json()["token"]
    who = {"Authorization": f"Bearer {token}"}
    assert client.get("/api/v1/me", headers=who).json() == {"name": "labeller", "role": "labeller"}
    pair = client.post("/api/v1/next", headers=who).json()
    answer = {"id": "program-0001", "lease": pair["lease"], "said": "right", "seconds": 3.5}
    done = client.post("/api/v1/answers", json=answer, headers=who).json()
    assert (done["stored"], done["again"]) == (True, False)
    assert not {"claim_left", "left_version", "right_version"} & set(done)
    again = client.post("/api/v1/answers", json=answer, headers=who).json()
    assert again["again"] is True
    assert client.get("/api/v1/progress", headers=who).json()["mine"] >= 1
    undone = client.post("/api/v1/undo", headers=who).json()
    assert undone["prompt"] == pair["prompt"]
    again = {"id": "program-0003", "lease": undone["lease"], "said": "left"}
    assert client.post("/api/v1/answers", json=again, headers=who).status_code == 200
    told = client.post("/api/v1/answers/program-0003/reveal", headers=who).json()
    assert {told["left_version"], told["right_version"]} == {"round-0001", "reference"}
    assert client.post("/api/v1/undo", headers=who).status_code == 409
    remark = {"id": "program-0002", "lease": done["next"]["lease"], "kind": "note", "text": "fine"}
    assert client.post("/api/v1/remarks", json=remark, headers=who).status_code == 204
    assert client.delete("/api/v1/session", headers=who).status_code == 204
    assert client.get("/api/v1/me", headers=who).status_code == 401
