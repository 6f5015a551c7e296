"""Words and numbers as a person reads them: hidden characters made visible, long text cut, about three digits."""

import math
import unicodedata
from collections.abc import Sequence

ANSWER_LIMIT = 4_000
LONGEST = 600  # characters of a sentence that somebody else wrote
MINUS = "−"

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


def one_line(value: object) -> str:
    """Somebody's words as one line of bounded length; None is nothing."""
    words = "" if value is None else " ".join(str(value)[: 2 * LONGEST].split())
    return words if len(words) <= LONGEST else words[:LONGEST] + "…"


def sentence(words: object) -> str:
    """Somebody's words with a capital and a full stop."""
    line = one_line(words)
    return line[:1].upper() + line[1:] + ("" if line.endswith((".", "!", "?", "…")) else ".") if line else ""


def because(words: str, reason: object) -> str:
    """ "words: reason", or the words alone."""
    why = one_line(reason)
    return f"{words}: {why}" if why else words


# --- numbers ----------------------------------------------------------------------------------------------------


def as_number(value: object) -> float | None:
    """A finite number of drawable size, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Beyond 1e300 the arithmetic of a scale overflows; such a value is as broken as an infinity.
    return float(value) if -1e300 < value < 1e300 else None


def percent(value: float) -> str:
    """ "68%"."""
    return f"{value:.0%}"


def figure(value: float) -> str:
    """Three digits, or a whole number with its thousands apart."""
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e9 else f"{value:.3g}"


def format_value(value: float | None, percent: bool = False, beside: float = 0.0) -> str:
    """A number as it is read in a sentence, with about three significant digits.

    `beside` is a number that it is compared with: both then get the decimals of the larger one.
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    if percent:
        return signed(f"{100 * value:.1f}%")
    size = max(abs(value), abs(beside))
    if size >= 1e7 or 0 < size < 1e-3:
        return signed(scientific(value, 2))
    if size >= 100:
        return signed(f"{value:,.0f}")
    if size >= 10:
        return signed(f"{value:.1f}")
    return signed(f"{value:.2f}" if size >= 0.1 or size == 0 else f"{value:.3f}")


def format_setting(value: float) -> str:
    """A number that somebody chose, as they would have typed it: 8 and not 8.00."""
    return signed(f"{value:,.10g}" if 1e-4 <= abs(value) < 1e9 or value == 0 else scientific(value, 6))


def format_limit(value: float) -> str:
    """A limit that somebody chose as they typed it, and one that was worked out with the digits of a measurement."""
    return min(format_setting(value), format_value(value), key=len)


def scientific(value: float, decimals: int) -> str:
    """ "1.4e-5"."""
    digits, exponent = f"{value:.{decimals}e}".split("e")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"{digits}e{int(exponent)}"


def signed(text: str) -> str:
    """A number's text with a true minus sign, and without one where it comes to 0."""
    if not text.startswith("-"):
        return text
    return MINUS + text[1:] if any(char in "123456789" for char in text) else text[1:]
