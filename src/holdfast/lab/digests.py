"""Classes in files of the user's own: one that was edited is another one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path


def files_of(specs: Sequence[str]) -> list[str]:
    """Digests of the files of classes, each named as path/to/file.py:Class; other names have none."""
    named = [match[1] for spec in specs if (match := re.fullmatch(r"\"?([^\"]+\.py):\w+\"?", spec.strip()))]
    return [hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in named if Path(name).is_file()]
