"""The pages in a real Chromium: labelling by keyboard, hostile text, a run that waits, a dashboard that lives."""

import json
import re
import threading
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import select

import forked
import nostalgic
import people_at_work
import served
import small_run
import tally
import web_site
from holdfast.config.schema import PeopleConfig
from holdfast.people.queue import LabelQueue
from holdfast.preferences.people_schema import remarks, submissions
from holdfast.preferences.store import PreferenceStore
from holdfast.report.page import write_report
from holdfast.text import visible
from holdfast.web.labelling import LONGEST_SHOWN
from lone_events import fields_of
from visits import Visit

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path, sqlite_url):
    run = web_site.make_run(tmp_path / "run", sqlite_url, **{"people.overlap": "0.0"})
    store = PreferenceStore.open(sqlite_url)
    yield run.path, sqlite_url, store, LabelQueue(store.database, "run", PeopleConfig(overlap=0.0))
    store.close()


def shown(page: Page) -> str:
    return page.locator("#answer").get_attribute("data-lease")


def press(page: Page, key: str) -> None:
    """A key, and wait until the page has answered it with another pair or with none."""
    before = shown(page)
    page.keyboard.press(key)
    page.wait_for_function(
        "before => document.querySelector('#answer')?.dataset.lease !== before "
        "&& !document.querySelector('#pair[aria-busy]')",
        arg=before,
    )


def test_a_remark_neither_restarts_the_clock_nor_costs_a_note(browser, place):
    run, url, store, queue = place
    web_site.put(store, queue, web_site.pairs(3))
    token = served.sessions(url, anna="labeller")["anna"]
    with served.serving(run) as server:
        visit = Visit(browser, server.address, token)
        page = visit.go("/label")
        page.wait_for_timeout(1500)
        # A note that was typed and not kept is still there after a flag.
        page.keyboard.press("n")
        page.keyboard.type("odd prompt")
        page.keyboard.press("Escape")
        page.keyboard.press("f")
        expect(page.locator("#prompt-title .level")).to_have_text("flagged")
        expect(page.locator("#note textarea")).to_have_value("odd prompt")
        expect(page.locator("#note-open")).to_contain_text("✓")
        # And it is kept with an answer; the next pair has none, and a clock of its own.
        page.keyboard.press("n")
        page.locator("#note textarea").fill("odd prompt, both wrong")
        page.keyboard.press("Escape")
        press(page, "1")
        expect(page.locator("#note textarea")).to_have_value("")
        press(page, "2")
        visit.check()
    with store.database.read() as connection:
        notes = select(remarks.c.text).where(remarks.c.kind == "note").order_by(remarks.c.seq)
        assert connection.execute(notes).scalars().all() == ["odd prompt", "odd prompt, both wrong"]
        first, second = connection.execute(select(submissions.c.seconds).order_by(submissions.c.created_at)).scalars()
    assert first >= 1.5
    assert second < first


def test_twenty_pairs_by_keyboard_alone(browser, place):
    run, url, store, queue = place
    web_site.put(store, queue, web_site.pairs(24))
    token = served.sessions(url, anna="labeller", ben="labeller")["anna"]
    with served.serving(run) as server:
        visit = Visit(browser, server.address, token)
        page = visit.go("/label")
        for n in range(20):
            press(page, "1234"[n % 4])
        assert store.counts().labels == 20
        expect(page.locator(".mine")).to_contain_text("20")
        # Undo: the last answer is taken back, the same pair is here again, and answered otherwise.
        press(page, "u")
        expect(page.locator(".alert")).to_contain_text("Taken back")
        assert len(store.labelled()) == 19
        press(page, "2")
        assert len(store.labelled()) == 20
        # Skip: on to the next, no label.
        text = page.locator(".side .text").first.inner_text()
        press(page, "s")
        assert page.locator(".side .text").first.inner_text() != text
        assert len(store.labelled()) == 20
        # Flag and note stay on the pair; typing a note does not answer.
        page.keyboard.press("f")
        expect(page.locator("#prompt-title .level")).to_have_text("flagged")
        page.keyboard.press("n")
        page.keyboard.type("1234 odd prompt s u")
        page.keyboard.press("Control+Enter")
        expect(page.locator("#note-open")).to_contain_text("✓")
        assert len(store.labelled()) == 20
        # What the ensemble thought, after the answer and never before.
        assert "reference" not in page.content().split('id="reveal"')[0]
        press(page, "1")
        page.locator("#reveal summary").click()
        assert "reference" not in page.content()
        page.locator("#look button").click()
        expect(page.locator("#reveal")).to_contain_text("reference")
        expect(page.locator("#reveal")).to_contain_text("75%")
        page.keyboard.press("u")
        expect(page.locator(".alert")).to_contain_text("no longer be taken back")
        visit.check()
    said = [label.choice for item in store.labelled() for label in item.labels]
    assert len(said) == 21
    assert {item.comparison.id for item in store.labelled()} <= {c.id for c in web_site.pairs(24)}


def test_reasons_by_keyboard(browser, tmp_path, sqlite_url):
    tags = ["correct", "clear", "kind", "short", "safe", "other", "a tag without a key"]
    run = web_site.make_run(tmp_path / "run", sqlite_url, **{"people.overlap": "0.0", "people.reasons": str(tags)})
    store = PreferenceStore.open(sqlite_url)
    queue = LabelQueue(store.database, "run", run.config().people)
    web_site.put(store, queue, web_site.pairs(2))
    token = served.sessions(sqlite_url, anna="owner")["anna"]
    with served.serving(run.path) as server:
        visit = Visit(browser, server.address, token)
        page = visit.go("/label")
        assert page.locator(".reasons input").count() == 7
        for key in "56605":  # 6 twice and 5 twice: off again
            page.keyboard.press(key)
        # A flag keeps what was chosen; the next pair begins with none.
        page.keyboard.press("f")
        expect(page.locator("#prompt-title .level")).to_have_text("flagged")
        page.get_by_label("a tag without a key").check()
        expect(page.locator(".reasons input:checked")).to_have_count(2)
        press(page, "1")
        expect(page.locator(".reasons input:checked")).to_have_count(0)
        press(page, "1")
        given = page.goto(server.address + "/quality") and page.locator("#reasons tbody tr").all_inner_texts()
        assert [row.split("\t")[0] for row in given] == ["a tag without a key", "other"]
        visit.check()
    with store.database.read() as connection:
        reasons = connection.execute(select(submissions.c.reasons).order_by(submissions.c.seq)).scalars().all()
    assert reasons == [["other", "a tag without a key"], []]
    assert run.reasons() != ()
    page = write_report(run.path, notes=(), reasons=run.reasons()).read_text()
    assert "a tag without a key</td>" in page
    store.close()


def test_instructions_come_first_and_again_on_demand(browser, tmp_path, sqlite_url):
    file = tmp_path / "how.toml"
    file.write_text(
        'text = "Prefer what <b>answers</b>."\n'
        '[[examples]]\nprompt = "Wifi?"\nbetter = "Yes."\nworse = "Hi."\nwhy = "Short."'
    )
    run = web_site.make_run(tmp_path / "run", sqlite_url, **{"people.instructions": str(file)})
    with PreferenceStore.open(sqlite_url) as store:
        web_site.put(store, LabelQueue(store.database, "run", PeopleConfig()), web_site.pairs(2))
    tokens = served.sessions(sqlite_url, anna="labeller", ben="labeller")
    with served.serving(run.path) as server:
        visit = Visit(browser, server.address, tokens["anna"])
        page = visit.go("/label")
        expect(page.locator("main")).to_contain_text("Prefer what <b>answers</b>.")
        expect(page.locator(".answer.won")).to_contain_text("Yes.")
        expect(page.locator("#answer")).to_have_count(0)
        assert page.evaluate("scrollY") == 0
        page.get_by_role("button", name="I have read this: begin").click()
        expect(page.locator("#answer")).to_be_visible()
        visit.go("/label")
        expect(page.locator("#answer")).to_be_visible()
        page.get_by_role("link", name="Instructions").click()
        page.get_by_role("button", name="Go on labelling").click()
        press(page, "1")
        visit.check()
        other = Visit(browser, server.address, tokens["ben"])
        expect(other.go("/label").locator("main")).to_contain_text("How to compare")
    # Other instructions are shown again.
    file.write_text('text = "Prefer the shorter one."')
    with served.serving(run.path) as server:
        again = Visit(browser, server.address, tokens["anna"])
        expect(again.go("/label").locator("main")).to_contain_text("Prefer the shorter one.")
        again.check()


def test_the_page_waits_for_pairs_and_keys_can_be_turned_off(browser, place):
    run, url, store, queue = place
    token = served.sessions(url, anna="labeller")["anna"]
    with served.serving(run) as server:
        visit = Visit(browser, server.address, token)
        page = visit.go("/label")
        expect(page.locator("[data-empty]")).to_be_visible()
        web_site.put(store, queue, web_site.pairs(2))
        page.wait_for_selector("#answer")
        page.locator(".keys-help summary").click()
        page.locator("#keys").uncheck()
        page.locator("#main").focus()
        page.keyboard.press("1")
        time.sleep(0.5)
        assert store.counts().labels == 0
        page.locator("button.choose").first.click()
        page.wait_for_function("() => document.querySelector('.mine').textContent.includes('1')")
        assert store.counts().labels == 1
        visit.check()


def test_an_answer_survives_a_server_that_is_away(browser, place):
    run, url, store, queue = place
    web_site.put(store, queue, web_site.pairs(3))
    token = served.sessions(url, anna="labeller")["anna"]
    server = served.Server(run)
    server.start()
    try:
        visit = Visit(browser, server.address, token)
        page = visit.go("/label")
        before = shown(page)
        server.kill()
        page.keyboard.press("1")
        expect(page.locator(".alert")).to_contain_text("kept here and sent again")
        server.start()
        page.wait_for_function("b => document.querySelector('#answer')?.dataset.lease !== b", arg=before)
        assert store.counts().labels == 1
    finally:
        server.stop()


def test_without_script_the_page_is_a_form(browser, place):
    run, url, store, queue = place
    web_site.put(store, queue, web_site.pairs(3))
    token = served.sessions(url, anna="labeller", ben="labeller")["anna"]
    with served.serving(run) as server:
        visit = Visit(browser, server.address, token, java_script_enabled=False)
        page = visit.go("/label")
        page.locator("button.choose").first.click()
        page.wait_for_load_state()
        assert store.counts().labels == 1
        page.get_by_role("button", name="Undo").click()
        page.wait_for_load_state()
        assert store.labelled() == []
        page.get_by_role("button", name="Both bad").click()
        page.wait_for_load_state()
        assert store.labelled()[0].share_a == 0.5


HOSTILE = [
    "<script>window.hacked = 1; alert('ran')</script><img src=x onerror=\"window.hacked=1\">",
    '</div></form></main><svg onload="window.hacked=1"><a href="javascript:window.hacked=1">click</a></svg>',
    '\u202egnidaer elbisreveR\u2066 \u200b\ufeff \U000e0041 <iframe src="http://evil.example/"></iframe>',
    "NUL \0 in the \x1b[31mmiddle\x07, \r\n lone \ud800 surrogate",
    "{{ 7*7 }} {% raw %} ${7*7} <style>body{display:none}</style><link rel=stylesheet href=//evil.example/x.css>",
    '<meta http-equiv=refresh content="0;url=http://evil.example"><base href=http://evil.example>',
    "مرحبا <b>عالم</b> 👩🏽‍🚀 שלום\n\tdef f(x):\n\t\treturn x < 3 && y > 2",
    '"\'><button name=said value=left form=answer autofocus onfocus="window.hacked=1">',
    "<script>window.hacked=1</script>" + "A long answer. " * 70_000,
]


def test_hostile_text_is_shown_as_text(browser, place):
    run, url, store, queue = place
    items = web_site.pairs(len(HOSTILE), texts=[(text, f"fine {n}") for n, text in enumerate(HOSTILE)])
    items = [type(c)(c.id, HOSTILE[n], c.a, c.b, c.round) for n, c in enumerate(items)]
    web_site.put(store, queue, items)
    (run / "samples.jsonl").write_text(
        "".join(
            json.dumps({"step": n, "round": n, "prompt_index": n, "prompt": t, "response": t, "finished": True}) + "\n"
            for n, t in enumerate(HOSTILE)
        )
    )
    (run / "events.jsonl").write_text(
        "".join(
            json.dumps({"step": 1, "round": 1, "event": kind} | fields_of(kind, **dict.fromkeys(names, text))) + "\n"
            for text in HOSTILE
            for kind, names in (
                ("verdict", ("sentence",)), ("owner", ("words", "by")), ("rollback", ("reason",)),
                ("stopped", ("reason",)),
            )
        )
    )  # fmt: skip
    tokens = served.sessions(url, anna="owner", ben="labeller")
    with served.serving(run) as server:
        visit = Visit(browser, server.address, tokens["anna"])
        page = visit.go("/label")
        seen = set()
        for _ in HOSTILE:
            tally.count("hostile texts")
            assert page.evaluate("window.hacked") is None
            seen.add(page.locator(".prompt .text").text_content())
            assert page.locator(".prompt .text *").count() == 0  # nothing of it became an element
            assert page.locator(".side .text :not(mark)").count() == 0
            press(page, "1")
        assert seen == {visible(text[:LONGEST_SHOWN]) for text in HOSTILE}
        for path in ("/", "/samples?sort=round", "/answers?round=1&kind=audit", "/quality", "/compare"):
            visit.go(path)
            page.wait_for_timeout(300)
            assert page.evaluate("window.hacked") is None, path
            assert page.locator("main script, main iframe, main img, main base, main style").count() == 0, path
            assert page.url.startswith(server.address)
        visit.check()


def test_a_megabyte_is_shown_and_the_rest_is_behind_a_link(browser, place):
    run, url, store, queue = place
    long = "x<b>y</b> " * 120_000
    web_site.put(store, queue, web_site.pairs(1, texts=[(long, long)]))
    with served.serving(run) as server:
        token = served.sessions(url, anna="owner")["anna"]
        visit = Visit(browser, server.address, token)
        page = visit.go("/label")
        expect(page.locator(".side .cut").first).to_contain_text("1,140,000 more characters")
        body = page.goto(server.address + "/label/whole/1").text()
        assert body == long
        visit.check()


# ---- a run under way


class Run:
    """`holdfast run` in a process of its own."""

    def __init__(self, runs: Path, *command: str, **settings: str) -> None:
        words = list(command) or small_run.run_arguments(runs, **settings)
        self.output = runs.parent / "run.log"
        self.output.parent.mkdir(exist_ok=True)
        self.process = forked.start(words, self.output)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.join()


def until(condition, what: str, seconds: float = 60.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.1)
    return found


def test_a_run_waits_for_labels_and_goes_on_as_they_arrive(browser, tmp_path, sqlite_url):
    runs = tmp_path / "runs"
    settings = {
        **people_at_work.SETTINGS, "preferences__url": sqlite_url, "reward__initial_comparisons": "6",
        "preferences__per_round": "2", "audit__pairs": "2", "audit__more_pairs": "2", "gate__repeats": "0",
        "run__rounds": "2", "run__steps_per_round": "2",
    }  # fmt: skip
    with Run(runs, **settings) as run:
        directory = runs / small_run.NAME
        until(lambda: (directory / "events.jsonl").exists() and small_run.events_of(directory, "waiting"), "no wait")
        token = served.sessions(sqlite_url, anna="owner")["anna"]
        with served.serving(directory) as server:
            visit = Visit(browser, server.address, token)
            page = visit.go("/")
            expect(page.locator("#aside")).to_contain_text("0 of 6 answered")
            visit.go("/label")
            assert run.process.is_alive()  # it waits
            end = time.monotonic() + 90
            while run.process.is_alive() and time.monotonic() < end:
                if page.locator("#answer").count():
                    press(page, "1")
                page.wait_for_timeout(50)
            assert run.process.exitcode == 0, run.output.read_text()
            assert "waiting for people" in run.output.read_text()
            visit.go("/")
            expect(page.locator("h1 .status")).to_have_text("finished")
            visit.check()
    waited = small_run.events_of(directory, "waited")
    # First labels, an audit, a round's labels; what the next audits ask for depends on the answers.
    assert [event["answered"] for event in waited][:3] == [6, 4, 2]
    assert all(event["answered"] == event["comparisons"] for event in waited)


def test_the_dashboard_lives_and_an_owner_rolls_a_live_run_back(browser, tmp_path, sqlite_url):
    runs = tmp_path / "runs"
    settings = {
        "preferences__url": sqlite_url, "run__rounds": "400", "run__steps_per_round": "4",
        "reward__initial_comparisons": "8", "preferences__per_round": "0",
        "audit__pairs": "0", "refresh__every_rounds": "0",
    }  # fmt: skip
    with Run(runs, **settings):
        directory = runs / small_run.NAME
        until(lambda: (directory / "checkpoints" / "round-0002").exists(), "the run did not begin")
        token = served.sessions(sqlite_url, anna="owner")["anna"]
        with served.serving(directory) as server:
            visit = Visit(browser, server.address, token)
            page = visit.go("/")
            expect(page.locator("svg.hf-chart").first).to_be_visible()
            steps = lambda: int(  # noqa: E731
                re.search(r"Last step\s+([\d,]+)", page.locator(".tiles").first.inner_text())[1].replace(",", "")
            )
            first = steps()
            until(lambda: (page.wait_for_timeout(100), steps() > first)[1], "the dashboard stands still")
            # Pause: asked, confirmed, carried out, and written down with who did it.
            page.get_by_role("button", name="Pause").click()
            expect(page.locator("h1")).to_have_text("Pause the run?")
            page.locator("button.main").click()
            until(lambda: small_run.events_of(directory, "owner"), "no pause")
            expect(page.locator("#aside")).to_contain_text("paused the run")
            time.sleep(1.0)
            size = (directory / "metrics.jsonl").stat().st_size
            time.sleep(1.0)
            assert (directory / "metrics.jsonl").stat().st_size == size
            # Roll back while it is paused.
            visit.go("/")
            page.locator("#aside select[name=checkpoint]").select_option(index=1)
            goal = page.locator("#aside select[name=checkpoint]").input_value()
            page.get_by_role("button", name="Roll back").click()
            expect(page.locator("h1")).to_have_text(f"Roll back to {goal}?")
            page.locator("input[name=reason]").fill("a look at <b>the</b> answers")
            page.locator("button.main").click()
            (event,) = until(lambda: small_run.events_of(directory, "rollback"), "no rollback")
            assert (event["by"], event["to"]) == ("anna", goal)
            assert event["reason"] == "anna asked for it: a look at <b>the</b> answers"
            visit.go("/")
            expect(page.locator("#line")).to_contain_text("a look at <b>the</b> answers")
            # Beta, then on it goes.
            page.locator("#aside input[name=value]").first.fill("0.2")
            page.locator("#aside form", has_text="Beta").get_by_role("button").click()
            page.locator("button.main").click()
            until(lambda: len(small_run.events_of(directory, "owner")) == 2, "no change of beta")
            change = small_run.events_of(directory, "owner")[1]
            assert (change["by"], change["after"]) == ("anna", {"beta": pytest.approx(0.2)})
            page.get_by_role("button", name="Let it go on").click()
            page.locator("button.main").click()
            until(lambda: (directory / "metrics.jsonl").stat().st_size > size, "it does not go on")
            visit.check()
    rows = small_run.rows_of(directory / "metrics.jsonl")
    assert rows[-1]["control/beta"] > 0.1


def test_both_pages_read_well_to_a_screen_reader(browser, place):
    """Names, roles and states of what a screen reader meets."""
    run, url, store, queue = place
    web_site.put(store, queue, web_site.pairs(2))
    tokens = served.sessions(url, anna="owner")
    with served.serving(run) as server:
        visit = Visit(browser, server.address, tokens["anna"])
        page = visit.go("/label")
        for name in ("Answer 1 is better", "Answer 2 is better", "Tie", "Both bad", "Skip", "Undo", "Flag", "Note"):
            expect(page.get_by_role("button", name=name).first).to_be_visible()
        for heading in ("Prompt", "Answer 1", "Answer 2"):
            expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
        press(page, "1")
        expect(page.locator("#news")).to_have_text("The next pair is here.")
        assert page.evaluate("document.activeElement.id") == "prompt-title"
        visit.go("/")
        expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
        assert page.evaluate(
            "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
            ".every(one => one.labels?.length || one.getAttribute('aria-label'))"
        )
        visit.check()


def test_the_dashboard_is_three_screens_and_what_is_unfolded_stays_so(browser, tmp_path):
    """Of a run with everything there is to show: a rollback, audits, refreshes, signals."""
    run = small_run.run(tmp_path, world__labeller=nostalgic.SPEC, run__rounds="4")
    token = served.sessions(f"sqlite:///{run / 'run.db'}", anna="owner")["anna"]
    with served.serving(run) as server:
        visit = Visit(browser, server.address, token, viewport={"width": 1280, "height": 800})
        page = visit.go("/")
        expect(page.locator("svg.hf-chart").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollHeight") <= 3 * 800
        expect(page.locator("#how svg").first).not_to_be_visible()
        page.locator("#how > summary").click()
        expect(page.locator("#how svg").first).to_be_visible()
        number = page.locator("#live").get_attribute("data-picture")
        with (run / "events.jsonl").open("a") as events:
            events.write(json.dumps({"step": 8, "round": 4, "event": "resumed", **fields_of("resumed")}) + "\n")
        expect(page.locator("#live")).not_to_have_attribute("data-picture", number)
        expect(page.locator("#how svg").first).to_be_visible()
        visit.check()


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_page_is_wider_than_its_screen(browser, sqlite_pages, width):
    visit, _ = sqlite_pages
    visit.page.set_viewport_size({"width": width, "height": 740})
    for path in ("/label", "/", "/samples", "/quality", "/compare", "/people", "/api"):
        visit.go(path)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width, path


@pytest.fixture(scope="module")
def sqlite_pages(browser, tmp_path_factory):
    directory = tmp_path_factory.mktemp("pages")
    url = f"sqlite:///{directory / 'run.db'}"
    run = web_site.make_run(directory / "run", url)
    with PreferenceStore.open(url) as store:
        queue = LabelQueue(store.database, "run", PeopleConfig())
        web_site.put(store, queue, web_site.pairs(5, texts=[("word " * 80, "unbroken" * 60)]))
    token = served.sessions(url, anna="owner")["anna"]
    with served.serving(run.path) as server:
        yield Visit(browser, server.address, token), threading.current_thread()
