"""A run of 20,000 steps and 200,000 labels: how soon the dashboard and the next pair are there, and how heavy it is."""

import gzip
import json
import random
import time

import pytest
from playwright.sync_api import sync_playwright

import served
import servers
import web_site
from holdfast.config.schema import PeopleConfig
from holdfast.guard.signals import SIGNALS
from holdfast.people.queue import LabelQueue
from holdfast.preferences.comparison import Choice, Comparison, Label, Provenance, Response
from holdfast.preferences.store import PreferenceStore
from holdfast.track.metrics import REGISTRY
from holdfast.web.security import cookie_name
from lone_events import fields_of

pytestmark = pytest.mark.slow
STEPS, PER_ROUND, LABELS = 20_000, 10, 200_000
SOON_SECONDS = 1.0
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def write_run(path):
    """Every registered metric in every step, and an audit and a verdict in every round."""
    rng = random.Random(0)
    names = [*REGISTRY, *(signal.metric for signal in SIGNALS.values())]
    with (path / "metrics.jsonl").open("w") as file:
        # A hundred different rows, over and over: making 20,000 of them would take longer than all that is measured.
        rows = [json.dumps({name: round(rng.random(), 4) for name in names})[1:] for _ in range(100)]
        for step in range(1, STEPS + 1):
            file.write(f'{{"step": {step}, "round": {(step - 1) // PER_ROUND + 1}, {rows[step % 100]}\n')
    with (path / "events.jsonl").open("w") as file:
        for number in range(1, STEPS // PER_ROUND + 1):
            place = {"step": number * PER_ROUND, "round": number}
            rate = {"value": 0.6, "low": 0.4, "high": 0.8}
            audit = {"labels": 24, "labels_left": 100, "reference_pairs": 24, "reference_wins": 14.0,
                     "reference_rate": rate, "claimed_reference": 0.7, "ece": 0.05}  # fmt: skip
            file.write(json.dumps({**place, "event": "audit"} | fields_of("audit", **audit)) + "\n")
            verdict = {"level": "healthy", "sentence": "people preferred the policy"}
            file.write(json.dumps({**place, "event": "verdict", "evidence": {}, **verdict}) + "\n")
            refresh = fields_of("refresh", version=number, reason="due")
            file.write(json.dumps({**place, "event": "refresh", **refresh}) + "\n")
    with (path / "samples.jsonl").open("w") as file:
        for number in range(0, STEPS // PER_ROUND + 1, 10):
            for prompt in range(12):
                row = {
                    "step": number * PER_ROUND,
                    "round": number,
                    "prompt_index": prompt,
                    "prompt": f"prompt {prompt}",
                }
                file.write(json.dumps({**row, "response": "an answer " * 20, "finished": True}) + "\n")


def first_paint(page):
    """Seconds from the request to the first text on the screen."""
    page.wait_for_function(f"() => {FIRST_PAINT}")
    return page.evaluate(FIRST_PAINT) / 1000


def write_labels(url):
    with PreferenceStore.open(url) as store:
        queue = LabelQueue(store.database, "run", PeopleConfig(overlap=0.0))
        sides = [Response(f"an answer of some words {i}", Provenance("v", 0, i)) for i in range(200)]
        for start in range(0, LABELS, 20_000):
            items = [
                Comparison(f"run/r0001-{n:06d}", "prompt", sides[n % 200], sides[(n + 1) % 200], 1)
                for n in range(start, start + 20_000)
            ]
            store.add_comparisons(items)
            store.add_labels([Label(item.id, f"p{n % 20}", Choice.A) for n, item in enumerate(items)])
        more = [Comparison(f"run/r0002-{n:06d}", "prompt", sides[0], sides[1], 2) for n in range(5_000)]
        web_site.put(store, queue, more)
        assert store.watermark() == LABELS


def test_a_large_run_is_there_at_once(tmp_path, sqlite_url, capsys):
    path = servers.chromium()
    run = web_site.make_run(tmp_path / "run", sqlite_url, **{"people.overlap": "0.0"})
    write_run(run.path)
    write_labels(sqlite_url)
    tokens = served.sessions(sqlite_url, anna="owner")
    began = time.perf_counter()
    with served.serving(run.path) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        context = browser.new_context()
        context.add_cookies([{"name": cookie_name(server.port), "value": tokens["anna"], "url": server.address}])
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.goto(server.address + "/")
        cold_paint = first_paint(page)
        page.wait_for_selector("#live svg")
        cold = time.perf_counter() - began
        paints = []
        for _ in range(3):
            page.goto(server.address + "/")
            paints.append(first_paint(page))
            assert page.locator("#live svg").count() > 10
        html = page.content()
        nexts = []
        for _ in range(3):
            at = time.perf_counter()
            page.goto(server.address + "/label")
            page.wait_for_selector("#answer")
            nexts.append(time.perf_counter() - at)
            at = time.perf_counter()
            lease = page.locator("#answer").get_attribute("data-lease")
            page.keyboard.press("1")
            page.wait_for_function("b => document.querySelector('#answer')?.dataset.lease !== b", arg=lease)
            nexts.append(time.perf_counter() - at)
        browser.close()
    raw, packed = len(html.encode()), len(gzip.compress(html.encode(), 5))
    with capsys.disabled():
        print(f"\n{STEPS:,} steps and {LABELS:,} labels, seconds:")
        print(f"  first paint of the dashboard {min(paints):.2f} to {max(paints):.2f}")
        print(f"  the next pair                {min(nexts):.2f} to {max(nexts):.2f}")
        print(f"  right after the server's start: first paint {cold_paint:.2f}, charts {cold:.1f} after the start")
        print(f"page weight {raw / 1e6:.2f} MB of HTML, {packed / 1e6:.2f} MB as sent")
    assert cold_paint < 2.5 * SOON_SECONDS  # the server reads the whole run at the same time
    assert sorted(paints)[1] < SOON_SECONDS
    assert sorted(nexts)[3] < SOON_SECONDS
