"""Defaults, a TOML file over them, `--set` over both: what is taken, and what is refused and how."""

import dataclasses
from pathlib import Path

import pytest

from holdfast.config import Config, config_from, load_config
from holdfast.errors import HoldfastError


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_no_file_and_no_override_gives_the_defaults() -> None:
    assert load_config() == Config()


def test_a_file_changes_only_what_it_names(tmp_path: Path) -> None:
    config = load_config(_write(tmp_path, "[kl]\nbeta = 0.375\n\n[run]\nseed = 77\n"))
    assert (config.kl.beta, config.run.seed) == (0.375, 77)
    defaults = Config()
    assert dataclasses.replace(config.kl, beta=defaults.kl.beta) == defaults.kl
    assert dataclasses.replace(config.run, seed=defaults.run.seed) == defaults.run
    assert config.ppo == defaults.ppo


def test_a_text_with_a_zero_in_it_names_no_file() -> None:
    with pytest.raises(HoldfastError, match=r"data.preferences has a character of code 0 in it"):
        load_config(None, ['data.preferences="labels\\u0000.jsonl"'])


def test_a_mark_of_the_encoding_is_no_setting(tmp_path: Path) -> None:
    path = tmp_path / "marked.toml"
    path.write_bytes(b"\xef\xbb\xbf[run]\nseed = 7\n")
    assert load_config(path).run.seed == 7


def test_an_override_wins_over_the_file_and_a_later_one_over_an_earlier(tmp_path: Path) -> None:
    path = _write(tmp_path, "[kl]\nbeta = 0.375\ntarget = 5.5\n")
    config = load_config(path, ["kl.beta=0.25", "kl.beta=0.125"])
    assert (config.kl.beta, config.kl.target) == (0.125, 5.5)


@pytest.mark.parametrize(
    ("override", "section", "key", "expected"),
    [
        ("kl.controller=fixed", "kl", "controller", "fixed"),  # a bare word
        ('kl.controller="fixed"', "kl", "controller", "fixed"),
        (" kl.beta = 0.5 ", "kl", "beta", 0.5),
        ("kl.beta=2", "kl", "beta", 2.0),  # an int where a float is wanted
        ("ppo.lr=1e-7", "ppo", "lr", 1e-7),
        ("run.device=cuda:0", "run", "device", "cuda:0"),
        ("policy.path=/models/my model", "policy", "path", "/models/my model"),
        ("policy.path=", "policy", "path", ""),
        ("preferences.url=sqlite:///x.db?a=b", "preferences", "url", "sqlite:///x.db?a=b"),
        ("policy.fast=false", "policy", "fast", False),
        ('track.sinks=["wandb", "trackio"]', "track", "sinks", ("wandb", "trackio")),
        ("track.sinks=[]", "track", "sinks", ()),
        ("refresh.freeze=[[2, 3], [5, 5]]", "refresh", "freeze", ((2, 3), (5, 5))),
        ("world.options={demonstrations = 5}", "world", "options", {"demonstrations": 5}),
        ("world.options.deep.er=x", "world", "options", {"deep": {"er": "x"}}),
    ],
)
def test_forms_of_an_override(override: str, section: str, key: str, expected: object) -> None:
    value = getattr(getattr(load_config(overrides=[override]), section), key)
    assert value == expected
    assert type(value) is type(expected)


def test_overrides_of_options_join_the_file_s(tmp_path: Path) -> None:
    path = _write(tmp_path, '[world]\noptions = {prompts = 5, note = "a"}\n')
    config = load_config(path, ["world.options.prompts=9", "world.options.more=[1, 2]"])
    assert config.world.options == {"prompts": 9, "note": "a", "more": [1, 2]}
    # A default is one value for all configs: changing one config's options must not reach the next.
    assert load_config().world.options == {}


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("kl.beta", "not of the form section.key=value"),
        ("beta=1", "not of the form section.key=value"),
        ("=1", "not of the form section.key=value"),
        ("kl.batta=1", r"no setting kl\.batta; did you mean beta\?$"),
        ("rewards.members=1", r"no section \[rewards\] in the config; did you mean reward\?$"),
        ("zzzzzz.beta=1", r"`holdfast init` writes a file with all of them\.$"),
        ("run.seed=1.0", "run.seed is 1.0, but it has to be a whole number"),
        ("run.seed=true", "run.seed is True, but it has to be a whole number"),
        ("run.seed=abc", "run.seed is 'abc', but it has to be a whole number"),
        ("kl.beta=true", "kl.beta is True, but it has to be a number"),
        ("kl.beta=low", "kl.beta is 'low', but it has to be a number"),
        ("kl.beta=nan", "kl.beta is nan, but it has to be a finite number"),
        ("kl.beta=inf", "kl.beta is inf, but it has to be a finite number"),
        ("world.label_noise=-inf", "world.label_noise is -inf, but it has to be a finite number"),
        (f"kl.beta=1{'0' * 400}", "kl.beta is larger than any number"),
        (f"policy.feed_forward=1{'0' * 400}", "policy.feed_forward is larger than any number"),
        (f"run.seed=1{'0' * 20}", "run.seed is larger than any number"),
        ("policy.fast=1", "policy.fast is 1, but it has to be true or false"),
        ("policy.fast=True", "policy.fast is 'True', but it has to be true or false"),
        ("world.name=3", "world.name is 3, but it has to be a text"),
        ("kl.controller=fixd", "kl.controller is 'fixd', but it has to be one of fixed, adaptive, budget"),
        ("kl.controller=[1]", "kl.controller is .* one of fixed"),
        ("track.sinks=wandb", "track.sinks is 'wandb', but it has to be a list"),
        ("track.sinks=[1]", "track.sinks is 1, but it has to be a text"),
        ("data.prompt_length=512", "data.prompt_length is 512, but it has to be a pair"),
        ("data.prompt_length=[512]", "data.prompt_length is .*has to be a pair"),
        ("refresh.freeze=[1, 2]", "refresh.freeze is 1, but it has to be a list"),
        ("refresh.freeze=[[1, 2, 3]]", "refresh.freeze is .*has to be a list"),
        ("refresh.freeze=[[1.0, 2]]", "refresh.freeze is 1.0, but it has to be a whole number"),
        ("world.options=5", "world.options is 5, but it has to be a table"),
        ("run.seed.deeper=1", "run.seed is .* whole number"),
        ("policy.path=/tmp/\udcff", "not valid Unicode"),
    ],
)
def test_refused_overrides(override: str, sentence: str) -> None:
    with pytest.raises(HoldfastError, match=sentence):
        load_config(overrides=[override])


def test_an_override_cannot_go_into_a_value_of_the_file(tmp_path: Path) -> None:
    path = _write(tmp_path, "[kl]\nbeta = 0.5\n")
    with pytest.raises(HoldfastError, match="beta, which is a value"):
        load_config(path, ["kl.beta.deeper=1"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[kl]\nbeta = ", "is not valid TOML"),
        ("kl = 5\n", "kl is a section of the config"),
        ("[kl]\nbeta = '0.1'\n", "kl.beta is '0.1', but it has to be a number"),
        ("[reward.members]\nx = 1\n", "reward.members is .* whole number"),
        ("[[kl]]\nbeta = 1\n", "kl is a section of the config"),
    ],
)
def test_refused_files(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(HoldfastError, match=sentence):
        load_config(_write(tmp_path, text))


def test_a_section_that_is_a_value_refuses_overrides_too(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="kl is a section"):
        load_config(_write(tmp_path, "kl = 5\n"), ["kl.beta=1"])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match=r"no config file .*none\.toml"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(HoldfastError, match="cannot be read"):
        load_config(tmp_path)
    latin = tmp_path / "latin.toml"
    latin.write_bytes("[world]\nname = 'caf\u00e9'\n".encode("latin-1"))
    with pytest.raises(HoldfastError, match="cannot be read"):
        load_config(latin)


def test_config_from_takes_tables_of_python_values() -> None:
    config = config_from({"kl": {"beta": 1}, "refresh": {"freeze": [(1, 2)]}})
    assert config.kl.beta == 1.0
    assert type(config.kl.beta) is float
    assert config.refresh.freeze == ((1, 2),)


def test_overrides_may_be_a_mapping_of_python_values(tmp_path: Path) -> None:
    path = _write(tmp_path, "[kl]\nbeta = 0.375\ntarget = 5.5\n")
    changes = {"kl.beta": 0.25, "run.device": "true", "refresh.freeze": [(1, 2)], "world.options.deep.er": "x"}
    config = load_config(str(path), changes)
    assert (config.kl.beta, config.kl.target, config.run.device) == (0.25, 5.5, "true")
    assert (config.refresh.freeze, config.world.options) == (((1, 2),), {"deep": {"er": "x"}})
    assert load_config(None, {"run.seed": 7}).run.seed == 7


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("seed", "seed is not of the form section.key, for example run.seed"),
        ("run.sede", r"no setting run\.sede; did you mean seed\?"),
        ("rum.seed", r"no section \[rum\] in the config; did you mean run\?"),
        ("run.seed.deeper", "run.seed is .* whole number"),
    ],
)
def test_refused_names_of_a_mapping(name: str, sentence: str) -> None:
    with pytest.raises(HoldfastError, match=sentence):
        load_config(None, {name: 7})
