"""The signals, one file each. A file here with a `SIGNAL` in it is a signal of that name: there is no list to keep."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType

from holdfast.errors import HoldfastError
from holdfast.guard.signal import Signal


def find_signals() -> Mapping[str, Signal]:
    """Every signal by its name, in the order of the files' names."""
    signals: dict[str, Signal] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        signal = getattr(import_module(f"{__name__}.{module.name}"), "SIGNAL", None)
        if not isinstance(signal, Signal):
            raise HoldfastError(f"The file {module.name}.py among the signals has no SIGNAL; give it one.")
        signals[module.name] = replace(signal, name=module.name)
    for signal in signals.values():
        if signal.derived_from and (signal.derived_from not in signals or signals[signal.derived_from].derived_from):
            raise HoldfastError(
                f"The signal {signal.name!r} is derived from {signal.derived_from!r}, which is none that is read from "
                "a batch; name one that is."
            )
    return MappingProxyType(signals)


SIGNALS = find_signals()
