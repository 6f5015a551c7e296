"""Who may do what: a table of every route by role. A route that is not in the table fails the test."""

import re

import pytest
from starlette.routing import Route

import web_site

ALL, LABEL, WATCH, OWN = ("owner", "labeller", "viewer"), ("owner", "labeller"), ("owner", "viewer"), ("owner",)
OPEN = "open"  # without a session

ROUTES = {
    ("GET", "/login"): OPEN,
    ("POST", "/login"): OPEN,
    ("GET", "/join/{token}"): OPEN,
    ("POST", "/join/{token}"): OPEN,
    ("GET", "/static/{name}"): OPEN,
    ("POST", "/logout"): ALL,
    ("GET", "/label"): LABEL,
    ("GET", "/label/pair"): LABEL,
    ("GET", "/label/instructions"): LABEL,
    ("POST", "/label/answer"): LABEL,
    ("POST", "/label/undo"): LABEL,
    ("POST", "/label/reveal"): LABEL,
    ("POST", "/label/remark"): LABEL,
    ("GET", "/label/whole/{number}"): LABEL,
    ("GET", "/"): WATCH,
    ("GET", "/live"): WATCH,
    ("GET", "/live/aside"): WATCH,
    ("GET", "/live/waits"): WATCH,
    ("GET", "/live/more"): WATCH,
    ("GET", "/samples"): WATCH,
    ("GET", "/answers"): WATCH,
    ("GET", "/compare"): WATCH,
    ("GET", "/quality"): WATCH,
    ("GET", "/act"): OWN,
    ("POST", "/act"): OWN,
    ("POST", "/act/withdraw"): OWN,
    ("GET", "/people"): OWN,
    ("POST", "/people/invite"): OWN,
    ("POST", "/people/disable"): OWN,
    ("POST", "/people/enable"): OWN,
    ("POST", "/people/password"): OWN,
    ("GET", "/api"): ALL,
    ("GET", "/api/openapi.json"): ALL,
    ("POST", "/api/v1/session"): OPEN,
    ("DELETE", "/api/v1/session"): ALL,
    ("GET", "/api/v1/me"): ALL,
    ("POST", "/api/v1/next"): LABEL,
    ("POST", "/api/v1/answers"): LABEL,
    ("POST", "/api/v1/undo"): LABEL,
    ("POST", "/api/v1/answers/{id}/reveal"): LABEL,
    ("POST", "/api/v1/remarks"): LABEL,
    ("GET", "/api/v1/progress"): LABEL,
    ("GET", "/api/v1/instructions"): LABEL,
    ("GET", "/api/v1/run"): WATCH,
    ("GET", "/api/v1/metrics"): WATCH,
    ("GET", "/api/v1/events"): WATCH,
    ("GET", "/api/v1/quality"): WATCH,
    ("GET", "/api/v1/requests"): WATCH,
    ("POST", "/api/v1/requests"): OWN,
    ("DELETE", "/api/v1/requests/{number}"): OWN,
    ("POST", "/api/v1/invitations"): OWN,
}


def routes_of(app):
    """Every route, also those of included routers."""
    found, waiting = [], list(app.routes)
    while waiting:
        route = waiting.pop()
        inner = getattr(route, "routes", None) or getattr(getattr(route, "original_router", None), "routes", None)
        if inner:
            waiting += inner
        elif isinstance(route, Route) or hasattr(route, "methods"):
            found += [(method, route.path) for method in route.methods - {"HEAD"}]
    return found


def test_every_route_is_in_the_table(site):
    assert sorted(routes_of(site.app)) == sorted(ROUTES)


# What ends the session that the others need.
ENDS = [("DELETE", "/api/v1/session"), ("POST", "/logout")]


@pytest.mark.parametrize(
    "routes", [[r for r in ROUTES if r not in ENDS], *([r] for r in ENDS)], ids=["others", "end of a session", "logout"]
)
def test_role_by_route(site, routes):
    for method, path in routes:
        route, allowed = f"{method} {path}", ROUTES[method, path]
        address = re.sub(r"\{number\}", "1", re.sub(r"\{(name|token)\}", "nothing", path))
        for role in ("owner", "labeller", "viewer"):
            client = site.as_role(role)
            status = client.request(method, address, headers={"X-CSRF-Token": site.csrf[role]}).status_code
            may = allowed == OPEN or role in allowed
            assert (status != 403) == may, (route, role, status)
            assert status < 500, (route, role)
            if may and allowed != OPEN:
                assert status != 401, (route, role)
        reply = site.anonymous().request(method, address)
        if allowed == OPEN:
            assert reply.status_code not in (403, 500), route
        elif method == "GET" and not path.startswith("/api/"):
            assert (reply.status_code, reply.headers["location"]) == (303, "/login"), route
        else:
            assert reply.status_code == 401, route
        assert "run" not in reply.text.replace("serving", "") or allowed == OPEN, route


def test_a_labeller_cannot_get_the_pair_of_another(site):
    web_site.ask(site.site, web_site.pairs(1))
    lease = site.site.queue.next("owner")
    client = site.as_role("labeller")
    assert "first answer 0" not in client.get("/label").text
    fields = site.form("labeller", lease=lease.token, submission="submission-1", said="left")
    assert "no longer yours" in client.post("/label/answer", data=fields, headers={"X-Fragment": "1"}).text
    assert client.get("/label/whole/1").status_code == 404
    answer = {"id": "submission-2", "lease": lease.token, "said": "left"}
    assert client.post("/api/v1/answers", json=answer, headers=site.bearer("labeller")).status_code == 409
    assert site.site.store.counts().labels == 0
