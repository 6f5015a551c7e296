"""Do several processes give the numbers of one, and does a run outlive a process that is killed?

python -m benchmarks several_processes          writes benchmarks/results/several_processes.json

Ten steps of the built-in world on a CPU: in one process; in two by data parallel (started by torchrun and by accelerate
launch) and by FSDP2; then a run of which one process is killed, resumed by one process, stopped, resumed by two.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import keep, parser_of

SETTINGS = (
    "run.rounds=5", "run.steps_per_round=2", "run.threads=1", "policy.hidden=32", "policy.layers=2", "policy.heads=4",
    "policy.feed_forward=64", "world.options={prompts = 64, demonstrations = 64, heldout = 8}", "sft.epochs=1",
    "sft.batch=16", "reward.members=3", "reward.initial_comparisons=32", "preferences.per_round=8", "ppo.batch=16",
    "audit.pairs=6", "audit.more_pairs=12", "rollout.max_new_tokens=24", "guard.baseline_batches=8",
)  # fmt: skip
ONE = (sys.executable, "-m", "holdfast")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "holdfast")
ACCELERATE = (
    sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "-m", "holdfast",
)  # fmt: skip
CASES = {
    "one process": (ONE, ()),
    "data, torchrun": (TORCHRUN, ("processes.strategy=data",)),
    "data, accelerate launch": (ACCELERATE, ("processes.strategy=data",)),
    "fsdp2, torchrun": (TORCHRUN, ("processes.strategy=fsdp2",)),
}
TOLERANCE = 1e-4


def main(words: Sequence[str]) -> None:
    parser = parser_of("several_processes", __doc__)
    parser.add_argument("--runs", type=Path, help="keep the runs here")
    runs = parser.parse_args(words).runs or Path(tempfile.mkdtemp(prefix="holdfast-processes-"))
    rows: list[dict[str, Any]] = []
    print(f"{'':<26} {'steps':>5} {'furthest from one process':>27}  where")
    for number, (name, (launcher, changes)) in enumerate(CASES.items()):
        finish(launcher, *run_words(runs, f"case-{number}", *changes))
        rows.append({"case": name, **compared(runs / "case-0", runs / f"case-{number}")})
        show(rows[-1])
    for strategy in ("data", "fsdp2"):
        rows.append(killed_and_resumed(runs, strategy))
        show(rows[-1])
    held = all(row["furthest"] < TOLERANCE for row in rows)
    print(f"\nwithin {TOLERANCE:g} of one process, relative to numbers above 1: {'all' if held else 'NOT ALL'}")
    keep("several_processes", {"settings": SETTINGS, "tolerance": TOLERANCE, "all_within": held, "rows": rows})


def run_words(runs: Path, name: str, *changes: str) -> list[str]:
    settings = [word for setting in (*SETTINGS, *changes) for word in ("--set", setting)]
    return ["run", "--runs", str(runs), "--name", name, *settings]


def start(launcher: tuple[str, ...], *words: str) -> subprocess.Popen[str]:
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*launcher, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=quiet)


def finish(launcher: tuple[str, ...], *words: str) -> None:
    process = start(launcher, *words)
    said, _ = process.communicate()
    if process.returncode != 0:
        raise SystemExit(said)


def killed_and_resumed(runs: Path, strategy: str) -> dict[str, Any]:
    """Kill process 1 in round 2; one process goes on until it is told to stop, and two do the rest."""
    name = f"killed-{strategy}"
    run = runs / name
    process = start(TORCHRUN, *run_words(runs, name, f"processes.strategy={strategy}"))
    wait_for(run, rows=3)
    os.kill(child(process.pid, rank=1), signal.SIGKILL)
    killed = time.monotonic()
    said, _ = process.communicate()
    seconds, code = time.monotonic() - killed, process.returncode
    sentence = next(line for line in said.splitlines() if line.startswith("holdfast: "))
    left = len(metrics(run))
    process = start(ONE, "resume", str(run))
    wait_for(run, rows=5)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    finish(TORCHRUN, "resume", str(run))
    return {
        "case": f"{strategy}, killed, 1, 2",
        **compared(runs / "case-0", run),
        "rows_when_killed": left,
        "seconds_to_the_end": round(seconds, 1),
        "exit_code": code,
        "said": sentence.replace(str(runs), "runs"),
    }


def wait_for(run: Path, rows: int) -> None:
    while len(metrics(run)) < rows:
        time.sleep(0.2)


def child(launcher: int, rank: int) -> int:
    """The process that a launcher has started for a rank."""
    for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        if f"\0RANK={rank}\0" in Path(f"/proc/{pid}/environ").read_text():
            return int(pid)
    raise SystemExit(f"The launcher {launcher} has no process of rank {rank}.")


def metrics(run: Path) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def compared(one: Path, other: Path) -> dict[str, Any]:
    """The largest difference of any metric, relative to numbers above 1."""
    a_rows, b_rows = metrics(one), metrics(other)
    found = [
        (abs(a[name] - b[name]) / max(1.0, abs(a[name])), f"{name}, step {a['step']}")
        for a, b in zip(a_rows, b_rows, strict=True)
        for name in a.keys() | b.keys()
        if a[name] is not None or b[name] is not None
    ]
    furthest, where = max(found)
    return {"steps": len(b_rows), "furthest": furthest, "where": where if furthest else ""}


def show(row: dict[str, Any]) -> None:
    print(f"{row['case']:<26} {row['steps']:>5} {row['furthest']:>27.1e}  {row['where']}", flush=True)
    if "said" in row:
        print(f"{'':<26} ended {row['seconds_to_the_end']} s after the kill: {row['said']}", flush=True)
