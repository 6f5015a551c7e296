"""How long `holdfast data check` takes and how much memory it needs, as files grow to a million lines.

Each file is checked by the program in a process of its own, whose peak memory the system reports. One line in a hundred
is wrong in one of several ways, or a duplicate. `read` is what a run does with such a file: read it to the first
problem, and count the others.

python -m benchmarks data_check  writes benchmarks/results/data_check.json
python -m benchmarks data_check --rows 10000 --work DIR
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import keep, parser_of

WORDS = (
    "when", "do", "you", "open", "can", "we", "bring", "a", "dog", "to", "the", "terrace", "is", "there", "parking",
)  # fmt: skip
BROKEN = ("{'prompt': 'single quotes'}", '{"prompt": ""}', '{"prompt": 7}', '{"prompt": "cut', '{"question": "a"}')


def prompts(rows: int, words: int) -> Iterator[str]:
    """Lines of a prompt file; which are broken or repeated follows from the seed."""
    rng = random.Random(f"prompts {rows} {words}")
    for number in range(rows):
        chance = rng.random()
        if chance < 0.005:
            yield rng.choice(BROKEN)
            continue
        name = rng.randrange(number) if number and chance < 0.01 else number
        yield json.dumps({"prompt": f"{' '.join(rng.choices(WORDS, k=words))} {name}?"})


def pairs(rows: int, words: int) -> Iterator[str]:
    rng = random.Random(f"pairs {rows} {words}")
    for number in range(rows):
        question, chosen, rejected = (" ".join(rng.choices(WORDS, k=words)) for _ in range(3))
        yield json.dumps({"prompt": f"{question} {number}?", "chosen": chosen, "rejected": rejected})


# The peak is asked for from within: what the system says of a child contains the parent before it became the child.
CHECK = """
import sys
from holdfast.track.memory import peak_memory
from holdfast.cli.main import main
code = main(["data", "check", "--json", sys.argv[1]])
print(peak_memory(), file=sys.stderr)
"""
READ = """
import sys
from holdfast.track.memory import peak_memory
from holdfast.errors import HoldfastError
from holdfast.data.formats import read_prompts
try:
    print(len(read_prompts(sys.argv[1])))
except HoldfastError as error:
    print(error)
print(peak_memory(), file=sys.stderr)
"""


def measured(program: str, path: Path) -> tuple[dict[str, float], str]:
    """Seconds, processor seconds and peak MB of a program on a file, and what it printed."""
    before = os.times()
    start = time.perf_counter()
    child = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - start
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    figures = {"seconds": seconds, "processor": processor, "peak_mb": float(child.stderr.split()[-1]) / 1e6}
    return {name: round(value, 2) for name, value in figures.items()}, child.stdout


def measure(name: str, lines: Iterator[str], directory: Path) -> dict[str, Any]:
    path = directory / f"{name.replace(' ', '-').replace(',', '')}.jsonl"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
    figures, printed = measured(CHECK, path)
    told = json.loads(printed)
    (source,) = told["sources"]
    row: dict[str, Any] = {"file": name, "mb": round(path.stat().st_size / 1e6, 1), **figures}
    row |= {"rows": source["rows"], "usable": source["usable"], "errors": told["errors"], "counts": told["counts"]}
    if name.startswith("prompts"):
        row["read"] = measured(READ, path)[0]
    path.unlink()
    micro = 1e6 * row["processor"] / row["rows"]
    print(
        f"{name:<28} {row['mb']:>7.1f} MB  {row['seconds']:>7.1f} s  {micro:>6.1f} us a row  "
        f"peak {row['peak_mb']:>6.1f} MB  {row['errors']:,} errors"
    )
    return row


def main(words: Sequence[str]) -> None:
    parser = parser_of("data_check", __doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="lines of the largest file (1,000,000)")
    parser.add_argument("--work", type=Path, help="where the files are made, and removed again")
    args = parser.parse_args(words)
    with tempfile.TemporaryDirectory(dir=args.work) as made:
        directory = Path(made)
        rows = []
        for count in sorted({max(1, args.rows // 100), max(1, args.rows // 10), args.rows}):
            rows.append(measure(f"prompts {count:,}, 12 words", prompts(count, 12), directory))
        rows.append(measure(f"prompts {args.rows:,}, 120 words", prompts(args.rows, 120), directory))
        rows.append(measure(f"pairs {args.rows // 4:,}, 40 words", pairs(args.rows // 4, 40), directory))
    keep("data_check", {"rows": rows})
