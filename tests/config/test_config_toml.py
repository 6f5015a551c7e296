"""`config_toml` writes what `load_config` reads back to an equal config, whatever the values are."""

import dataclasses
import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.config import Config, config_toml, load_config
from holdfast.config.schema import KLConfig, PPOConfig, RefreshConfig, TrackConfig, WorldConfig


def _read_back(config: Config, path: Path, comments: bool = True) -> Config:
    path.write_bytes(config_toml(config, comments).encode())
    return load_config(path)


@pytest.mark.parametrize("comments", [True, False])
def test_the_defaults_read_back_equal(tmp_path: Path, comments: bool) -> None:
    assert _read_back(Config(), tmp_path / "c.toml", comments) == Config()


def test_comments_tell_meaning_and_choices() -> None:
    text = config_toml(Config())
    assert "# how beta is set [fixed | adaptive | budget]" in text
    assert "# KL coefficient, or where it starts" in text
    assert max(len(line) for line in text.splitlines() if line.startswith("#")) <= 110
    assert "#" not in config_toml(Config(), comments=False)


ODD_TEXTS = [
    'say "hi"',
    "it's",
    "C:\\models\\new\\u0041",
    "line\nbreak\r\ttab",
    "\x01\x1b\x1f",
    "\x7f",
    "naïve — 语言 😀",
    "\u2028\u0085\ufeff",
    "# not a comment",
    "= [x] {y}",
    " ",
]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_texts_read_back_equal(tmp_path: Path, text: str) -> None:
    config = Config(world=WorldConfig(name=text, options={text: text, "list": [text, {text: [text]}]}))
    assert _read_back(config, tmp_path / "c.toml") == config


@pytest.mark.parametrize("number", [5e-324, 1e-300, 1e-7, 1 / 3, 1e16, 1e22, 1.7976931348623157e308])
def test_floats_read_back_to_the_last_bit(tmp_path: Path, number: float) -> None:
    config = Config(ppo=PPOConfig(lr=number), kl=KLConfig(target=number))
    assert _read_back(config, tmp_path / "c.toml") == config


def test_whole_floats_come_back_as_floats(tmp_path: Path) -> None:
    back = _read_back(Config(kl=KLConfig(target=512.0)), tmp_path / "c.toml")
    assert type(back.kl.target) is float


def test_lists_spans_and_tables_read_back_equal(tmp_path: Path) -> None:
    config = Config(
        refresh=RefreshConfig(freeze=((1, 2), (5, 9))),
        track=TrackConfig(sinks=("wandb", "tensorboard")),
        world=WorldConfig(
            options={
                "flag": True,
                "count": 2**70,
                "ratio": -0.0,
                "empty": {},
                "none of": [],
                "deep": {"er": {"est": [1, [2.5, "x"]]}},
                "day": datetime.date(2024, 2, 29),
                "moment": datetime.datetime(2024, 2, 29, 12, 30, 15, 250, tzinfo=datetime.UTC),
                "clock": datetime.time(7, 5),
            }
        ),
    )
    back = _read_back(config, tmp_path / "c.toml")
    assert back == config
    assert back.world.options["flag"] is True
    assert str(back.world.options["ratio"]) == "-0.0"


_texts = st.text(st.characters(codec="utf-8"), max_size=12)
_values = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=25, deadline=None)
@given(options=st.dictionaries(_texts, _values, max_size=3), name=_texts.filter(lambda text: "\0" not in text))
def test_anything_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, options: dict[str, Any], name: str
) -> None:
    config = dataclasses.replace(Config(), world=WorldConfig(name=name, options=options))
    assert _read_back(config, tmp_path_factory.getbasetemp() / "c.toml") == config
