"""Python's search for garbage, put off while something large is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """For code that makes a great many objects that all stay.

    The collector would go through all of them again each time their number has grown by a quarter, and find nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
