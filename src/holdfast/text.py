"""Text from a run made safe to look at: hidden characters become visible, very long text is cut."""

import unicodedata
from collections.abc import Sequence

ANSWER_LIMIT = 4_000

# Joiners belong to ordinary words in several scripts and to many emoji; they cannot reorder or hide text.
_HARMLESS = frozenset("\n\t\u200c\u200d")
# Control, format (bidi marks, tags), surrogate, unassigned, and the two Unicode line separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"})


def visible(text: str) -> str:
    """Replace every character that has no glyph, or that reorders its neighbours, by a visible name."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(char) for char in text.replace("\r\n", "\n"))


def _shown(char: str) -> str:
    if char in _HARMLESS or unicodedata.category(char) not in _HIDDEN:
        return char
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)  # the block "Control Pictures" mirrors the C0 controls
    return f"⟨U+{code:04X}⟩"


def counted(number: int, noun: str, several: str = "") -> str:
    """ "1 step", "1,200 steps", "2 refreshes"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {several or noun + 's'}"


def listed(words: Sequence[str]) -> str:
    """ "2, 4 and 5"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def clip(text: str, limit: int = ANSWER_LIMIT) -> tuple[str, int]:
    """Return the visible form of the first `limit` characters, and how many characters were left out."""
    return visible(text[:limit]), max(0, len(text) - limit)
