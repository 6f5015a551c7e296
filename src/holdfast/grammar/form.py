"""A grammar as it is written in a setting or in a prompt's row: a file, a pattern, choices, a class."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from holdfast.documents import json_of
from holdfast.errors import HoldfastError
from holdfast.own_code import own_file

SETTING = "rollout.grammar"
NONE = "none"
COLUMN = "column:"
FORMS = "FILE.json (a JSON schema), FILE.lark, regex:PATTERN, choices:A|B|C, path/to/file.py:Class, column:NAME or none"

Kind = Literal["schema", "regex", "lark", "choices", "mask"]


@dataclass(frozen=True)
class Form:
    """One grammar: its kind, its text (a list for choices, both as JSON), what to call it, the file it is in."""

    kind: Kind
    text: str
    name: str = field(compare=False)
    file: Path | None = field(default=None, compare=False)


def form_of(written: object, where: str = SETTING) -> Form | None:
    """What is written there, read; None for no grammar. A JSON object is a schema, a list of texts are choices."""
    if isinstance(written, Mapping) or (isinstance(written, str) and written.lstrip().startswith("{")):
        return _schema(written, f"The JSON schema of {where}")
    if isinstance(written, (list, tuple)):
        return _choices(list(written), where)
    if not isinstance(written, str):
        raise HoldfastError(f"{_upper(where)} is {_shown(written)}; write {FORMS}.")
    if written == NONE:
        return None
    if written.startswith("regex:"):
        return Form("regex", written.removeprefix("regex:"), f"The pattern of {where}")
    if written.startswith("choices:"):
        return _choices(written.removeprefix("choices:").split("|"), where)
    if written.endswith(".json"):
        return _schema(_read(written, where), f"The JSON schema {written}", Path(written))
    if written.endswith(".lark"):
        return Form("lark", _read(written, where), f"The grammar {written}", Path(written))
    if ".py:" in written:
        path, _ = own_file(written, where)
        return Form("mask", written, written, path)
    raise HoldfastError(f"{_upper(where)} is {_shown(written)}; write {FORMS}.")


def file_of(written: str) -> Path | None:
    """The file that a grammar is in, where it is in one."""
    if written.endswith((".json", ".lark")):
        return Path(written)
    return Path(written.rpartition(":")[0]) if ".py:" in written else None


def structured_outputs(form: Form) -> dict[str, Any]:
    """The same as a vLLM server's `structured_outputs`; it has to use its backend guidance, which is our engine too."""
    match form.kind:
        case "schema":
            schema = json_of(form.text)
            compact = {"whitespace_flexible": False, **schema.get("x-guidance", {})}
            return {"json": {**schema, "x-guidance": compact}, "disable_any_whitespace": True}
        case "choices":
            return {"choice": json_of(form.text)}
        case "mask":
            raise HoldfastError(
                f"rollout.grammar is {form.name}, code of your own that a vLLM server cannot run: leave vllm.url out, "
                "or write it as a schema, a pattern, choices or a Lark grammar."
            )
        case _:
            return {"grammar" if form.kind == "lark" else "regex": form.text}


def _schema(written: object, name: str, file: Path | None = None) -> Form:
    text = written if isinstance(written, str) else json.dumps(written)
    try:
        schema = json_of(text, parse_int=_whole, parse_constant=_no_number)
    except ValueError as error:
        raise HoldfastError(f"{name} is no JSON that can be used: {error}.") from error
    if not isinstance(schema, Mapping):
        raise HoldfastError(f"{name} has to be a JSON object with a schema.")
    if _unkept(schema):
        raise HoldfastError(
            f"{name} has an exclusive bound that is whole, with the other bound less than 1 away, and the engine would "
            "let the bound itself pass; write minimum or maximum with the nearest number that you mean."
        )
    return Form("schema", json.dumps(schema, ensure_ascii=False), name, file)


def _unkept(schema: object) -> bool:
    """Whether a part of a schema has bounds that the engine does not keep: n < x < n + 1 lets n itself pass."""
    if isinstance(schema, list):
        return any(map(_unkept, schema))
    if not isinstance(schema, Mapping):
        return False

    def bounds(*keys: str) -> list[float]:
        return [schema[key] for key in keys if isinstance(schema.get(key), int | float)]

    above = [(n, most) for n in bounds("exclusiveMinimum") for most in bounds("maximum", "exclusiveMaximum")]
    below = [(-n, -least) for n in bounds("exclusiveMaximum") for least in bounds("minimum", "exclusiveMinimum")]
    leaks = any(n >= 0 and n == int(n) and n < far < n + 1 for n, far in above + below if abs(n) < 2**53)
    return leaks or any(map(_unkept, schema.values()))


def _whole(digits: str) -> int:
    """A whole number; the engine would round one of more than 64 bits, and ask for another."""
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise ValueError(f"the number {digits[:24]} has more than 64 bits")
    return int(digits)


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _choices(choices: list[Any], where: str) -> Form:
    if not choices or not all(isinstance(choice, str) and choice.strip() for choice in choices):
        raise HoldfastError(
            f"{_upper(where)} has to name at least one choice, and each has to be a text: choices:yes|no."
        )
    return Form("choices", json.dumps(list(dict.fromkeys(choices)), ensure_ascii=False), f"The choices of {where}")


def _read(path: str, where: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(
            f"{_upper(where)} names the file {path}, which cannot be read; give one that is there."
        ) from error


def _upper(where: str) -> str:
    """At the beginning of a sentence, where it is not the setting's name."""
    return where if where == SETTING else where[0].upper() + where[1:]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
