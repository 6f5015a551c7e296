"""A Python reward that takes its time, 50 ms an answer: what of it is waited for, in the first batch and in later ones?

The function sleeps; sources are opened with the settings as they are, so that up to `reward.parallel` processes wait at
once. Most of those are started for the first batch, whose answers wait for them. Each turn opens a source anew.

python -m benchmarks slow_reward           writes benchmarks/results/slow_reward.json
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.record import keep, parser_of
from holdfast.config import load_config
from holdfast.parallel.cores import available
from holdfast.reward.scores import Asked
from holdfast.reward.sources.function import FunctionSource
from holdfast.reward.sources.workers import Allowance

SECONDS, ANSWERS = 0.05, 64
SLEEPS = "import time\ndef score(answer):\n    time.sleep(0.05)\n    return len(answer)\n"
IMPORTS = "sleeps, imports numpy"
REWARDS = {
    "sleeps": SLEEPS,
    "asynchronous": "import asyncio\nasync def score(answer):\n    await asyncio.sleep(0.05)\n    return len(answer)\n",
    IMPORTS: f"import numpy\n{SLEEPS}",
}
# The share of the time that the answers would take one by one. What a file imports each process imports for itself, and
# the first batch waits for that: it is told, and not held against us.
MOST = 0.2


def measure(file: Path) -> tuple[float, float]:
    """The first batch's share of the time that its answers take one by one, and the second's."""
    reward = load_config().reward
    source = FunctionSource(f"{file}:score", Allowance(reward.timeout_seconds, reward.parallel))
    try:
        first, second = (_share(source, number) for number in range(2))
    finally:
        source.close()
    return first, second


def _share(source: FunctionSource, number: int) -> float:
    asked, began = Asked(["p"] * ANSWERS, [f"{number}.{n}" for n in range(ANSWERS)]), time.perf_counter()
    scores = source.score(asked)
    took = time.perf_counter() - began
    if scores.unscored:
        raise RuntimeError(f"answers were not scored: {scores.reasons()}")
    return took / (ANSWERS * SECONDS)


def main(words: Sequence[str]) -> int:
    parser = parser_of("slow_reward", __doc__)
    parser.add_argument("--turns", type=int, default=5, help="of each function (5)")
    turns = parser.parse_args(words).turns
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, code in REWARDS.items():
            file = Path(scratch) / "reward.py"
            file.write_text(code)
            shares = [measure(file) for _ in range(turns)]
            rows.append({"function": name, "first_batch": [s[0] for s in shares], "next_batch": [s[1] for s in shares]})
            told = ", ".join(
                f"{what} {median(values):.3f} (at most {max(values):.3f})"
                for what, values in (("first batch", rows[-1]["first_batch"]), ("next", rows[-1]["next_batch"]))
            )
            print(f"{name:<22} of the time one by one: {told}", flush=True)
    asked = [
        row["next_batch"] if row["function"] == IMPORTS else row["first_batch"] + row["next_batch"] for row in rows
    ]
    holds = max(map(max, asked)) < MOST
    keep("slow_reward", {
        "answers": ANSWERS, "seconds": SECONDS, "parallel": load_config().reward.parallel, "cores": available(),
        "most": MOST, "holds": holds, "rows": rows,
    })  # fmt: skip
    return 0 if holds else 1
