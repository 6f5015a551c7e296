"""Every page looked through by axe-core in a real Chromium, light and dark: nothing serious, nothing critical."""

import json
from dataclasses import replace
from importlib import resources

import pytest
from playwright.sync_api import expect

import nostalgic
import served
import small_run
import tally
import web_site
from holdfast.config.schema import PeopleConfig
from holdfast.people.accounts import AccountStore
from holdfast.people.queue import LabelQueue
from holdfast.preferences.database import Database
from holdfast.preferences.store import PreferenceStore
from hostile_answers import box
from visits import Visit

pytestmark = pytest.mark.slow
AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
PAGES = (
    "/label", "/", "/samples", "/samples?view=rounds", "/answers?round=1&kind=audit", "/quality", "/compare", "/people",
    "/api", "/act?action=pause", "/nowhere",
)  # fmt: skip


def found_by_axe(page):
    """What axe calls serious or critical, with all that is folded unfolded: the rule, and the elements."""
    page.evaluate(AXE)  # not as a script of the page, which the content policy refuses
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    if page.locator("#more").count():
        expect(page.locator("#more")).not_to_contain_text("Loading")
    tally.count("pages looked through")
    found = []
    for scheme, rules in (("light", None), ("dark", ["color-contrast"])):
        page.emulate_media(color_scheme=scheme)
        result = page.evaluate("rules => axe.run(document, rules ? {runOnly: rules} : {})", rules)
        assert result["passes"], "axe has looked at nothing"
        found += [
            f"{scheme}: {one['id']} ({one['impact']}) {node['html'][:160]} {node['failureSummary'][:200]}"
            for one in result["violations"]
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"][:4]
        ]
    return found


@pytest.fixture(scope="module")
def served_run(tmp_path_factory):
    """A run with everything there is to show, and pairs that wait."""
    run = small_run.run(tmp_path_factory.mktemp("accessible"), world__labeller=nostalgic.SPEC, run__rounds="4")
    url = f"sqlite:///{run / 'run.db'}"
    key = json.loads((run / "manifest.json").read_text())["key"]
    with PreferenceStore.open(url) as store:
        items = [replace(c, run=key) for c in web_site.pairs(3, f"{key}/audit-r0090-")]
        web_site.put(store, LabelQueue(store.database, key, PeopleConfig()), items)
    token = served.sessions(url, anna="owner", ben="labeller")["anna"]
    with served.serving(run) as server:
        yield run, url, server, token


def test_no_page_keeps_anybody_out(browser, served_run):
    run, url, server, token = served_run
    visit = Visit(browser, server.address, token)
    wrong = {path: found_by_axe(visit.go(path)) for path in PAGES}
    page = visit.go("/label")
    page.keyboard.press("n")
    wrong["a note"] = found_by_axe(page)
    page.goto(f"file://{run}/report.html")
    wrong["report.html"] = found_by_axe(page)
    visit.context.clear_cookies()
    database = Database(url)
    try:
        people = AccountStore(database)
        links = [people.invite("labeller", "anna"), people.forgotten("ben", "anna")]
    finally:
        database.close()
    for path in ("/login", *(f"/join/{link}" for link in links)):
        wrong[path] = found_by_axe(visit.go(path))
    assert {path: found for path, found in wrong.items() if found} == {}


def test_drawn_answers_keep_nobody_out(browser, tmp_path, sqlite_url):
    (tmp_path / "how.toml").write_text(
        'text = "Prefer order."\n[[examples]]\nprompt = "a poster"\nbetter = "[]"\nworse = "none"\nwhy = "It is drawn."'
    )
    settings = {"world.drawing": "boxes", "people.instructions": str(tmp_path / "how.toml")}
    run = web_site.make_run(tmp_path / "run", sqlite_url, **settings, **{"people.reasons": '["clear", "kind"]'})
    layout = json.dumps([box(), box(type="logo", x=11, y=5, w=3, h=1), box(type="price", x=1, y=8, w=1, h=1)])
    with PreferenceStore.open(sqlite_url) as store:
        pairs = web_site.pairs(1, texts=[(layout, layout[:30])])
        web_site.put(store, LabelQueue(store.database, "run", PeopleConfig()), pairs)
    token = served.sessions(sqlite_url, anna="labeller")["anna"]
    with served.serving(run.path) as server:
        page = Visit(browser, server.address, token).go("/label")
        assert found_by_axe(page) == []  # the instructions
        page.get_by_role("button", name="I have read this").click()
        page.get_by_label("kind").check()
        assert found_by_axe(page) == []


def test_what_keeps_people_out_is_found(browser):
    page = browser.new_page()
    page.set_content(
        "<html lang=en><title>t</title><style>@media (prefers-color-scheme: dark) { p { color: #eee } }</style>"
        "<main><h1>A page</h1><p>dark only</p><input><details><summary>more</summary><button></button></details></main>"
    )
    rules = {line.split(" (")[0] for line in found_by_axe(page)}
    assert rules == {"light: label", "light: button-name", "dark: color-contrast"}
    page.close()
