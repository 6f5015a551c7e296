"""What the system survives: every fault of the table, tried again and again, and what was lost.

Each row is tried by tests of its own, as thoroughly as they can: at every write, at every bit, at random times. They
count what they try. Rates that take hundreds of runs are quoted from the lab's kept results, and said to be.
With --mutations a guard of each row is broken on purpose in a copy of the source, and the row has to fail.

python -m benchmarks faults                    writes benchmarks/results/faults.json; about ten minutes on two cores
python -m benchmarks faults --only kills,disk  some rows; nothing is kept
python -m benchmarks faults --mutations        writes benchmarks/results/mutations.json
"""

from __future__ import annotations

import json
import textwrap
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.faults.mutations import MUTATIONS, seen_of
from benchmarks.faults.rows import ROWS, Row
from benchmarks.faults.suite import has_failed, name_of, run_tests
from benchmarks.record import RESULTS, ROOT, keep, parser_of
from holdfast.errors import HoldfastError

WORKERS = 2
FAULT, TRIED = 50, 32
TABLE = f"{{:<{FAULT}}} {{:<{TRIED}}} {{:>5}} {{:>4}}"


@dataclass
class Tried:
    """What came of a row's tests."""

    cases: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def tried_of(row: Row, cases: Iterable[ET.Element]) -> Tried:
    """Add up what a row's test cases have counted."""
    tried = Tried()
    for case in cases:
        name = name_of(case)
        if name not in row.tests and name.partition("::")[0] not in row.tests:
            continue
        tried.cases += 1
        tried.seconds += float(case.get("time", 0))
        for found in case.iter("property"):
            tried.counts[found.get("name", "")] += int(found.get("value", 0))
        label = f"{name} {case.get('name', '')}"
        if has_failed(case):
            tried.failed.append(label)
        if case.find("skipped") is not None:
            tried.skipped.append(label)
    return tried


def quoted(row: Row) -> dict[str, str]:
    """What the lab has measured for a row, by the file that holds it."""
    return {name: json.loads((RESULTS / f"{name}.json").read_text())["recommendation"] for name in row.kept}


def lines_of(row: Row, tried: Tried) -> list[str]:
    """A row of the table, its counts one below the other."""
    counts = [f"{times:,} {what}" for what, times in tried.counts.most_common()] or ["see cases"]
    left = [*textwrap.wrap(row.fault, FAULT), *textwrap.wrap(f"  {row.passes_when}", FAULT, subsequent_indent="  ")]
    lines = []
    for i in range(max(len(left), len(counts))):
        figures = (str(tried.cases), str(len(tried.failed))) if i == 0 else ("", "")
        words = (left[i] if i < len(left) else "", counts[i] if i < len(counts) else "")
        lines.append(TABLE.format(*words, *figures).rstrip())
    lines += [f"  NOT TRIED: {name}" for name in tried.skipped] + [f"  FAILED: {name}" for name in tried.failed]
    return lines


def try_rows(names: Sequence[str]) -> Mapping[str, Tried]:
    tests = dict.fromkeys(test for name in names for test in ROWS[name].tests)
    cases = run_tests(tests, ROOT, "--thorough", "-n", str(WORKERS), "--dist", "worksteal")
    return {name: tried_of(ROWS[name], cases) for name in names}


def main(words: Sequence[str]) -> int:
    parser = parser_of("faults", __doc__)
    parser.add_argument("--only", metavar="ROW,...", help=f"some of {', '.join(ROWS)}")
    parser.add_argument("--mutations", action="store_true", help="break a guard of each row, and see its tests fail")
    args = parser.parse_args(words)
    names = args.only.split(",") if args.only else list(ROWS)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        raise HoldfastError(f"There is no row {unknown[0]!r}; --only takes {', '.join(ROWS)}.")
    return mutated(names, kept=not args.only) if args.mutations else faults(names, kept=not args.only)


def faults(names: Sequence[str], kept: bool) -> int:
    """The table."""
    began = time.monotonic()
    rows = try_rows(names)
    seconds = time.monotonic() - began
    print(TABLE.format("fault, and when it is survived", "tried", "cases", "lost"))
    result: dict[str, Any] = {}
    for name, tried in rows.items():
        row = ROWS[name]
        quotes = quoted(row)
        print("-" * (FAULT + TRIED + 12))
        print("\n".join(lines_of(row, tried)))
        for file, words in quotes.items():
            print(textwrap.fill(f"kept in {file}.json: {words}", 98, initial_indent="  ", subsequent_indent="  "))
        result[name] = {
            "fault": row.fault, "passes_when": row.passes_when, "cases": tried.cases, "tried": dict(tried.counts),
            "lost": tried.failed, "not_tried": tried.skipped, "seconds": round(tried.seconds, 1), "quoted": quotes,
        }  # fmt: skip
    lost = sum(len(tried.failed) for tried in rows.values())
    empty = [name for name, tried in rows.items() if not tried.cases]
    print("-" * (FAULT + TRIED + 12))
    cases = sum(tried.cases for tried in rows.values())
    print(TABLE.format(f"{len(rows)} rows in {seconds / 60:.1f} minutes", "", cases, lost))
    if kept:
        keep("faults", {"seconds": round(seconds, 1), "lost": lost, "rows": result})
    return 1 if lost or empty or any(tried.skipped for tried in rows.values()) else 0


def mutated(names: Sequence[str], kept: bool) -> int:
    """Is each row's guard tested? Every mutation has to be seen."""
    chosen = [mutation for mutation in MUTATIONS if mutation.row in names]
    missing = [name for name in names if name not in {mutation.row for mutation in chosen}]
    seen = seen_of(chosen)
    print(f"{'row':<10} {'what is broken':<70} {'seen':>6}")
    for mutation, was_seen in zip(chosen, seen, strict=True):
        print(f"{mutation.row:<10} {mutation.what[:70]:<70} {'yes' if was_seen else 'NO':>6}")
    for name in missing:
        print(f"{name:<10} {'no mutation is written down for this row':<70} {'NO':>6}")
    print(f"\n{sum(seen)} of {len(chosen)} seen")
    if kept:
        document = [{**asdict(mutation), "seen": was_seen} for mutation, was_seen in zip(chosen, seen, strict=True)]
        keep("mutations", {"mutations": document})
    return 0 if all(seen) and not missing else 1
