"""Every kind of broken data, named with its line: by the check, and where it is an error by the reader of a run."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.data.check import DataCheck, DataKind, quantiles
from holdfast.data.formats import read_demonstrations, read_preferences, read_prompts
from holdfast.data.problems import KINDS, Findings, Problem
from holdfast.data.splits import LengthMeasure, Lengths
from holdfast.errors import HoldfastError


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def prompt(*turns: dict[str, str]) -> str:
    return json.dumps({"prompt": list(turns)})


def pair(**columns: Any) -> str:
    return json.dumps({"prompt": "2 + 2?", "chosen": "4", "rejected": "5"} | columns)


def judged(text: str, label: Any, prompt: str = "q") -> str:
    return json.dumps({"prompt": prompt, "completion": text, "label": label})


P = ['{"prompt": "first"}', '{"prompt": "second"}']
C = [pair(prompt="first", chosen="a much longer answer"), pair(prompt="second", chosen="x")]
D = ['{"prompt": "first", "completion": "a"}', '{"prompt": "second", "completion": "b"}']
LONG = "When do you open on Sundays?"


@dataclass(frozen=True)
class Case:
    """Two good lines, then the bad ones; the problem is at line `at`, and says `says`."""

    kind: str
    lines: list[str | bytes]
    says: str
    good: list[str] = field(default_factory=lambda: P)
    at: int = 3
    limits: Lengths = field(default_factory=Lengths)


PAIRS = {
    "same_answers": ([pair(rejected="4")], "nothing to learn; remove the row"),
    "different_prompts": (
        [json.dumps({"chosen": [user("p"), assistant("x")], "rejected": [user("q"), assistant("y")]})],
        "do not begin with the same messages",
    ),
    "prompt_mismatch": (
        [pair(prompt="q", chosen=[user("p"), assistant("x")], rejected=[user("p"), assistant("y")])],
        "leave that column out",
    ),
    "no_answer": ([pair(prompt=[user("p")], chosen=[user("x")], rejected=[assistant("y")])], "exactly one answer"),
    "label_not_boolean": ([judged("a", 1)], "'label' is 1; write true for a good answer and false for a bad one"),
    "lone_surrogate": (['{"prompt": "p", "chosen": "\\ud83d", "rejected": "y"}'], "half a character"),
    "null_value": ([pair(rejected=None)], "'rejected', which is null here; fill it or remove the row"),
    "missing_column": (['{"prompt": "p", "chosen": "a", "rejcted": "b"}'], "rename 'rejcted' if that is it"),
    "empty_answer": ([pair(rejected=" ")], "'rejected' is empty"),
    "prompt_in_answer": ([pair(prompt=LONG, chosen=f"{LONG} At noon.")], "'chosen' begins with its prompt"),
    "contradiction": ([pair(prompt="second", chosen="5", rejected="x")], "the opposite is preferred at {}:2; keep one"),
    "duplicate": ([C[0]], "the same pair is at {}:1; it counts once"),
    "misspelt_column": ([pair(prompt="z", labeler="anna")], "'labeler' is not read; if it should be 'labeller'"),
    "mixed_forms": ([prompt(user("p"))[:-1] + ', "chosen": [' + json.dumps(assistant("x")) + '], "rejected": ['
                     + json.dumps(assistant("y")) + "]}"], "is conversational where the rows before are plain"),
}  # fmt: skip

PROMPTS: dict[str, tuple[list[str | bytes], str]] = {
    "not_utf8": ([b'{"prompt": "caf\xe9"}'], "is not UTF-8 (byte 16 is 0xe9); save the file in that encoding"),
    "bom_inside": ([b'\xef\xbb\xbf{"prompt": "a"}'], "as where files were joined; remove it"),
    "not_json": (["When do you open?"], "is not JSON (Expecting value, column 1); mend or remove the line"),
    "python_quotes": (["{'prompt': 'a'}"], "it is Python; write double quotes"),
    "trailing_comma": (['{"prompt": "a",}'], "a comma too many; remove the last one"),
    "two_rows": (['{"prompt": "a"} {"prompt": "b"}'], "put each on a line of its own"),
    "raw_control": (['{"prompt": "a\tb"}'], "write it as an escape such as \\t"),
    "repeated_key": (['{"prompt": "a", "prompt": "b"}'], "has the column 'prompt' twice; keep the one that is meant"),
    "not_object": (['[{"prompt": "a"}]'], "write each element of the list on a line of its own"),
    "missing_column": (['{"question": "a"}'], "needs a column 'prompt' and has question; rename 'question'"),
    "null_value": (['{"prompt": null}'], "which is null here; fill it or remove the row"),
    "wrong_type": (['{"prompt": 42}'], "and is a number"),
    "empty_prompt": (['{"prompt": " \\n"}'], "'prompt' is empty; write one or remove the row"),
    "lone_surrogate": (['{"prompt": "a\\ud83d"}'], "half a character"),
    "unknown_role": ([prompt({"role": "human", "content": "hi"})], "'prompt' has a turn of 'human'; write 'user'"),
    "empty_message": ([prompt(user("hi"), assistant(""), user("well?"))], "turn 2 (assistant) of the prompt"),
    "ends_with_assistant": ([prompt(user("hi"), assistant("hello"))], "cut it off, or add the user's next turn"),
    "control_characters": (['{"prompt": "a\\u0000b"}'], "'prompt' holds the control character U+0000; remove it"),
    "starts_with_assistant": ([prompt(assistant("hi"), user("hello"))], "begins with a turn of assistant"),
    "role_twice": ([prompt(user("hi"), user("hello"))], "turns 1 and 2 are both of user; join them into one"),
    "system_inside": ([prompt(user("hi"), {"role": "system", "content": "s"}, user("x"))], "turn is not the first"),
    "duplicate": ([P[1]], "the same prompt is at {}:2; it counts once"),
    "mixed_forms": ([prompt(user("hi"))], "is conversational where the rows before are plain"),
}  # fmt: skip

DEMONSTRATIONS = {
    "empty_demonstration": (['{"prompt": "p", "completion": ""}'], "the answer in 'completion' is empty"),
    "two_answers": (['{"prompt": "p", "completion": "a", "response": "b"}'], "has 'completion' and 'response'"),
    "missing_column": (['{"prompt": "p"}'], "must have one of 'completion', 'response' or 'messages'"),
    "no_answer": ([json.dumps({"messages": [user("p"), user("q")]})], "exactly one answer of the assistant"),
    "wrong_type": (['{"prompt": "p", "completion": 4}'], "and is a number"),
    "duplicate": ([D[0]], "the same demonstration is at {}:1; remove one"),
}

CASES = [
    *(Case(kind, lines, says) for kind, (lines, says) in PROMPTS.items()),
    *(Case(kind, lines, says, C) for kind, (lines, says) in PAIRS.items()),
    *(Case(kind, lines, says, D) for kind, (lines, says) in DEMONSTRATIONS.items()),
    Case("wrong_type", [prompt(user("x"))[:-2] + ', {"from": "human", "value": "x"}]}'], "rename 'from' to 'role'"),
    Case("python_quotes", ['{"prompt": None}'], "write double quotes, null"),
    Case("trailing_comma", ['{"prompt": "a"},'], "a comma too many"),
    Case("not_json", ['{"prompt": "a'], "a line break inside a text is written \\n"),
    Case("not_json", ["{", '"prompt": "a"', "}"], "write each object on one line"),
    Case("not_json", ["[" * 100_000], "is nested too deeply"),
    Case("no_answer", [json.dumps({"chosen": [user("p"), assistant("x")], "rejected": [user("p")]})], "'rejected'", C),
    Case("too_long", ['{"prompt": "' + "x" * 41 + '"}'], "has 41 characters, and the limit is 40",
         limits=Lengths(prompt=(0, 40))),
    Case("too_short", ['{"prompt": "x"}'], "has 1 characters, and the limit is 3", limits=Lengths(prompt=(3, 0))),
    Case("too_long", [pair(rejected="y" * 41)], "'rejected' has 41 characters", C, limits=Lengths(answer=(0, 40))),
]  # fmt: skip


def check(
    *sources: Path, kind: DataKind | None = None, heldout: Path | None = None, keep: int = 10, **given: Any
) -> Any:
    """Problems and summaries of a check."""
    findings = Findings(keep)
    data = DataCheck(given.get("limits", Lengths()), given.get("measure", LengthMeasure()), 0.1, findings)
    summaries = [data.check(str(heldout), "prompts", heldout=True)] if heldout else []
    return findings, summaries + [data.check(str(source), kind) for source in sources]


def write(path: Path, lines: list[Any], end: bytes = b"\n") -> Path:
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines) + end)
    return path


def only(findings: Findings, kind: str) -> Problem:
    (found,) = [problem for problem in findings.kept if problem.kind == kind]
    return found


@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{case.kind}" for n, case in enumerate(CASES)])
def test_each_kind_is_named_with_its_line(case: Case, tmp_path: Path) -> None:
    path = write(tmp_path / "data.jsonl", [*case.good, *case.lines])
    findings, (summary,) = check(path, limits=case.limits)
    problem = next(problem for problem in findings.kept if problem.kind == case.kind)
    assert (problem.source, problem.line) == (str(path), case.at)
    assert case.says.format(path) in problem.text
    assert problem.shown().startswith(f"{path}:{case.at}: {KINDS[case.kind].severity}: ")
    assert "\n" not in problem.shown()
    # Nothing is the matter with the lines before, and every line is counted.
    assert all(problem.line in (0, *range(case.at, case.at + len(case.lines))) for problem in findings.kept)
    assert summary.rows == len(case.good) + len(case.lines)


READERS: dict[int, Callable[[Path], Any]] = {id(P): read_prompts, id(C): read_preferences, id(D): read_demonstrations}


@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{case.kind}" for n, case in enumerate(CASES)])
def test_the_reader_of_a_run_finds_the_same(case: Case, tmp_path: Path) -> None:
    path = write(tmp_path / "data.jsonl", [*case.good, *case.lines, *case.lines])
    read = READERS[id(case.good)]
    if KINDS[case.kind].severity == "warning":
        assert read(path)
        return
    with pytest.raises(HoldfastError) as caught:
        read(path)
    told = str(caught.value)
    assert told.startswith(f"{path}, line {case.at}: ")
    assert case.says in told
    more = 2 * len(case.lines) - 1
    noun = "problem" if more == 1 else "problems"
    assert told.endswith(f"; {more} more {noun} after it: `holdfast data check {path}` lists all.")


def test_every_kind_has_a_test() -> None:
    elsewhere = {
        "unreadable", "empty_file", "wrong_file", "line_too_long", "truncated", "bom", "no_pairs", "unpaired",
        "heldout_trains", "unbalanced_length", "unbalanced_labels", "template_refuses", "beyond_context",
        "nothing_left", "damaged_file", "unknown_format", "wrong_cells", "bad_quotes", "not_a_dialogue", "no_scores",
    }  # fmt: skip
    assert {case.kind for case in CASES} | elsewhere == KINDS.keys()
    assert not {case.kind for case in CASES} & elsewhere


def test_the_page_about_data_has_every_kind() -> None:
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    errors, warnings = page.split("Warnings, with which")
    for name, kind in KINDS.items():
        assert f"| `{name}` | {kind.meaning} |" in (errors if kind.severity == "error" else warnings)


# --- the file as a whole ------------------------------------------------------------------------------------------


def test_a_file_that_was_cut_off(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", [*P, '{"prompt": "cut o'], end=b"")
    findings, (summary,) = check(path)
    assert (only(findings, "truncated").line, summary.rows, summary.usable) == (3, 3, 2)
    # The last line may lack its newline; that alone is nothing.
    assert check(write(path, P, end=b""))[0].counts == {}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (gzip.compress(gzip.compress(P[0].encode(), mtime=0), mtime=0), "is gzip, and within it gzip; unpack it once"),
        ("\n".join(P).encode("utf-16"), "is UTF-16; save it as UTF-8"),
        (gzip.compress(b"PAR1....", mtime=0), "is gzip, and within it Parquet; unpack it once"),
        (b"PK\x03\x04", "is a zip archive"),
    ],
    ids=["gzip in gzip", "utf-16", "parquet in gzip", "zip"],
)
def test_something_else_under_the_name_of_jsonl(raw: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(raw)
    findings, _ = check(path)
    assert (problem := only(findings, "wrong_file")).line == 1
    assert says in problem.text
    assert sum(findings.counts.values()) == 1
    with pytest.raises(HoldfastError, match="line 1: is"):
        read_prompts(path)


def test_a_byte_order_mark_is_read_over_and_told(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", [b"\xef\xbb\xbf" + P[0].encode(), P[1]])
    findings, (summary,) = check(path)
    assert (only(findings, "bom").line, summary.usable) == (1, 2)
    assert read_prompts(path) == ["first", "second"]


def test_a_line_of_any_length_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.data.lines.LONGEST_LINE", 2**20)
    path = write(tmp_path / "p.jsonl", [P[0], '{"prompt": "' + "x" * 2**22 + '"}', P[1]])
    findings, (summary,) = check(path)
    assert (only(findings, "line_too_long").line, summary.rows, summary.usable) == (2, 3, 2)


def test_files_that_are_not_there_or_empty(tmp_path: Path) -> None:
    empty = write(tmp_path / "e.jsonl", [])
    findings, _ = check(tmp_path / "gone.jsonl", empty, tmp_path / "x.csv")
    assert [(p.kind, p.line) for p in findings.kept] == [("unreadable", 0), ("empty_file", 0), ("unreadable", 0)]
    assert findings.kept[0].shown().startswith(f"{tmp_path / 'gone.jsonl'}: error: Cannot read")
    (tmp_path / "x.dat").write_text("When do you open?\n")
    assert "; name it .txt if each of its lines is a prompt" in check(tmp_path / "x.dat")[0].kept[0].text


def test_a_table_that_lacks_a_column_says_so_once(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.Table.from_pylist([{"chosen": f"q{n}", "question": "x"} for n in range(50)]), path)
    findings, _ = check(path, kind="prompts")
    assert findings.counts == {"missing_column": 1}
    assert findings.kept[0].shown().startswith(f"{path}:1: error: needs a column 'prompt' and has chosen, question")
    with pytest.raises(HoldfastError, match=r"row 1: needs a column 'prompt'.*if that is it\.$"):
        read_prompts(path)


def test_a_null_in_a_table_is_named_by_its_row(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.Table.from_pylist([{"prompt": None if n in (7, 9) else f"q{n}"} for n in range(20)]), path)
    findings, (summary,) = check(path)
    assert [problem.line for problem in findings.kept] == [8, 10]
    assert (summary.rows, summary.usable) == (20, 18)


# --- across rows and files ----------------------------------------------------------------------------------------


def test_a_heldout_prompt_that_trains_is_found_in_every_file(tmp_path: Path) -> None:
    held = write(tmp_path / "held.jsonl", ['{"prompt": "x"}', '{"prompt": "second"}'])
    prompts = write(tmp_path / "prompts.jsonl", P)
    pairs = write(tmp_path / "pairs.jsonl", C)
    demonstrations = write(tmp_path / "demos.jsonl", D)
    findings, summaries = check(prompts, pairs, demonstrations, heldout=held)
    assert [(p.kind, p.source, p.line) for p in findings.kept] == [
        ("heldout_trains", str(path), 2) for path in (prompts, pairs, demonstrations)
    ]
    assert f"held out at {held}:2" in findings.kept[0].text
    assert [s.kind for s in summaries] == ["prompts", "prompts", "preferences", "demonstrations"]


def test_duplicates_are_found_across_files_of_a_kind(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one.jsonl", P), write(tmp_path / "two.jsonl", ['{"prompt": "z"}', P[0]])
    problem = only(check(one, two)[0], "duplicate")
    assert (problem.source, problem.line) == (str(two), 2)
    assert f"{one}:1" in problem.text


def test_two_labellers_may_differ(tmp_path: Path) -> None:
    rows = [pair(labeller="anna"), pair(labeller="ben"), pair(labeller="zoe", chosen="5", rejected="4")]
    assert check(write(tmp_path / "c.jsonl", rows))[0].counts == {}
    rows.append(pair(labeller=["ben", "zoe"]))
    findings, _ = check(write(tmp_path / "c.jsonl", rows))
    assert [(p.kind, p.line) for p in findings.kept] == [("duplicate", 4), ("contradiction", 4)]


def test_unpaired_answers(tmp_path: Path) -> None:
    rows = [judged("good", True), judged("bad", False), judged("better", True), judged("x", True, "other")]
    path = write(tmp_path / "u.jsonl", rows)
    findings, (summary,) = check(path)
    assert (
        only(findings, "unpaired").shown().startswith(f"{path}: warning: 2 of 4 labelled answers have no counterpart")
    )
    assert summary.kind == "preferences"
    (item,) = read_preferences(path)
    assert {item.comparison.a.text, item.comparison.b.text} == {"good", "bad"}
    assert item.comparison.prompt == "q"
    assert item.share_a == (1.0 if item.comparison.a.text == "good" else 0.0)


def test_unpaired_answers_of_one_sort_only_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "u.jsonl", [judged("good", True), judged("bad", False, "other")])
    assert only(check(path)[0], "no_pairs").line == 1
    with pytest.raises(HoldfastError, match="no prompt has both a good and a bad one"):
        read_preferences(path)


def test_pairs_are_made_in_the_order_of_the_rows(tmp_path: Path) -> None:
    rows = [judged(f"good {n}", True) for n in range(3)] + [judged(f"bad {n}", False) for n in range(2)]
    items = read_preferences(write(tmp_path / "u.jsonl", rows))
    sides = [{item.comparison.a.text, item.comparison.b.text} for item in items]
    assert sides == [{"good 0", "bad 0"}, {"good 1", "bad 1"}]


def test_sides_that_are_told_apart_by_length_alone(tmp_path: Path) -> None:
    rows = [pair(prompt=f"p{n}", chosen="long " * n, rejected="short") for n in range(2, 42)]
    problem = only(check(write(tmp_path / "c.jsonl", rows))[0], "unbalanced_length")
    assert (problem.line, problem.text[:53]) == (0, "the chosen answer is the longer one in 40 of 40 pairs")
    turned = [pair(prompt=f"p{n}", chosen="ab" * (n % 3), rejected="abc") for n in range(2, 42)]
    assert "unbalanced_length" not in check(write(tmp_path / "c.jsonl", turned))[0].counts


def test_labels_that_are_nearly_all_the_same(tmp_path: Path) -> None:
    rows = [judged(f"a{n}", n > 0, "q") for n in range(40)]
    assert "39 of 40 labels are true" in only(check(write(tmp_path / "u.jsonl", rows))[0], "unbalanced_labels").text


def test_all_are_counted_and_few_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", ['{"prompt": ""}'] * 500)
    findings, (summary,) = check(path, keep=3)
    assert (len(findings.kept), findings.counts["empty_prompt"], summary.usable) == (3, 500, 0)


def test_what_a_run_wrote_itself_is_clean(tmp_path: Path) -> None:
    sides = {f"{side}_{name}": 1 for side in ("chosen", "rejected") for name in ("round", "seed")}
    versions = {"chosen_policy_version": "v", "rejected_policy_version": "v"}
    row = {"labeller": "anna", "round": 2, **versions, **sides, "chosen_seed": "18446744073709551615"}
    assert check(write(tmp_path / "c.jsonl", [pair(**row)]))[0].counts == {}


def test_quantiles_by_hand() -> None:
    # Ranks 0, 4, 9, 9 and 9 of 0 to 9: the median is the lower of the two middle ones.
    assert quantiles([9, 1, 8, 2, 7, 3, 6, 4, 5, 0]) == {"min": 0, "median": 4, "p90": 9, "p99": 9, "max": 9}
    assert quantiles(range(101)) == {"min": 0, "median": 50, "p90": 90, "p99": 99, "max": 100}


def test_the_texts_of_a_file_do_not_stay_in_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", [json.dumps({"prompt": "word " * 800 + str(n)}) for n in range(8_000)])
    tracemalloc.start()
    try:
        _, (summary,) = check(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # 32 MB of text. Kept are 4 bytes for each length and at most 48 for each place in a table, half more as it grows.
    assert (summary.usable, summary.prompts) == (8_000, 8_000)
    assert peak < 2e6


PIECES = [
    *(line for case in CASES for line in (*case.good, *case.lines) if len(line) < 1000),
    b"\xff", b"\x00", "", "null", "[]", "{}", '""', "1e999", '{"prompt": {}}', '{"prompt": [[]]}', '{"": ""}',
    '{"prompt": "p", "chosen": [], "rejected": []}', '{"messages": []}', '{"messages": [{}, {}]}',
    '{"prompt": "p", "completion": [], "label": true}',
    '{"prompt": "p", "completion": "x", "label": null}', '{"prompt": [null], "chosen": {}, "rejected": 1}',
]  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_in_a_file_check_and_reader_agree(seed: int, tmp_path: Path) -> None:
    """Lines good and bad, some cut or with a byte changed: no traceback, and errors exactly where a run refuses."""
    rng = random.Random(seed)
    lines = []
    for piece in rng.choices(PIECES, k=rng.randint(1, 8)):
        raw = bytearray(piece if isinstance(piece, bytes) else piece.encode())
        if raw and rng.random() < 0.3:
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        lines.append(bytes(raw[: rng.randint(0, len(raw))] if rng.random() < 0.2 else raw))
    path = write(tmp_path / "data.jsonl", lines, end=rng.choice([b"", b"\n"]))
    readers: dict[DataKind, Callable[[Path], Any]] = {
        "prompts": read_prompts, "preferences": read_preferences, "demonstrations": read_demonstrations
    }  # fmt: skip
    for kind, read in readers.items():
        findings, _ = check(path, kind=kind)
        errors = [problem for problem in findings.kept if problem.severity == "error"]
        if errors:
            with pytest.raises(HoldfastError) as caught:
                read(path)
            assert str(caught.value).startswith(errors[0].sentence())
        else:
            read(path)
