"""Who may ask a service, and who may change the version of its ensemble: tokens as digests, never printed."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from holdfast.errors import HoldfastError

TOKEN = "HOLDFAST_REWARD_TOKEN"
OWNER_TOKEN = "HOLDFAST_REWARD_OWNER_TOKEN"
GUARD_TOKEN = "HOLDFAST_GUARD_TOKEN"
SHORTEST = 16


@dataclass(frozen=True)
class Tokens:
    """Digests of the tokens, so that no log, traceback or dump of this object can show one."""

    asking: bytes
    owning: bytes | None = None

    @classmethod
    def of(cls, asking: str, owning: str | None = None) -> Tokens:
        return cls(_digest(asking), None if owning is None else _digest(owning))

    def role(self, token: str) -> str | None:
        """ "owner", "asker", or None for a token that is neither. Equal digests are looked for in constant time."""
        digest = _digest(token)
        owns = self.owning is not None and compare_digest(digest, self.owning)
        asks = compare_digest(digest, self.asking)
        return "owner" if owns else "asker" if asks else None


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def find_token(file: Path | None, variable: str, make: bool, warn: Callable[[str], None]) -> str | None:
    """The token of a file, of an environment variable, or a new one written to a file that is not there yet."""
    if file is None:
        value = os.environ.get(variable)
        return None if value is None else _checked(value.strip(), f"The environment variable {variable}")
    if make and not file.exists():
        return _make(file)
    try:
        text = file.read_text(encoding="utf-8")
        mode = file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise HoldfastError(
            f"The token file {file} cannot be read ({reason}); --make-token writes a new one."
        ) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        warn(f"The token file {file} can be read by others on this machine; `chmod 600 {file}` ends that.")
    return _checked(text.strip(), f"The token file {file}")


def _checked(token: str, where: str) -> str:
    if len(token) < SHORTEST:
        raise HoldfastError(f"{where} holds a token of {len(token)} characters; use at least {SHORTEST}.")
    if not all((c.isalnum() and c.isascii()) or c in "-_.~" for c in token):
        # It has to fit into a URL as it is: some trainers can send it in no other way.
        raise HoldfastError(
            f"{where} holds a token with other characters than letters, digits, - _ . and ~; make another."
        )
    return token


def _make(file: Path) -> str:
    token = secrets.token_urlsafe(32)
    try:
        # Private from the first moment on, and never over a file that has come to be there meanwhile.
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            opened.write(token + "\n")
    except OSError as error:
        raise HoldfastError(
            f"The token file {file} cannot be written ({error.strerror}); name another place."
        ) from None
    return token
