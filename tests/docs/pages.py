"""The pages that people read, cut into their code: blocks between fences, and the commands in them and in the text.

The fence says the language. A block without one is shell where its lines begin with a command that we know; anything
else in it (output, trees, formulas) is left alone. `<!-- not run: why -->` above a Python block leaves it to be checked
and not run; where the line above it, or its own first line, names a file, the block is that file.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

COMMANDS = ("holdfast", "make", "python", ".venv/bin/python", ".venv/bin/holdfast", "pip", "torchrun", "accelerate")
SHELL = ("", "sh", "bash", "shell", "console")
FENCE = re.compile(r"^( *)(`{3,}|~{3,})\s*(\w*)")
FILE = re.compile(r"`([\w-]+\.(?:py|toml))`|^# (\w+\.py)$")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it is, its language, its lines, and the last line of text above it."""

    page: str
    line: int
    language: str
    lines: list[str]
    above: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def code(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def not_run(self) -> bool:
        return self.above.startswith("<!-- not run: ")

    @property
    def file(self) -> str | None:
        """The name of the file that it is, where the page says so."""
        named = FILE.search(self.above) or FILE.search(self.lines[0])
        return (named[1] or named[2]) if named else None


@dataclass(frozen=True)
class Command:
    """A command line without its explanation, and what the page says that it prints next."""

    place: str
    words: tuple[str, ...]
    prints: str = ""

    @property
    def line(self) -> str:
        return " ".join(self.words)


def blocks_of(path: Path) -> list[Block]:
    """The fenced blocks of a page, those inside lists too."""
    page, blocks, above = str(path.relative_to(ROOT)), [], ""
    lines = path.read_text(encoding="utf-8").splitlines()
    n = 0
    while n < len(lines):
        if fence := FENCE.match(lines[n]):
            indent, ticks, language = fence.groups()
            end = next(m for m in range(n + 1, len(lines)) if lines[m].strip() == ticks)
            inside = [line.removeprefix(indent) for line in lines[n + 1 : end]]
            blocks.append(Block(page, n + 1, language, inside, above))
            n, above = end, ""
        elif lines[n].strip():
            above = lines[n].strip()
        n += 1
    return blocks


def commands_in(block: Block) -> list[Command]:
    """The command lines of a shell block, with lines that go on joined; two blanks begin an explanation."""
    if block.language not in SHELL:
        return []
    joined = re.sub(r" *\\\n\s*", " ", block.code).splitlines()
    commands = []
    for n, line in enumerate(joined):
        text = re.split(r"(?<=\S)(?:\s{2,}|\s#\s)", line.removeprefix("$ "))[0]
        if words := words_of(text):
            after = joined[n + 1] if line.startswith("$ ") and n + 1 < len(joined) else ""
            commands.append(Command(block.place, words, after))
    return commands


def words_of(text: str) -> tuple[str, ...]:
    """The words of a command that we know, without variables set before it; none if it is something else."""
    try:
        words = shlex.split(text)
    except ValueError:
        return ()
    while words and re.match(r"^[A-Z_]+=", words[0]):
        words = words[1:]
    return tuple(words) if len(words) > 1 and words[0] in COMMANDS else ()


def commands_in_text(path: Path) -> list[Command]:
    """The commands between single backticks, outside of blocks."""
    text = re.sub(r"^( *)(`{3,}).*?^\1\2$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    spans = [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]
    return [Command(str(path.relative_to(ROOT)), words) for span in spans if (words := words_of(span))]
