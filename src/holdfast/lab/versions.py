"""How right each version of the ensemble is, by the truth: measured on pairs of the policy's answers nobody trains on.

Shapes: P pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from holdfast.algorithms.calibration import ece
from holdfast.config import Config
from holdfast.lab.observer import PAIRS_FILE
from holdfast.models.codec import Codec
from holdfast.models.load import load_causal_lm
from holdfast.models.prompt import Prompt
from holdfast.preferences.pair import Pair
from holdfast.reward.ensemble import Ensemble, VersionStore
from holdfast.reward.standalone import build_ensemble
from holdfast.run.directory import RunDirectory
from holdfast.track.sinks import read_rows


@dataclass(frozen=True)
class Rightness:
    """How often an ensemble prefers what is truly better, and how far its claims are from what happens."""

    accuracy: float
    ece: float


@dataclass(frozen=True)
class JudgedRefresh:
    """A refresh, what the gate said of it, and what it did in truth, on answers of that round's policy."""

    round: int
    version: int
    accepted: bool
    reason: str
    before: Rightness
    after: Rightness

    @property
    def harmful(self) -> bool:
        return self.after.accuracy < self.before.accuracy


def judge_refreshes(
    run: RunDirectory, config: Config, heldout: Sequence[Prompt], gates: Sequence[Mapping[str, Any]]
) -> list[JudgedRefresh]:
    """Old version against new for every refresh that a gate decided on, by pairs drawn right before it.

    Only for runs without rollbacks: the version in use before a refresh is the one that the last refresh left in use.
    """
    lm, codec = load_causal_lm(run.reference, config.policy.dtype)
    ensemble = build_ensemble(config, lm, codec)
    versions = VersionStore(run.rewards)
    pairs = pairs_by_round(run, codec, heldout)
    in_use = min(versions.numbers())
    judged = []
    for gate in gates:
        on = pairs.get(int(gate["round"]) - 1, [])
        candidate, accepted = int(gate["version"]), bool(gate["accepted"])
        if on and candidate in versions.numbers():
            before = rightness(ensemble, versions, in_use, on)
            after = rightness(ensemble, versions, candidate, on)
            reason = str(gate["reason"])
            judged.append(JudgedRefresh(int(gate["round"]), candidate, accepted, reason, before, after))
        in_use = int(gate["in_use"])
    return judged


def rightness(ensemble: Ensemble, versions: VersionStore, version: int, pairs: Sequence[Pair]) -> Rightness:
    """One version on pairs whose better side is known; `share_a` is 1 or 0."""
    versions.load_into(ensemble, version)
    return rightness_of(ensemble.claims(pairs), torch.tensor([p.share_a for p in pairs]))


def rightness_of(claim_P: Tensor, truth_P: Tensor) -> Rightness:
    """Accuracy of the claimed side, undecided as half, and the expected calibration error."""
    right_P = torch.where(claim_P == 0.5, 0.5, ((claim_P > 0.5) == (truth_P > 0.5)).float())
    return Rightness(float(right_P.mean()), float(ece(claim_P, truth_P)))


def pairs_by_round(run: RunDirectory, codec: Codec, heldout: Sequence[Prompt]) -> dict[int, list[Pair]]:
    """All pairs of a prompt's answers of which one is truly better, by the round after which they were drawn."""
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for row in read_rows(run.path / PAIRS_FILE):
        # A round that was taken back has been observed again, and the later row counts.
        rows[row["round"], row["prompt_index"]] = row
    by_round: dict[int, list[Pair]] = {}
    for (round, index), row in sorted(rows.items()):
        prompt = codec.encode_prompt(heldout[index])
        for a, b in combinations(row["answers"], 2):
            if a["gold"] != b["gold"]:
                truth = float(a["gold"] > b["gold"])
                by_round.setdefault(round, []).append(Pair(prompt, _tokens(codec, a), _tokens(codec, b), truth, round))
    return by_round


def _tokens(codec: Codec, answer: Mapping[str, Any]) -> list[int]:
    ids = codec.encode_response(answer["text"])
    return ids if answer["finished"] else ids[:-1]
