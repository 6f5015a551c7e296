"""Rows of tables, a thousand at a time: Parquet files, directories that `datasets` saved, data sets on the hub."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from holdfast.data.lines import LONGEST_LINE
from holdfast.data.problems import Problem
from holdfast.data.rows import Row, load_pyarrow
from holdfast.errors import HoldfastError, first_line

HUB = "hub:"
BATCH = 1000  # rows in memory at a time, or fewer where rows are large
BATCH_BYTES = 32 * 2**20

# hub:owner/name, then perhaps /config, @revision and :split.
HUB_SOURCE = re.compile(
    r"hub:(?P<name>[\w.-]+/[\w.-]+)(/(?P<config>[\w.-]+))?(@(?P<revision>[\w./-]+))?(:(?P<split>[\w.-]+))?"
)


def parquet_rows(path: Path) -> Iterator[Row | Problem]:
    pyarrow = load_pyarrow()
    with path.open("rb") as file:
        try:
            number = 0
            table = pyarrow.parquet.ParquetFile(file)
            for batch in table.iter_batches(batch_size=_batch(table.metadata)):
                if batch.nbytes > LONGEST_LINE * batch.num_rows:
                    what = f"is longer than {LONGEST_LINE // 2**20} MiB; write shorter rows"
                    yield Problem(str(path), number + 1, "line_too_long", what, "row", ends=True)
                    return
                for values in batch.to_pylist():
                    number += 1
                    yield Row(str(path), number, values, "row", table=True)
        except (pyarrow.ArrowException, UnicodeDecodeError) as error:
            raise HoldfastError(f"{path} cannot be read as Parquet ({first_line(error).rstrip('.')}).") from error


def _batch(metadata: Any) -> int:
    """How many rows to hold at a time, by the size that the largest group of the file says it has."""
    groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
    largest = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(BATCH, int(BATCH_BYTES / max(1, largest))))


def saved_dataset_rows(path: Path) -> Iterator[Row]:
    """What `Dataset.save_to_disk` wrote, memory-mapped; of a `DatasetDict`, the directory of one split."""
    if (path / "dataset_dict.json").is_file():
        splits = sorted(child.name for child in path.iterdir() if child.is_dir())
        raise HoldfastError(
            f"{path} holds the splits {', '.join(splits)}; name one of them: {path / (splits or ['train'])[0]}."
        )
    datasets = _datasets(str(path))
    try:
        dataset = datasets.load_from_disk(str(path))
    except Exception as error:
        raise HoldfastError(f"{path} cannot be read as a saved data set: {first_line(error)}") from error
    return _rows(str(path), dataset)


def hub_rows(source: str) -> Iterator[Row]:
    """A data set of the hub, as a stream; nothing else here goes there, and this only if it is named."""
    match = HUB_SOURCE.fullmatch(source)
    if match is None:
        raise HoldfastError(
            f"{source} is not of the form hub:owner/name, with /config, @revision and :split where needed."
        )
    datasets = _datasets(source)
    named = match.groupdict()
    try:
        dataset = datasets.load_dataset(
            named["name"], named["config"], split=named["split"] or "train", revision=named["revision"], streaming=True
        )
    except Exception as error:
        raise HoldfastError(
            f"{source} cannot be loaded from the hub: {first_line(error)} Without a network, download it elsewhere, "
            "save it with save_to_disk, and give that directory."
        ) from error
    return _rows(source, dataset)


def _rows(source: str, dataset: Iterable[dict[str, Any]]) -> Iterator[Row]:
    rows = iter(dataset)
    number = 0
    while True:
        number += 1
        try:
            values = next(rows, None)
        except Exception as error:  # a shard that is damaged, or a network that goes away in the middle
            raise HoldfastError(f"{source} cannot be read on from row {number}: {first_line(error)}") from error
        if values is None:
            return
        yield Row(source, number, values, "row", table=True)


def _datasets(source: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise HoldfastError(f"{source} needs datasets; install it with pip install 'holdfast-rl[datasets]'.") from error
    return datasets
