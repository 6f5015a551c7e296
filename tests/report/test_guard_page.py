import re

import pytest
from moods import BAD_ROUND
from rows import copy_of, event, of_round, write_lines
from test_report_page import ATTACK, Page, report, without_config

import small_run
from holdfast.statistics import Share


@pytest.fixture(scope="module")
def page(guarded, tmp_path_factory) -> str:
    return report(copy_of(guarded, tmp_path_factory.mktemp("page") / "run"))


def test_the_verdict_stands_on_top_and_the_rounds_before_the_charts(page):
    order = [
        "<h1>",
        "Healthy at the end; 1 rollback, in round 3.",
        'class="result"',
        'class="tiles"',
        "<h2>Round by round",
        "<h2>Did it get better?",
        "<h2>Do the labels agree?",
        "<h2>How it got there",
        "<h2>What moved",
        "<h2>What happened",
        "The same prompts, before and after",
    ]
    places = [page.index(mark) for mark in order]
    assert places == sorted(places)


def test_a_run_without_a_guard_has_the_page_of_old(unguarded, tmp_path):
    html = without_config(report(copy_of(unguarded, tmp_path)))
    for mark in (
        'class="ending',
        "Round by round",
        "Do the labels agree?",
        "What moved",
        "rollback",
        "Last good policy",
    ):
        assert mark not in re.sub(r"<style>.*?</style>", "", html, flags=re.S)
    for mark in ('class="undone"', 'class="whisker', 'class="marker alarm"'):
        assert mark not in html


def test_the_rollback_is_in_the_table_and_in_the_charts(guarded, page):
    rows = [attrs["class"] for tag, attrs in Page(page).tags if tag == "tr" and "class" in attrs]
    assert rows == ["healthy", "healthy", "hacking undone", "healthy", "healthy"]
    proxy = page[page.index("Proxy: what the reward ensemble says") :]
    proxy = proxy[: proxy.index("</svg>")]
    assert proxy.count('class="undone"') == proxy.count('class="marker alarm"') == 1
    refused = [row for row in small_run.events_of(guarded, "refresh") if not row["accepted"]]
    assert proxy.count('class="marker refused"') == len(refused) > 0
    assert ">rollback<" in proxy
    assert "Solid lines: a rollback. Hatched: steps that it undid." in page
    assert "a refresh that the gate refused" in page


def test_gold_of_the_policy_that_was_undone_is_drawn_before_that_of_the_older_one(guarded, page):
    gold = page[page.index(">Gold: what is true<") :]
    held_out = re.search(r'data-name="held-out" data-values="([^"]+)"', gold)[1]
    drawn = [float(entry.split()[1]) for entry in held_out.split(";") if entry.startswith("6 ")]
    rows = [r for r in small_run.rows_of(guarded / "gold.jsonl") if (r["step"], r["split"]) == (6, "heldout")]
    assert drawn == pytest.approx([row["gold"] for row in rows])
    assert len(set(drawn)) == 2


def test_people_are_drawn_with_their_interval_beside_the_claims(guarded, page):
    section = page[page.index('id="audits"') : page.index("<h2>How it got there")]
    assert section.count('<figure class="chart">') == 4
    assert 'data-name="the labeller"' in section
    assert 'data-name="claimed"' in section
    # None of 24 in the round that was undone, with Wilson's interval: z^2 / (24 + z^2) = 3.8415 / 27.8415 = 13.8%.
    assert of_round(guarded, "audit", BAD_ROUND)["anchor_pairs"] == 24
    assert "6 0 0.0% (0.0% to 13.8%)" in section
    assert 'data-log="y"' in section
    newest = small_run.events_of(guarded, "audit")[-1]
    right = Share(newest["accuracy"], newest["decided"]).of("pair")
    assert (
        f"Newest audit: right on {right}, calibration error {newest['ece']:.1%}, "
        f"Brier score {newest['brier']:.2f}." in " ".join(re.findall(r"<desc[^>]*>([^<]*)", section))
    )


def test_the_signals_that_moved_come_first_and_the_rest_are_folded(guarded, page):
    section = page[page.index('id="signals"') : page.index("<h2>What happened")]
    shown, folded = section.split("<details>")
    titles = re.findall(r'class="title"[^>]*>([^<]+)', shown)
    assert len(titles) == 6
    read = {name for row in small_run.rows_of(guarded / "metrics.jsonl") for name in row if name.startswith("signal/")}
    assert f"{len(read) - 6} more signals" in folded
    assert not set(titles) & set(re.findall(r'class="title"[^>]*>([^<]+)', folded))
    described = " ".join(re.findall(r"<desc[^>]*>([^<]*)", section))
    assert (
        "Tokens in an answer (under a grammar those that were free), mean over answers." in described
    )  # the signal's own words


def test_hostile_sentences_stay_text(guarded, tmp_path):
    rows = small_run.events_of(copy_of(guarded, tmp_path))
    for row in rows:
        for name in ("sentence", "reason", "gate_reason", "words"):
            if name in row:
                row[name] = ATTACK
    rows.append(event(10, 5, "action", words=ATTACK, before={ATTACK: 1.0}, after={ATTACK: 2.0}))
    rows.append(event(10, 5, "stopped", reason=ATTACK))
    write_lines(tmp_path / "events.jsonl", rows)
    page = Page(report(tmp_path))
    assert page.count("script") == 1
    assert page.count("img") == 0
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert page.text.count("document.title") > 20
    classes = {attrs.get("class") for tag, attrs in page.tags if tag in ("tr", "div", "span", "p")}
    assert not any("document" in (name or "") for name in classes)


def test_hidden_characters_in_sentences_are_shown(tmp_path):
    write_lines(
        tmp_path / "events.jsonl",
        [event(1, 1, "verdict", level="watch", sentence="a\x00b\u202e")],
    )
    html = report(tmp_path)
    assert not set("\x00\u202e") & set(html)
    assert "A␀b⟨U+202E⟩." in html


@pytest.mark.parametrize(
    "events",
    [
        [event(10, 1, "verdict", level="healthy", sentence="all well")],
        [event(10, 1, "audit")],
        [event(5, 1, "rollback", step_from=5, step_to=2)],
        [event(0, 1, "stopped")],
    ],
)
def test_partial_guards_have_a_page(tmp_path, events):
    write_lines(tmp_path / "events.jsonl", events)
    write_lines(tmp_path / "metrics.jsonl", [{"step": s, "round": 1, "objective/scores": 0.1 * s} for s in range(1, 6)])
    html = report(tmp_path)
    assert html.rstrip().endswith("</html>")
    assert 'class="headline"' in html
    assert not re.search(r">\s*(nan|None)\s*<", html)


def test_many_rounds_and_rollbacks_keep_the_page_small(tmp_path):
    sizes = []
    for rounds in (1_500, 6_000):
        directory = tmp_path / str(rounds)
        directory.mkdir()
        rows = []
        for n in range(1, rounds + 1):
            rate = {"value": 0.5, "low": 0.3, "high": 0.7}
            rows.append(event(4 * n, n, "audit", reference_pairs=24, reference_rate=rate, claimed_reference=0.8))
            rows.append(event(4 * n, n, "verdict", level="hacking", sentence="why " * 30))
            rows.append(event(4 * n, n, "rollback", step_from=4 * n, step_to=4 * n - 2, reason="x"))
        write_lines(directory / "events.jsonl", rows)
        metrics = [
            {"step": s, "round": 1 + s // 4, "objective/scores": s % 7, "signal/length": s % 5}
            for s in range(1, 4 * rounds + 1)
        ]
        write_lines(directory / "metrics.jsonl", metrics)
        sizes.append(len(report(directory)))
    assert sizes[1] < 1.15 * sizes[0]


def test_the_answers_shown_first_are_of_a_policy_that_was_kept(stopped, tmp_path):
    page = Page(report(copy_of(stopped, tmp_path)))
    shown = [a for tag, a in page.tags if a.get("class") == "answer after" and "hidden" not in a]
    assert {a["data-label"] for a in shown} == {"step 2, after round 1"}
    assert "Shown first is the last moment that was" in page.text


def test_the_same_guarded_run_gives_the_same_page(guarded, tmp_path, page):
    assert report(copy_of(guarded, tmp_path / "run")) == page
