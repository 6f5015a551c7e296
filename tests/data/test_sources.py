"""Data from a directory of `datasets`, from the hub, and from large files, a part at a time."""

from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.data.formats import read_demonstrations, read_preferences, read_prompts
from holdfast.data.rows import Row
from holdfast.data.sources import scan
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Message
from holdfast.preferences.comparison import Demonstration

ROWS = [{"prompt": f"p{n}", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(30)]


@pytest.fixture(autouse=True)
def quiet() -> None:
    datasets.disable_progress_bars()


def test_a_saved_data_set_reads_as_the_same_rows_in_jsonl(tmp_path: Path) -> None:
    datasets.Dataset.from_list(ROWS).save_to_disk(str(tmp_path / "saved"))
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert read_preferences(tmp_path / "saved") == read_preferences(path)
    assert read_prompts(str(tmp_path / "saved")) == [row["prompt"] for row in ROWS]


def test_rows_that_were_selected_or_shuffled_stay_so(tmp_path: Path) -> None:
    datasets.Dataset.from_list(ROWS).select([5, 3]).save_to_disk(str(tmp_path / "saved"))
    assert read_prompts(tmp_path / "saved") == ["p5", "p3"]


def test_conversations_in_a_saved_data_set(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    datasets.Dataset.from_list([{"messages": talk}]).save_to_disk(str(tmp_path / "saved"))
    assert read_demonstrations(tmp_path / "saved") == [Demonstration((Message("user", "2+2?"),), "4")]


def test_a_problem_in_a_saved_data_set_is_named_by_its_row(tmp_path: Path) -> None:
    datasets.Dataset.from_list([*ROWS, {"prompt": "", "chosen": "a", "rejected": "b"}]).save_to_disk(
        str(tmp_path / "s")
    )
    with pytest.raises(HoldfastError, match=r"s, row 31: 'prompt' is empty"):
        read_preferences(tmp_path / "s")


def test_of_several_splits_one_is_named(tmp_path: Path) -> None:
    data = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict({"train": data, "test": data.select([1])}).save_to_disk(str(tmp_path / "all"))
    with pytest.raises(HoldfastError, match=r"all holds the splits test, train; name one of them: .*all/test\.$"):
        read_prompts(tmp_path / "all")
    assert read_prompts(tmp_path / "all" / "test") == ["p1"]


def test_directories_that_are_something_else(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="is a directory, but not one that datasets"):
        read_prompts(tmp_path)
    (tmp_path / "dataset_info.json").write_text("{")
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(HoldfastError, match="cannot be read as a saved data set: "):
        read_prompts(tmp_path)


def test_without_datasets_the_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets.Dataset.from_list(ROWS).save_to_disk(str(tmp_path / "saved"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    for source in (str(tmp_path / "saved"), "hub:owner/name"):
        with pytest.raises(HoldfastError, match=r"needs datasets; .* pip install 'holdfast-rl\[datasets\]'"):
            read_prompts(source)


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("hub:owner/name", ("owner/name", None, "train", None)),
        ("hub:owner/name:test", ("owner/name", None, "test", None)),
        ("hub:owner/name/en@1a2b:validation", ("owner/name", "en", "validation", "1a2b")),
    ],
)
def test_the_hub_is_asked_for_what_was_named(
    source: str, asked: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def load(name: str, config: Any, split: str, revision: Any, streaming: bool) -> Any:
        calls.append((name, config, split, revision))
        assert streaming
        return iter(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert read_prompts(source) == [row["prompt"] for row in ROWS]
    assert calls == [asked]


def test_without_a_network_the_hub_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("Couldn't reach 'owner/name' on the Hub (offline)\nmore lines")

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(
        HoldfastError, match=r"from the hub: Couldn't reach .*\(offline\)\. Without a network, download"
    ):
        read_prompts("hub:owner/name")


def test_a_network_that_goes_away_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows() -> Any:
        yield {"prompt": "a"}
        raise ConnectionError("gone")

    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: rows())
    with pytest.raises(HoldfastError, match=r"hub:owner/name cannot be read on from row 2: gone\."):
        read_prompts("hub:owner/name")


@pytest.mark.parametrize("source", ["hub:", "hub:name", "hub:a/b/c/d", "hub:a/b c"])
def test_names_that_the_hub_does_not_have(source: str) -> None:
    with pytest.raises(HoldfastError, match="is not of the form hub:owner/name"):
        read_prompts(source)


def test_large_files_are_read_a_part_at_a_time(tmp_path: Path) -> None:
    text = "word " * 1000
    rows = [{"prompt": f"{text}{n}"} for n in range(6_000)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    del rows
    for name in ("p.jsonl", "p.parquet"):
        tracemalloc.start()
        try:
            count = sum(isinstance(row, Row) for row in scan(tmp_path / name))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        # The texts are 30 MB; the thousand rows of Parquet that are there at a time are 5.
        assert count == 6_000
        assert peak < 12e6
