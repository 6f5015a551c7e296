"""Where the trials of an experiment are kept, and found again."""

from pathlib import Path

from holdfast.config import config_toml, load_config
from holdfast.lab.experiment import FACTS, directory_of


def test_equal_facts_have_one_directory_and_others_another(tmp_path: Path) -> None:
    config, other = (config_toml(load_config(None, [f"ppo.lr={lr}"]), comments=False) for lr in (0.001, 0.002))
    first = directory_of(tmp_path, (config, [], False))
    written = (first / FACTS).stat().st_mtime_ns
    assert directory_of(tmp_path, (config, [], False)) == first
    assert (first / FACTS).stat().st_mtime_ns == written
    assert directory_of(tmp_path, (config, [], True)) != first
    assert directory_of(tmp_path, (other, [], False)) != first
