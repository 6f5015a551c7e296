"""Classes in files of the user's own: one that was edited is another one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path


def files_in(settings: Sequence[str]) -> list[str]:
    """Digests of the files of classes that settings name, each as NAME=path/to/file.py:Class."""
    named = [match[1] for text in settings if (match := re.search(r"=\s*\"?([^\"]+\.py):\w+\"?\s*$", text))]
    return [hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in named if Path(name).is_file()]
