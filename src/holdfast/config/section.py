"""What a section of the config is: settings with a meaning and limits, checked by pydantic, refused in one sentence."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform, get_args, get_origin

from pydantic import ConfigDict, Field, Strict, ValidationError, model_validator
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from holdfast.errors import HoldfastError

Kind = TypeVar("Kind")

Span = Annotated[tuple[int, int], Strict(False)]

# What a setting may hold, in words, by its type.
KINDS: dict[Any, str] = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    tuple[str, ...]: "list of texts",
    tuple[int, int]: "pair [least, most]",
    tuple[Span, ...]: "list of [first, last] pairs",
    dict[str, Any]: "table",
}

# An int is taken where a float is wanted, and a list where a tuple is; nothing else is turned into what it is not.
_STRICT = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid", defer_build=True)


# Beyond this no whole number fits where sizes and seeds go.
LARGEST = 2**63 - 1


def setting(default: Any, doc: str, free: bool = False, **limits: Any) -> Any:
    """A setting with its default, its meaning and its limits: `ge` <= value <= `le`, value > `gt`.

    A `free` one says where or how the work is done, not what comes of it, and may change between two starts of a run.
    """
    strict = False if isinstance(default, tuple) else None
    return Field(default, description=doc, strict=strict, json_schema_extra={"free": free}, **limits)


class Section:
    """What all sections have: an error of pydantic's is said in a sentence."""

    @model_validator(mode="wrap")
    @classmethod
    def _checked(cls, values: Any, build: Callable[[Any], Any]) -> Any:
        try:
            made = build(values)
        except ValidationError as error:
            raise HoldfastError(_sentence(cls, error.errors(include_url=False)[0])) from None
        for name in settings_of(cls):
            value = getattr(made, name)
            if isinstance(value, int) and abs(value) > LARGEST:
                raise HoldfastError(_too_large(f"{_section_name(cls)}.{name}"))
            if isinstance(value, str) and "\0" in value:
                raise HoldfastError(f"{_section_name(cls)}.{name} has a character of code 0 in it; take that out.")
        return made


@dataclass_transform(frozen_default=True)
def section(kind: type[Kind]) -> type[Kind]:
    """Makes a class of settings a frozen dataclass that refuses what does not fit with a HoldfastError."""
    return dataclass(kind, frozen=True, config=_STRICT)  # type: ignore[return-value]


def settings_of(kind: type[Any]) -> Mapping[str, FieldInfo]:
    """The settings of a section, or the sections of a config, by name."""
    return kind.__pydantic_fields__  # type: ignore[no-any-return]


def is_free(item: FieldInfo) -> bool:
    """Whether a setting may change between two starts of a run, because no result depends on it."""
    return isinstance(item.json_schema_extra, dict) and bool(item.json_schema_extra["free"])


def choices_of(item: FieldInfo) -> tuple[str, ...]:
    """The values that a setting may have, where they are a few words."""
    return get_args(item.annotation) if get_origin(item.annotation) is Literal else ()


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else "; `holdfast init` writes a file with all of them."


_HAS_TO_BE = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a text in quotes",
    "string_unicode": "a text of valid Unicode",
    "bool_type": "true or false",
    "dict_type": "a table",
    "finite_number": "a finite number",
}


def _section_name(kind: type[Any]) -> str:
    return kind.__name__.removesuffix("Config").lower()


def _too_large(name: str) -> str:
    return f"{name} is larger than any number that can be worked with."


def _sentence(kind: type[Any], error: ErrorDetails) -> str:
    """What is wrong with a setting, and what it has to be."""
    within = _section_name(kind)
    if not error["loc"]:
        return f"{within} is a section of the config: write [{within}] and its settings below."
    key, known = str(error["loc"][0]), settings_of(kind)
    name = f"{within}.{key}" if within else key
    if error["type"] == "unexpected_keyword_argument":
        what = f"There is no setting {name}" if within else f"There is no section [{key}] in the config"
        return what + _did_you_mean(key, known)
    if error["type"] == "float_type" and type(error["input"]) is int:
        return _too_large(name)
    limits = error.get("ctx", {})
    value = (
        float(error["input"]) if error["type"] != "float_type" and known[key].annotation is float else error["input"]
    )
    shown = repr(value)
    is_but = f"{name} is {shown if len(shown) <= 100 else f'{shown[:100]}…'}, but it"
    if "ge" in limits:
        return f"{is_but} has to be at least {limits['ge']:g}."
    if "gt" in limits:
        return f"{is_but} has to be greater than {limits['gt']:g}."
    if "le" in limits:
        return f"{is_but} may be at most {limits['le']:g}."
    if choices := choices_of(known[key]):
        return f"{is_but} has to be one of {', '.join(choices)}."
    return f"{is_but} has to be {_HAS_TO_BE.get(error['type'], f'a {KINDS[known[key].annotation]}')}."
