"""Data files as people have them, each with the truth about it: what a conversion has to give, and what to refuse.

Rows are made together with what they mean, by hypothesis or from a seed, and written by code of its own: nothing here
uses what `holdfast.data` does to read them. A row that cannot be used carries the kind of problem that has to be named.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

Value = dict[str, Any]


@dataclass(frozen=True)
class MadeRow:
    """A row as it stands in the file, and either the row that it becomes or the kind of problem that it has."""

    given: Value
    becomes: Value | None = None
    wrong: str = ""


@dataclass(frozen=True)
class MadeFile:
    """A file, the format that it has to be recognised as, and its rows with their places.

    `refused` is set where the file as a whole cannot be read: the kind of the problem, at `refused_at`.
    """

    name: str
    format: str
    content: bytes
    rows: Sequence[MadeRow] = ()
    places: Sequence[int] = ()
    refused: str = ""
    refused_at: int = 0
    made_by: str = "hand"
    unit: str = "line"  # what the places count

    @property
    def expected(self) -> list[Value]:
        return [row.becomes for row in self.rows if row.becomes is not None]

    @property
    def wrong(self) -> list[tuple[int, str]]:
        """Place and kind of each row that cannot be used."""
        return [(place, row.wrong) for row, place in zip(self.rows, self.places, strict=True) if row.wrong]


def said(role: str, content: str) -> Value:
    return {"role": role, "content": content}


# ---- rows of each format, from turns and answers


def pair_of(turns: Sequence[Value], chosen: str, rejected: str) -> Value:
    return {
        "prompt": list(turns),
        "chosen": [said("assistant", chosen)],
        "rejected": [said("assistant", rejected)],
    }


def talk(turns: Sequence[Value]) -> str:
    """A dialogue as hh-rlhf writes it."""
    names = {"user": "Human", "assistant": "Assistant"}
    return "".join(f"\n\n{names[turn['role']]}: {turn['content']}" for turn in turns)


def hh(turns: Sequence[Value], chosen: str, rejected: str) -> MadeRow:
    sides = {"chosen": chosen, "rejected": rejected}
    given = {side: talk([*turns, said("assistant", text)]) for side, text in sides.items()}
    wrong = "same_answers" if chosen == rejected else ""
    return MadeRow(given, None if wrong else pair_of(turns, chosen, rejected), wrong)


def sharegpt(turns: Sequence[Value], answer: str) -> MadeRow:
    names = {"user": "human", "assistant": "gpt", "system": "system"}
    whole = [*turns, said("assistant", answer)]
    given = {"id": "x1", "conversations": [{"from": names[t["role"]], "value": t["content"]} for t in whole]}
    return MadeRow(given, {"prompt": list(turns), "completion": [said("assistant", answer)]})


def alpaca(instruction: str, more: str, answer: str) -> MadeRow:
    given = {"instruction": instruction, "input": more, "output": answer}
    if not answer:
        return MadeRow(given, wrong="empty_demonstration")
    return MadeRow(given, {"prompt": f"{instruction}\n\n{more}" if more else instruction, "completion": answer})


def ultrafeedback(asked: str, answers: Sequence[str], scores: Sequence[float]) -> MadeRow:
    completions = [
        {"model": f"m{n}", "response": text, "overall_score": score}
        for n, (text, score) in enumerate(zip(answers, scores, strict=True))
    ]
    given = {"source": "evol", "instruction": asked, "completions": completions}
    if len(set(scores)) == 1:
        return MadeRow(given, wrong="no_scores")
    best, worst = answers[scores.index(max(scores))], answers[scores.index(min(scores))]
    if best == worst:
        return MadeRow(given, wrong="same_answers")
    return MadeRow(given, {"prompt": asked, "chosen": best, "rejected": worst})


def binarized(turns: Sequence[Value], chosen: str, rejected: str) -> MadeRow:
    given = {"prompt": turns[0]["content"], "prompt_id": "7f", "score_chosen": 8.0, "score_rejected": 4.0}
    sides = {"chosen": chosen, "rejected": rejected}
    given |= {side: [*turns, said("assistant", text)] for side, text in sides.items()}
    wrong = "same_answers" if chosen == rejected else ""
    return MadeRow(given, None if wrong else pair_of(turns, chosen, rejected), wrong)


def openai_chat(turns: Sequence[Value], answer: str) -> MadeRow:
    given = {"messages": [*turns, said("assistant", answer)]}
    return MadeRow(given, {"prompt": list(turns), "completion": [said("assistant", answer)]})


def openai_preference(turns: Sequence[Value], chosen: str, rejected: str) -> MadeRow:
    given = {
        "input": {"messages": list(turns), "parallel_tool_calls": True},
        "preferred_output": [said("assistant", chosen)],
        "non_preferred_output": [said("assistant", rejected)],
    }
    wrong = "same_answers" if chosen == rejected else ""
    return MadeRow(given, None if wrong else pair_of(turns, chosen, rejected), wrong)


def plain(asked: str, chosen: str, rejected: str) -> MadeRow:
    given = {"prompt": asked, "chosen": chosen, "rejected": rejected}
    return MadeRow(given, None, "same_answers") if chosen == rejected else MadeRow(given, given)


# ---- files of rows


@dataclass(frozen=True)
class Layout:
    """How rows are laid out in a file."""

    kind: str = "jsonl"
    packing: str = ""
    separator: str = ","
    line_end: str = "\n"
    bom: bool = False
    indent: int | None = None
    ascii: bool = True

    @property
    def words(self) -> str:
        return " ".join(filter(None, (self.kind, self.packing)))


def made_file(name: str, format_name: str, rows: Sequence[MadeRow], layout: Layout, made_by: str = "hand") -> MadeFile:
    """The bytes of a file with these rows, and the place by which each is named."""
    given = [row.given for row in rows]
    unit = "row" if layout.kind in ("json", "parquet") else "line"
    places: Sequence[int] = range(1, len(rows) + 1)
    if layout.kind == "parquet":
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(given), buffer)
        raw = buffer.getvalue()
    elif layout.kind == "json":
        raw = json.dumps(given, indent=layout.indent, ensure_ascii=layout.ascii).encode()
    elif layout.kind == "csv":
        text, places = separated(given, layout)
        raw = text.encode()
    else:
        lines = [json.dumps(row, ensure_ascii=layout.ascii) for row in given]
        raw = "".join(line + layout.line_end for line in lines).encode()
    raw = b"\xef\xbb\xbf" + raw if layout.bom else raw
    return MadeFile(name, format_name, packed(raw, layout.packing), rows, places, made_by=made_by, unit=unit)


def separated(rows: Sequence[Value], layout: Layout) -> tuple[str, list[int]]:
    """CSV or TSV, and the line on which each row begins."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=layout.separator, lineterminator=layout.line_end, quoting=csv.QUOTE_ALL)
    writer.writerow(rows[0])
    places = []
    for row in rows:
        places.append(out.getvalue().count("\n") + 1)
        writer.writerow([value if isinstance(value, str) else json.dumps(value) for value in row.values()])
    return out.getvalue(), places


def packed(raw: bytes, packing: str) -> bytes:
    if packing == "gzip":
        return gzip.compress(raw, mtime=0)
    if packing == "zstandard":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(raw)
        return bytes(sink.getvalue())
    return raw


# ---- by hypothesis

TEXTS = (
    'He said "yes".', "a; b, c\td | e", "Zoë, 日本語, 🙂", "line one\nline two", "one\n\ntwo",
    "see Human: and Assistant: here", "[1, 2]", "{'a': None}", "=SUM(A1)", "x" * 3000, "1", "null", "NaN", "\\n",
    "back\\slash", "tab\there", "a\r\nb", "a\u2028b",
)  # fmt: skip


def _usable(text: str) -> bool:
    """A text that means the same in every format: visible, with nothing around it, and no turn of a dialogue."""
    return bool(text) and text == text.strip() and "Human:" not in text and "Assistant:" not in text


def texts() -> st.SearchStrategy[str]:
    free = (
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30).map(str.strip).filter(_usable)
    )
    return free | st.sampled_from([text for text in TEXTS if text.strip()])


@st.composite
def conversations(draw: st.DrawFn, system: bool = False) -> list[Value]:
    """Turns that end with the user's."""
    turns = [said("user", draw(texts()))]
    for _ in range(draw(st.integers(0, 2))):
        turns += [said("assistant", draw(texts())), said("user", draw(texts()))]
    return [said("system", draw(texts())), *turns] if system and draw(st.booleans()) else turns


def rows_of(format_name: str) -> st.SearchStrategy[MadeRow]:
    """Rows of a format, of which some cannot be used."""
    turns, text = conversations(), texts()
    strategies: dict[str, st.SearchStrategy[MadeRow]] = {
        "hh-rlhf": st.builds(hh, turns, text, text) | odd_dialogues(),
        "sharegpt": st.builds(sharegpt, conversations(system=True), text) | odd_sharegpt(),
        "alpaca": st.builds(alpaca, text, text | st.just(""), text)
        | st.builds(
            lambda a: MadeRow({"instruction": a, "input": "", "output": ""}, wrong="empty_demonstration"), text
        ),
        "ultrafeedback": st.builds(
            lambda asked, rated: ultrafeedback(asked, [r[0] for r in rated], [r[1] for r in rated]),
            text,
            st.lists(st.tuples(text, st.integers(1, 10).map(float)), min_size=2, max_size=4),
        ),
        "openai-chat": st.builds(openai_chat, conversations(system=True), text),
        "openai-preference": st.builds(openai_preference, conversations(system=True), text, text),
        "holdfast": st.builds(plain, text, text, text),
    }
    return strategies[format_name]


@st.composite
def odd_dialogues(draw: st.DrawFn) -> MadeRow:
    """What stands in hh-rlhf beside the ordinary."""
    return odd_dialogue(draw(st.sampled_from(ODD)), draw(conversations()), draw(texts()), draw(texts()))


ODD = (
    "empty turn", "empty answer", "human twice", "trailing human", "no assistant", "other prompt", "same",
    "text before", "no turns", "longer on one side",
)  # fmt: skip


def odd_dialogue(kind: str, turns: Sequence[Value], good: str, bad: str) -> MadeRow:
    """A dialogue that is odd in one way, and what has to come of it."""
    bad = bad if bad != good else f"{bad}, no"
    sides = {"chosen": [*turns, said("assistant", good)], "rejected": [*turns, said("assistant", bad)]}
    if kind == "empty turn":
        hole = [*turns, said("assistant", ""), said("user", "And?")]
        sides = {"chosen": [*hole, said("assistant", good)], "rejected": [*hole, said("assistant", bad)]}
        return MadeRow({side: talk(whole) for side, whole in sides.items()}, wrong="empty_message")
    if kind == "empty answer":
        given = {"chosen": talk(sides["chosen"]), "rejected": talk([*turns, said("assistant", "")])}
        return MadeRow(given, pair_of(turns, good, ""))
    if kind == "human twice":
        more = [*turns, said("user", "Are you there?")]
        given = {side: talk([*more, said("assistant", text)]) for side, text in (("chosen", good), ("rejected", bad))}
        return MadeRow(given, pair_of(more, good, bad))
    if kind == "trailing human":
        given = {side: talk([*whole, said("user", "Thanks")]) for side, whole in sides.items()}
        return MadeRow(given, wrong="no_answer")
    if kind == "no assistant":
        return MadeRow({"chosen": talk(sides["chosen"]), "rejected": talk(turns)}, wrong="no_answer")
    if kind == "other prompt":
        other = [said("user", f"Not {turns[0]['content']}"), *turns[1:], said("assistant", bad)]
        return MadeRow({"chosen": talk(sides["chosen"]), "rejected": talk(other)}, wrong="different_prompts")
    if kind == "same":
        return MadeRow({side: talk(sides["chosen"]) for side in sides}, wrong="same_answers")
    if kind == "text before":
        given = {side: f"Below is a talk.{talk(whole)}" for side, whole in sides.items()}
        return MadeRow(given, wrong="not_a_dialogue")
    if kind == "no turns":
        return MadeRow({"chosen": good, "rejected": bad}, wrong="not_a_dialogue")
    given = {
        "chosen": talk(sides["chosen"]),
        "rejected": talk([*sides["rejected"], said("user", "?"), sides["chosen"][-1]]),
    }
    return MadeRow(given, wrong="no_answer")


@st.composite
def odd_sharegpt(draw: st.DrawFn) -> MadeRow:
    asked, text = {"from": "human", "value": draw(texts())}, draw(texts())
    odd: dict[str, Any] = {
        "no_answer": [asked, {"from": "gpt", "value": text}, asked],
        "unknown_role": [asked, {"from": "narrator", "value": text}],
        "empty_demonstration": [asked, {"from": "gpt", "value": " "}],
        "wrong_type": [asked, {"speaker": "gpt", "value": text}],
    }
    wrong = draw(st.sampled_from(sorted(odd)))
    return MadeRow({"conversations": odd[wrong]}, wrong=wrong)


# Formats whose columns a spreadsheet can hold.
FLAT = ("hh-rlhf", "alpaca", "holdfast")
FORMATS = ("hh-rlhf", "sharegpt", "alpaca", "ultrafeedback", "openai-chat", "openai-preference", "holdfast")


@st.composite
def made_files(draw: st.DrawFn) -> MadeFile:
    """A file of any format in any layout, under a name that says nothing about either."""
    format_name = draw(st.sampled_from(FORMATS))
    kinds = ["jsonl", "json", "parquet", *(["csv"] if format_name in FLAT else [])]
    kind = draw(st.sampled_from(kinds))
    layout = Layout(
        kind,
        draw(st.sampled_from(["", "gzip", "zstandard"])) if kind != "parquet" else "",
        draw(st.sampled_from([",", ";", "\t", "|"])),
        draw(st.sampled_from(["\n", "\r\n"])),
        draw(st.booleans()) if kind in ("csv", "jsonl") else False,
        draw(st.sampled_from([None, 1])),
        draw(st.booleans()),
    )
    rows = draw(st.lists(rows_of(format_name), min_size=1, max_size=12))
    # Most rows show the format, as in life; a file of odd rows only is made by hand.
    good = [row for row in rows if not row.wrong]
    rows = (rows_that_show(format_name) if len(good) * 2 <= len(rows) else []) + rows
    if kind == "parquet":  # one type for each column, whatever the row
        rows = [row for row in rows if row.wrong != "wrong_type"]
    name = draw(st.sampled_from(["data.jsonl", "data.csv", "data.json", "data", "data.dat"]))
    return made_file(name, format_name, rows, layout, f"hypothesis, {layout.words}")


def rows_that_show(format_name: str, number: int = 12) -> list[MadeRow]:
    """Ordinary rows of a format."""
    asked = [[said("user", f"Question {n}?")] for n in range(number)]
    made: dict[str, Any] = {
        "hh-rlhf": lambda n: hh(asked[n], f"Answer {n}.", "Hm."),
        "sharegpt": lambda n: sharegpt(asked[n], f"Answer {n}."),
        "alpaca": lambda n: alpaca(f"Question {n}?", "", f"Answer {n}."),
        "ultrafeedback": lambda n: ultrafeedback(f"Question {n}?", [f"Answer {n}.", "Hm."], [8.0, 3.0]),
        "openai-chat": lambda n: openai_chat(asked[n], f"Answer {n}."),
        "openai-preference": lambda n: openai_preference(asked[n], f"Answer {n}.", "Hm."),
        "holdfast": lambda n: plain(f"Question {n}?", f"Answer {n}.", "Hm."),
    }
    return [made[format_name](n) for n in range(number)]


# ---- the 2,312 dialogues

WORDS = (
    "what",
    "is",
    "the",
    "best",
    "way",
    "to",
    "cook",
    "rice",
    "can",
    "you",
    "help",
    "me",
    "sure",
    "no",
    "idea",
    "yes",
)


def dialogues(number: int = 2_312, seed: int = 26, odd_share: float = 0.1) -> list[MadeRow]:
    """Dialogues like those of hh-rlhf, a tenth of them odd in one of the ways that are found there."""
    rng = random.Random(seed)

    def text() -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(1, 30))).capitalize() + rng.choice(
            [".", "?", "!", ":\n\n- one\n- two"]
        )

    rows = []
    for n in range(number):
        turns = [said("user", f"{text()} ({n})")]
        for _ in range(rng.choice([0, 0, 1, 2, 3])):
            turns += [said("assistant", text()), said("user", text())]
        odd = n >= 20 and rng.random() < odd_share
        good, bad = text(), text()
        rows.append(odd_dialogue(rng.choice(ODD), turns, good, bad) if odd else hh(turns, good, bad))
    return rows


@dataclass
class Files:
    """Files made by hand, collected."""

    files: list[MadeFile] = field(default_factory=list)

    def rows(self, name: str, format_name: str, rows: Sequence[MadeRow], layout: Layout | None = None) -> None:
        self.files.append(made_file(name, format_name, rows, layout or Layout()))

    def refused(self, name: str, content: bytes, kind: str, at: int, format_name: str = "none") -> None:
        self.files.append(MadeFile(name, format_name, content, refused=kind, refused_at=at))


def by_hand() -> list[MadeFile]:
    """Files as they are met: good ones in every format, and what goes wrong with them."""
    files = Files()
    _ordinary(files)
    _spreadsheets(files)
    _odd_rows(files)
    _broken(files)
    return files.files


def _ordinary(files: Files) -> None:
    files.rows("hh-rlhf-2312.jsonl", "hh-rlhf", dialogues())
    files.rows("hh-rlhf-2312.jsonl.gz", "hh-rlhf", dialogues(seed=27, odd_share=0.02), Layout(packing="gzip"))
    for format_name in FORMATS:
        files.rows(f"{format_name}.jsonl", format_name, rows_that_show(format_name))
    files.rows("array.json", "sharegpt", rows_that_show("sharegpt", 300), Layout("json"))
    files.rows("pretty.json", "alpaca", rows_that_show("alpaca", 300), Layout("json", indent=2))
    files.rows("array.json.zst", "openai-chat", rows_that_show("openai-chat"), Layout("json", "zstandard"))
    files.rows("table.parquet", "ultrafeedback", rows_that_show("ultrafeedback"), Layout("parquet"))
    files.rows("parquet-under-another-name.jsonl", "hh-rlhf", rows_that_show("hh-rlhf"), Layout("parquet"))
    files.rows("json-under-another-name.csv", "alpaca", rows_that_show("alpaca"))
    turns = [said("user", "Open?")]
    files.rows("binarized.jsonl", "ultrafeedback", [binarized(turns, "At noon.", f"Hello {n}.") for n in range(5)])


def _spreadsheets(files: Files) -> None:
    rows = [plain('When,\n"exactly"; do you open?', "At noon.\r\n\r\nBring a coat.", "Hm"), plain("p", "x", "y")]
    for name, layout in {
        "excel.csv": Layout("csv", separator=";", line_end="\r\n", bom=True),
        "numbers.csv": Layout("csv"),
        "tabs.tsv": Layout("csv", separator="\t"),
        "csv-under-another-name.jsonl": Layout("csv"),
        "table.csv.gz": Layout("csv", "gzip"),
    }.items():
        files.rows(name, "holdfast", rows, layout)
    files.rows("hh.csv", "hh-rlhf", rows_that_show("hh-rlhf"), Layout("csv"))
    content = b"sep=;\r\nPrompt;Completion;\r\nWhen?;At noon.;\r\n;;\r\nWhere?;Here.;\r\n"
    demonstrations = [
        MadeRow({}, {"prompt": p, "completion": c}) for p, c in (("When?", "At noon."), ("Where?", "Here."))
    ]
    files.files.append(MadeFile("sep-line.csv", "holdfast", content, demonstrations, (3, 5)))
    judged = b"prompt,completion,label\r\nWhen?,At noon.,TRUE\r\nWhen?,Hm.,FALSE\r\n"
    labels = [("At noon.", True), ("Hm.", False)]
    made = [MadeRow({}, {"prompt": "When?", "completion": text, "label": good}) for text, good in labels]
    files.files.append(MadeFile("labels.csv", "holdfast", judged, made, (2, 3)))
    talk_text = json.dumps([said("user", "Wifi?"), said("assistant", "Ask at the bar.")]).replace('"', '""')
    cell = f'messages\n"{talk_text}"\n'.encode()
    turns = MadeRow({}, {"prompt": [said("user", "Wifi?")], "completion": [said("assistant", "Ask at the bar.")]})
    files.files.append(MadeFile("messages-in-a-cell.csv", "openai-chat", cell, [turns], (2,)))
    bad = b"prompt,chosen,rejected\na,b,c\nWhere, please?,here,there\nd,e,f\n"
    columns = [dict(zip(("prompt", "chosen", "rejected"), text, strict=True)) for text in ("abc", "def")]
    made = [MadeRow({}, columns[0]), MadeRow({}, wrong="wrong_cells"), MadeRow({}, columns[1])]
    files.files.append(MadeFile("comma-in-a-text.csv", "holdfast", bad, made, (2, 3, 4)))
    latin = "prompt,completion\nWhen?,At noon.\nCafé?,Yes.\nWhere?,Here.\n".encode("latin-1")
    made = [demonstrations[0], MadeRow({}, wrong="not_utf8"), demonstrations[1]]
    files.files.append(MadeFile("latin-1.csv", "holdfast", latin, made, (2, 3, 4)))
    files.refused("quote-never-closed.csv", b'prompt,completion\na,b\n"c,d\ne,f\n', "bad_quotes", 3, "holdfast")
    files.refused("column-twice.csv", b"prompt,prompt\na,b\n", "repeated_key", 1, "holdfast")
    files.refused("no-such-columns.csv", b"frage;antwort\na;b\nc;d\n", "unknown_format", 2)
    files.refused("no-rejected.csv", b"prompt,chosen\n" + b"a,b\n" * 50, "missing_column", 2, "holdfast")


def _odd_rows(files: Files) -> None:
    asked, answered = [said("user", "Open?")], said("assistant", "At noon.")
    demonstration = {"prompt": asked, "completion": [answered]}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function"}]}
    parts = {"role": "user", "content": [{"type": "text", "text": "Op"}, {"type": "text", "text": "en?"}]}
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    made = [
        MadeRow({"messages": [*asked, answered], "tools": []}, demonstration),
        MadeRow({"messages": [parts, answered]}, demonstration),
        MadeRow({"messages": [picture, answered]}, wrong="wrong_type"),
        MadeRow({"messages": [*asked, call]}, wrong="wrong_type"),
        MadeRow({"messages": [*asked]}, wrong="no_answer"),
        MadeRow({"messages": [*asked, answered, *asked]}, wrong="no_answer"),
        MadeRow({"messages": []}, wrong="no_answer"),
        MadeRow({"messages": [said("narrator", "x"), answered]}, wrong="unknown_role"),
    ]
    files.rows("openai-odd.jsonl", "openai-chat", [*rows_that_show("openai-chat"), *made])
    pair = {"input": {"messages": asked}, "preferred_output": [answered]}
    odd = [
        MadeRow({**pair, "non_preferred_output": [answered]}, wrong="same_answers"),
        MadeRow({**pair, "non_preferred_output": []}, wrong="no_answer"),
        MadeRow({**pair, "non_preferred_output": [answered, answered]}, wrong="no_answer"),
        MadeRow({**pair, "non_preferred_output": None}, wrong="null_value"),
        MadeRow({**pair, "input": "Open?", "non_preferred_output": [said("assistant", "x")]}, wrong="wrong_type"),
    ]
    files.rows("openai-preference-odd.jsonl", "openai-preference", [*rows_that_show("openai-preference"), *odd])
    rated = {"instruction": "q", "completions": [{"response": "a", "annotations": {"x": {"Rating": "4"}}},
             {"response": "b", "annotations": {"x": {"Rating": "N/A"}, "y": {"Rating": "2"}}}]}  # fmt: skip
    unrated = {"instruction": "q", "completions": [{"response": "a", "overall_score": 3}, {"response": "b"}]}
    fine = [{"response": "a", "fine-grained_score": 4.5, "overall_score": 1},
            {"response": "b", "fine-grained_score": 2.0, "overall_score": 10}]  # fmt: skip
    feedback = [
        MadeRow(rated, {"prompt": "q", "chosen": "a", "rejected": "b"}),
        MadeRow({"instruction": "q", "completions": fine}, {"prompt": "q", "chosen": "a", "rejected": "b"}),
        MadeRow({"instruction": "q", "chosen_response": "a", "rejected_response": "b"},
                {"prompt": "q", "chosen": "a", "rejected": "b"}),
        MadeRow(unrated, wrong="no_scores"),
        MadeRow({"instruction": "q", "completions": []}, wrong="no_scores"),
        MadeRow({"instruction": "q", "completions": ["a", "b"]}, wrong="wrong_type"),
        ultrafeedback("q", ["a", "b"], [5.0, 5.0]),
    ]  # fmt: skip
    files.rows("ultrafeedback-odd.jsonl", "ultrafeedback", [*rows_that_show("ultrafeedback"), *feedback])
    earlier = {"instruction": "And?", "input": "", "output": "c", "history": [["a", "b"]], "system": "Be short."}
    turns = [said("system", "Be short."), said("user", "a"), said("assistant", "b"), said("user", "And?")]
    more = [
        MadeRow(earlier, {"prompt": turns, "completion": [said("assistant", "c")]}),
        MadeRow({"instruction": "", "input": "q", "output": "a"}, {"prompt": "q", "completion": "a"}),
        MadeRow({"instruction": "", "input": "", "output": "a"}, wrong="empty_prompt"),
        MadeRow({"instruction": "q", "input": 7, "output": "a"}, wrong="wrong_type"),
        MadeRow({"instruction": "q", "output": None}, wrong="null_value"),
        MadeRow({"instruction": "q", "input": "", "output": "a", "history": ["x"]}, wrong="wrong_type"),
    ]
    files.rows("alpaca-odd.jsonl", "alpaca", [*rows_that_show("alpaca"), *more])
    starts = [{"from": "gpt", "value": "Hi"}, {"from": "human", "value": "Open?"}, {"from": "chatgpt", "value": "Yes."}]
    begins = {"prompt": [said("assistant", "Hi"), said("user", "Open?")], "completion": [said("assistant", "Yes.")]}
    ranked = {"conversations": starts[1:2], "chosen": starts[2], "rejected": {"from": "gpt", "value": "No."}}
    shared = [MadeRow({"conversations": starts}, begins), MadeRow({"conversations": []}, wrong="no_answer")]
    files.rows("sharegpt-odd.jsonl", "sharegpt", [*rows_that_show("sharegpt"), *shared])
    files.rows("sharegpt-ranked.jsonl", "sharegpt", [MadeRow(ranked, pair_of([said("user", "Open?")], "Yes.", "No."))])
    files.rows("hh-every-oddness.jsonl", "hh-rlhf", [
        *rows_that_show("hh-rlhf", 20), *(odd_dialogue(kind, asked, "At noon.", "Hm.") for kind in ODD),
    ])  # fmt: skip
    two = [*rows_that_show("hh-rlhf", 5), MadeRow(rows_that_show("alpaca", 1)[0].given, wrong="missing_column")]
    files.rows("two-formats.jsonl", "hh-rlhf", two)


def _broken(files: Files) -> None:
    good = "".join(json.dumps(row.given) + "\n" for row in rows_that_show("hh-rlhf", 2_000)).encode()
    array = json.dumps([row.given for row in rows_that_show("alpaca", 3)])
    zipped, zstd = packed(good, "gzip"), packed(good, "zstandard")
    files.refused("cut.jsonl.gz", zipped[: len(zipped) // 2], "damaged_file", 0, "hh-rlhf")
    files.refused("flipped.jsonl.gz", zipped[:-6] + b"\0\0" + zipped[-4:], "damaged_file", 0, "hh-rlhf")
    files.refused("cut.jsonl.zst", zstd[: len(zstd) // 2], "damaged_file", 0, "hh-rlhf")
    files.refused("twice.jsonl.gz", packed(zipped, "gzip"), "wrong_file", 1)
    files.refused("bomb.jsonl.gz", packed(b'{"prompt": "' + b"x" * (65 << 20) + b'"}\n', "gzip"), "line_too_long", 1)
    files.refused("bomb.json.gz", packed(b'[{"prompt": "' + b"x" * (65 << 20) + b'"}]', "gzip"), "line_too_long", 1)
    files.refused("archive.jsonl", b"PK\x03\x04rest", "wrong_file", 1)
    files.refused("utf-16.csv", "prompt,completion\na,b\n".encode("utf-16"), "wrong_file", 1)
    files.refused("empty.json", b"", "empty_file", 0)
    files.refused("no-rows.json", b"[]", "empty_file", 0)
    files.refused("header-alone.csv", b"prompt,completion\n", "empty_file", 0)
    files.refused("cut.json", array[:-9].encode(), "truncated", 3, "alpaca")
    files.refused("comma.json", f"{array[:-1]},]".encode(), "trailing_comma", 4, "alpaca")
    files.refused("single-quotes.json", b"[{'prompt': 'a'}]", "python_quotes", 1)
    files.refused("two-arrays.json", f"{array}\n{array}".encode(), "two_rows", 3, "alpaca")
    files.refused("column-twice.json", b'[{"prompt": "a", "prompt": "b"}]', "repeated_key", 1)
    files.refused("deep.json", b"[" * 100_000, "not_json", 1)
    files.refused("numbers.json", b"[7]", "not_object", 1)
    files.refused("unknown.jsonl", b'{"q": "a", "a": "b"}\n' * 30, "unknown_format", 1)
    table = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([{"prompt": f"p{n}", "chosen": "a"} for n in range(50)]), table)
    files.refused("no-rejected.parquet", table.getvalue(), "missing_column", 1, "holdfast")
    files.refused("torn.parquet", table.getvalue()[:100], "unreadable", 0)
