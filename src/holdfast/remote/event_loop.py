"""The event loop of this process, in a thread that ends with it: for whoever waits for servers or for programs."""

from __future__ import annotations

import asyncio
import os
import threading

_loops: dict[int, asyncio.AbstractEventLoop] = {}
_lock = threading.Lock()


def event_loop() -> asyncio.AbstractEventLoop:
    """The one of this process; a fork has none of its parent's threads, and begins one of its own."""
    process = os.getpid()
    with _lock:
        if process not in _loops:
            _loops[process] = asyncio.new_event_loop()
            threading.Thread(target=_loops[process].run_forever, name="holdfast-remote", daemon=True).start()
        return _loops[process]
