"""What the guard adds to a step whose reward is a Python function: within one run, so that no other run's noise counts.

The built-in world at its default size with a function of the answers as its reward, in processes of its own as always.
Of every step the time of the guard's signals is set against that of everything else: sampling, scoring, the update. The
run's audits are no part of a step; what they take is told beside it.

python -m benchmarks guarded_step           writes benchmarks/results/guarded_step.json
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.record import keep, parser_of
from holdfast.cli.main import main as holdfast
from holdfast.parallel.cores import available
from holdfast.statistics import bootstrap

REWARD = '''
def score(completions, **columns):
    """Longer answers with more different words are worth more."""
    return [{"words": 0.1 * len(c.split()), "different": 0.2 * len(set(c.split()))} for c in completions]
'''
SETTINGS = ("run.rounds=4", "run.steps_per_round=10", "probes.every=0", "guard.mode=advise")
# The first steps warm up caches and the reward's processes.
WARM_UP = 5
MOST = 1.10


def run_once(seed: int, directory: Path) -> Path:
    """A guarded run; its directory."""
    reward = directory / "reward.py"
    reward.write_text(REWARD)
    settings = (*SETTINGS, f"run.seed={seed}", f"reward.source={json.dumps(f'{reward}:score')}")
    words = ["run", "--runs", str(directory), "--name", str(seed), *(w for s in settings for w in ("--set", s))]
    if (code := holdfast(words)) != 0:
        raise RuntimeError(f"the run ended with {code}")
    return directory / str(seed)


def ratios_of(run: Path) -> tuple[list[float], float]:
    """(everything with the guard) / (everything without it) of each step, and the share of audits in the whole."""
    rows = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()][WARM_UP:]
    ratios, audits, whole = [], 0.0, 0.0
    for row in rows:
        phases = {name: value for name, value in row.items() if name not in ("step", "round", "time")}
        audit = phases.pop("audit", 0.0)
        guard, rest = phases.pop("guard"), sum(phases.values())
        ratios.append((rest + guard) / rest)
        audits, whole = audits + audit, whole + rest + guard + audit
    return ratios, audits / whole


def measure(seeds: Sequence[int], directory: Path) -> dict[str, Any]:
    rows = []
    for seed in seeds:
        ratios, audits = ratios_of(run_once(seed, directory))
        rows.append({
            "seed": seed, "steps": len(ratios), "ratio": sum(ratios) / len(ratios), "largest": max(ratios),
            "share_of_audits": audits,
        })  # fmt: skip
    spread = bootstrap([row["ratio"] for row in rows])
    return {"rows": rows, "ratio": asdict(spread), "most": MOST, "holds": spread.mean <= MOST}


def main(words: Sequence[str]) -> int:
    parser = parser_of("guarded_step", __doc__ or "")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="runs, from seed 1000 on (3)")
    seeds = range(1000, 1000 + parser.parse_args(words).seeds)
    with tempfile.TemporaryDirectory() as scratch:
        result = measure(seeds, Path(scratch))
    result |= {"cores": available(), "settings": list(SETTINGS)}
    keep("guarded_step", result)
    for row in result["rows"]:
        print(f"seed {row['seed']}: {row['ratio']:.3f} times as long over {row['steps']} steps")
    print(f"mean {result['ratio']['mean']:.3f}, at most {MOST} is wanted")
    return 0 if result["holds"] else 1
