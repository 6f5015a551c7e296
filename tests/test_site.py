"""The documentation as a site: no dead link, nothing from the network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build(site: Path, extra: str = "") -> subprocess.CompletedProcess[str]:
    """`make docs`, in a directory of its own, with something added to the front page."""
    pages = site / "build" / "docs"
    shutil.copytree(ROOT / "docs", pages / "docs")
    shutil.copytree(ROOT / "examples", pages / "examples")
    shutil.copytree(ROOT / "benchmarks" / "results", pages / "benchmarks" / "results")
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, pages)
    shutil.copy(ROOT / "mkdocs.yml", site)
    (pages / "README.md").write_text((ROOT / "README.md").read_text() + extra)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(command, cwd=site, capture_output=True, text=True)


def test_no_link_is_dead_and_nothing_is_fetched(tmp_path: Path) -> None:
    built = build(tmp_path)
    assert built.returncode == 0, built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 20
    fetched = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"(?:https?:)?//")
    assert [page.name for page in pages if fetched.search(page.read_text())] == []


def test_a_dead_link_fails_the_build(tmp_path: Path) -> None:
    built = build(tmp_path, "\n[gone](docs/guard.md#no-such-anchor) [gone](docs/no-such-page.md)\n")
    assert built.returncode != 0
    assert "no-such-anchor" in built.stderr
    assert "no-such-page" in built.stderr
