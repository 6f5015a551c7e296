"""The reference page of all settings: `python -m holdfast.config.reference > docs/reference/config.md`."""

from __future__ import annotations

import dataclasses
import sys
import tomllib
import typing
from collections.abc import Mapping
from typing import Any, Literal

from holdfast.config.files import config_toml
from holdfast.config.schema import Config

_KINDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}

_HEAD = """\
# Settings

Every setting of a run, generated from `holdfast.config.schema`. `holdfast init FILE` writes the same as a commented
TOML file to edit.

A setting has its default unless a TOML file (`--config FILE`) changes it, and what a file says is changed again by
`--set section.name=value`. Short options such as `--seed` stand between the two. A section or setting that does not
exist is refused, and so is a value of the wrong kind or out of its limits, before anything is written. Settings that do
not fit each other (two answers to a prompt are needed to compare them, for example) are refused with a sentence that
says why.

The defaults suit the built-in world and its small model.
"""


def config_markdown() -> str:
    """The reference page of all settings, docs/reference/config.md."""
    # As TOML writes them, so that a default can be copied from the page into a file.
    defaults = _values_as_written(config_toml(Config(), comments=False))
    hints = typing.get_type_hints(Config)
    lines = [_HEAD]
    for section in dataclasses.fields(Config):
        kind = hints[section.name]
        lines += [f"## [{section.name}]", "", (kind.__doc__ or "").strip(), ""]
        lines += ["| setting | default | values | meaning |", "|---|---|---|---|"]
        for item in dataclasses.fields(kind):
            name = f"{section.name}.{item.name}"
            values = _values(typing.get_type_hints(kind)[item.name], item.metadata)
            lines.append(f"| `{name}` | `{defaults[name]}` | {values} | {_cell(item.metadata['doc'])} |")
        lines.append("")
    return "\n".join(lines)


def _values_as_written(toml: str) -> dict[str, str]:
    """The text behind each `name =` of a file in which every setting has a line of its own."""
    written: dict[str, str] = {}
    section = ""
    for line in toml.splitlines():
        if line.startswith("["):
            section = next(iter(tomllib.loads(line)))
        elif line:
            name, _, value = line.partition(" = ")
            written[f"{section}.{name}"] = value
    return written


def _values(kind: Any, limits: Mapping[str, Any]) -> str:
    """What a setting may hold, in words."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in args)
    if origin is dict:
        return "table"
    if origin is tuple:
        return f"list of {_KINDS[args[0]]}s" if args[0] in _KINDS else "list of [first, last] pairs"
    words = [_KINDS[kind]]
    for limit, text in (("low", "at least"), ("above", "above"), ("high", "at most")):
        if limits[limit] is not None:
            words.append(f"{text} {limits[limit]:g}")
    return ", ".join(words)


def _cell(text: str) -> str:
    """Text that Markdown shows as it is and that does not end its cell."""
    return text.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    sys.stdout.write(config_markdown())
