"""What the pages say of a default is the default."""

from __future__ import annotations

import re
from pathlib import Path

from pages import ROOT

from holdfast.config import load_config
from holdfast.run.loop import HARD_LIMIT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def value_of(setting: str) -> object:
    section, _, name = setting.partition(".")
    return getattr(getattr(load_config(), section), name)


def said(pattern: str) -> list[tuple[Path, re.Match[str]]]:
    return [(page, found) for page in PAGES for found in re.finditer(pattern, " ".join(page.read_text().split()))]


def test_what_is_off_by_default_is_off_and_what_is_not_on_is_not_called_automatic() -> None:
    off = {found[1] for _, found in said(r"`([a-z]+\.[a-z_]+)`, off by default")}
    assert {name for name in off if value_of(name)} == set()
    automatic = next(found[0] for _, found in said(r"\*\*What is automatic:\*\*.*?- \*\*"))
    limits = re.findall(r"hard KL limit[^;]*", automatic)
    assert limits
    assert all("`kl.hard_limit`, twice the target by default" in words for words in limits)
    assert value_of("kl.hard_limit") == -1
    assert HARD_LIMIT == 2


def test_numbers_that_are_called_defaults_are() -> None:
    found = said(r"`([a-z]+\.[a-z_]+)`(?: labels| comparisons)?, ([\d,]+) by default")
    assert len(found) >= 3
    wrong = [(page.name, one[0]) for page, one in found if value_of(one[1]) != int(one[2].replace(",", ""))]
    assert wrong == []
