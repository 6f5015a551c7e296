"""Data files of every format as people have them: each is converted by value, or refused with a place and a sentence.

The files are made by hand and by hypothesis together with the truth about them (see made_data.py). Each goes through
`holdfast data convert`, with and without --skip-bad, through `holdfast data check`, and through the reader of a run.
A file passes when the rows that were written are exactly those that were meant, what was left out is exactly what
cannot be used, each with its place and kind, check and reader refuse exactly the same, and nothing ends in a traceback.

python -m benchmarks data_files             writes benchmarks/results/data_files.json
python -m benchmarks data_files --files 20  so many by hypothesis, beside those by hand
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from benchmarks.record import keep, parser_of
from benchmarks.system.made_data import MadeFile, by_hand, made_files
from holdfast.cli.main import main as holdfast
from holdfast.data.formats import read_demonstrations, read_preferences
from holdfast.errors import HoldfastError

MOST_LOST = 0.5


@dataclass
class Judged:
    """What became of one file."""

    name: str
    format: str
    made_by: str
    rows: int
    converted: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    file_refused: str = ""
    tracebacks: int = 0
    wrong: list[str] = field(default_factory=list)


def call(judged: Judged, *words: str) -> tuple[int, str, str]:
    """Exit code and what a command printed; an exception is a traceback that a user would have seen."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = holdfast(list(words))
    except Exception:  # noqa: BLE001 - what a user would have seen is counted, whatever it is
        judged.tracebacks += 1
        judged.wrong.append(traceback.format_exc(limit=-3))
        code = -1
    return code, out.getvalue(), err.getvalue()


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def judge(made: MadeFile, directory: Path) -> Judged:
    """Put one file through all commands and compare with the truth."""
    path = directory / made.name
    path.write_bytes(made.content)
    judged = Judged(made.name, made.format, made.made_by, len(made.rows))
    if made.refused:
        _judge_refusal(judged, made, path)
    else:
        _judge_rows(judged, made, path)
    return judged


def _expect(judged: Judged, what: str, seen: object, wanted: object) -> None:
    if seen != wanted:
        judged.wrong.append(f"{what}: {seen!r:.400} instead of {wanted!r:.400}")


def _judge_refusal(judged: Judged, made: MadeFile, path: Path) -> None:
    """A file that cannot be read as a whole: one sentence, nothing written, and the check names the kind and place."""
    out = path.with_name("out.jsonl")
    judged.file_refused = made.refused
    kind = ("--kind", "preferences") if made.refused == "missing_column" else ()
    code, _, said = call(judged, "data", "convert", str(path), str(out), *kind, "--skip-bad", str(MOST_LOST))
    _expect(judged, "exit code", code, 2)
    _expect(judged, "a sentence", (said.count("\n"), said.startswith("holdfast: ")), (1, True))
    _expect(judged, "the file is named", str(path) in said, True)
    _expect(judged, "nothing is written", sorted(p.name for p in path.parent.iterdir()), [path.name])
    code, printed, _ = call(judged, "data", "check", str(path), *kind, "--json")
    told = json.loads(printed or "{}")
    found = [(p["kind"], p["line"]) for p in told.get("problems", ()) if p["severity"] == "error"]
    _expect(judged, "check", (code, found), (2, [(made.refused, made.refused_at)]))


def _judge_rows(judged: Judged, made: MadeFile, path: Path) -> None:
    """A file whose rows can be told apart: the good ones by value, the others by place and kind."""
    out, wrong = path.with_name("out.jsonl"), made.wrong
    judged.refused = dict(Counter(kind for _, kind in wrong))
    code, printed, said = call(judged, "data", "convert", str(path), str(out))
    if wrong:
        _expect(judged, "exit code with bad rows", code, 2)
        first = f"{path}, {made.unit} {wrong[0][0]}: "
        _expect(judged, "first bad row", said.startswith(f"holdfast: {first}"), True)
        _expect(judged, "one sentence", said.count("\n"), 1)
        _expect(judged, "nothing is written", out.exists(), False)
        code, printed, _ = call(judged, "data", "convert", str(path), str(out), "--skip-bad", str(MOST_LOST))
    _expect(judged, "exit code", code, 0)
    if code:
        return
    written = rows_in(out)
    judged.converted = len(written)
    _expect(judged, "recognised", f"is read as {made.format} (" in printed, True)
    _expect(judged, "rows", written, made.expected)
    left = path.with_name("out.left-out.jsonl")
    lost = [(row["line"], row["kind"]) for row in rows_in(left)] if left.exists() else []
    _expect(judged, "left out", lost, wrong)
    _judge_check(judged, made, path, out)


def _judge_check(judged: Judged, made: MadeFile, path: Path, out: Path) -> None:
    """The check names the same rows, the converted file has none, and a run reads both as the same."""
    code, printed, _ = call(judged, "data", "check", str(path), "--json", "--limit", "100000", "--heldout-share", "0")
    told = json.loads(printed or "{}")
    errors = [(p["line"], p["kind"]) for p in told.get("problems", ()) if p["severity"] == "error"]
    judges = any("label" in row for row in made.expected)
    _expect(judged, "check", sorted(errors), sorted(made.wrong))
    _expect(judged, "check's exit code", code == 2, bool(made.wrong))
    code, _, _ = call(judged, "data", "check", str(out), "--json", "--heldout-share", "0")
    _expect(judged, "the converted file is refused", code == 2, False)
    read = read_preferences if "chosen" in made.expected[0] or judges else read_demonstrations
    try:
        if made.wrong:
            try:
                read(path)
                judged.wrong.append("a run takes bad rows")
            except HoldfastError:
                return
        _expect(judged, "what a run reads", read(path), read(out))
    except Exception:  # noqa: BLE001 - what a user would have seen is counted, whatever it is
        judged.tracebacks += 1
        judged.wrong.append(traceback.format_exc(limit=-3))


def by_hypothesis(number: int) -> list[MadeFile]:
    """So many files, the same ones every time."""
    made: list[MadeFile] = []

    @settings(
        max_examples=number, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        made.append(data.draw(made_files()))

    draw()
    return made[:number]


def judge_all(files: Sequence[MadeFile], work: Path | None = None) -> list[Judged]:
    judged = []
    for made in files:
        with tempfile.TemporaryDirectory(dir=work) as directory:
            judged.append(judge(made, Path(directory)))
    return judged


def table(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Sums for each format."""
    rows = []
    for name in sorted({one.format for one in judged}):
        of_it = [one for one in judged if one.format == name]
        reasons: Counter[str] = Counter()
        for one in of_it:
            reasons.update(one.refused)
        rows.append({
            "format": name, "files": len(of_it), "rows": sum(one.rows for one in of_it),
            "converted": sum(one.converted for one in of_it), "refused": sum(reasons.values()),
            "files_refused": sum(bool(one.file_refused) for one in of_it),
            "wrong": sum(bool(one.wrong) for one in of_it), "tracebacks": sum(one.tracebacks for one in of_it),
            "reasons": dict(reasons.most_common()),
        })  # fmt: skip
    return rows


def show(rows: Sequence[dict[str, Any]]) -> None:
    columns = ("format", "files", "rows", "converted", "refused", "files_refused", "wrong", "tracebacks")
    titles = ("format", "files", "rows", "converted", "refused", "files refused", "wrong", "tracebacks")
    print("".join(f"{title:<20}" if title == "format" else f"{title:>11}" if len(title) < 11 else f"{title:>15}"
                  for title in titles))  # fmt: skip
    total = {name: "all" if name == "format" else sum(row[name] for row in rows) for name in columns}
    for row in [*rows, total]:
        print("".join(f"{row[name]:<20}" if name == "format" else f"{row[name]:>{11 if len(title) < 11 else 15},}"
                      for name, title in zip(columns, titles, strict=True)))  # fmt: skip
    print()
    reasons: Counter[str] = Counter()
    for row in rows:
        reasons.update(row["reasons"])
    print("rows refused: " + ", ".join(f"{kind} {count:,}" for kind, count in reasons.most_common()))


def main(words: Sequence[str]) -> int:
    parser = parser_of("data_files", __doc__)
    parser.add_argument("--files", type=int, default=150, help="files by hypothesis (150)")
    parser.add_argument("--work", type=Path, help="where the files are made, and removed again")
    args = parser.parse_args(words)
    files = [*by_hand(), *by_hypothesis(args.files)]
    judged = judge_all(files, args.work)
    rows = table(judged)
    show(rows)
    for one in judged:
        for complaint in one.wrong:
            print(f"WRONG {one.name} ({one.made_by}): {complaint}")
    refused = Counter(one.file_refused for one in judged if one.file_refused)
    print("files refused: " + ", ".join(f"{kind} {count}" for kind, count in refused.most_common()))
    keep("data_files", {"formats": rows, "files": [asdict(one) for one in judged]})
    return 1 if any(one.wrong or one.tracebacks for one in judged) else 0
