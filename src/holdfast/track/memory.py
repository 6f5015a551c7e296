"""How much memory this process holds, and has held; plain Python, so that anybody may ask."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def peak_memory() -> int:
    """The most memory this process has held so far, in bytes."""
    # Linux hands ru_maxrss on from the process that started this one, so the kernel's own mark comes first.
    marked = _status("VmHWM")
    if marked is not None:
        return marked
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def memory() -> int:
    """What this process holds now, in bytes; its peak where the system does not say."""
    now = _status("VmRSS")
    return peak_memory() if now is None else now


def _status(name: str) -> int | None:
    file = Path("/proc/self/status")
    if not file.is_file():
        return None
    for line in file.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None
