"""Where the trials of an experiment are kept, and found again."""

from pathlib import Path

from holdfast.config import config_toml, load_config
from holdfast.lab.experiment import directory_of


def test_trials_of_before_a_setting_was_there_are_found_again(tmp_path: Path) -> None:
    now = config_toml(load_config(None, ["ppo.lr=0.001"]), comments=False)
    before = "\n".join(line for line in now.splitlines() if not line.startswith("clip"))
    assert before != now
    first = directory_of(tmp_path, (before, [], False))
    assert directory_of(tmp_path, (now, [], False)) == first
    assert directory_of(tmp_path, (now, [], True)) != first
    other = config_toml(load_config(None, ["ppo.lr=0.002"]), comments=False)
    assert directory_of(tmp_path, (other, [], False)) != first


def test_trials_with_a_setting_that_is_gone_are_left_alone(tmp_path: Path) -> None:
    config = config_toml(load_config(None, []), comments=False)
    gone = directory_of(tmp_path, (config.replace("[ppo]", "[ppo]\nshoe_size = 4"), []))
    assert directory_of(tmp_path, (config, [])) != gone
