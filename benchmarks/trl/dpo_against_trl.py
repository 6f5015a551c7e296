"""Is our DPO theirs? Loss and gradients against TRL's on the same model, reference and batch of pairs.

TRL is installed into an environment of its own in --work the first time.

python -m benchmarks dpo_against_trl   writes benchmarks/results/dpo_against_trl.json
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from benchmarks.record import keep, parser_of
from benchmarks.speed.cases import GROUP_PEER
from benchmarks.trl.environments import peer_environment, run_driver
from holdfast.algorithms.dpo import DPOKind
from holdfast.config.schema import DPOConfig
from holdfast.models.codec import Codec
from holdfast.models.load import save_model
from holdfast.models.policy import Policy
from holdfast.models.tiny import TinyShape, tiny_llama, word_tokenizer
from holdfast.preferences.comparison import PreferencePair
from holdfast.probes.probe_set import demonstration_pairs
from holdfast.rollout.likelihood import answer_logprobs
from holdfast.train.dpo import AnswerPair, PairLearner
from holdfast.worlds.concierge import Concierge

LOSSES: tuple[DPOKind, ...] = ("sigmoid", "ipo")
BETA, PAIRS = 0.1, 16


def write_batch(directory: Path) -> tuple[Policy, Policy, Codec, list[PreferencePair]]:
    """Two different models, and pairs from the built-in world's demonstrations."""
    world = Concierge(0, prompts=200, demonstrations=200)
    pairs = demonstration_pairs(world.demonstrations(), 0, PAIRS)
    codec = Codec(word_tokenizer([text for d in world.demonstrations() for text in (str(d.prompt), d.response)]))
    policy, reference = (Policy(tiny_llama(codec.vocabulary, TinyShape(), seed)) for seed in (1, 2))
    save_model(directory / "policy", policy.lm, codec)
    save_model(directory / "reference", reference.lm, codec)
    rows = [{"prompt": str(p.prompt), "chosen": p.chosen, "rejected": p.rejected} for p in pairs]
    (directory / "pairs.json").write_text(json.dumps(rows))
    return policy, reference, codec, pairs


def ours(
    policy: Policy, reference: Policy, codec: Codec, pairs: list[PreferencePair], loss: DPOKind
) -> tuple[float, dict[str, torch.Tensor], int]:
    """Our loss, gradients by the names that TRL has, and the tokens of all answers."""
    prompts = [codec.encode_prompt(p.prompt) for p in pairs]
    sides = [[codec.encode_response(p.chosen) for p in pairs], [codec.encode_response(p.rejected) for p in pairs]]
    logprobs = [answer_logprobs(reference, prompts, side, codec.pad_id, 4096).tolist() for side in sides]
    batch = [AnswerPair(*row) for row in zip(prompts, *sides, *logprobs, strict=True)]
    policy.zero_grad()
    names, parameters = zip(*policy.named_parameters(), strict=True)
    learner = PairLearner(policy, list(parameters), DPOConfig(loss=loss), 1.0, 4096, codec.pad_id)
    stats = learner.accumulate(batch, BETA)
    gradients = {n.removeprefix("lm."): p.grad for n, p in zip(names, parameters, strict=True) if p.grad is not None}
    return stats.loss / stats.pairs, gradients, sum(map(len, (*sides[0], *sides[1])))


def theirs(python: Path, directory: Path, loss: str) -> tuple[float, dict[str, torch.Tensor], int]:
    run_driver(python, "dpo", {"directory": str(directory), "loss": loss, "beta": BETA})
    answer = json.loads((directory / f"trl-{loss}.json").read_text())
    return answer["loss"], load_file(directory / f"trl-{loss}.safetensors"), answer["tokens"]


def compare(loss: str, one: tuple[float, Any, int], other: tuple[float, Any, int]) -> dict[str, Any]:
    """How far apart two losses and gradients are, relative to the size of the latter."""
    assert one[1].keys() == other[1].keys(), "the same weights have gradients"
    ours_N, theirs_N = (torch.cat([g[name].double().flatten() for name in sorted(g)]) for g in (one[1], other[1]))
    result = {
        "loss_ours": one[0],
        "loss_trl": other[0],
        "loss_relative": abs(one[0] - other[0]) / abs(other[0]),
        "tokens": [one[2], other[2]],
        "gradient_norm": float(theirs_N.norm()),
        "gradient_relative": float((ours_N - theirs_N).norm() / theirs_N.norm()),
        "gradient_cosine": float(ours_N @ theirs_N / (ours_N.norm() * theirs_N.norm())),
    }
    print(
        f"{loss:<8} loss {one[0]:.6f} and {other[0]:.6f}; gradients differ by {result['gradient_relative']:.1e} of "
        f"their norm {result['gradient_norm']:.4f}"
    )
    return result


def main(words: Sequence[str]) -> None:
    parser = parser_of("dpo_against_trl", __doc__)
    parser.add_argument("--work", type=Path, default=Path(".bench"), help="where TRL's environment is made (.bench)")
    args = parser.parse_args(words)
    torch.set_num_threads(1)
    python, versions = peer_environment(GROUP_PEER, args.work, print)
    with tempfile.TemporaryDirectory(prefix="holdfast-dpo-") as scratch:
        directory = Path(scratch)
        made = write_batch(directory)
        found = {loss: compare(loss, ours(*made, loss), theirs(python, directory, loss)) for loss in LOSSES}
    keep("dpo_against_trl", {"peer": versions, "pairs": PAIRS, "beta": BETA, "losses": found})
