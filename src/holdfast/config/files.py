"""Config from TOML and `--set a.b=c`, and back to commented TOML."""

from __future__ import annotations

import datetime
import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from holdfast.config.rules import Config
from holdfast.config.section import choices_of, is_free, settings_of
from holdfast.documents import check_depth, toml_of
from holdfast.errors import HoldfastError


def load_config(path: Path | str | None = None, overrides: Sequence[str] | Mapping[str, Any] = ()) -> Config:
    """The defaults, overlaid with a TOML file, overlaid with `section.key=value` texts or a mapping of such names."""
    changes = overrides if isinstance(overrides, Mapping) else dict(map(_override, overrides))
    tables = _overlay(_read(Path(path)) if path else {}, changes)
    try:
        check_depth(tables)
    except ValueError as error:
        raise HoldfastError(f"A setting cannot be read: {error}.") from None
    return config_from(tables)


def config_from(tables: Mapping[str, Any]) -> Config:
    """A config from nested tables; unknown names and wrong types are refused."""
    sections: dict[str, Any] = {name: item.annotation for name, item in settings_of(Config).items()}
    built = {
        name: sections[name](**values) if name in sections and isinstance(values, Mapping) else values
        for name, values in tables.items()
    }
    return Config(**built)


def _read(path: Path) -> dict[str, Any]:
    try:
        # Some editors begin a file with a mark of its encoding.
        return toml_of(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise HoldfastError(f"There is no config file {path}; `holdfast init {path}` writes one.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"The config file {path} cannot be read: {error}.") from None
    except ValueError as error:
        raise HoldfastError(f"The config file {path} is not valid TOML: {error}.") from None


def _overlay(tables: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in changes.items():
        if "." not in name:
            raise HoldfastError(f"{name} is not of the form section.key, for example run.seed.")
        section, *path, last = name.split(".")
        target = tables.setdefault(section, {})
        if not isinstance(target, dict):
            return tables  # a section that is a value, which `config_from` refuses
        for part in path:
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise HoldfastError(f"{name} goes into {part}, which is a value and not a table.")
        target[last] = value
    return tables


def _override(text: str) -> tuple[str, Any]:
    """The name and the value of `--set section.key=value`."""
    name, equals, raw = text.partition("=")
    if _not_unicode(text):
        raise HoldfastError(f"--set {text!a} is not valid Unicode, which a config file cannot hold.")
    if not equals or "." not in name:
        raise HoldfastError(f"--set {text} is not of the form section.key=value, for example kl.beta=0.1.")
    return name.strip(), _value(raw.strip())


def _not_unicode(text: str) -> bool:
    """Whether the text holds lone surrogates, as bytes of a command line that are not UTF-8 become."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _value(raw: str) -> Any:
    """A TOML value; a bare word is a text, so that `--set kl.controller=fixed` needs no quotes."""
    try:
        return toml_of(f"value = {raw}")["value"]
    except ValueError:
        return raw


def setting_texts(config: Config) -> dict[str, str]:
    """Every setting by its name, section.key, with its value as TOML writes it."""
    return {
        f"{section}.{name}": _toml(getattr(values, name))
        for section in settings_of(Config)
        for values in [getattr(config, section)]
        for name in settings_of(type(values))
    }


def config_of_texts(texts: Mapping[str, str]) -> Config:
    """The config of which these are the `setting_texts`."""
    tables = {name: toml_of(f"value = {text}")["value"] for name, text in texts.items()}
    return config_from(_overlay({}, tables))


def is_free_setting(name: str) -> bool:
    """Whether a setting, section.key, may change between two starts of a run, because no result depends on it."""
    section, _, key = name.partition(".")
    kind: Any = settings_of(Config)[section].annotation
    return is_free(settings_of(kind)[key])


def config_toml(config: Config, comments: bool = True) -> str:
    """The config as TOML that `load_config` reads back to an equal config; commented for people."""
    lines: list[str] = []
    texts = setting_texts(config)
    for section in settings_of(Config):
        values = getattr(config, section)
        if comments:
            lines.append(f"# {values.__doc__}")
        lines.append(f"[{section}]")
        for name, item in settings_of(type(values)).items():
            if comments:
                lines += textwrap.wrap(_comment(item), 108, initial_indent="# ", subsequent_indent="#   ")
            lines.append(f"{name} = {texts[f'{section}.{name}']}")
        lines.append("")
    return "\n".join(lines)


def _comment(item: FieldInfo) -> str:
    choices = choices_of(item)
    return f"{item.description} [{' | '.join(choices)}]" if choices else str(item.description)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        # JSON's quoting is TOML's, but for the one control character that JSON leaves as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return repr(value)
