import base64
import hashlib
import os
import re
from html.parser import HTMLParser

import pytest
from rows import copy_of, event, sample, write_lines

import small_run
from holdfast.errors import HoldfastError
from holdfast.report.page import write_report
from holdfast.report.panels import marked_every
from holdfast.text import visible

ATTACK = '<script>document.title="x"</script><img src=x onerror=alert(1)></div></main>"\'><svg onload=alert(2)>'


class Page(HTMLParser):
    """Collects what a browser would act on, and the text that a reader sees."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.raw: dict[str, str] = {}
        self._in = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._in = tag

    def handle_endtag(self, tag):
        self._in = ""

    def handle_data(self, data):
        if self._in in ("script", "style"):
            self.raw[self._in] = self.raw.get(self._in, "") + data
        else:
            self.text += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def report(run_dir) -> str:
    return write_report(run_dir).read_text(encoding="utf-8")


def without_config(html: str) -> str:
    """The page without the config, in which any word may stand."""
    return re.sub(r"<summary>Config.*?</details>", "", html, flags=re.DOTALL)


def names(directory) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture(scope="module")
def good(unguarded, tmp_path_factory) -> str:
    return report(copy_of(unguarded, tmp_path_factory.mktemp("run") / unguarded.name))


def test_sections_come_in_order(good):
    order = [
        "<h1>",
        'class="result"',
        'class="tiles"',
        "Proxy: what the reward ensemble says",
        "Gold: what is true",
        *(">KL to the reference<", ">KL of each step<", ">KL spent in all<", ">KL penalty (beta)<"),
        *(">Spread of the ensemble<", ">Reward-model accuracy<", ">Answer length<", ">Unfinished answers<"),
        *(">Learning rate<", ">Clipped updates<"),
        "What happened",
        "The same prompts, before and after",
        *("Time by phase", "<summary>Config", "How to read this page"),
    ]
    places = []
    for mark in order:
        places.append(good.index(mark, places[-1] if places else 0))
    assert places == sorted(places)


def test_the_page_shows_the_run(unguarded, good):
    text = Page(good).text
    assert "Reward ensemble refreshed to v2" in text
    samples = small_run.rows_of(unguarded / "samples.jsonl")
    assert [row["response"] for row in samples if row["response"] not in text] == []
    assert (unguarded / "config.toml").read_text(encoding="utf-8").strip() in text


def test_after_without_script_shows_the_last_answers_only(good):
    after = [attrs for tag, attrs in Page(good).tags if tag == "div" and attrs.get("class") == "answer after"]
    prompts = int(small_run.SETTINGS["track.samples"])
    assert len(after) == prompts * small_run.ROUNDS
    shown = [attrs for attrs in after if "hidden" not in attrs]
    assert [attrs["data-moment"] for attrs in shown] == [str(small_run.ROUNDS - 1)] * prompts


def test_nothing_is_loaded_and_only_our_own_script_and_style_may_act(good):
    page = Page(good)
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(page.raw[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert page.count("script") == page.count("style") == 1
    for tag, attrs in page.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form", "a")
        assert not {"src", "href", "style", "srcset", "action"} & attrs.keys()
    addresses = set(re.findall(r"https?://[^\"' ]+", without_config(good)))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a language, never fetched


def hostile_run(run, directory):
    copy_of(run, directory)
    (directory / "config.toml").write_text(f"# {ATTACK}\n")
    manifest = dict.fromkeys(("name", "world", "seed", "started"), ATTACK)
    write_lines(directory / "manifest.json", [manifest])
    write_lines(
        directory / "events.jsonl",
        [
            event(1, 1, "refresh", version=2, reason=ATTACK),
            event(1, 1, "step_skipped", reason=ATTACK),
            event(1, 1, "checkpoint_skipped", reason=ATTACK),
        ],
    )
    samples = small_run.rows_of(run / "samples.jsonl")
    write_lines(directory / "samples.jsonl", [{**row, "prompt": ATTACK, "response": ATTACK} for row in samples])
    write_lines(directory / "timings.jsonl", [{"step": 1, ATTACK: 1.0, "update": 2.0}])
    return directory


def test_hostile_text_stays_text(unguarded, tmp_path):
    html = report(hostile_run(unguarded, tmp_path))
    page = Page(html)
    assert page.count("script") == 1
    assert page.count("img") == 0
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert "document.title" not in page.raw["script"]
    # title and heading, three facts, config, prompt, two answers, events and the phase all show it as text
    assert page.text.count(ATTACK) >= 10


def test_hidden_characters_are_shown(tmp_path):
    write_lines(
        tmp_path / "samples.jsonl",
        [sample(0, 0, "p", "nul\x00 bidi\u202e tag\U000e0041 \ud800 é 漢")],
    )
    write_lines(tmp_path / "events.jsonl", [event(1, 1, "step_skipped", reason="why\u202e\x00")])
    write_lines(tmp_path / "manifest.json", [{"name": "run\u2066\ud800"}])
    html = report(tmp_path)
    assert "Step skipped (why⟨U+202E⟩␀)." in html
    assert html.count("run⟨U+2066⟩⟨U+D800⟩") == 2
    assert "nul␀ bidi⟨U+202E⟩ tag⟨U+E0041⟩ ⟨U+D800⟩ é 漢" in html
    assert not set("\x00\u202e\u2066\U000e0041") & set(html)


def test_a_copy_is_titled_with_its_own_name(tmp_path):
    for name in ("first", "copy"):
        (tmp_path / name).mkdir()
        write_lines(tmp_path / name / "manifest.json", [{"name": "first"}])
    assert "<h1><bdi>first</bdi>" in report(tmp_path / "first")
    assert "<h1><bdi>copy (begun as first)</bdi>" in report(tmp_path / "copy")


def test_visible_keeps_ordinary_text():
    ordinary = "line one\n\tline two – naïve, 日本語, עברית, 👩‍🔬"
    assert visible(ordinary) == ordinary
    assert visible("a\r\nb\rc\x1b[31m\x7f\u2028") == "a\nb␍c␛[31m⟨U+007F⟩⟨U+2028⟩"


def test_very_long_answers_are_cut_with_a_note(tmp_path):
    write_lines(
        tmp_path / "samples.jsonl",
        [sample(s, 0, "p" * 5_000, "y" * 1_000_000) for s in (0, 1)],
    )
    html = report(tmp_path)
    assert len(html) < 60_000
    assert html.count("Cut here: 996,000 more characters.") == 2
    assert "Cut here: 1,000 more characters." in html
    assert "y" * 4_000 in html
    assert "y" * 4_001 not in html


@pytest.mark.parametrize(
    "files",
    [
        {"manifest.json": [{"name": "new"}]},
        {"metrics.jsonl": []},
        {"metrics.jsonl": [{"step": 0, "round": 0}]},
        {"metrics.jsonl": [{"step": s, "objective/kl": None, "objective/scores": None} for s in range(3)]},
        {"metrics.jsonl": [{"step": 0, "objective/scores": 0.0, "objective/kl": 0.0, "ensemble/spread": 0.1}]},
        {"gold.jsonl": [{"step": 0, "split": "heldout", "gold": 0.3}]},
        {"events.jsonl": [event(1, 1, "resumed"), event(0, 1, "refresh", version=2)]},
        {"samples.jsonl": [sample(0, 0, "", "")]},
        {"samples.jsonl": [sample(s, s, "p", "r") for s in (0, 5)]},
        {"timings.jsonl": [{"step": 0, "sample": 0.0}]},
    ],
)
def test_short_and_partial_runs_have_a_page(tmp_path, files):
    for name, rows in files.items():
        write_lines(tmp_path / name, rows)
    html = report(tmp_path)
    assert html.rstrip().endswith("</html>")
    assert re.search(r'<p class="result">[A-Z0-9][^<]+\.</p>', html)
    assert "nan" not in re.sub(r"<style>.*?</style>|<script>.*?</script>", "", html, flags=re.S).lower().split()


def test_a_run_without_gold_says_what_that_means(unguarded, tmp_path, good):
    (copy_of(unguarded, tmp_path) / "gold.jsonl").unlink()
    html = report(tmp_path)
    assert "The truth (gold) is not known in this run." in html
    assert "Gold: what is true" not in html
    assert "The truth (gold) is not known" not in good


def test_missing_metrics_are_named(tmp_path):
    write_lines(tmp_path / "metrics.jsonl", [{"step": s, "objective/kl": 0.1 * s} for s in range(5)])
    html = report(tmp_path)
    named = re.search(r"Not recorded in this run: ([^<]+)\.</p>", html)[1].split("; ")
    assert "Spread of the ensemble" in named
    assert "KL to the reference" not in named


def test_many_prompts_moments_and_events_keep_the_page_small(tmp_path):
    write_lines(
        tmp_path / "samples.jsonl",
        [sample(s, p, f"p{p}", "r", s) for s in range(101) for p in range(40)],
    )
    write_lines(
        tmp_path / "events.jsonl",
        [event(s, 1, "step_skipped", reason="NaN") for s in range(5_000)],
    )
    html = report(tmp_path)
    assert "The first 24\nare shown." in html
    assert "Of 100 moments\n16 are shown." in html
    assert 'data-label="step 100, after round 100"' in html
    assert "4,940 more in between are not shown here." in html
    assert html.count('<li class="alarm">') == 60 + 1_000


def test_the_same_run_gives_the_same_page(unguarded, tmp_path, good):
    assert report(copy_of(unguarded, tmp_path / unguarded.name)) == good


def test_the_report_goes_where_it_is_told_and_leaves_nothing_else(unguarded, tmp_path):
    run_dir = copy_of(unguarded, tmp_path / "run")
    before = names(run_dir)
    out = tmp_path / "elsewhere.html"
    assert write_report(run_dir, out) == out
    assert names(run_dir) == before
    assert write_report(run_dir) == run_dir / "report.html"
    assert names(run_dir) == sorted([*before, "report.html"])
    assert out.read_bytes() == (run_dir / "report.html").read_bytes()


def test_a_report_that_cannot_be_written_is_one_sentence_and_keeps_the_old_one(unguarded, tmp_path, monkeypatch):
    run_dir = copy_of(unguarded, tmp_path)
    old = write_report(run_dir).read_bytes()
    files = names(run_dir)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    write_lines(run_dir / "metrics.jsonl", [])
    with pytest.raises(HoldfastError, match="No space left on device"):
        write_report(run_dir)
    assert (run_dir / "report.html").read_bytes() == old
    assert names(run_dir) == files
    with pytest.raises(HoldfastError):
        write_report(run_dir, tmp_path / "missing" / "report.html")


def test_ids_on_the_page_are_unique(good):
    ids = [attrs["id"] for _, attrs in Page(good).tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_a_long_run_has_a_page_of_bounded_size(tmp_path):
    """Four times the steps, rounds, refreshes and samples, and not a tenth more to load."""
    sizes = []
    for steps in (5_000, 20_000):
        directory = tmp_path / str(steps)
        directory.mkdir()
        metrics = [
            {"step": s, "round": 1 + s // 10, "objective/kl": s % 7 / 7, "control/kl_target": 6.0 + s // 100}
            for s in range(1, steps + 1)
        ]
        write_lines(directory / "metrics.jsonl", metrics)
        refreshes = [event(s, 1 + s // 10, "refresh", version=s, holdout_accuracy=0.7) for s in range(4, steps, 4)]
        write_lines(directory / "events.jsonl", refreshes)
        samples = [sample(s, i, f"prompt {i}", "an answer", s // 10) for s in range(0, steps, 100) for i in range(4)]
        write_lines(directory / "samples.jsonl", samples)
        sizes.append(len(report(directory)))
    assert sizes[1] < 1.1 * sizes[0]


@pytest.mark.parametrize(
    ("refreshes", "every"), [(0, 1), (60, 1), (61, 2), (121, 5), (600, 10), (601, 20), (10**6, 20_000)]
)
def test_of_many_refreshes_some_are_marked(refreshes, every):
    assert marked_every(refreshes) == every


def test_the_legend_says_which_refreshes_are_marked(tmp_path):
    write_lines(tmp_path / "metrics.jsonl", [{"step": s, "round": s, "objective/scores": 0.5} for s in range(1, 200)])
    write_lines(tmp_path / "events.jsonl", [event(s, s, "refresh", version=s) for s in range(2, 102)])
    page = report(tmp_path)
    assert "a new version of the reward ensemble (one in 2)." in page
    wide = page[page.index('class="wide"') : page.index('class="narrow"')]
    assert wide.count('class="marker"') == 50
    assert ">v2<" in wide
