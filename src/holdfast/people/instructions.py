"""What an owner wants people to look at when they compare: a text, and examples with the better answer named.

text = "Prefer the answer that ..."          a .toml file; any other file is the text alone
[[examples]]
prompt = "Do you have wifi?"
better = "Yes; the bar has the password."
worse = "Have a wonderful day."
why = "It answers what was asked."
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.documents import toml_of
from holdfast.errors import HoldfastError

LONGEST = 100_000  # bytes of the file: more is a book, and nobody reads it
MOST_EXAMPLES = 20
PARTS = ("prompt", "better", "worse", "why")


@dataclass(frozen=True)
class Example:
    """A pair with its answer: which is better, and why."""

    prompt: str
    better: str
    worse: str
    why: str = ""


@dataclass(frozen=True)
class Instructions:
    """What people read before their first pair, and whenever they want to."""

    text: str
    examples: tuple[Example, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Changes with what they say, so that people are shown them again."""
        return hashlib.sha256(repr((self.text, self.examples)).encode("utf-8", "replace")).hexdigest()[:16]


def read_instructions(path: str) -> Instructions | None:
    """The instructions in the file that `people.instructions` names; None where it names none."""
    if not path:
        return None
    file = Path(path)
    if not file.is_file():
        raise HoldfastError(
            f"people.instructions names {path}, which is no file here; give its whole path, or start where it is."
        )
    try:
        raw = file.read_bytes()
        if len(raw) > LONGEST:
            raise HoldfastError(f"{path} has {len(raw):,} bytes; instructions have up to {LONGEST:,}.")
        text = raw.decode("utf-8")
        return _of(path, toml_of(text)) if file.suffix == ".toml" else Instructions(_some(path, text))
    except OSError as error:
        raise HoldfastError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise HoldfastError(f"{path} is not UTF-8 text; save it as such.") from None
    except ValueError as error:
        raise HoldfastError(f"{path} is not TOML: {str(error)[:200]}") from None


def _of(path: str, table: dict[str, Any]) -> Instructions:
    rows = table.get("examples", [])
    unknown = [name for name in table if name not in ("text", "examples")]
    if unknown or not isinstance(rows, list) or len(rows) > MOST_EXAMPLES:
        raise HoldfastError(f"{path} has to have a text and up to {MOST_EXAMPLES} [[examples]], and nothing else.")
    return Instructions(_some(path, table.get("text")), tuple(_example(path, n, row) for n, row in enumerate(rows, 1)))


def _some(path: str, text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise HoldfastError(f"{path} has no text of instructions; write what people should look at.")
    return text.strip()


def _example(path: str, n: int, row: object) -> Example:
    fine = isinstance(row, dict) and row.keys() <= set(PARTS) and all(isinstance(text, str) for text in row.values())
    if not isinstance(row, dict) or not fine or not all(row.get(part, "").strip() for part in PARTS[:3]):
        raise HoldfastError(f"Example {n} of {path} needs a prompt, a better and a worse answer; `why` may be given.")
    return Example(**row)
