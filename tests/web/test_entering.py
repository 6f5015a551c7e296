"""Sessions, invitations, and everything that must not get in."""

import asyncio
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError
from starlette.testclient import TestClient

import web_site
from holdfast.cli.serve import server_config
from holdfast.errors import HoldfastError
from holdfast.people.accounts import INVITATION_SECONDS, SERVER, SESSION_SECONDS, AccountStore
from holdfast.preferences.database import Database
from holdfast.preferences.people_schema import accounts, invitations, sessions
from holdfast.web.security import HEADERS, cookie_name
from holdfast.web.site import RateLimit

LOGIN = {"name": "owner", "password": web_site.PASSWORD}


def test_logging_in_and_out(site):
    client = site.anonymous()
    assert client.get("/").headers["location"] == "/login"
    reply = client.post("/login", data=LOGIN)
    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    page = client.get("/")
    assert page.status_code == 200
    csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)[1]
    assert client.post("/logout", data={"csrf": csrf}).status_code == 303
    assert client.get("/").status_code == 303
    old = site.anonymous()
    old.cookies.set(web_site.COOKIE, cookie.split("=")[1].split(";")[0])
    assert old.get("/").status_code == 303


def test_a_labeller_begins_at_the_labelling_page(site):
    reply = site.anonymous().post("/login", data={"name": "labeller", "password": web_site.PASSWORD})
    assert reply.headers["location"] == "/label"


@pytest.mark.parametrize("password", ["", "wrong", web_site.PASSWORD + "x", "x" * 1999, "nul\0"])
def test_a_wrong_password_is_refused(site, password):
    reply = site.anonymous().post("/login", data={"name": "owner", "password": password})
    assert reply.status_code == 401
    assert "set-cookie" not in reply.headers


def test_an_invitation_makes_one_account(site):
    owner = site.as_role("owner")
    page = owner.post("/people/invite", data=site.form("owner", role="labeller"))
    link = re.search(r"http://127\.0\.0\.1:8712(/join/[\w-]+)", page.text)[1]
    new = site.anonymous()
    assert "Join as a labeller" in new.get(link).text
    short = new.post(link, data={"name": "dora", "password": "short"})
    assert (short.status_code, "at least 10 characters" in short.text) == (400, True)
    taken = new.post(link, data={"name": "owner", "password": web_site.PASSWORD})
    assert "is taken" in taken.text
    assert new.post(link, data={"name": "dora", "password": web_site.PASSWORD}).headers["location"] == "/label"
    assert new.get("/label").status_code == 200
    again = site.anonymous().post(link, data={"name": "eve", "password": web_site.PASSWORD})
    assert (again.status_code, "has been used" in again.text) == (404, True)
    assert site.anonymous().get("/join/guessed-token").status_code == 404


@pytest.mark.parametrize("name", ["Owner", "OWNER", "ｏｗｎｅｒ"])
def test_a_name_in_another_case_is_the_same_person(site, name):
    """Who logs in so is the person of that name; nobody else can be made of it."""
    reply = site.anonymous().post("/login", data={"name": name, "password": web_site.PASSWORD})
    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    assert site.site.accounts.check_password(name, web_site.PASSWORD).name == "owner"
    with pytest.raises(HoldfastError, match=r"is taken by owner, and names that differ in case only|letters, digits"):
        site.site.accounts.create(name, web_site.PASSWORD, "labeller")


def test_names_that_differ_in_case_only_are_not_made_at_the_same_time(url):
    """Eight at once, each by a store of its own: one of them is there in the end, and the others are told."""
    names = [f"{a}{b}{c}" for a in "aA" for b in "nN" for c in "aA"]

    def make(name):
        with closing(Database(url)) as database:
            try:
                return AccountStore(database, hasher=web_site.QUICK).create(name, web_site.PASSWORD, "owner").name
            except HoldfastError as error:
                return str(error)

    with closing(Database(url)) as database, ThreadPoolExecutor(len(names)) as pool:
        said = list(pool.map(make, names))
        (account,) = AccountStore(database).all()
        assert [one for one in said if "is taken by" not in one] == [account.name]
        row = {"name": "x", "folded": "ana", "role": "owner", "password": "", "created_at": 0.0}
        with database._engine.connect() as connection, pytest.raises(IntegrityError):
            connection.execute(insert(accounts), row)


def test_guesses_in_several_cases_are_guesses_at_one_account(sqlite_site):
    for n, name in enumerate(("owner", "Owner", "oWner", "owNer", "ownEr")):
        guess = TestClient(sqlite_site.app, base_url=web_site.BASE, client=(f"10.0.0.{n}", 50000))
        assert guess.post("/login", data={"name": name, "password": "guess guess"}).status_code == 401
    assert sqlite_site.anonymous().post("/login", data=LOGIN).status_code == 429


def test_who_is_disabled_is_out_at_once_and_the_last_owner_stays(site):
    labeller, owner = site.as_role("labeller"), site.as_role("owner")
    assert labeller.get("/label").status_code == 200
    owner.post("/people/disable", data=site.form("owner", name="labeller"))
    assert labeller.get("/label").status_code == 303
    reply = site.anonymous().post("/login", data={"name": "labeller", "password": web_site.PASSWORD})
    assert reply.status_code == 401
    assert owner.post("/people/disable", data=site.form("owner", name="owner")).status_code == 400
    assert owner.get("/people").status_code == 200


def link_in(page):
    return re.search(r"/join/[A-Za-z0-9_-]+", page.text)[0]


def test_who_is_enabled_again_comes_in_with_the_old_password(site):
    owner = site.as_role("owner")
    owner.post("/people/disable", data=site.form("owner", name="labeller"))
    assert owner.post("/people/enable", data=site.form("owner", name="labeller")).status_code == 303
    assert site.as_role("labeller").get("/label").status_code == 303  # the sessions of before have ended
    reply = site.anonymous().post("/login", data={"name": "labeller", "password": web_site.PASSWORD})
    assert (reply.status_code, reply.headers["location"]) == (303, "/label")
    assert "is not disabled" in owner.post("/people/enable", data=site.form("owner", name="labeller")).text
    assert "There is no account" in owner.post("/people/enable", data=site.form("owner", name="nobody")).text


def test_a_forgotten_password_is_set_anew_by_a_link_of_an_owner(site):
    owner, new = site.as_role("owner"), "another horse entirely"
    void, link = (link_in(owner.post("/people/password", data=site.form("owner", name="labeller"))) for _ in range(2))
    assert site.anonymous().get(void).status_code == 404  # the newest counts
    page = site.anonymous().get(link).text
    assert "A new password for <bdi>labeller</bdi>" in page
    assert "Your name <input" not in page
    assert site.as_role("labeller").get("/label").status_code == 200
    assert "at least 10" in site.anonymous().post(link, data={"password": "short"}).text
    # Whatever name is sent along, it is the one account's password.
    reply = site.anonymous().post(link, data={"name": "owner", "password": new})
    assert (reply.status_code, reply.headers["location"]) == (303, "/label")
    assert site.as_role("labeller").get("/label").status_code == 303  # who knew the old one is out
    login = {"name": "labeller", "password": new}
    assert site.anonymous().post("/login", data=login).status_code == 303
    assert site.anonymous().post("/login", data={**login, "password": web_site.PASSWORD}).status_code == 401
    assert site.anonymous().post(link, data={"password": "yet another horse"}).status_code == 404
    assert len(site.site.accounts.all()) == 3


def test_a_link_to_a_new_password_makes_no_account_and_an_invitation_sets_no_password(url):
    store = AccountStore(Database(url), hasher=web_site.QUICK)
    for name in ("anna", "ben"):
        store.create(name, web_site.PASSWORD, "owner")
    reset, invitation = store.forgotten("BEN", "anna"), store.invite("labeller", "anna")
    assert store.invitation(reset).account == "ben"
    with pytest.raises(HoldfastError, match="has been used"):
        store.accept(reset, "carl", web_site.PASSWORD)
    with pytest.raises(HoldfastError, match="has been used"):
        store.set_password(invitation, "another horse entirely")
    store.disable("ben")
    assert store.invitation(reset) is None
    with pytest.raises(HoldfastError, match="enable it first"):
        store.forgotten("ben", "anna")
    with pytest.raises(HoldfastError, match="no account 'carl'"):
        store.forgotten("carl", "anna")


def test_the_invitations_of_a_disabled_owner_are_void(url):
    store = AccountStore(Database(url), hasher=web_site.QUICK)
    for name in ("anna", "ben"):
        store.create(name, web_site.PASSWORD, "owner")
    theirs, mine = store.invite("owner", "ben"), store.invite("viewer", "anna")
    store.disable("ben")
    assert store.invitation(theirs) is None
    with pytest.raises(HoldfastError, match="has been used"):
        store.accept(theirs, "ben2", web_site.PASSWORD)
    assert store.invitation(mine) is not None


def test_the_first_owner_voids_the_links_of_earlier_starts(url):
    store = AccountStore(Database(url), hasher=web_site.QUICK)
    links = [store.invite("owner", SERVER) for _ in range(3)]
    assert store.accept(links[1], "anna", web_site.PASSWORD).role == "owner"
    assert [store.invitation(link) for link in links] == [None] * 3
    later = store.invite("labeller", SERVER)
    store.create("ben", web_site.PASSWORD, "owner")
    assert store.invitation(later) is not None


def test_brute_force_has_to_wait(sqlite_site):
    client = sqlite_site.anonymous()
    for _ in range(5):
        assert client.post("/login", data={"name": "owner", "password": "guess guess"}).status_code == 401
    reply = client.post("/login", data=LOGIN)  # even the right one
    assert reply.status_code == 429
    assert 0 < int(reply.headers["retry-after"]) <= 61
    assert client.post("/api/v1/session", json=LOGIN).status_code == 429


def test_the_limit_counts_by_place_and_by_name_and_ends():
    now = [0.0]
    limit = RateLimit(lambda: now[0])
    for n in range(5):
        assert limit.begin(f"from {n}", "as anna") == 0.0
    assert limit.begin("from 9", "as anna") == 60.0
    assert limit.begin("from 9", "as ben") == 0.0
    now[0] = 61.0
    assert limit.begin("from 9", "as anna") == 0.0


def test_right_passwords_are_not_limited(sqlite_site):
    for _ in range(8):
        assert sqlite_site.anonymous().post("/login", data=LOGIN).status_code == 303


def test_guesses_at_the_same_time_are_limited_too(sqlite_site, monkeypatch):
    checked, together = [], threading.Barrier(5)

    def slowly(name, password):
        checked.append(password)
        together.wait(20)  # the first five are all under way before any of them has failed

    monkeypatch.setattr(sqlite_site.site.accounts, "check_password", slowly)

    def guess(n):
        return sqlite_site.anonymous().post("/login", data={"name": "owner", "password": f"guess {n}"}).status_code

    with ThreadPoolExecutor(20) as pool:
        codes = list(pool.map(guess, range(20)))
    assert len(checked) == 5
    assert sorted(codes) == [401] * 5 + [429] * 15


def test_a_forwarding_header_does_not_make_another_place_of_one():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["client"])

    config = server_config(app)
    config.load()
    headers = [(b"x-forwarded-for", b"203.0.113.7"), (b"x-forwarded-proto", b"https")]
    scope = {"type": "http", "scheme": "http", "headers": headers, "client": ("127.0.0.1", 50000)}
    asyncio.run(config.loaded_app(scope, None, None))
    assert seen == [("127.0.0.1", 50000)]


def test_behind_a_proxy_with_tls_cookies_and_links_are_for_https(sqlite_site):
    origin = {"Origin": web_site.BASE.replace("http:", "https:")}
    reply = sqlite_site.anonymous().post("/login", data=LOGIN, headers=origin)
    assert "; Secure" in reply.headers["set-cookie"]
    form = sqlite_site.form("owner", role="viewer")
    page = sqlite_site.as_role("owner").post("/people/invite", data=form, headers=origin)
    assert "https://127.0.0.1:8712/join/" in page.text


FORGED = ["", "x", "0" * 64, "../../etc/passwd", "' OR 1=1 --", "é", "x" * 5000]


@pytest.mark.parametrize("token", FORGED)
def test_a_forged_session_is_nobody(site, token):
    header = {"Authorization": f"Bearer {token}".encode()}
    assert site.anonymous().get("/api/v1/me", headers=header).status_code == 401
    assert site.anonymous().get("/", headers={"Cookie": f"{web_site.COOKIE}={token}".encode()}).status_code == 303


def test_the_hash_in_the_database_is_no_session(site):
    with site.site.store.database.read() as connection:
        hashed = connection.execute(sessions.select()).first().token
    assert site.anonymous().get("/api/v1/me", headers={"Authorization": f"Bearer {hashed}"}).status_code == 401


def test_secrets_are_stored_as_hashes_only(site):
    link = site.site.accounts.invite("viewer", "owner")
    with site.site.store.database.read() as connection:
        stored = str([connection.execute(table.select()).all() for table in (accounts, sessions, invitations)])
    assert web_site.PASSWORD not in stored
    assert link not in stored
    assert all(token not in stored for token in site.tokens.values())
    assert "$argon2id$" in stored


def test_sessions_and_invitations_end(url):
    now = [0.0]
    store = AccountStore(Database(url), lambda: now[0], web_site.QUICK)
    token, _ = store.open_session(store.create("anna", web_site.PASSWORD, "owner"))
    link = store.invite("viewer", "anna")
    now[0] = INVITATION_SECONDS + 1
    assert store.invitation(link) is None
    with pytest.raises(HoldfastError, match="too old"):
        store.accept(link, "ben", web_site.PASSWORD)
    assert store.session(token) is not None
    now[0] = SESSION_SECONDS + 1
    assert store.session(token) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_what_another_site_sends_is_refused(site, headers):
    web_site.ask(site.site, web_site.pairs(1))
    lease = site.site.queue.next("labeller")
    fields = site.form("labeller", lease=lease.token, submission="cross-site-1", said="left")
    client = site.as_role("labeller")
    assert client.post("/label/answer", data=fields, headers=headers).status_code == 403
    assert site.anonymous().post("/login", data=LOGIN, headers=headers).status_code == 403
    assert site.site.store.counts().labels == 0


@pytest.mark.parametrize("csrf", [None, "", "guess", "é"])
def test_a_form_without_its_token_is_refused(site, csrf):
    web_site.ask(site.site, web_site.pairs(1))
    lease = site.site.queue.next("labeller")
    fields = {"lease": lease.token, "submission": "no-token-1", "said": "left"}
    fields |= {} if csrf is None else {"csrf": csrf}
    assert site.as_role("labeller").post("/label/answer", data=fields).status_code == 403
    answer = {"id": "no-token-2", "lease": lease.token, "said": "left"}
    assert site.as_role("labeller").post("/api/v1/answers", json=answer).status_code == 403
    # Another person's token is no better than none.
    fields["csrf"] = site.csrf["owner"]
    assert site.as_role("labeller").post("/label/answer", data=fields).status_code == 403
    assert site.site.store.counts().labels == 0


def test_a_replayed_answer_changes_nothing(site):
    web_site.ask(site.site, web_site.pairs(2))
    lease = site.site.queue.next("labeller")
    fields = site.form("labeller", lease=lease.token, submission="replay-me-1", said="left")
    client = site.as_role("labeller")
    for _ in range(3):
        assert client.post("/label/answer", data=fields).status_code == 303
    assert site.site.store.counts().labels == 1


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "192.168.0.7:8712", "", "[", "[::1"])
def test_a_local_server_answers_to_local_names_only(sqlite_site, host):
    assert sqlite_site.as_role("owner").get("/", headers={"Host": host}).status_code == 400
    assert sqlite_site.as_role("owner").get("/", headers={"Host": "localhost:8712"}).status_code == 200


def test_every_answer_has_its_headers(sqlite_site):
    client = sqlite_site.as_role("owner")
    for path in ("/", "/label", "/nothing-here", "/static/site.css", "/api/v1/me", "/login"):
        reply = client.get(path)
        assert {name: reply.headers[name] for name in HEADERS} == HEADERS, path
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert client.get("/").headers["cache-control"] == "no-store"


def test_too_large_a_body_is_refused(sqlite_site):
    reply = sqlite_site.as_role("labeller").post("/label/answer", content=b"x" * 300_000)
    assert reply.status_code == 413


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/login", "application/x-www-form-urlencoded"), ("/api/v1/session", "application/json")],
)
def test_too_large_a_body_in_chunks_is_refused_before_it_has_all_arrived(sqlite_site, path, kind):
    # Asked of the application itself: the test client reads a whole body before it sends any.
    sent, given = [], 0

    async def receive():
        nonlocal given
        given += 1
        return {"type": "http.request", "body": b"x" * 65536, "more_body": given < 1000}

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"127.0.0.1:8712"), (b"content-type", kind.encode()), (b"transfer-encoding", b"chunked")]
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "scheme": "http", "http_version": "1.1", "headers": headers, "server": ("127.0.0.1", 8712),
        "client": ("127.0.0.1", 50000),
    }  # fmt: skip
    asyncio.run(sqlite_site.app(scope, receive, send))
    assert sent[0]["status"] == 413
    assert given < 10


def test_a_session_of_another_server_on_the_machine_is_left_alone(sqlite_site):
    client = sqlite_site.anonymous()
    client.cookies.set(cookie_name(8713), "the other server's")
    reply = client.post("/login", data=LOGIN)
    assert reply.headers["set-cookie"].startswith(f"{web_site.COOKIE}=")
    assert client.get("/").status_code == 200
    assert client.cookies[cookie_name(8713)] == "the other server's"


def test_static_files_are_these_and_no_others(sqlite_site):
    client = sqlite_site.anonymous()
    assert client.get("/static/site.css").headers["content-type"] == "text/css; charset=utf-8"
    for name in ("..%2Fapp.py", "app.py", "site.css/../../app.py", "%2Fetc%2Fpasswd"):
        assert client.get(f"/static/{name}").status_code == 404
