"""Pages with answers that are drawn, in a real Chromium: labelled by keyboard, at two widths, whatever they hold."""

import json
from dataclasses import replace

import pytest
from playwright.sync_api import expect

import served
import tally
import web_site
from holdfast.config.schema import PeopleConfig
from holdfast.drawings.boxes import COLOUR_OF
from holdfast.people.queue import LabelQueue
from holdfast.preferences.store import PreferenceStore
from holdfast.report.page import write_report
from hostile_answers import HOSTILE, MARKUP, box
from visits import Visit

pytestmark = pytest.mark.slow
GOOD = json.dumps([box(), box(type="picture", x=1, y=3, w=5, h=6), box(type="logo", x=11, y=15, w=3, h=1)])
OTHER = json.dumps([box(), box(type="picture", x=1, y=1, w=5, h=6)])
GOOD_WORDS = (
    "3 boxes on a grid 12 wide and 16 high: title 12 by 2 at 0,0; picture 5 by 6 at 1,3; logo 3 by 1 at 11,15. "
    "Beyond the grid: logo."
)


@pytest.fixture
def place(tmp_path, sqlite_url):
    """Makes a run whose answers are drawn, with these pairs to answer."""
    stores = []

    def made(drawing, *texts):
        run = web_site.make_run(tmp_path / "run", sqlite_url, **{"people.overlap": "0.0", "world.drawing": drawing})
        stores.append(PreferenceStore.open(sqlite_url))
        queue = LabelQueue(stores[0].database, "run", PeopleConfig(overlap=0.0))
        asked = [replace(c, prompt="a poster, at 0 and 10") for c in web_site.pairs(len(texts), texts=texts)]
        web_site.put(stores[0], queue, asked)
        rows = [
            {"step": n, "round": n, "prompt_index": 0, "prompt": "a poster", "response": text, "finished": True}
            for n, text in enumerate(side for pair in texts for side in pair)
        ]
        (run.path / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return run.path, stores[0], served.sessions(sqlite_url, anna="owner")["anna"]

    yield made
    for store in stores:
        store.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_two_layouts_side_by_side_are_labelled_by_keyboard(browser, place, width):
    run, store, token = place("boxes", (GOOD, OTHER), (GOOD, '[{"type":"title","x'))
    with served.serving(run) as server:
        visit = Visit(browser, server.address, token, viewport={"width": width, "height": 844})
        page = visit.go("/label")
        pictures = page.locator(".side svg[role=img]")
        expect(pictures).to_have_count(2)
        assert GOOD_WORDS in [one.get_attribute("aria-label") for one in pictures.all()]
        left, right = (one.bounding_box() for one in pictures.all())
        assert left["y"] == pytest.approx(right["y"], abs=2)
        assert right["x"] > left["x"] + left["width"]
        for one in (left, right):
            assert one["width"] > 140
            assert one["y"] + one["height"] < 844
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # The JSON is there too, and the key answers.
        assert {one.inner_text() for one in page.locator(".side .text").all()} == {GOOD, OTHER}
        lease = page.locator("#answer").get_attribute("data-lease")
        page.keyboard.press("1")
        page.wait_for_function("b => document.querySelector('#answer')?.dataset.lease !== b", arg=lease)
        expect(page.locator(".side svg[role=img]")).to_have_count(1)
        expect(page.locator(".side .undrawn")).to_have_text("It cannot be drawn: it is not JSON, or not to its end.")
        visit.check()
    assert store.counts().labels == 1


def test_colours_are_the_themes_and_are_seen(browser, place):
    """The edge of each box stands off its page by 3 to 1, and its label off the box by 4.5 to 1."""
    every = json.dumps([box(type=name, y=2 * n, h=1) for n, name in enumerate(COLOUR_OF)])
    run, _, token = place("boxes", (every, OTHER))
    with served.serving(run) as server:
        for scheme in ("light", "dark"):
            visit = Visit(browser, server.address, token, color_scheme=scheme)
            page = visit.go("/label")
            seen = page.evaluate(
                """() => {
                  const css = (one, name) => getComputedStyle(one)[name];
                  const all = [...document.querySelectorAll('.side svg[role=img]')];
                  const svg = all.find((one) => one.querySelector('.b3'));
                  const paper = css(svg.querySelector('.paper'), 'fill');
                  return [...svg.querySelectorAll('.box')].map((one) => [paper, css(one, 'fill'), css(one, 'stroke'),
                    Number(css(one, 'fillOpacity')), css(svg.querySelector('text'), 'fill')]);
                }"""
            )
            assert len({stroke for _, _, stroke, _, _ in seen}) == len(COLOUR_OF) == 7
            for paper, fill, stroke, opacity, ink in seen:
                inside = [opacity * f + (1 - opacity) * p for f, p in zip(rgb(fill), rgb(paper), strict=True)]
                assert contrast(rgb(stroke), rgb(paper)) >= 3, scheme
                assert contrast(rgb(ink), inside) >= 4.5, scheme
            visit.check()


def test_curves_are_below_each_other_on_a_phone(browser, place):
    run, _, token = place("curve", ('{"p":[0.10,1.00]}', '{"p":[0.90,1.00]}'))
    with served.serving(run) as server:
        visit = Visit(browser, server.address, token, viewport={"width": 390, "height": 844})
        page = visit.go("/label")
        said = {one.text_content() for one in page.locator(".side svg desc").all()}
        assert said == {f"Chance of at most x, at 2 points: 0: {p}; 10: 1.00." for p in ("0.10", "0.90")}
        first, second = (one.bounding_box() for one in page.locator(".side svg[role=img]").all())
        assert second["y"] > first["y"] + first["height"]
        assert first["width"] > 300
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        visit.check()


def rgb(colour):
    return [float(part) for part in colour.removeprefix("rgb(").rstrip(")").split(",")]


def contrast(one, other):
    """The ratio of WCAG 2.2."""

    def light(colour):
        parts = [c / 255 for c in colour]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((light(one), light(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_hostile_answers_neither_run_nor_leave_the_page(browser, place):
    foreign = "main :is(script, iframe, image, img, style, [onload])"
    run, store, token = place("boxes", *((text, GOOD) for text in HOSTILE))
    write_report(run)
    with served.serving(run) as server:
        visit = Visit(browser, server.address, token, viewport={"width": 390, "height": 844})
        page = visit.go("/label")
        for _ in HOSTILE:
            tally.count("hostile texts")
            assert page.evaluate("window.hacked") is None
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            assert page.locator(".side").evaluate_all("all => all.every((s) => s.querySelector('svg, .undrawn'))")
            lease = page.locator("#answer").get_attribute("data-lease")
            page.keyboard.press("2")
            page.wait_for_function("b => document.querySelector('#answer')?.dataset.lease !== b", arg=lease)
        for path in ("/samples?view=rounds", "/answers?round=1&kind=audit", "/compare"):
            visit.go(path)
            assert page.evaluate("window.hacked") is None, path
            assert page.locator(foreign).count() == 0
            assert page.locator("main figure.drawing, main .undrawn").count() > 0, path
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        visit.check()
        page.goto(f"file://{run}/report.html")
        assert page.evaluate("window.hacked") is None
        assert page.locator(foreign).count() == 0
        assert MARKUP[:8] in page.locator("#samples").inner_text()
    assert store.counts().labels == len(HOSTILE)
