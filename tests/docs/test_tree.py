"""The tree in CONTRIBUTING is the real one: every room is in it, and every name in it is there."""

from __future__ import annotations

import re
from pathlib import Path

from pages import ROOT, blocks_of

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
HEADING = "## Where things are"
ENTRY = re.compile(r"^( *)([\w./-]+(?:/|\.\w+))(?: {2,}\S.*)?$")


def paths_in(lines: list[str]) -> list[Path]:
    """Each `name/  what it is` or `name.py  what it is`, below the folder that it is indented under."""
    folders: list[tuple[int, Path]] = []
    paths = []
    for entry in filter(None, map(ENTRY.match, lines)):
        indent = len(entry[1])
        while folders and folders[-1][0] >= indent:
            folders.pop()
        paths.append((folders[-1][1] if folders else ROOT) / entry[2])
        folders.append((indent, paths[-1]))
    return paths


def tree() -> list[Path]:
    start = CONTRIBUTING.read_text(encoding="utf-8").splitlines().index(HEADING)
    block = next(block for block in blocks_of(CONTRIBUTING) if block.line > start)
    return paths_in(block.lines)


def test_every_name_in_the_tree_is_there() -> None:
    assert len(tree()) > 20
    assert [str(path.relative_to(ROOT)) for path in tree() if not path.exists()] == []


def test_every_room_is_in_the_tree_once() -> None:
    source = ROOT / "src" / "holdfast"
    modules = {path for path in source.glob("*.py") if path.name not in ("__init__.py", "__main__.py")}
    rooms = {path.parent for path in source.glob("*/__init__.py")}
    named = [path for path in tree() if path.parent == source]
    assert {path.name for path in rooms | modules} - {path.name for path in named} == set()
    assert sorted(path.name for path in named) == sorted({path.name for path in named})


def test_a_tree_is_read_by_its_indents() -> None:
    lines = ["src/", "  a/      the first", "    b.py  in it", "          and more about it", "  c.py    beside it"]
    assert [str(path.relative_to(ROOT)) for path in paths_in(lines)] == ["src", "src/a", "src/a/b.py", "src/c.py"]
