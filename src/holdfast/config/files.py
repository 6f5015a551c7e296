"""Config from TOML and `--set a.b=c`, and back to commented TOML."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import json
import textwrap
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from holdfast.config.check import check
from holdfast.config.schema import Config
from holdfast.errors import HoldfastError


def load_config(path: Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """The defaults, overlaid with a TOML file, overlaid with `--set section.key=value`; checked."""
    return check(config_from(_overlay(_read(path) if path else {}, overrides)))


def config_from(tables: Mapping[str, Any]) -> Config:
    """A config from nested tables; unknown names and wrong types are refused."""
    sections = {f.name: f for f in dataclasses.fields(Config)}
    built: dict[str, Any] = {}
    for name, values in tables.items():
        if name not in sections:
            raise HoldfastError(f"There is no section [{name}] in the config{_did_you_mean(name, sections)}")
        if not isinstance(values, Mapping):
            raise HoldfastError(f"{name} is a section of the config: write [{name}] and its settings below.")
        built[name] = _section(name, typing.get_type_hints(Config)[name], values)
    return Config(**built)


def _section(section: str, kind: type[Any], values: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(kind)
    built = {}
    for key, value in values.items():
        if key not in hints:
            raise HoldfastError(f"There is no setting {section}.{key}{_did_you_mean(key, hints)}")
        built[key] = _convert(f"{section}.{key}", hints[key], value)
    return kind(**built)


def _convert(name: str, kind: Any, value: Any) -> Any:
    """`value` as `kind`, or a sentence about it. An int is taken where a float is wanted, never the reverse."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        if value in args:
            return value
        raise HoldfastError(f"{name} is {value!r}, but it has to be one of {', '.join(map(str, args))}.")
    if origin is tuple:
        if not isinstance(value, (list, tuple)) or (args[-1] is not Ellipsis and len(value) != len(args)):
            raise HoldfastError(f"{name} is {value!r}, but it has to be a list{_of(args)}.")
        kinds = [args[0]] * len(value) if args[-1] is Ellipsis else list(args)
        return tuple(_convert(name, k, v) for k, v in zip(kinds, value, strict=True))
    if origin is dict:
        if isinstance(value, dict):
            return dict(value)
        raise HoldfastError(f"{name} is {value!r}, but it has to be a table.")
    assert not isinstance(kind, types.UnionType), "settings have one type"
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise HoldfastError(f"{name} is larger than any number that can be worked with.") from None
    if type(value) is kind:
        return value
    raise HoldfastError(f"{name} is {value!r}, but it has to be {_KIND_WORDS[kind]}.")


_KIND_WORDS = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false"}


def _of(args: tuple[Any, ...]) -> str:
    return f" of {_KIND_WORDS[args[0]]} each" if args[0] in _KIND_WORDS else " of [first, last] pairs"


def _did_you_mean(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else "; `holdfast init` writes a file with all of them."


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HoldfastError(f"There is no config file {path}; `holdfast init {path}` writes one.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"The config file {path} cannot be read: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise HoldfastError(f"The config file {path} is not valid TOML: {error}.") from None


def _overlay(tables: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    for text in overrides:
        name, equals, raw = text.partition("=")
        section, dot, key = name.strip().partition(".")
        if _not_unicode(text):
            raise HoldfastError(f"--set {text!a} is not valid Unicode, which a config file cannot hold.")
        if not equals or not dot:
            raise HoldfastError(f"--set {text} is not of the form section.key=value, for example kl.beta=0.1.")
        target = tables.setdefault(section, {})
        if not isinstance(target, dict):
            raise HoldfastError(f"{section} is a section of the config: write [{section}] and its settings below.")
        *path, last = key.split(".")
        for part in path:
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise HoldfastError(f"--set {text} goes into {part}, which is a value and not a table.")
        target[last] = _value(raw.strip())
    return tables


def _not_unicode(text: str) -> bool:
    """Whether the text holds lone surrogates, as bytes of a command line that are not UTF-8 become."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _value(raw: str) -> Any:
    """A TOML value; a bare word is a text, so that `--set kl.controller=fixed` needs no quotes."""
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw


def config_toml(config: Config, comments: bool = True) -> str:
    """The config as TOML that `load_config` reads back to an equal config; commented for people."""
    lines: list[str] = []
    for section in dataclasses.fields(config):
        values = getattr(config, section.name)
        if comments:
            lines.append(f"# {(type(values).__doc__ or '').strip()}")
        lines.append(f"[{section.name}]")
        for item in dataclasses.fields(values):
            if comments:
                lines += textwrap.wrap(_comment(type(values), item), 108, initial_indent="# ", subsequent_indent="#   ")
            lines.append(f"{item.name} = {_toml(getattr(values, item.name))}")
        lines.append("")
    return "\n".join(lines)


def _comment(kind: type[Any], item: dataclasses.Field[Any]) -> str:
    hint = typing.get_type_hints(kind)[item.name]
    choices = f" [{' | '.join(typing.get_args(hint))}]" if typing.get_origin(hint) is Literal else ""
    return str(item.metadata["doc"]) + choices


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
