"""Help texts in the width of the terminal: prose is filled, examples keep their columns or put the words below."""

from __future__ import annotations

import argparse
import re
import textwrap
from itertools import groupby

# Wider lines are hard to read, whatever the terminal.
WIDEST = 110
_HEADING = re.compile(r"[a-z ]+:$")


class HelpText(argparse.RawDescriptionHelpFormatter):
    """Descriptions and epilogs as they were written, in lines that fit."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return filled(text, min(width, WIDEST))


def filled(text: str, width: int) -> str:
    """Indented lines are a table of commands and what they do; others are prose, or a heading, or empty."""
    lines: list[str] = []
    for kind, group in groupby(text.splitlines(), _kind):
        block = list(group)
        if kind == "table":
            lines += table(block, width)
        elif kind == "prose":
            lines += textwrap.wrap(" ".join(block), width, break_long_words=False, break_on_hyphens=False)
        else:
            lines += block
    return "\n".join(lines)


def _kind(line: str) -> str:
    return "table" if line.startswith("  ") else "as it is" if not line or _HEADING.match(line) else "prose"


def table(block: list[str], width: int) -> list[str]:
    """Commands on the left and words on the right; a command that is too long has its words in the next line."""
    rows: list[tuple[str, str]] = []
    for line in block:
        command, words = [*re.split(r" {2,}", line.strip(), maxsplit=1), ""][:2]
        if line.startswith(" " * 20) and rows:  # words to the command above
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {command}".strip())
        else:
            rows.append((command, words))
    longest = max(len(command) for command, _ in rows)
    room = max((len(words) for _, words in rows), default=0)
    column = 2 + longest + 3
    if column + room > width:
        column = min(column, width // 2)
    lines = []
    for command, words in rows:
        written = broken(command, width)
        explained = textwrap.wrap(words, width - column) if words else []
        if explained and len(written) == 1 and len(written[0]) < column - 1:
            written[0] = f"{written[0]:<{column}}{explained.pop(0)}"
        lines += [*written, *(" " * column + part for part in explained)]
    return lines


def broken(command: str, width: int) -> list[str]:
    """A command as a shell reads it, in several lines where it is too long for one: broken before options."""
    lines = ["  "]
    for part in re.split(r"(?<=\S) (?=--)", command):
        if lines[-1].strip() and len(f"{lines[-1]} {part} \\") > width:
            lines[-1] += " \\"
            lines.append("      ")
        lines[-1] += f" {part}" if lines[-1].strip() else part
    return lines
