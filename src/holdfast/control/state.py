"""Reading back what a controller saved: each value checked, so that a wrong checkpoint fails by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.errors import HoldfastError

# What json.dumps writes and json.loads gives back unchanged; floats survive exactly.
JSON = None | bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"]
State = dict[str, JSON]


def check_kind(state: Mapping[str, JSON], kind: str) -> None:
    """Refuse a state that another kind of object saved."""
    if state.get("kind") != kind:
        raise HoldfastError(
            f"The saved state is of kind {state.get('kind')!r}, but the run is set up for {kind!r}; "
            "resume with the settings that the run began with."
        )


def read_float(state: Mapping[str, JSON], key: str) -> float:
    """A number."""
    value = state.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _unreadable(key, "a number", value)
    return float(value)


def read_int(state: Mapping[str, JSON], key: str) -> int:
    """A whole number."""
    value = state.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _unreadable(key, "a whole number", value)
    return value


def read_list(state: Mapping[str, JSON], key: str) -> Sequence[JSON]:
    """A list."""
    value = state.get(key)
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _unreadable(key, "a list", value)
    return value


def _unreadable(key: str, wanted: str, value: JSON) -> HoldfastError:
    return HoldfastError(
        f"The saved state should hold {wanted} under {key!r} but holds {value!r}; use another checkpoint."
    )
