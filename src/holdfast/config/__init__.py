"""The typed config of a run: one documented TOML file, overlaid with `--set section.key=value`."""

from holdfast.config.files import (
    config_from,
    config_of_texts,
    config_toml,
    is_free_setting,
    load_config,
    setting_texts,
)
from holdfast.config.rules import Config

__all__ = [
    "Config", "config_from", "config_of_texts", "config_toml", "is_free_setting", "load_config", "setting_texts",
]  # fmt: skip
