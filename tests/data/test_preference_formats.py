"""Preference files in and out: forms, provenance, sides, and errors that name the place."""

import json
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.data.formats import (
    WrittenRows,
    read_demonstrations,
    read_preferences,
    read_prompts,
    write_preferences,
)
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Message
from holdfast.preferences.comparison import (
    Choice,
    Comparison,
    Demonstration,
    Label,
    LabelledComparison,
    Provenance,
    Response,
)
from holdfast.preferences.store import PreferenceStore

A, B, TIE = Choice.A, Choice.B, Choice.TIE


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def save(path, rows):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def winner_and_loser(item: LabelledComparison) -> tuple[str, str]:
    (label,) = item.labels
    sides = item.comparison.a.text, item.comparison.b.text
    return sides if label.choice is A else sides[::-1]


@pytest.fixture(params=[".jsonl", ".parquet"])
def path(request, tmp_path):
    return tmp_path / f"data{request.param}"


TALK = (Message("user", "2+2?"),)
FORMS = {
    "plain": ({"prompt": "2+2?", "chosen": "4", "rejected": "5"}, "2+2?"),
    "conversational": (
        {"prompt": [user("2+2?")], "chosen": [assistant("4")], "rejected": [assistant("5")]},
        TALK,
    ),
    "implicit prompt": (
        {"chosen": [user("2+2?"), assistant("4")], "rejected": [user("2+2?"), assistant("5")]},
        TALK,
    ),
    "whole conversations beside the prompt": (
        {
            "prompt": [user("2+2?")],
            "chosen": [user("2+2?"), assistant("4")],
            "rejected": [user("2+2?"), assistant("5")],
        },
        TALK,
    ),
    "whole conversations beside a plain prompt": (
        {
            "prompt": "2+2?",
            "chosen": [user("2+2?"), assistant("4")],
            "rejected": [user("2+2?"), assistant("5")],
        },
        TALK,
    ),
    "several turns": (
        {
            "chosen": [user("hi"), assistant("hello"), user("2+2?"), assistant("4")],
            "rejected": [user("hi"), assistant("hello"), user("2+2?"), assistant("5")],
        },
        (Message("user", "hi"), Message("assistant", "hello"), Message("user", "2+2?")),
    ),
}


@pytest.mark.parametrize(("row", "prompt"), FORMS.values(), ids=FORMS.keys())
def test_every_form_is_read(path, row, prompt):
    (item,) = read_preferences(save(path, [row]))
    assert item.comparison.prompt == prompt
    assert winner_and_loser(item) == ("4", "5")
    assert item.labels[0].labeller == "imported"
    assert item.comparison.a.provenance == Provenance("imported", 0, 0)


def test_importing_twice_stores_once(path, tmp_path):
    save(path, [{"prompt": f"p{i}", "chosen": "yes", "rejected": "no"} for i in range(20)])
    with PreferenceStore.open(f"sqlite:///{tmp_path / 'run.db'}") as store:
        for expected in (20, 0):
            items = read_preferences(path)
            assert store.add_comparisons([item.comparison for item in items]) == expected
            assert store.add_labels([label for item in items for label in item.labels]) == expected
        assert {item.comparison for item in store.labelled()} == {item.comparison for item in items}


def test_sides_depend_on_the_pair_and_not_on_the_answer(tmp_path):
    rows = [{"prompt": f"p{i}", "chosen": "good", "rejected": "bad"} for i in range(400)]
    turned = [row | {"chosen": "bad", "rejected": "good"} for row in rows]
    items = read_preferences(save(tmp_path / "one.jsonl", rows))
    opposite = read_preferences(save(tmp_path / "two.jsonl", turned))
    assert [item.comparison for item in items] == [item.comparison for item in opposite]
    assert [item.share_a for item in items] == [1 - item.share_a for item in opposite]
    # Mean 200, standard deviation sqrt(400 / 4) = 10; the same two texts in every row must not change that.
    assert abs(sum(item.share_a for item in items) - 200) < 50


def test_rows_about_one_pair_become_one_comparison(path):
    row = {"prompt": "p", "chosen": "x", "rejected": "y"}
    turned = {"prompt": "p", "chosen": "y", "rejected": "x"}
    rows = [row | {"labeller": "zoe"}, turned | {"labeller": "anna"}, row | {"labeller": "zoe"}]
    (item,) = read_preferences(save(path, rows))
    assert [label.labeller for label in item.labels] == ["anna", "zoe"]
    assert {label.choice for label in item.labels} == {A, B}


def test_one_labeller_on_both_sides_is_a_tie_in_any_order(tmp_path):
    row = {"prompt": "p", "chosen": "x", "rejected": "y"}
    turned = {"prompt": "p", "chosen": "y", "rejected": "x"}
    for number, rows in enumerate([[row, turned], [turned, row], [row, turned, row]]):
        (item,) = read_preferences(save(tmp_path / f"{number}.jsonl", rows))
        assert [label.choice for label in item.labels] == [TIE]


def labelled(key, choices, a="left", b="right", prompt="p", seed=11):
    sides = Response(a, Provenance("policy-3", 3, seed)), Response(b, Provenance("policy-4", 4, 12))
    labels = tuple(Label(key, name, choice) for name, choice in choices.items())
    return LabelledComparison(Comparison(key, prompt, *sides, round=5), labels)


@pytest.mark.parametrize("conversational", [False, True])
def test_provenance_survives_export_and_import(path, conversational):
    given = [labelled("1", {"anna": A}), labelled("2", {"ben": B}, prompt="q")]
    assert write_preferences(path, given, conversational) == WrittenRows(written=2, skipped=0)
    back = read_preferences(path)
    for before, after in zip(given, back, strict=True):
        prompt = before.comparison.prompt
        assert after.comparison.prompt == ((Message("user", prompt),) if conversational else prompt)
        assert after.comparison.round == 5
        assert {after.comparison.a, after.comparison.b} == {before.comparison.a, before.comparison.b}
        assert winner_and_loser(after) == winner_and_loser(before)
        assert after.labels[0].labeller == before.labels[0].labeller


def test_the_columns_of_a_plain_export(tmp_path):
    path = tmp_path / "out.jsonl"
    write_preferences(path, [labelled("1", {"anna": B})])
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "prompt": "p",
        "chosen": "right",
        "rejected": "left",
        "labeller": "anna",
        "round": 5,
        "chosen_policy_version": "policy-4",
        "chosen_round": 4,
        "chosen_seed": 12,
        "rejected_policy_version": "policy-3",
        "rejected_round": 3,
        "rejected_seed": 11,
    }


def test_comparisons_without_a_winner_are_skipped_and_counted(path):
    given = [
        labelled("1", {"anna": TIE}),
        labelled("2", {"anna": A, "ben": B}),
        labelled("3", {"anna": B, "ben": B, "zoe": A}),
        labelled("4", {"anna": A}, a="same", b="same"),
    ]
    assert write_preferences(path, given) == WrittenRows(written=1, skipped=3)
    (item,) = read_preferences(path)
    assert [label.labeller for label in item.labels] == ["anna", "ben"]
    assert len({label.choice for label in item.labels}) == 1


def test_an_export_without_any_winner_is_refused(path):
    with pytest.raises(HoldfastError, match="no comparison has a winner"):
        write_preferences(path, [labelled("1", {"anna": TIE})])
    assert not path.exists()


def test_a_conversation_is_exported_only_as_one(path):
    talk = (Message("system", "s"), Message("user", "u"))
    item = labelled("1", {"anna": A}, prompt=talk)
    with pytest.raises(HoldfastError, match="conversational=True"):
        write_preferences(path, [item])
    write_preferences(path, [item], conversational=True)
    assert read_preferences(path)[0].comparison.prompt == talk


def test_seeds_past_64_bits_survive(path):
    given = [labelled("1", {"anna": A}, seed=2**64 - 1), labelled("2", {"anna": A}, prompt="q", seed=-3)]
    write_preferences(path, given)
    seeds = {side.provenance.seed for item in read_preferences(path) for side in _sides(item)}
    assert seeds == {2**64 - 1, -3, 12}


def _sides(item):
    return item.comparison.a, item.comparison.b


@pytest.mark.parametrize("words", ["a\0b", "\u202ebidi\u2028line\x85", "x" * 2**20, "\ufeff\U0001f600", "a\r\n"])
def test_hard_text_survives(path, words):
    write_preferences(path, [labelled("1", {"anna": A}, a=words, prompt=words)])
    (item,) = read_preferences(path)
    assert item.comparison.prompt == words
    assert winner_and_loser(item) == (words, "right")


def test_a_lone_surrogate_is_written_as_jsonl_and_refused_by_parquet_and_on_reading(tmp_path):
    given = [labelled("1", {"anna": A}, a="\ud83d")]
    write_preferences(tmp_path / "out.jsonl", given)
    assert json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))["chosen"] == "\ud83d"
    with pytest.raises(HoldfastError, match="line 1: 'chosen' holds half a character"):
        read_preferences(tmp_path / "out.jsonl")  # no tokenizer takes it
    with pytest.raises(HoldfastError, match="lone surrogate"):
        write_preferences(tmp_path / "out.parquet", given)
    assert [file.name for file in tmp_path.iterdir()] == ["out.jsonl"]


def test_an_existing_file_is_kept(path):
    path.write_text("precious")
    with pytest.raises(HoldfastError, match="exists already"):
        write_preferences(path, [labelled("1", {"anna": A})])
    assert path.read_text() == "precious"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_write_that_fails_leaves_no_file(path, monkeypatch):
    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HoldfastError, match="No space left on device"):
        write_preferences(path, [labelled("2", {"anna": B})])
    assert list(path.parent.iterdir()) == []


def test_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(HoldfastError, match="Cannot write"):
        write_preferences(tmp_path / "none" / "out.jsonl", [labelled("1", {"anna": A})])


GOOD = json.dumps({"prompt": "p", "chosen": "x", "rejected": "y"})
BAD_LINES = {
    "bad JSON": ('{"prompt": "p", ', "is not JSON"),
    "deep JSON": ("[" * 100_000, "is nested too deeply"),
    "not an object": ('["p", "x", "y"]', "must be a JSON object"),
    "missing column": ('{"prompt": "p", "chosen": "x"}', "needs a column 'rejected' and has prompt, chosen"),
    "null": ('{"prompt": "p", "chosen": "x", "rejected": null}', "needs a column 'rejected'"),
    "no prompt": ('{"chosen": "x", "rejected": "y"}', "needs a column 'prompt'"),
    "empty prompt": ('{"prompt": "", "chosen": "x", "rejected": "y"}', "'prompt' is empty"),
    "number": ('{"prompt": 3, "chosen": "x", "rejected": "y"}', "'prompt' must be a string, or a list"),
    "mixed": ('{"prompt": "p", "chosen": "x", "rejected": []}', "must both be strings or both be lists"),
    "same": ('{"prompt": "p", "chosen": "x", "rejected": "x"}', "'chosen' and 'rejected' are the same"),
    "same conversation": (
        json.dumps({"chosen": [user("p"), assistant("x")], "rejected": [user("p"), assistant("x")]}),
        "'chosen' and 'rejected' are the same",
    ),
    "no shared start": (
        json.dumps({"chosen": [user("p"), assistant("x")], "rejected": [user("q"), assistant("y")]}),
        "do not begin with the same messages",
    ),
    "parting before the last answer": (
        json.dumps(
            {
                "chosen": [user("p"), assistant("x"), user("q"), assistant("z")],
                "rejected": [user("p"), assistant("y"), user("q"), assistant("z")],
            }
        ),
        "'chosen' must hold exactly one answer of the assistant",
    ),
    "one cut short": (
        json.dumps({"chosen": [user("p"), assistant("x")], "rejected": [user("p")]}),
        "'rejected' must hold exactly one answer",
    ),
    "prompt that is not the start": (
        json.dumps({"prompt": "q", "chosen": [user("p"), assistant("x")], "rejected": [user("p"), assistant("y")]}),
        "'prompt' is not what",
    ),
    "message without content": (
        json.dumps({"prompt": [{"role": "user"}], "chosen": [assistant("x")], "rejected": [assistant("y")]}),
        "'prompt' must be a string, or a list of messages",
    ),
    "seed": (GOOD[:-1] + ', "chosen_seed": 1.5}', "'chosen_seed' must be an integer"),
    "labeller": (GOOD[:-1] + ', "labeller": 7}', "'labeller' must be a string"),
    "labellers": (GOOD[:-1] + ', "labeller": ["anna", ""]}', "'labeller' must be a string or a list"),
    "not UTF-8": (b"\xff\xfe", "is not UTF-8"),
}


@pytest.mark.parametrize(("line", "sentence"), BAD_LINES.values(), ids=BAD_LINES.keys())
def test_errors_name_the_file_and_the_line(tmp_path, line, sentence):
    path = tmp_path / "bad.jsonl"
    raw = line if isinstance(line, bytes) else line.encode()
    path.write_bytes(GOOD.encode() + b"\n\n" + raw + b"\n")
    with pytest.raises(HoldfastError) as caught:
        read_preferences(path)
    assert str(caught.value).startswith(f"{path}, line 3: ")
    assert sentence in str(caught.value)


def test_errors_in_parquet_name_the_row(tmp_path):
    rows = [{"prompt": "p", "chosen": "x", "rejected": "y"}, {"prompt": "p", "chosen": "x", "rejected": None}]
    path = save(tmp_path / "bad.parquet", rows)
    with pytest.raises(HoldfastError, match=r"bad\.parquet, row 2: needs a column 'rejected'"):
        read_preferences(path)


@pytest.mark.parametrize("content", [b"", b"\n \n\n"])
def test_an_empty_file_is_refused(tmp_path, content):
    for name, reader in [
        ("a.jsonl", read_preferences),
        ("b.jsonl", read_demonstrations),
        ("c.txt", read_prompts),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(HoldfastError, match=f"{name} is empty"):
            reader(tmp_path / name)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "dir.jsonl").mkdir()
    (tmp_path / "prompts.txt").write_text("When do you open?")
    for name, sentence in [
        ("torn.parquet", "cannot be read as Parquet"),
        ("dir.jsonl", "is a directory, but not one that datasets"),
        ("none.jsonl", "Cannot read"),
        ("prompts.txt", "begins neither as JSON nor as CSV with known columns nor as Parquet"),
    ]:
        with pytest.raises(HoldfastError, match=sentence):
            read_preferences(tmp_path / name)
    with pytest.raises(HoldfastError, match=r"use \.jsonl or \.parquet\."):
        write_preferences(tmp_path / "out.csv", [labelled("1", {"anna": A})])


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = save(tmp_path / "data.parquet", [{"prompt": "p", "chosen": "x", "rejected": "y"}])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(HoldfastError, match=r"pip install 'holdfast-rl\[parquet\]'"):
        read_preferences(path)
    with pytest.raises(HoldfastError, match=r"pip install 'holdfast-rl\[parquet\]'"):
        write_preferences(tmp_path / "out.parquet", [labelled("1", {"anna": A})])


def test_prompts_from_tables(tmp_path):
    path = save(tmp_path / "p.jsonl", [{"prompt": "a"}, {"prompt": [user("b")], "other": 1}, {"prompt": "a"}])
    assert read_prompts(path) == ["a", (Message("user", "b"),), "a"]
    assert read_prompts(save(tmp_path / "p.parquet", [{"prompt": "a"}, {"prompt": "b"}])) == ["a", "b"]
    with pytest.raises(HoldfastError, match=r"q\.jsonl, line 2: needs a column 'prompt' and has question"):
        read_prompts(save(tmp_path / "q.jsonl", [{"prompt": "a"}, {"question": "b"}]))


def test_prompts_from_text_are_its_lines(tmp_path):
    path = tmp_path / "p.txt"
    path.write_bytes("\ufefffirst\r\n\n  second \u2028 still second\nlast".encode())
    assert read_prompts(path) == ["first", "  second \u2028 still second", "last"]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prompt": "p", "completion": "c"}, Demonstration("p", "c")),
        ({"prompt": "p", "response": "c"}, Demonstration("p", "c")),
        (
            {"prompt": [user("p")], "completion": [assistant("c")]},
            Demonstration((Message("user", "p"),), "c"),
        ),
        (
            {"messages": [user("p"), assistant("c")], "prompt": "p"},
            Demonstration((Message("user", "p"),), "c"),
        ),
        (
            {"messages": [user("p"), assistant("q"), user("r"), assistant("c")]},
            Demonstration((Message("user", "p"), Message("assistant", "q"), Message("user", "r")), "c"),
        ),
    ],
)
def test_demonstrations(path, row, expected):
    assert read_demonstrations(save(path, [row])) == [expected]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"prompt": "p"}, "must have one of 'completion', 'response' or 'messages', and has none"),
        ({"prompt": "p", "completion": "c", "response": "d"}, "has 'completion' and 'response'"),
        ({"completion": "c"}, "needs a column 'prompt'"),
        ({"messages": [user("p")]}, "must hold a prompt and an answer"),
        ({"messages": [user("p"), user("q")]}, "'messages' must hold exactly one answer of the assistant"),
        ({"prompt": "p", "completion": 4}, "'completion' must be a string, or a list"),
    ],
)
def test_bad_demonstrations(path, row, sentence):
    with pytest.raises(HoldfastError, match=sentence) as caught:
        read_demonstrations(save(path, [row]))
    assert str(caught.value).startswith(f"{path}, ")
