"""An HTTP endpoint that may want a key, and may be slow, busy or away for a moment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

# Further tries of a question that failed: with the waits between them a server has 3.5 seconds to come back.
RETRIES = 3
FIRST_WAIT_SECONDS = 0.5


def attempts(retries: int, sleep: Callable[[float], None]) -> Iterator[bool]:
    """One try after the other, later each time: for each whether it is the last."""
    for number in range(retries + 1):
        if number:
            sleep(FIRST_WAIT_SECONDS * 2 ** (number - 1))
        yield number == retries


def json_headers(key_variable: str) -> dict[str, str]:
    """The headers of a request, with the key that an environment variable holds, where it is set."""
    key = os.environ.get(key_variable)
    return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
