"""The reward ensemble: K members, each standardised on the reference's answers, with a version number.

Shapes: K member, B answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.checkpoint.files import JSON
from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cores import CORES
from holdfast.errors import HoldfastError
from holdfast.models.reward_model import RewardModel
from holdfast.rollout.batches import MicroBatch, micro_batches

Tokens = Sequence[Sequence[int]]


# Every version can be gone back to, so none is pruned.
KEEP_ALL = 10**9


@dataclass
class Ensemble:
    """Members with their standardisation; `labels` and `watermark` say what the version was trained on."""

    members: list[RewardModel]
    pad_id: int
    max_tokens: int
    version: int = 0
    labels: int = 0
    watermark: int = 0
    means: tuple[float, ...] = ()
    sds: tuple[float, ...] = ()

    @torch.no_grad()
    def raw_scores(self, prompts: Tokens, responses: Tokens) -> Tensor:
        """scores_KB as the members give them."""
        device = next(self.members[0].parameters()).device
        pieces = CORES.free if self.members[0].fast is not None else 0
        batches = micro_batches(prompts, responses, range(len(prompts)), self.pad_id, self.max_tokens, device, pieces)
        scores_KB = torch.zeros(len(self.members), len(prompts))

        def score(k: int, batch: MicroBatch) -> None:
            scores_KB[k, batch.rows] = self.members[k](batch).cpu()

        # One packing serves all members; a core that is free takes the next member or the next rows.
        CORES.share([partial(score, k, batch) for k in range(len(self.members)) for batch in batches])
        return scores_KB

    def scores(self, prompts: Tokens, responses: Tokens) -> Tensor:
        """scores_KB with the reference's answers at mean 0 and standard deviation 1, for each member."""
        raw_KB = self.raw_scores(prompts, responses)
        return (raw_KB - torch.tensor(self.means)[:, None]) / torch.tensor(self.sds)[:, None]

    def standardise(self, prompts: Tokens, responses: Tokens) -> None:
        """Set every member's zero and unit on these (the reference's) answers, so that beta keeps its meaning."""
        raw_KB = self.raw_scores(prompts, responses)
        if not bool(torch.isfinite(raw_KB).all()):
            raise HoldfastError("A reward model gave scores that are not numbers; lower reward.lr or refresh.lr.")
        sds = raw_KB.std(1, unbiased=False)
        if bool((sds < 1e-6).any()):
            raise HoldfastError(
                f"Reward member {int(sds.argmin())} gives every answer the same score; "
                "it needs more labels, more epochs or a larger reward.lr."
            )
        self.means, self.sds = tuple(raw_KB.mean(1).tolist()), tuple(sds.tolist())


class VersionStore:
    """The ensemble's versions on disk, each with a checksummed manifest: rewards/v001, v002, ..."""

    def __init__(self, directory: Path) -> None:
        self._store = CheckpointStore(directory, keep=KEEP_ALL)

    def save(self, ensemble: Ensemble) -> None:
        members = {f"member-{k}": dict(m.state_dict()) for k, m in enumerate(ensemble.members)}
        document: dict[str, JSON] = {
            "version": ensemble.version,
            "members": len(ensemble.members),
            "labels": ensemble.labels,
            "watermark": ensemble.watermark,
            "means": list(ensemble.means),
            "sds": list(ensemble.sds),
        }
        trunk = json.loads(ensemble.members[0].trunk.config.to_json_string(use_diff=False))
        self._store.save(version_name(ensemble.version), Snapshot(members, {"ensemble": document, "trunk": trunk}))

    def numbers(self) -> list[int]:
        """The versions there are, oldest first."""
        return [int(name.removeprefix("v")) for name in self._store.names()]

    def verify(self, version: int) -> None:
        """Refuse a version that is missing or damaged."""
        self._store.load(version_name(version))

    def load_newest_into(self, ensemble: Ensemble) -> None:
        """The newest version in this store."""
        numbers = self.numbers()
        if not numbers:
            raise HoldfastError("There is no reward ensemble in the given directory; `holdfast reward` trains one.")
        self.load_into(ensemble, numbers[-1])

    def load_into(self, ensemble: Ensemble, version: int) -> None:
        """Put a saved version's weights and standardisation into `ensemble`."""
        snapshot = self._store.load(version_name(version))
        document: Mapping[str, Any] = snapshot.documents["ensemble"]  # type: ignore[assignment]
        if document["members"] != len(ensemble.members):
            raise HoldfastError(
                f"Reward version {version} has {document['members']} members, "
                f"but reward.members is {len(ensemble.members)}."
            )
        for k, member in enumerate(ensemble.members):
            try:
                member.load_state_dict(dict(snapshot.tensors[f"member-{k}"]))
            except RuntimeError as error:
                raise HoldfastError(
                    "The reward ensemble was trained on another model than this policy; "
                    "train one for it with `holdfast reward`."
                ) from error
        ensemble.version = int(document["version"])
        ensemble.labels = int(document["labels"])
        ensemble.watermark = int(document["watermark"])
        ensemble.means, ensemble.sds = tuple(document["means"]), tuple(document["sds"])


def version_name(version: int) -> str:
    return f"v{version:03d}"


def members_in(directory: Path) -> int:
    """How many members the newest ensemble in a directory has."""
    store = CheckpointStore(directory, keep=KEEP_ALL) if directory.is_dir() else None
    names = store.names() if store else []
    if store is None or not names:
        raise HoldfastError(f"There is no reward ensemble in {directory}; `holdfast reward` trains one.")
    document: Mapping[str, Any] = store.load(names[-1]).documents["ensemble"]  # type: ignore[assignment]
    return int(document["members"])
