"""The reference page of all settings: `python -m holdfast.config.reference > docs/reference/config.md`."""

from __future__ import annotations

import sys
from typing import Any

from pydantic.fields import FieldInfo

from holdfast.config.files import is_free_setting, setting_texts
from holdfast.config.rules import Config
from holdfast.config.section import KINDS, choices_of, settings_of

_LIMITS = {"ge": "at least", "gt": "above", "le": "at most"}

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

A run goes on with the settings that it was saved with; [`resume --changed`](cli.md#resume) takes others. Free to change
between two starts are those that say where or how the work is done, and not what comes of it: {free}.
"""


def config_markdown() -> str:
    """The reference page of all settings, docs/reference/config.md."""
    # As TOML writes them, so that a default can be copied from the page into a file.
    defaults = setting_texts(Config())
    lines = [_HEAD.format(free=", ".join(f"`{name}`" for name in defaults if is_free_setting(name)))]
    for section, part in settings_of(Config).items():
        kind: Any = part.annotation
        lines += [f"## [{section}]", "", kind.__doc__, ""]
        lines += ["| setting | default | values | meaning |", "|---|---|---|---|"]
        for name, item in settings_of(kind).items():
            full = f"{section}.{name}"
            lines.append(f"| `{full}` | `{defaults[full]}` | {_values(item)} | {_cell(str(item.description))} |")
        lines.append("")
    return "\n".join(lines)


def _values(item: FieldInfo) -> str:
    """What a setting may hold, in words."""
    if choices := choices_of(item):
        return ", ".join(f"`{choice}`" for choice in choices)
    limits = [(name, getattr(limit, name, None)) for limit in item.metadata for name in _LIMITS]
    return ", ".join([KINDS[item.annotation], *(f"{_LIMITS[name]} {x:g}" for name, x in limits if x is not None)])


def _cell(text: str) -> str:
    """Text that Markdown shows as it is and that does not end its cell."""
    return text.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    sys.stdout.write(config_markdown())
