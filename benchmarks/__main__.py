"""`python -m benchmarks KIND`: finds the kind, runs it, and says in one sentence what went wrong."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from benchmarks.record import parser_of
from holdfast.errors import HoldfastError

# A kind is the module of its name in a room; it has `main(words)`.
ROOMS = {
    "speed": {
        "sampler": "our sampler against transformers' generate",
        "structured_speed": "what a grammar costs and saves while answers are sampled",
        "update": "PPO updates against the matrix-product peak, the fast path against the plain one",
        "iteration": "one of our steps, by phase",
        "peers": "our iteration against TRL's, in turns",
        "peers_bound": "how many times as fast as TRL an iteration could be at most",
    },
    "growth": {"scale": "time and memory against the size of store, run and step"},
    "dynamics": {
        "learning": "does the default run make the policy better?",
        "collapse": "no KL penalty, one reward model: gold rises, then falls",
        "any_reward": "a verifier and a rubric that can be fooled, unguarded and guarded",
        "structured": "answers under a grammar and without, and a validator as the only reward",
        "kl_control": "does adaptive control hold the KL it is asked to hold?",
        "step_size": "do steps fit the model that nobody has tuned for?",
        "guard_power": "how often the sequential test alarms in played runs",
        "judge_drift": "who moved, the policy or the judge, in played runs",
        "judged_power": "labels of people that a judge beside them saves, in played runs",
        "best_of_n": "best-of-n and PPO against the same ensemble",
        "progression": "what each stage does, SFT to DPO",
        "squeezing": "what DPO does to chosen answers, rejected ones and the argmax",
        "squeezing_theory": "the same for one softmax, exactly",
        "real_model": "what a run on a real model has done",
    },
    "system": {
        "data_check": "`holdfast data check` on files of up to a million lines",
        "data_files": "data files of every format, by hand and by hypothesis: converted by value or refused",
        "lora_memory": "memory of whole runs in which all models share one base",
        "several_processes": "do several processes give the numbers of one?",
        "ray_sweep": "are runs over Ray's workers what they are without?",
        "guarded_step": "what the guard adds to a step with a Python reward",
        "slow_reward": "how much of a reward's waiting is waited for",
        "reward_service": "`holdfast serve-reward` under 200 clients",
        "structured_valid": "are answers under a grammar what it asks for, as others judge it?",
        "guard_over_http": "`holdfast guard serve`: scripted trainings, and 200 clients while it is killed",
    },
    "faults": {
        "faults": "every fault of the table: what was tried, and what was lost",
        "fuzz": "inputs that nobody planned for: used, or refused in a sentence",
    },
    "trl": {
        "dpo_against_trl": "our DPO's loss and gradients beside TRL's",
        "trl_guard": "the guard in TRL's trainers, bare and guarded",
    },
}
ROOM_OF = {kind: room for room, kinds in ROOMS.items() for kind in kinds}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a kind; 0 when it worked and found what it should, 2 for bad input."""
    # As the program does: threads that spin while they wait make a shared machine many times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    words = sys.argv[1:] if argv is None else list(argv)
    parser = parser_of("", "Benchmarks, which keep their results in benchmarks/results.")
    listed = [f"  {kind:<18} {about}" for kinds in ROOMS.values() for kind, about in kinds.items()]
    parser.epilog = "\n".join(["kinds:", *listed, "", "`python -m benchmarks KIND --help` explains each."])
    parser.add_argument("kind", metavar="KIND", choices=sorted(ROOM_OF), help="one of those below, then its options")
    kind = parser.parse_args(words[:1]).kind
    try:
        return int(importlib.import_module(f"benchmarks.{ROOM_OF[kind]}.{kind}").main(words[1:]) or 0)
    except HoldfastError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
