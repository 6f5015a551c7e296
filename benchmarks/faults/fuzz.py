"""Inputs that nobody planned for: is each used, or refused in a sentence?

Settings, data files, run directories with every verb that reads them, requests to both servers, and replies to every
client, from a seeded generator (tests/fuzz). A failure is an exception that is no sentence, a server error, an input
that takes too long, a file written where nothing may be, or other results without a word. Inputs of failures are kept.

python -m benchmarks fuzz                      12 minutes in all, two targets at a time
python -m benchmarks fuzz --minutes 120        two hours of fuzzing together; writes benchmarks/results/fuzz.json
python -m benchmarks fuzz --target run --seed 7 --minutes 5
python -m benchmarks fuzz --target run --minutes 24 --renew    leaves the others in the kept result as they were
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS, ROOT, keep, made_by, parser_of

TARGETS = {
    "config": "TOML texts and --set words",
    "data": "data files, read and checked",
    "run": "run directories, all verbs",
    "requests": "requests to serve and serve-reward",
    "replies": "replies to judge, vLLM and reward clients",
    "drawings": "answers drawn for pages and terminals",
    "grammars": "grammars, compiled and answered under",
}
CAMPAIGN = ROOT / "tests" / "fuzz" / "campaign.py"
SIDE_BY_SIDE = 2
LINE = "{:<9} {:<42} {:>7.1f} {:>9,} {:>9,} {:>11,}"


def campaign(target: str, seconds: float, seed: int, failures: Path) -> dict[str, Any]:
    """One target in a process of its own, so that an input that kills the process is found too."""
    command = [sys.executable, str(CAMPAIGN), target, "--seconds", f"{seconds:g}", "--seed", str(seed)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [*command, "--failures", str(failures)], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    lines = ended.stdout.splitlines()
    if ended.returncode not in (0, 1) or not lines:
        last = (ended.stderr.strip().splitlines() or ["without a word"])[-1]
        died = {"kind": f"the process ended with {ended.returncode}", "count": 1, "says": last, "inputs": []}
        return {"target": target, "seed": seed, "inputs": 0, "seconds": seconds, "outcomes": {}, "failures": [died]}
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def table(results: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each target and one for the sum."""
    lines = [f"{'target':<9} {'what':<42} {'minutes':>7} {'inputs':>9} {'refused':>9} {'no sentence':>11}"]
    whole = [0.0, 0, 0, 0]
    for result in results:
        refused = sum(n for name, n in result["outcomes"].items() if "refused" in name or name.endswith("4xx"))
        failed = sum(failure["count"] for failure in result["failures"])
        figures = [result["seconds"] / 60, result["inputs"], refused, failed]
        whole = [one + other for one, other in zip(whole, figures, strict=True)]
        lines.append(LINE.format(result["target"], TARGETS[result["target"]], *figures))
    lines.append(LINE.format("", "together", *whole))
    return lines


def main(words: Sequence[str]) -> int:
    parser = parser_of("fuzz", __doc__)
    parser.add_argument("--minutes", type=float, default=12.0, help="of fuzzing, all targets together (12)")
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="one of them; all if left out")
    parser.add_argument("--seed", type=int, default=0, help="where the generator starts (0)")
    parser.add_argument("--renew", action="store_true", help="put the targets into the kept result anew")
    parser.add_argument("--out", type=Path, help="keep the inputs of failures here")
    args = parser.parse_args(words)
    targets = args.target or list(TARGETS)
    failures = (args.out or Path(tempfile.mkdtemp(prefix="holdfast-fuzz-"))).resolve()
    seconds = 60 * args.minutes / len(targets)
    print(f"seed {args.seed}; {seconds / 60:.1f} minutes for each of {', '.join(targets)}\n")
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        results = list(pool.map(lambda target: campaign(target, seconds, args.seed, failures), targets))
    print("\n".join(table(results)))
    found = [(result, failure) for result in results for failure in result["failures"]]
    for result, failure in found:
        print(f"\n{failure['count']} x {failure['kind']}\n  {failure['says']}")
        for one in failure["inputs"]:
            again = f"{result['target']} --seed {result['seed']} --only {one['number']}"
            print(f"  again: python tests/fuzz/campaign.py {again}\n  input: {one['kept']}")
    if args.renew or not args.target:
        before = [] if not args.target else json.loads((RESULTS / "fuzz.json").read_text())["targets"]
        kept = {each["target"]: each for each in [*before, *map(_kept, results)]}
        keep("fuzz", {"targets": [kept[target] for target in TARGETS if target in kept]})
    return 1 if found else 0


def _kept(result: dict[str, Any]) -> dict[str, Any]:
    """A result with the command that made it, and without where things lie on this machine."""
    failures = [{**failure, "inputs": [one["number"] for one in failure["inputs"]]} for failure in result["failures"]]
    return {**result, "command": made_by()["command"], "failures": failures}
