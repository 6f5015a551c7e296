"""How many times as fast as TRL an iteration on fixed lengths could be at most: every product it needs, at the peak.

The work is counted from shapes: answers sampled, reference and reward passes, four epochs of log-probs and gradients,
of each the least that has to be multiplied. TRL's seconds and the machine's matrix-product peak, the best of those
measured beside the cases, are from `python -m benchmarks peers`. It measures nothing itself.

python -m benchmarks peers_bound       reads bench-peers-*core.json, writes benchmarks/results/peers_bound.json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from benchmarks.record import RESULTS, keep, parser_of
from benchmarks.speed.cases import SAMPLES
from benchmarks.speed.flops import FORWARD_AND_BACKWARD, least_flops
from benchmarks.speed.workload import KINDS, SIZES
from holdfast.models.tiny import tiny_llama

CASES = {"ppo-fixed-1m": "1m", "ppo-fixed-15m": "15m"}


def work(size: str, epochs: int) -> dict[str, float]:
    """Operations of an iteration, and of the first forward pass of its update, which sampling has done already."""
    kind = KINDS["fixed"]
    assert kind.prompt_tokens is not None
    config = tiny_llama(SIZES[size].vocabulary, SIZES[size].shape, seed=0).config
    lengths, responses = [kind.prompt_tokens + kind.new_tokens] * SAMPLES, [kind.new_tokens] * SAMPLES
    update = least_flops(config, lengths, responses)
    forward = update / FORWARD_AND_BACKWARD
    # A reward model reads out one position, the last token's; `least_flops` leaves that token out, so it gets one more.
    reward = least_flops(config, [n + 1 for n in lengths], [1] * SAMPLES, head=False) / FORWARD_AND_BACKWARD
    return {"iteration": epochs * update + 2 * forward + reward, "repeated": forward}


def bounds(case: dict[str, Any], size: str, peak: float) -> dict[str, float]:
    needed = work(size, int(case["epochs"]))
    theirs, ours = (float(case["sides"][side]["seconds"]["median"]) for side in ("TRL", "ours"))
    return {
        "peak_gflops": peak / 1e9,
        "measured": float(case["ratios"]["ours"]["headline"]["median"]),
        "at_the_peak": theirs * peak / needed["iteration"],
        "at_the_peak_with_nothing_twice": theirs * peak / (needed["iteration"] - needed["repeated"]),
        "share_of_peak": needed["iteration"] / (ours * peak),
        "peer_share_of_peak_in_updates": float(case["sides"]["TRL"]["share_of_peak"]["update"]),
    }


def main(words: Sequence[str]) -> None:
    parser_of("peers_bound", __doc__).parse_args(words)
    found: dict[str, dict[str, Any]] = {}
    print(f"{'case':<16} {'cores':>5} {'measured':>9} {'at the peak':>12} {'nothing twice':>14} {'of peak':>8}")
    for cores in (1, 2):
        cases = json.loads((RESULTS / f"bench-peers-{cores}core.json").read_text(encoding="utf-8"))["cases"]
        peak = 1e9 * max(float(case["peak_gflops"]) for case in cases.values())
        for name, size in CASES.items():
            b = bounds(cases[name], size, peak)
            found.setdefault(name, {})[f"{cores} core{'s' if cores > 1 else ''}"] = b
            print(
                f"{name:<16} {cores:>5} {b['measured']:>9.2f} {b['at_the_peak']:>12.2f} "
                f"{b['at_the_peak_with_nothing_twice']:>14.2f} {b['share_of_peak']:>8.0%}"
            )
    keep("peers_bound", {"cases": found})
