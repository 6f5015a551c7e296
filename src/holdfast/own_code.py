"""What a user brings as `path/to/file.py:name`: a world, a labeller, a flaw, a reward function."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, OwnCodeError


def own_file(spec: str, setting: str, names: Sequence[str] = (), what: str = "class") -> tuple[Path, str]:
    """The file and the name in it; `names` are what else could have been given."""
    path_text, colon, name = spec.rpartition(":")
    if not colon or not path_text.endswith(".py"):
        known = f"one of {', '.join(names)} or " if names else ""
        raise HoldfastError(f"{setting} is {spec!r}; it has to be {known}path/to/file.py:{what.capitalize()}.")
    path = Path(path_text)
    if not path.is_file():
        raise HoldfastError(f"{setting} names the file {path}, which does not exist.")
    return path, name


def load_own(spec: str, setting: str, names: Sequence[str] = (), what: str = "class") -> Any:
    """What `path/to/file.py:name` names: a `what`."""
    path, name = own_file(spec, setting, names, what)
    module_spec = importlib.util.spec_from_file_location(f"holdfast_user_{path.stem}", path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise OwnCodeError(f"The file {path} cannot be imported", error) from error
    if not hasattr(module, name):
        raise HoldfastError(f"The file {path} has no {what} {name}.")
    return getattr(module, name)
