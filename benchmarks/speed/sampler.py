"""Our sampler and `generate` of transformers in turns, in one process on one model.

64 prompts, temperature 1, the whole distribution, on 1m and 15m parameters: 48 tokens each without an end (fixed), and
answers that end by themselves, at most 64 tokens (natural). generate is used as it comes, with a cache, without scores,
on whichever number of threads suits it better. Ours also returns log-probs.

python -m benchmarks sampler       writes bench-sampler-Ncore.json
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from benchmarks.speed.flops import FORWARD, model_flops
from benchmarks.speed.measure import Spread, best_threads, in_turns, ratios, seconds
from benchmarks.speed.options import Settings, on_cores, parser_with_turns, publish, settings_of
from benchmarks.speed.ours import Job, config_of, put_together
from benchmarks.speed.wire import answer_length
from benchmarks.speed.workload import workload
from holdfast.cli.tables import show_table
from holdfast.models.load import load_causal_lm

BATCH = 64
THEIRS = "generate"


def main(words: Sequence[str]) -> None:
    settings = settings_of("sampler", parser_with_turns("sampler", __doc__).parse_args(words))
    sizes = ("quick",) if settings.quick else ("1m", "15m")
    with on_cores(settings.cores):
        cases = {f"{kind}-{size}": measure(kind, size, settings) for size in sizes for kind in ("fixed", "natural")}
        publish(settings, {"batch": BATCH, "cases": cases}, lambda: show(cases))


def measure(kind: str, size: str, settings: Settings) -> dict[str, Any]:
    given = workload(kind, size, BATCH, settings.work, settings.say)
    job = Job.on(given)
    ours = put_together(job, config_of(job))
    # Ours has a core each for pieces of work; torch's own threads are another matter.
    ours_threads = torch.get_num_threads()
    theirs = transformers_sampler(load_causal_lm(given.policy)[0], ours.codec, job)
    threads = best_threads(settings.cores, torch.set_num_threads, lambda: seconds(theirs))
    lengths: dict[str, list[list[int]]] = {"ours": [], THEIRS: []}

    def sample_ours() -> None:
        torch.set_num_threads(ours_threads)
        lengths["ours"].append(ours.sample().lengths)

    def sample_theirs() -> None:
        torch.set_num_threads(threads)
        lengths[THEIRS].append(theirs())

    settings.say(f"sampler {given.name}: {settings.turns} turns")
    times = in_turns({"ours": sample_ours, THEIRS: sample_theirs}, settings.turns)
    peak = settings.peak()
    sides: dict[str, Any] = {}
    per_token: dict[str, list[float]] = {}
    for side, taken in times.items():
        answers = lengths[side][-settings.turns :]
        prompts = [len(p) for p in given.prompts]
        needed = [
            model_flops(ours.policy.lm.config, [p + n for p, n in zip(prompts, counts, strict=True)], counts, FORWARD)
            for counts in answers
        ]
        per_token[side] = [t / sum(counts) for t, counts in zip(taken, answers, strict=True)]
        sides[side] = {
            "seconds": vars(Spread.of(taken)),
            "tokens_per_second": vars(Spread.of([1 / t for t in per_token[side]])),
            "mean_length": sum(map(sum, answers)) / sum(map(len, answers)),
            "share_of_peak": Spread.of([n / (t * peak) for n, t in zip(needed, taken, strict=True)]).median,
            "threads": ours.threads if side == "ours" else threads,
        }
    return {
        "parameters": given.parameters,
        "sides": sides,
        "ratio": vars(ratios(times[THEIRS], times["ours"])),
        "ratio_per_token": vars(ratios(per_token[THEIRS], per_token["ours"])),
    }


def transformers_sampler(lm: Any, codec: Any, job: Any) -> Any:
    """A call that samples the job's prompts with `generate` and returns the answers' lengths, ends included."""
    width = max(len(p) for p in job.prompts)
    ids_BT = torch.tensor([[codec.pad_id] * (width - len(p)) + p for p in job.prompts])
    mask_BT = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in job.prompts])
    end_id = codec.eos_id if job.ends else None
    # The model's own defaults fill what a call leaves open, so the end has to go there.
    lm.generation_config = GenerationConfig(eos_token_id=end_id, pad_token_id=codec.pad_id)
    how = GenerationConfig(
        do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=job.new_tokens,
        eos_token_id=end_id, pad_token_id=codec.pad_id,
    )  # fmt: skip

    def run() -> list[int]:
        with torch.no_grad():
            out_BT = lm.generate(input_ids=ids_BT, attention_mask=mask_BT, generation_config=how)[:, width:]
        return [answer_length(row, end_id) for row in out_BT.tolist()]

    return run


def show(cases: dict[str, Any]) -> None:
    rows = [
        [
            name if side == "ours" else "",
            side,
            str(Spread(**facts["seconds"])),
            f"{facts['tokens_per_second']['median']:.0f}",
            f"{facts['mean_length']:.1f}",
            f"{facts['share_of_peak']:.1%}",
            f"{Spread(**case['ratio'])}" if side == "ours" else "",
            f"{case['ratio_per_token']['median']:.3g}" if side == "ours" else "",
        ]
        for name, case in cases.items()
        for side, facts in case["sides"].items()
    ]
    columns = ["case", "side", "seconds", "tokens/s", "tokens", "of peak", "times as fast", "per token"]
    show_table(f"Sampling {BATCH} answers", columns, rows, left=2)
    print("\ntokens: mean answer. of peak: share of the matrix-product peak. Medians [quartiles] of the turns.")
