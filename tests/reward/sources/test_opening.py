"""From settings to a source, and settings that fit none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import config_toml, load_config
from holdfast.errors import HoldfastError
from holdfast.reward.scores import AdjustableSource, Asked
from holdfast.reward.sources.opening import open_source
from judge_stand_in import judging

JUDGE = {"judge.model": "m", "judge.timeout_seconds": 5.0}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's directory with a reward and a rubric in it."""
    (tmp_path / "mine.py").write_text("def works(completion):\n    return float('=' in completion)\n")
    (tmp_path / "rubric.toml").write_text('[[criteria]]\nname = "cites"\ntext = "It cites."\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(settings: Mapping[str, Any]) -> AdjustableSource | None:
    config = load_config(None, settings)
    return open_source(config.reward, config.judge)


def test_without_a_setting_the_ensemble_scores() -> None:
    assert opened({}) is None


def test_a_table_of_parts_with_a_judge_and_a_gate(place: Path) -> None:
    (place / "run.toml").write_text("""
[reward.parts]
works = { source = "mine.py:works", gate = true }
worked = { source = "mine.py:works", weight = 0.5 }
style = { source = "rubric.toml", weight = 2.0 }
liked = { source = "judge", normalise = "group" }
""")

    def says(parts: dict[str, str]) -> str:
        return "1: yes\nScore: 8" if "good" in parts["answer"] else "1: no\nScore: 4"

    with judging(says) as judge:
        config = load_config("run.toml", {**JUDGE, "judge.url": judge.url})
        source = open_source(config.reward, config.judge)
        assert source is not None
        scores = source.score(Asked(["p"] * 4, ["good =", "bad =", "good", "bad"], group=2))
        source.close()
    # Of the two that pass: 0.5 + 2 x 1 + 1 and 0.5 + 0 - 1.
    assert scores.total_B.tolist() == [3.5, -0.5, -0.5, -0.5]
    assert (source.compares, source.part) == (False, "component")
    assert sorted(scores.components) == ["liked", "style/cites", "worked", "works"]
    assert config_toml(load_config("run.toml", {**JUDGE, "judge.url": judge.url})) == config_toml(config)


def test_a_table_is_read_back_from_what_is_written(place: Path) -> None:
    parts = {"works": {"source": "mine.py:works", "gate": 0.5}, "style": {"source": "other.py:f", "weight": -0.5}}
    config = load_config(None, {"reward.parts": parts})
    (place / "again.toml").write_text(config_toml(config))
    assert load_config("again.toml") == config


def test_the_file_of_a_second_part_is_looked_for_at_the_start(place: Path) -> None:
    with pytest.raises(HoldfastError, match=r"reward.parts.other.source names the file other.py, which does not exist"):
        opened({"reward.parts": {"works": {"source": "mine.py:works"}, "other": {"source": "other.py:f"}}})


@pytest.mark.parametrize("url", ["http://", "https:///score", "http://host:port/score", "http://[::1/score"])
def test_an_address_that_is_none_is_said_at_the_start(url: str) -> None:
    with pytest.raises(HoldfastError, match="server's address; write it like"):
        opened({"reward.source": url})
    with pytest.raises(HoldfastError, match="server's address; write it like"):
        opened({"reward.source": "judge", "judge.model": "m", "judge.url": url})


def test_several_are_called_by_their_names(place: Path) -> None:
    source = opened({"reward.parts": {"words": {"source": "mine.py:works"}, "sums": {"source": "mine.py:works"}}})
    assert source is not None
    assert source.name == "words + sums"
    source.close()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"reward.source": "mine"}, r"reward.source is 'mine'; it has to be path/to/file.py:name"),
        ({"reward.source": "a.py:f", "reward.parts": {"b": {"source": "b.py:f"}}}, "are both set"),
        ({"reward.parts": {"b": {"source": "ensemble"}}}, r"reward.parts.b.source is 'ensemble'; it has to be"),
        ({"reward.source": "judge"}, r"reward.source = judge needs judge.url"),
        ({"reward.source": "r.toml", "judge.url": "http://h/v1"}, r"reward.source = r.toml needs judge.model"),
        ({"reward.parts": {"b": {"source": "judge"}}}, r"reward.parts.b.source = judge needs judge.url"),
        ({"judge.mode": "pairwise"}, r"judge.mode is only read with reward.source = judge"),
        ({"judge.opponents": 2}, r"judge.opponents is only read with reward.source = judge"),
        (
            {"reward.source": "judge", "judge.url": "http://h", "judge.model": "m", "judge.opponents": 2},
            r"judge.opponents is only read with judge.mode = pairwise",
        ),
        ({"reward.refresh": True}, "the ensemble is refreshed in any case"),
        ({"reward.refresh": True, "reward.source": "a.py:f"}, "since nothing else can"),
        ({"reward.timeout_seconds": 0.0}, "greater than 0"),
        ({"reward.unscored_limit": 1.5}, "at most 1"),
    ],
)
def test_settings_that_fit_no_source(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(HoldfastError, match=sentence):
        load_config(None, settings)


def test_what_a_host_has_to_know_of_a_source(place: Path) -> None:
    there = {**JUDGE, "judge.url": "http://127.0.0.1:1/v1"}
    rubric = opened({**there, "reward.source": "rubric.toml"})
    pairs = opened({**there, "reward.source": "judge", "judge.mode": "pairwise"})
    parts = opened({**there, "reward.parts": {"one": {"source": "judge"}}, "judge.mode": "pairwise"})
    assert [(source.compares, source.part) for source in (rubric, pairs, parts) if source] == [
        (False, "criterion"),
        (True, "component"),
        (True, "component"),
    ]
