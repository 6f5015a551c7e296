"""A model directory, written whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from holdfast.checkpoint.files import rename, sync, sync_directory


def write_model_directory(target: Path, write: Callable[[Path], None]) -> None:
    """Fill a directory beside `target` and rename it there, so that a half-written model is never found."""
    temporary = target.with_name(f".tmp-{target.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    write(temporary)
    for file in temporary.iterdir():
        with file.open("rb") as opened:
            sync(opened.fileno())
    sync_directory(temporary)
    rename(temporary, target)
    sync_directory(target.parent)
