"""Files of other formats: recognised by what is in them, converted by value, or refused with a place and a sentence."""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.system.data_files import judge
from benchmarks.system.made_data import (
    FORMATS,
    Layout,
    MadeFile,
    by_hand,
    dialogues,
    made_file,
    made_files,
    packed,
    rows_that_show,
)
from hypothesis import HealthCheck, given, settings

from holdfast.cli.main import main
from holdfast.data.conversion import convert
from holdfast.data.formats import read_preferences, read_prompts
from holdfast.data.rows import Row
from holdfast.data.sources import scan
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Message

HAND = [made for made in by_hand() if not made.name.startswith("bomb")]


@pytest.mark.parametrize("made", HAND, ids=[made.name for made in HAND])
def test_a_file_by_hand_becomes_what_it_means_or_is_refused(made: MadeFile, tmp_path: Path) -> None:
    judged = judge(made, tmp_path)
    assert (judged.wrong, judged.tracebacks) == ([], 0)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(made_files())
def test_a_file_by_hypothesis_becomes_what_it_means_or_is_refused(made: MadeFile) -> None:
    with tempfile.TemporaryDirectory() as directory:
        judged = judge(made, Path(directory))
    assert (judged.wrong, judged.tracebacks) == ([], 0)


def test_the_judge_sees_a_value_that_is_not_the_one_that_was_meant(tmp_path: Path) -> None:
    rows = rows_that_show("hh-rlhf", 3)
    rows[1] = type(rows[1])(rows[1].given, rows[0].becomes)
    assert judge(made_file("a.jsonl", "hh-rlhf", rows, Layout()), tmp_path).wrong


def test_there_are_2312_dialogues_with_every_oddness() -> None:
    rows = dialogues()
    assert len(rows) == 2_312
    wrong = {row.wrong for row in rows}
    assert wrong == {"", "empty_message", "no_answer", "different_prompts", "same_answers", "not_a_dialogue"}
    twice = [
        row for row in rows if row.becomes and [turn["role"] for turn in row.becomes["prompt"]][-2:] == ["user"] * 2
    ]
    assert twice


# --- recognition --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_format_is_named_with_how_sure_that_is(
    format_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_that_show(format_name, 250)
    (tmp_path / "x.csv").write_bytes(made_file("", format_name, rows, Layout()).content)
    assert main(["data", "convert", str(tmp_path / "x.csv"), str(tmp_path / "o.jsonl")]) == 0
    assert f"x.csv is read as {format_name} (all of the first 200 rows).\n250 rows of " in capsys.readouterr().out


def test_the_page_about_data_has_a_row_of_every_format(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| `(\{.*\})` \|", page, re.MULTILINE)
    assert {name for name, _ in rows} == set(FORMATS)
    for number, (name, row) in enumerate(rows):
        (tmp_path / f"{number}.jsonl").write_text(row)
        done = convert(tmp_path / f"{number}.jsonl", tmp_path / f"{number}-out.jsonl")
        assert done.read_as == f"{name} (its one row)"


def test_rows_of_two_formats_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [*rows_that_show("hh-rlhf", 9), *rows_that_show("alpaca", 1)]
    (tmp_path / "x").write_bytes(made_file("", "hh-rlhf", rows, Layout()).content)
    assert main(["data", "check", str(tmp_path / "x")]) == 2
    assert "x is read as hh-rlhf (9 of the first 10 rows)." in capsys.readouterr().out


def test_what_is_not_recognised_is_one_finding_that_says_what_to_write(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"instructions": "a", "outputs": "b"}\n' * 40)
    with pytest.raises(HoldfastError) as caught:
        read_preferences(path)
    told = str(caught.value)
    assert told.startswith(f"{path}, line 1: is in no format that is known: it has the columns instructions, outputs.")
    assert 'The nearest format is alpaca, with rows such as {"instruction": "Answer the guest.", "input": ' in told
    assert f"holdfast data convert {path} OUT.jsonl --format NAME, which is one of hh-rlhf, sharegpt, alpaca, " in told
    assert "more problem" not in told


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.csv", "When do you open?,At noon.,Hello.\nWhere is it?,In the park.,Bye.\n", "`prompt,chosen,rejected`"),
        ("b.csv", '"Well, open?",Noon,Hello\n"Where is it?",Park,Bye\n', "`prompt,chosen,rejected`"),
        ("c.csv", "hello,yes,no\nhello,maybe,no\n", "`prompt,chosen,rejected`"),
        ("d.csv", "Open?,Noon\nWhere?,Park\n", "`prompt,completion`"),
        (
            "e.csv",
            "1,Open?,Noon,Hello\n2,Where?,Park,Bye\n",
            "its 4 columns, such as `prompt,chosen,rejected`,",
        ),
        ("f.tsv", "Open?\tNoon\tHello\nWhere?\tPark\tBye\n", "`prompt\tchosen\trejected`"),
        ("names.csv", "ask,best,worst\nOpen?,Noon,Hello\nWhere?,Park,Bye\n", "--format NAME"),
        ("survey.csv", "Did it help you?,Score\nyes,5\nno,1\n", "--format NAME"),
    ],
)
def test_a_table_without_a_line_of_names_is_told_to_have_one(
    name: str, text: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert main(["data", "check", str(tmp_path / name)]) == 2
    said = capsys.readouterr().out
    assert line in said
    assert ("looks like data" in said) == ("--format" not in said)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"conversations": [{"from": "human", "value": "Open?"}]}, "'conversations' must hold a prompt and an answer"),
        (
            {"conversations": [{"from": "human", "value": None}]},
            "a turn of 'conversations' has 'from' and 'value' that",
        ),
        ({"conversations": [{"from": "narrator", "value": "x"}]}, "'conversations' has a turn of 'narrator'"),
        ({"instruction": " ", "output": "x"}, "'instruction' is empty"),
        (
            {"instruction": "Open?", "completions": [{"response": "x", "score": 1}]},
            "has 1 completion with a score; two",
        ),
        ({"instruction": "Open?", "output": " "}, "the answer in 'output' is empty"),
        (
            {"instruction": "Open?", "chosen_response": "x", "rejected_response": "x"},
            "'chosen_response' and 'rejected_response' are the same",
        ),
        (
            {"instruction": "Open?", "completions": [{"response": "x", "score": n} for n in (1, 2)]},
            "the best and the worst of 'completions' are the same",
        ),
        (
            {
                "input": {"messages": [{"role": "assistant", "content": "Hello."}]},
                "preferred_output": [{"role": "assistant", "content": "x"}],
                "non_preferred_output": [{"role": "assistant", "content": "y"}],
            },
            "the prompt in 'input' ends with an answer",
        ),
    ],
)
def test_an_error_names_the_column_that_stands_in_the_file(
    row: dict[str, Any], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(row) + "\n")
    assert main(["data", "check", str(path)]) == 2
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("indent", [None, 2])
def test_rows_within_an_object_are_named_by_where_they_are(
    indent: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"data": [{"prompt": "Open?", "chosen": "Noon", "rejected": "Hm"}] * 3}, indent=indent))
    assert main(["data", "check", str(path)]) == 2
    out = capsys.readouterr().out
    assert "the rows are under 'data'; write that list alone to a file" in out
    assert "1 error, 0 warnings" in out


@pytest.mark.parametrize("depth", [150, 900, 200_000])
@pytest.mark.parametrize("text", ['{{"prompt": {}}}\n', '[{{"prompt": {}}}]\n'])
def test_a_row_without_a_bottom_is_a_sentence(
    text: str, depth: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    path.write_text(text.format("[" * depth + "]" * depth))
    assert main(["data", "check", str(path)]) == 2
    out = capsys.readouterr().out
    assert "x.json:1: error: is nested too deeply" in out
    assert "recursion" not in out


def test_a_format_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    row = {"prompt": "\n\nHuman: Open?\n\nAssistant:", "chosen": " At noon.", "rejected": " Hm."}
    path.write_text(json.dumps(row) + "\n")
    convert(path, tmp_path / "o.jsonl", format_name="hh-rlhf")
    assert json.loads((tmp_path / "o.jsonl").read_text()) == {
        "prompt": [{"role": "user", "content": "Open?"}],
        "chosen": [{"role": "assistant", "content": "At noon."}],
        "rejected": [{"role": "assistant", "content": "Hm."}],
    }
    with pytest.raises(HoldfastError, match="There is no format 'hh'; the formats are hh-rlhf, sharegpt, "):
        convert(path, tmp_path / "o2.jsonl", format_name="hh")


def test_prompts_are_read_from_preferences_and_conversations(tmp_path: Path) -> None:
    asked = (Message("user", "Question 0?"),)
    for format_name in ("hh-rlhf", "sharegpt", "openai-chat", "openai-preference"):
        path = tmp_path / format_name
        path.write_bytes(made_file("", format_name, rows_that_show(format_name, 1), Layout()).content)
        assert read_prompts(path) == [asked]
    for format_name in ("alpaca", "ultrafeedback", "holdfast"):
        path = tmp_path / format_name
        path.write_bytes(made_file("", format_name, rows_that_show(format_name, 1), Layout()).content)
        assert read_prompts(path) == ["Question 0?"]


def test_lines_of_text_stay_lines_of_text(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("[INST] a\n{b}\nprompt\n")
    assert read_prompts(path) == ["[INST] a", "{b}", "prompt"]
    path.write_text("prompt\ninput, output\n")
    assert read_prompts(path) == ["prompt", "input, output"]
    path.write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    assert read_prompts(path) == ["a", "b"]


# --- what may be lost ---------------------------------------------------------------------------------------------


def dialogue_file(tmp_path: Path, bad: int, good: int = 40) -> Path:
    path = tmp_path / "hh.jsonl"
    same = {"chosen": "\n\nHuman: a\n\nAssistant: b", "rejected": "\n\nHuman: a\n\nAssistant: b"}
    rows = [row.given for row in rows_that_show("hh-rlhf", good)] + [same] * bad
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_more_than_may_be_lost_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = dialogue_file(tmp_path, bad=2)
    words = ["data", "convert", str(path), str(tmp_path / "out.jsonl"), "--skip-bad"]
    assert main([*words, "0.04"]) == 2
    told = capsys.readouterr().err
    assert f"2 of 42 rows of {path} cannot be used, which is 4.8% where at most 4.0% may be left out" in told
    assert "the first: line 41: 'chosen' and 'rejected' are the same" in told
    assert main(words) == 2  # without a share a hundredth may be lost
    assert "at most 1.0% may be left out" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["hh.jsonl"]
    assert main([*words, "0.05"]) == 0
    assert "2 rows left out: see " in capsys.readouterr().out
    lost = [json.loads(line) for line in (tmp_path / "out.left-out.jsonl").read_text().splitlines()]
    assert [(row["line"], row["kind"]) for row in lost] == [(41, "same_answers"), (42, "same_answers")]
    assert lost[0]["row"]["chosen"] == "\n\nHuman: a\n\nAssistant: b"
    assert "raise the share" in told
    (path.parent / "half.jsonl").write_text("{}\n{}\n" + path.read_text().splitlines()[0] + "\n")
    assert (
        main(["data", "convert", str(path.parent / "half.jsonl"), str(tmp_path / "new.jsonl"), "--skip-bad", "0.5"])
        == 2
    )
    assert capsys.readouterr().err.endswith("lists all; mend them.\n"), "no share above a half is taken"
    assert main([*words, "0.9"]) == 2
    assert "--skip-bad is 0.9; give a share from 0 to 0.5." in capsys.readouterr().err


def test_the_check_says_that_bad_rows_may_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = dialogue_file(tmp_path, bad=2)
    assert main(["data", "check", str(path), "--skip-bad", "0.04"]) == 2
    assert main(["data", "check", str(path), "--skip-bad", "0.05"]) == 1
    assert "2 bad rows to be left out: a run takes this data." in capsys.readouterr().out


def test_a_conversion_says_how_much_the_check_would_find(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def converted(*values: tuple[str, str]) -> str:
        source, out = tmp_path / "s.jsonl", tmp_path / "out.jsonl"
        turns = [{"from": name, "value": text} for name, text in values]
        source.write_text(json.dumps({"conversations": turns}) + "\n")
        out.unlink(missing_ok=True)
        assert main(["data", "convert", str(source), str(out)]) == 0
        return capsys.readouterr().out

    out = tmp_path / "out.jsonl"
    assert "data check" not in converted(("human", "Open?"), ("gpt", "At noon."))
    one = converted(("human", "Hello."), ("human", "Open?"), ("gpt", "At noon."))
    assert f"\n1 warning: `holdfast data check {out}` lists it\n" in one
    assert main(["data", "check", str(out)]) == 1
    assert "[role_twice]" in capsys.readouterr().out
    several = converted(("human", "Hello."), ("human", "Open?"), ("gpt", "At\0noon."))
    assert f"\n2 warnings: `holdfast data check {out}` lists them\n" in several
    out.unlink()
    assert main(["data", "convert", str(tmp_path / "s.jsonl"), str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == 2


def test_a_conversion_that_fails_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = dialogue_file(tmp_path, bad=1)
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(HoldfastError, match="No space left on device"):
        convert(path, tmp_path / "out.jsonl", skip_share=0.5)
    assert [p.name for p in tmp_path.iterdir()] == ["hh.jsonl"]


def test_a_file_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    path = dialogue_file(tmp_path, bad=1)
    for name in ("out.jsonl", "out.left-out.jsonl"):
        (tmp_path / name).write_text("precious")
        with pytest.raises(HoldfastError, match=f"{name} exists already"):
            convert(path, tmp_path / "out.jsonl", skip_share=0.5)
        assert (tmp_path / name).read_text() == "precious"
        (tmp_path / name).unlink()


def test_a_conversion_is_the_same_every_time(tmp_path: Path) -> None:
    path = dialogue_file(tmp_path, bad=1)
    for name in ("one", "two"):
        convert(path, tmp_path / f"{name}.jsonl", skip_share=0.1)
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    convert(path, tmp_path / "three.parquet", skip_share=0.1)
    assert read_preferences(tmp_path / "three.parquet") == read_preferences(tmp_path / "one.jsonl")


# --- files that are packed, large or hostile ----------------------------------------------------------------------


def test_zstandard_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.jsonl.zst").write_bytes(packed(b'{"prompt": "a"}\n', "zstandard"))
    assert read_prompts(tmp_path / "p.jsonl.zst") == ["a"]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(HoldfastError, match=r"is packed by zstandard, which needs pyarrow: .*holdfast-rl\[parquet\]"):
        read_prompts(tmp_path / "p.jsonl.zst")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"prompt": "' + b"x" * 2**21 + b'"}\n',
        b'[{"prompt": "' + b"x" * 2**21 + b'"}]',
        b'prompt,completion\n"' + b"x" * 2**21 + b'",y\n',
        b'prompt,completion\n"' + (b"x" * 999 + b"\n") * 2100 + b'",y\n',
        b"x" * 2**21,
    ],
    ids=["line", "element", "cell", "cell of many lines", "no line break"],
)
def test_what_unpacks_to_a_row_without_end_is_a_sentence(
    raw: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.data.lines.LONGEST_LINE", 2**20)
    path = tmp_path / "bomb.jsonl"
    path.write_bytes(gzip.compress(raw, mtime=0))
    tracemalloc.start()
    try:
        with pytest.raises(HoldfastError, match=r"longer than 1 MiB|never closed"):
            read_prompts(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16e6


def test_a_dialogue_of_newlines_only_takes_no_time(tmp_path: Path) -> None:
    """A pattern that looks back from every line break would need 10^10 steps here."""
    row = {"chosen": "\n\nHuman: a" + "\n" * 300_000 + "\n\nAssistant: b", "rejected": "\n\nHuman: a\n\nAssistant: c"}
    (tmp_path / "p.jsonl").write_text(json.dumps(row) + "\n")
    (item,) = read_preferences(tmp_path / "p.jsonl")
    assert item.comparison.prompt == (Message("user", "a"),)


def test_large_files_of_every_layout_are_read_a_part_at_a_time(tmp_path: Path) -> None:
    rng = random.Random(0)
    texts = [" ".join(rng.choices(["word", "text", "more"], k=1000)) + str(n) for n in range(3_000)]
    rows: list[dict[str, Any]] = [{"prompt": text, "completion": "x"} for text in texts]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    files = {
        "p.json": json.dumps(rows).encode(),
        "p.csv": b"prompt,completion\n" + "".join(f"{text},x\n" for text in texts).encode(),
        "p.jsonl.gz": gzip.compress(lines, 1, mtime=0),
        "p.jsonl.zst": packed(lines, "zstandard"),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    del rows, texts, lines, files
    for name in ("p.json", "p.csv", "p.jsonl.gz", "p.jsonl.zst"):
        tracemalloc.start()
        try:
            count = sum(isinstance(row, Row) for row in scan(tmp_path / name))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert count == 3_000  # 15 MB of text
        assert peak < 2e6
    done = convert(tmp_path / "p.jsonl.gz", tmp_path / "out.jsonl")
    assert done.written == 3_000


def test_a_table_without_a_column_is_one_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.csv").write_text("prompt;chosen\n" + "a;b\n" * 50)
    pq.write_table(pa.Table.from_pylist([{"prompt": "a", "chosen": "b"}] * 50), tmp_path / "p.parquet")
    for name, line in (("p.csv", 2), ("p.parquet", 1)):
        assert main(["data", "check", str(tmp_path / name), "--json"]) == 2
        told = json.loads(capsys.readouterr().out)
        assert told["counts"] == {"missing_column": 1}
        assert told["problems"][0]["line"] == line
