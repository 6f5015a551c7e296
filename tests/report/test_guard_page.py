import re

import pytest
from fake_guard import guard_events, write_guarded_run
from fake_run import write_fake_run, write_lines
from test_report_page import ATTACK, Page, report


@pytest.fixture(scope="module")
def guarded(tmp_path_factory) -> str:
    return report(write_guarded_run(tmp_path_factory.mktemp("guarded")))


def test_the_verdict_stands_on_top_and_the_rounds_before_the_charts(guarded):
    order = [
        "<h1>",
        "Healthy at the end; 1 rollback, in round 4.",
        'class="result"',
        'class="tiles"',
        "<h2>Round by round",
        "<h2>Did it get better?",
        "<h2>Do people agree?",
        "<h2>How it got there",
        "<h2>What moved",
        "<h2>What happened",
        "The same prompts, before and after",
    ]
    places = [guarded.index(mark) for mark in order]
    assert places == sorted(places)


def test_a_run_without_a_guard_has_the_page_of_old(tmp_path):
    html = report(write_fake_run(tmp_path))
    for mark in ('class="ending', "Round by round", "Do people agree?", "What moved", "rollback", "Last good policy"):
        assert mark not in re.sub(r"<style>.*?</style>", "", html, flags=re.S)
    for mark in ('class="undone"', 'class="whisker', 'class="marker alarm"'):
        assert mark not in html


def test_the_rollback_is_in_the_table_and_in_the_charts(guarded):
    page = Page(guarded)
    rows = [attrs["class"] for tag, attrs in page.tags if tag == "tr" and "class" in attrs]
    assert rows == [*["healthy"] * 3, "hacking undone", "healthy", "watch", "healthy", "healthy"]
    proxy = guarded[guarded.index("Proxy: what the reward ensemble says") :]
    proxy = proxy[: proxy.index("</svg>")]
    assert proxy.count('class="undone"') == proxy.count('class="marker alarm"') == 1
    assert proxy.count('class="marker refused"') == 1
    assert ">rollback<" in proxy
    assert "Solid lines: a rollback. Hatched: steps that it undid." in guarded
    assert "a refresh that the gate refused" in guarded


def test_gold_of_the_policy_that_was_undone_is_drawn_before_that_of_the_older_one(guarded):
    gold = guarded[guarded.index(">Gold: what is true<") :]
    held_out = re.search(r'data-name="held-out" data-values="([^"]+)"', gold)[1]
    at_40 = [float(entry.split()[1]) for entry in held_out.split(";") if entry.startswith("40 ")]
    assert len(at_40) == 2
    assert at_40[0] < at_40[1] - 0.3


def test_people_are_drawn_with_their_interval_beside_the_claims(guarded):
    section = guarded[guarded.index('id="audits"') : guarded.index("<h2>How it got there")]
    assert section.count('<figure class="chart">') == 4
    assert 'data-name="people"' in section
    assert 'data-name="claimed"' in section
    # 13 of 24 in round 4: 54.2% with Wilson's interval, worked out by hand: 35.1% to 72.1%
    assert "40 0.541667 54.2% (35.1% to 72.1%)" in section
    assert 'data-log="y"' in section
    assert "Newest audit: right on 71.0%, calibration error 8.0%, Brier score 0.19." in " ".join(
        re.findall(r"<desc[^>]*>([^<]*)", section)
    )


def test_the_signals_that_moved_come_first_and_the_rest_are_folded(guarded):
    section = guarded[guarded.index('id="signals"') : guarded.index("<h2>What happened")]
    shown, folded = section.split("<details>")
    titles = re.findall(r'class="title"[^>]*>([^<]+)', shown)
    assert len(titles) == 6
    assert "Repeated trigrams" in titles
    assert "Clip fraction" in folded
    assert "14 more signals" in folded
    described = " ".join(re.findall(r"<desc[^>]*>([^<]*)", section))
    assert "Tokens in an answer, mean over answers." in described  # the signal's own words


def test_hostile_sentences_stay_text(tmp_path):
    write_guarded_run(tmp_path)
    rows = guard_events()
    for row in rows:
        for name in ("sentence", "reason", "gate_reason", "words", "level", "rung", "to"):
            if name in row:
                row[name] = ATTACK
        row["before"] = row["after"] = {ATTACK: 1.0}
    rows.append({**rows[-1], "event": "action", "before": {ATTACK: 1.0}, "after": {ATTACK: 2.0}})
    rows.append({**rows[-1], "event": "stopped", "reason": ATTACK})
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
        [{"step": 1, "round": 1, "event": "verdict", "level": "watch\u202e", "sentence": "a\x00b"}],
    )
    html = report(tmp_path)
    assert not set("\x00\u202e") & set(html)
    assert "A␀b." in html


@pytest.mark.parametrize(
    "events",
    [
        [{"event": "verdict"}],
        [{"step": 10, "round": 1, "event": "verdict", "level": "healthy", "sentence": "all well"}],
        [{"step": 10, "round": 1, "event": "audit", "reference_pairs": 24, "reference_wins": 12}],
        [{"step": 10, "round": 1, "event": "audit", "reliability": [{"low": 0}, 3, None, {"low": 0, "high": 1}]}],
        [{"round": 1, "event": "rollback"}, {"step": 5, "round": 1, "event": "rollback", "step_to": 9}],
        [{"step": 0, "round": 1, "event": "stopped"}],
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
            at = {"step": 4 * n, "round": n}
            interval = {"reference_pairs": 24, "reference_rate": 0.5, "reference_low": 0.3, "reference_high": 0.7}
            rows.append({**at, "event": "audit", "claimed_reference": 0.8, **interval})
            rows.append({**at, "event": "verdict", "level": "hacking", "sentence": "why " * 30})
            rows.append({**at, "event": "rollback", "step_from": 4 * n, "step_to": 4 * n - 2, "reason": "x"})
        write_lines(directory / "events.jsonl", rows)
        metrics = [
            {"step": s, "round": 1 + s // 4, "objective/scores": s % 7, "signal/length": s % 5}
            for s in range(1, 4 * rounds + 1)
        ]
        write_lines(directory / "metrics.jsonl", metrics)
        sizes.append(len(report(directory)))
    assert sizes[1] < 1.15 * sizes[0]


def test_the_answers_shown_first_are_of_a_policy_that_was_kept(tmp_path):
    page = Page(report(write_guarded_run(tmp_path, stopped=True)))
    shown = [a for tag, a in page.tags if a.get("class") == "answer after" and "hidden" not in a]
    assert {a["data-label"] for a in shown} == {"step 30, after round 3"}
    assert "Shown first is the last moment that was" in page.text


def test_the_same_guarded_run_gives_the_same_page(tmp_path, guarded):
    assert report(write_guarded_run(tmp_path)) == guarded
