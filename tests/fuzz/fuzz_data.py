"""Data files: rows of every form that is read, changed here and there, under every name that they may have."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from mutations import json_bytes, mutated_bytes, mutated_document
from sentences import refused, told

from holdfast.data.formats import read_demonstrations, read_preferences, read_prompts
from holdfast.errors import HoldfastError

WORDS = ("when", "do", "you", "open", "is", "there", "parking", "for", "bikes", "please")


def _say(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 12)))


def _turns(rng: random.Random) -> list[dict[str, str]]:
    roles = ("user", "assistant") * rng.randint(1, 3)
    return [{"role": role, "content": _say(rng)} for role in roles]


def _row(rng: random.Random) -> dict[str, Any]:
    """One row in one of the forms that data comes in."""
    ask, a, b, talk = _say(rng), _say(rng), _say(rng), _turns(rng)
    dialogue = "".join(f"\n\n{'Human' if t['role'] == 'user' else 'Assistant'}: {t['content']}" for t in talk)
    gpt = [{"from": "human" if t["role"] == "user" else "gpt", "value": t["content"]} for t in talk]
    forms: tuple[dict[str, Any], ...] = (
        {"prompt": ask},
        {"prompt": talk[:-1]},
        {"prompt": ask, "response": a},
        {"messages": talk},
        {"prompt": ask, "chosen": a, "rejected": b},
        {"prompt": talk[:-1], "chosen": [talk[-1]], "rejected": [{"role": "assistant", "content": b}]},
        {"chosen": talk, "rejected": [*talk[:-1], {"role": "assistant", "content": b}]},
        {"prompt": ask, "completion": a, "label": rng.random() < 0.5},
        {"chosen": dialogue, "rejected": f"{dialogue} {b}"},
        {"conversations": gpt},
        {"instruction": ask, "input": "", "output": a},
        {"instruction": ask, "completions": [{"response": a, "overall_score": 4}, {"response": b, "overall_score": 2}]},
    )
    return rng.choice(forms)


def _jsonl(rng: random.Random, rows: list[dict[str, Any]], file: Path) -> None:
    file.write_bytes(b"\n".join(json_bytes(rng, row) for row in rows) + b"\n")


def _array(rng: random.Random, rows: list[dict[str, Any]], file: Path) -> None:
    file.write_bytes(json_bytes(rng, rows))


def _text(rng: random.Random, rows: list[dict[str, Any]], file: Path) -> None:
    file.write_bytes("\n".join(str(row) for row in rows).encode("utf-8", "surrogatepass"))


def _separated(rng: random.Random, rows: list[dict[str, Any]], file: Path) -> None:
    comma = "\t" if file.suffix == ".tsv" else ","
    names = list(rows[0]) if isinstance(rows[0], dict) and rows[0] else ["prompt"]
    lines = [comma.join(map(str, names))]
    for row in rows:
        cells = [str(row.get(name, "") if isinstance(row, dict) else row) for name in names]
        lines.append(comma.join(f'"{cell}"' if rng.random() < 0.7 else cell for cell in cells))
    file.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))


def _parquet(rng: random.Random, rows: list[dict[str, Any]], file: Path) -> None:
    try:
        pq.write_table(pa.Table.from_pylist([row for row in rows if isinstance(row, dict)]), file)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, RecursionError):
        file.write_bytes(b"PAR1" + json.dumps(len(rows)).encode() + b"PAR1")


FILES: dict[str, Callable[[random.Random, list[dict[str, Any]], Path], None]] = {
    ".jsonl": _jsonl, ".json": _array, ".txt": _text, ".csv": _separated, ".tsv": _separated, ".parquet": _parquet,
}  # fmt: skip


class DataTarget:
    """A file that somebody has, read as each of the three kinds and checked."""

    seconds = 10.0

    def attempt(self, rng: random.Random, place: Path) -> str:
        one = _row(rng)
        rows = [one if rng.random() < 0.9 else _row(rng) for _ in range(rng.choice((1, 2, 5, 40)))]
        if rng.random() < 0.8:
            at = rng.randrange(len(rows))
            rows[at] = mutated_document(rng, rows[at])
        suffix = rng.choice((".jsonl", ".jsonl", ".jsonl", *FILES))
        file = place / f"data{suffix}"
        FILES[suffix](rng, rows, file)
        if rng.random() < 0.3:
            file.write_bytes(mutated_bytes(rng, file.read_bytes()))
        before = sorted(path.name for path in place.iterdir())
        outcomes = [_read(read, file) for read in (read_prompts, read_preferences, read_demonstrations)]
        told(["data", "check", str(file), *(["--json"] if rng.random() < 0.5 else [])], allowed=(0, 1, 2))
        assert sorted(path.name for path in place.iterdir()) == before, "reading has written"
        return "read" if any(outcomes) else "refused"


def _read(read: Callable[[Path], Any], file: Path) -> bool:
    try:
        list(read(file))
    except HoldfastError as refusal:
        return not refused(refusal)
    return True


def open_target(work: Path) -> DataTarget:
    return DataTarget()
