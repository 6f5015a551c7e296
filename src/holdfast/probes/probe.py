"""One probe: log-probs of every answer of a set, and the whole distribution along the chosen ones.

Shapes: B answers, N tokens of the chosen answers laid end to end, V vocabulary, W positions worked on together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.algorithms.logprobs import entropy_from_logits
from holdfast.models.batches import MicroBatch, micro_batches
from holdfast.models.policy import Policy
from holdfast.probes.probe_set import ProbeSet
from holdfast.rollout.likelihood import answer_logprobs


@dataclass(frozen=True)
class Along:
    """The model's distribution along given answers: log-prob and id of the argmax, entropy, all at each token."""

    argmax_N: Tensor
    ids_N: Tensor
    entropy_N: Tensor
    rows_N: Tensor

    def argmax_of(self, row: int) -> float:
        """The log-probs of the argmax, summed over one answer's positions."""
        return float(self.argmax_N[self.rows_N == row].sum())

    def ids_of(self, row: int) -> list[int]:
        return [int(i) for i in self.ids_N[self.rows_N == row]]


@torch.no_grad()
def along(policy: Policy, batches: list[MicroBatch]) -> Along:
    """The distribution that predicts each response token, of all batches together."""
    parts: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for batch in batches:
        rows_N = torch.tensor(batch.rows)[batch.row_N.cpu()]
        for start, scores_WV in policy.scores(batch):
            places = slice(start, start + len(scores_WV))
            logits_WV = scores_WV.float()
            if batch.sets is not None:
                logits_WV = batch.sets.restrict(logits_WV.clone(), True, places)
            best_W, ids_W = logits_WV.log_softmax(-1).max(-1)
            parts.append((best_W.cpu(), ids_W.cpu(), entropy_from_logits(logits_WV).cpu(), rows_N[places]))
    return Along(*(torch.cat(column) for column in zip(*parts, strict=True)))


# Prompts whose argmax ids are written down at every probe.
SHOWN = 8


def read_probes(policy: Policy, probes: ProbeSet, stage: str, pad_id: int, max_tokens: int) -> dict[str, Any]:
    """A row of figures: means over prompts of summed log-probs by kind, and the argmax curve along chosen answers.

    logprob   by kind, mean over prompts of sum over tokens of log pi
    argmax    mean over prompts of sum over the chosen answer's positions of max_v log pi(v | prompt, chosen so far)
    agrees    share of those positions at which the argmax is the chosen answer's own token
    entropy   mean over those positions, in nats
    each      chosen, rejected and argmax prompt by prompt, for paired differences
    """
    answers = probes.of(stage)
    count = len(probes.prompts)
    everything = [answer for of in answers.values() for answer in of]
    sums_B = answer_logprobs(policy, probes.prompts * len(answers), everything, pad_id, max_tokens)
    by_kind = dict(zip(answers, sums_B.view(len(answers), count), strict=True))
    chosen = answers["chosen"]
    pieces = 1 if policy.fast is not None else 0
    batches = micro_batches(probes.prompts, chosen, range(count), pad_id, max_tokens, policy.device, pieces)
    seen = along(policy, batches)
    ids = [seen.ids_of(row) for row in range(count)]
    hits = [a == b for own, answer in zip(ids, chosen, strict=True) for a, b in zip(own, answer, strict=True)]
    argmax = [seen.argmax_of(row) for row in range(count)]
    return {
        "logprob": {kind: float(values.mean()) for kind, values in by_kind.items()},
        "tokens": {kind: sum(map(len, of)) / count for kind, of in answers.items()},
        "argmax": sum(argmax) / count,
        "agrees": sum(hits) / len(hits),
        "entropy": float(seen.entropy_N.mean()),
        "argmax_ids": ids[:SHOWN],
        "each": {
            "chosen": by_kind["chosen"].tolist(),
            "rejected": by_kind["rejected"].tolist(),
            "argmax": argmax,
        },
    }


def read_rollout(
    policy: Policy,
    batches: list[MicroBatch],
    before_BT: Tensor,
    after_BT: Tensor,
    advantages_BT: Tensor,
    mask_BT: Tensor,
) -> dict[str, Any]:
    """What an update did to the tokens that it was made from, apart by the sign of their advantage."""
    seen = along(policy, batches)
    answers = len(set(seen.rows_N.tolist()))
    row: dict[str, Any] = {
        "argmax": float(seen.argmax_N.sum()) / answers,
        "entropy": float(seen.entropy_N.mean()),
        "logprob": float((after_BT * mask_BT).sum()) / answers,
    }
    for name, chosen_BT in (("positive", advantages_BT > 0), ("negative", advantages_BT < 0)):
        these_BT = chosen_BT & mask_BT.bool()
        count = int(these_BT.sum())
        row[name] = {
            "tokens": count,
            "before": float(before_BT[these_BT].mean()) if count else None,
            "after": float(after_BT[these_BT].mean()) if count else None,
        }
    return row
