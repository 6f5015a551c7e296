"""Prompts as verl's parquet files, with the prompt where the reward function finds it.

python verl_data.py prompts.jsonl data       writes data/train.parquet and data/val.parquet

A row of prompts.jsonl is {"prompt": "a text"} or {"prompt": [{"role": "user", "content": "a text"}, ...]}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def row_of(prompt: Any, index: int) -> dict[str, Any]:
    """One row: `prompt` is what the policy sees, and extra_info carries it to the reward function."""
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return {
        "data_source": "holdfast",
        "prompt": messages,
        "ability": "preference",
        "reward_model": {"style": "rule", "ground_truth": ""},  # verl asks for one; the ensemble has no use for it
        "extra_info": {"index": index, "prompt": messages},
    }


def main(prompts: Path, out: Path) -> None:
    rows = [
        row_of(json.loads(line)["prompt"], i) for i, line in enumerate(prompts.read_text(encoding="utf-8").splitlines())
    ]
    out.mkdir(parents=True, exist_ok=True)
    held_out = max(1, len(rows) // 20)
    for name, some in (("train", rows[held_out:]), ("val", rows[:held_out])):
        pq.write_table(pa.Table.from_pylist(some), out / f"{name}.parquet")
        print(f"{out / name}.parquet   {len(some)} prompts")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
