"""JSON text that SQLite, PostgreSQL and UTF-8 files all hold and give back unchanged, and hashes of it."""

from __future__ import annotations

import hashlib
import json
import re

from holdfast.errors import HoldfastError
from holdfast.models.prompt import Prompt
from holdfast.preferences.comparison import Response

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPLIT_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def json_text(value: object) -> str:
    """Write a value as JSON that is valid UTF-8 without NUL, whatever characters its strings hold.

    PostgreSQL refuses NUL, and UTF-8 lone surrogates, so both become escapes; other text stays readable.
    """
    text = _ENCODER.encode(value)
    if text.isascii() or not _SURROGATE.search(text):
        return text
    # Two escapes in a row would be read back as the one character that they spell.
    if _SPLIT_PAIR.search(text):
        raise HoldfastError("A text holds one character as two separate surrogates; decode it as UTF-16 first.")
    return _SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def prompt_json(prompt: Prompt) -> str | list[dict[str, str]]:
    """The prompt as a JSON value: a string, or a list of {"role", "content"} messages."""
    if isinstance(prompt, str):
        return prompt
    return [{"role": message.role, "content": message.content} for message in prompt]


def content_hash(value: object) -> str:
    """The SHA-256 of a JSON value, in hexadecimal."""
    return hashlib.sha256(json_text(value).encode()).hexdigest()


def response_hash(response: Response) -> str:
    """A name for a response that two equal responses share."""
    origin = response.provenance
    tokens = None if response.token_ids is None else list(response.token_ids)
    return content_hash([response.text, origin.policy_version, origin.round, origin.seed, tokens, response.finished])
