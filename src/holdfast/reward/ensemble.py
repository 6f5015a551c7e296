"""The reward ensemble: K members, each standardised on the reference's answers, with a version number.

    raw score = what the member says + what a planted flaw adds (nothing, but in the lab)
    score     = (raw score - mean) / standard deviation, both of the reference's answers without any flaw

Shapes: K member, B answers, D hidden.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from holdfast.checkpoint.files import JSON, read_json
from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.store import CheckpointStore
from holdfast.checkpoint.transaction import DOCUMENT
from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.models.batches import MicroBatch, micro_batches
from holdfast.models.lora import lora_in
from holdfast.models.reward_model import RewardModel
from holdfast.models.sharding import is_sharded, put_state, whole, whole_state
from holdfast.models.weights import base_fingerprint
from holdfast.parallel.cores import CORES
from holdfast.parallel.processes import PROCESSES
from holdfast.preferences.pair import Pair
from holdfast.reward.degraded import (
    FEWEST,
    SAME_SCORE,
    MemberLeftOut,
    MembersFailed,
    reason_of,
    still_members,
    too_few,
    warn,
)
from holdfast.statistics import Share
from holdfast.text import counted

Tokens = Sequence[Sequence[int]]
# A prompt with an answer to it in tokens of the members' own, where their tokenizer is not the policy's.
OwnTokens = Callable[[Sequence[int], Sequence[int]], list[int]]
# What a planted flaw is worth to each answer, by prompts and responses.
Bonus = Callable[[Tokens, Tokens], Tensor]


# Every version can be gone back to, so none is pruned.
KEEP_ALL = 10**9


class Judgement(NamedTuple):
    """What one pass over a batch tells: the members' scores, and the first member's hidden states."""

    scores_KB: Tensor
    features_BD: Tensor


@dataclass
class Ensemble:
    """Members with their standardisation; `labels` and `watermark` say what the version was trained on.

    `bonus` is a flaw planted in the reward, one number for each answer in units of raw score; `bonus_scale` times it
    is added to every raw score. `round` is the round in which the version was made. `degraded` says of members that are
    left out why they are; wherever there is a K it counts the others.
    """

    members: list[RewardModel]
    pad_id: int
    max_tokens: int
    version: int = 0
    labels: int = 0
    watermark: int = 0
    means: tuple[float, ...] = ()
    sds: tuple[float, ...] = ()
    round: int = 0
    bonus: Bonus | None = None
    bonus_scale: float = 0.0
    degraded: dict[int, str] = field(default_factory=dict)
    fit: Share | None = None  # how right its members were about the pairs that the version was trained on
    tell: Callable[[MemberLeftOut], None] = warn
    patience_seconds: float = 1800.0
    own_tokens: OwnTokens | None = None  # of members with a tokenizer of their own; everybody else has the policy's

    @property
    def sound(self) -> list[int]:
        """The members that are asked: those that are not degraded."""
        return [k for k in range(len(self.members)) if k not in self.degraded]

    def degrade(self, member: int, why: str) -> None:
        """Leave a member out from here on, and say so; `why` goes on after "the member"."""
        self.degraded[member] = why
        self.tell(MemberLeftOut(member, why, self.version, len(self.sound), len(self.members)))

    def can_spare(self, members: int) -> bool:
        """Whether enough are left without so many more."""
        return len(self.sound) - members >= min(FEWEST, len(self.members))

    def raw_scores(self, prompts: Tokens, responses: Tokens) -> Tensor:
        """scores_KB of the members before standardising; differences are Bradley-Terry log-odds."""
        scores_KB, _ = self._score(prompts, responses)
        return self._with_bonus(scores_KB, prompts, responses)

    def scores(self, prompts: Tokens, responses: Tokens) -> Tensor:
        """scores_KB with the reference's answers at mean 0 and standard deviation 1, for each member."""
        return self._standardised(self.raw_scores(prompts, responses))

    def features(self, prompts: Tokens, responses: Tokens) -> Tensor:
        """features_BD: the hidden states that the first member's head reads."""
        _, features_BD = self._score(prompts, responses, lambda: self.sound[:1], with_features=True)
        return features_BD

    def judge(self, prompts: Tokens, responses: Tokens) -> Judgement:
        """Scores and features from one pass of each member."""
        raw_KB, features_BD = self._score(prompts, responses, with_features=True)
        if still := still_members(raw_KB, self.units()[1], prompts, responses):
            for member in [self.sound[place] for place in still]:
                self.degrade(member, SAME_SCORE)
            return self.judge(prompts, responses)
        return Judgement(self._standardised(self._with_bonus(raw_KB, prompts, responses)), features_BD)

    def opinions(self, prompts: Tokens, responses: Tokens, asked: Sequence[int]) -> Tensor:
        """raw_B: the raw score of each answer by the one member who is asked about it.

        In the place of one that is left out it is the mean of the others.
        """
        raw_B = torch.zeros(len(prompts))

        def instead_of(k: int) -> list[int]:
            return self.sound if k in self.degraded else [k]

        for k in sorted(set(asked)):
            rows = [i for i, member in enumerate(asked) if member == k]
            theirs = [prompts[i] for i in rows], [responses[i] for i in rows]
            scores_KB, _ = self._score(*theirs, partial(instead_of, k))
            raw_B[rows] = self._with_bonus(scores_KB, *theirs).mean(0)
        return raw_B

    def claims(self, pairs: Sequence[Pair]) -> Tensor:
        """claim_P: the probability that people prefer the first side, sigma(mean over members of the raw difference).

        Raw scores are Bradley-Terry log-odds; standardised ones are not.
        """
        if not pairs:
            return torch.zeros(0)
        return torch.sigmoid(self.raw_margins(pairs).mean(0))

    def raw_margins(self, pairs: Sequence[Pair]) -> Tensor:
        """margins_KP: each member's raw score of the first side less that of the second, in log-odds."""
        return score_differences(self.raw_scores, pairs)

    def margins(self, pairs: Sequence[Pair]) -> Tensor:
        """margins_KP: each member's standardised score of the first side less that of the second."""
        return score_differences(self.scores, pairs)

    def opinion_margins(self, pairs: Sequence[Pair], asked: Sequence[int]) -> Tensor:
        """margins_P: the raw difference, in log-odds, by one member for each pair, the one who is asked."""
        return score_differences(partial(self.opinions, asked=asked), pairs)

    def added(self, prompts: Tokens, responses: Tokens) -> Tensor | None:
        """What a planted flaw adds to every member's raw score of these answers; None where there is none."""
        if self.bonus is None or self.bonus_scale == 0.0:
            return None
        return self.bonus_scale * self.bonus(prompts, responses)

    def own_pair(self, pair: Pair) -> Pair:
        """A pair in the members' own tokens: what both sides begin with is the prompt."""
        if self.own_tokens is None:
            return pair
        a, b = self.own_tokens(pair.prompt, pair.a), self.own_tokens(pair.prompt, pair.b)
        least = min(len(a), len(b)) - 1
        same = next((n for n in range(least) if a[n] != b[n]), least)
        return replace(pair, prompt=a[:same], a=a[same:], b=b[same:])

    def standardise(self, prompts: Tokens, responses: Tokens) -> None:
        """Set every member's zero and unit on these (the reference's) answers, so that beta keeps its meaning.

        A planted flaw is left out: its onset must not change the units. All members are asked, since what they were
        left out for was another version's.
        """
        self.degraded.clear()
        raw_KB, _ = self._score(prompts, responses)
        if not bool(torch.isfinite(raw_KB).all()):
            raise HoldfastError("A reward model gave scores that are not numbers; lower reward.lr or refresh.lr.")
        asked, sds_K = self.sound, raw_KB.std(1, unbiased=False)
        for member, sd in zip(asked, sds_K.tolist(), strict=True):
            if sd < 1e-6:
                self.degrade(member, SAME_SCORE)
        self._require_enough()
        # Of one that is left out nobody asks for its unit.
        units = dict(zip(asked, zip(raw_KB.mean(1).tolist(), sds_K.tolist(), strict=True), strict=True))
        kept = [units[k] if k in self.sound else (0.0, 1.0) for k in range(len(self.members))]
        self.means, self.sds = tuple(mean for mean, _ in kept), tuple(sd for _, sd in kept)

    def units(self) -> tuple[Tensor, Tensor]:
        """means_K and sds_K of the reference's raw scores, by which scores are standardised."""
        sound = self.sound
        return torch.tensor([self.means[k] for k in sound]), torch.tensor([self.sds[k] for k in sound])

    def _require_enough(self) -> None:
        if not self.can_spare(0):
            raise too_few(self.degraded, len(self.members))

    def _score(
        self,
        prompts: Tokens,
        responses: Tokens,
        asked: Callable[[], list[int]] | None = None,
        with_features: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """What members (all that are sound) say of each answer, and what the first one's head reads, if asked for.

        One that gives no scores is left out, and the others are asked again. What none can do is no member's fault.
        """
        if self.own_tokens is not None:
            rows = [self.own_tokens(prompt, response) for prompt, response in zip(prompts, responses, strict=True)]
            prompts, responses = [row[:-1] for row in rows], [row[-1:] for row in rows]  # read at the last token
        needed = {"prompts": list(prompts), "responses": list(responses), "with_features": with_features}
        while True:
            self._require_enough()
            which = self.sound if asked is None else asked()
            models = [self.members[k] for k in which]
            try:
                with PROCESSES.joint("score", models, **needed):
                    return self.score_with(models, prompts, responses, with_features)
            except MembersFailed as failed:
                if len(failed.reasons) == len(self.sound) and not isinstance(failed.error, TimeoutError):
                    raise (failed.error or failed) from None
                for place, why in failed.reasons.items():
                    self.degrade(which[place], why)

    @torch.no_grad()
    def score_with(
        self, models: Sequence[RewardModel], prompts: Tokens, responses: Tokens, with_features: bool
    ) -> tuple[Tensor, Tensor]:
        """The same; in joint work each process takes some of the members and rows."""
        device = next(models[0].parameters()).device
        pieces = CORES.free if models[0].fast is not None else 0
        batches = micro_batches(prompts, responses, range(len(prompts)), self.pad_id, self.max_tokens, device, pieces)
        scores_KB = torch.zeros(len(models), len(prompts))
        features_BD = torch.zeros(len(prompts), models[0].width if with_features else 0)
        failed_K = torch.zeros(len(models))
        reasons: dict[int, str] = {}
        errors: list[Exception] = []

        def score(k: int, batch: MicroBatch) -> None:
            hidden_BD = models[k].hidden(batch)
            scores_KB[k, batch.rows] = models[k].read(hidden_BD).cpu()
            if with_features and k == 0:
                features_BD[batch.rows] = hidden_BD.float().cpu()

        def attempt(work: Sequence[tuple[int, MicroBatch]]) -> None:
            mine = PROCESSES.part(work)
            outcomes = CORES.attempt([partial(score, *piece) for piece in mine], self.patience_seconds)
            for (k, _), error in zip(mine, outcomes, strict=True):
                if error is not None:
                    failed_K[k] = 1.0
                    reasons.setdefault(k, reason_of(error, self.patience_seconds))
                    errors.append(error)

        # One packing serves all members; a core that is free takes the next member or the next rows.
        work = [[(k, batch) for batch in batches] for k in range(len(models))]
        if is_sharded(models[0]):
            for model, its in zip(models, work, strict=True):
                with whole(model):  # one after the other: there may be no room for all
                    attempt(its)
        else:
            attempt(list(chain.from_iterable(work)))
        PROCESSES.add(scores_KB, features_BD, failed_K)
        if failed := failed_K.nonzero()[:, 0].tolist():
            elsewhere = "failed in another process"
            raise MembersFailed({k: reasons.get(k, elsewhere) for k in failed}, errors[0] if errors else None)
        return scores_KB, features_BD

    def _with_bonus(self, scores_KB: Tensor, prompts: Tokens, responses: Tokens) -> Tensor:
        added_B = self.added(prompts, responses)
        return scores_KB if added_B is None else scores_KB + added_B.to(scores_KB)

    def _standardised(self, raw_KB: Tensor) -> Tensor:
        means_K, sds_K = self.units()
        return (raw_KB - means_K[:, None]) / sds_K[:, None]


def score_differences(score: Callable[[Tokens, Tokens], Tensor], pairs: Sequence[Pair]) -> Tensor:
    """The scores of the first sides less those of the second."""
    prompts = [p.prompt for p in pairs]
    first, second = score(prompts, [p.a for p in pairs]), score(prompts, [p.b for p in pairs])
    if first.shape != second.shape:  # a member was left out in between
        return score_differences(score, pairs)
    return first - second


class VersionStore:
    """The ensemble's versions on disk, each with a checksummed manifest: rewards/v001, v002, ..."""

    def __init__(self, directory: Path) -> None:
        self._store = CheckpointStore(directory, keep=KEEP_ALL)

    def save(self, ensemble: Ensemble, refused: bool = False) -> None:
        """Store the version; one that the gate has `refused` is there to be looked at, and is never the newest."""
        tensors = {f"member-{k}": whole_state(m) for k, m in enumerate(ensemble.members)}
        document: dict[str, JSON] = {
            "version": ensemble.version,
            "members": len(ensemble.members),
            "pooling": ensemble.members[0].pooling,
            "lora": asdict(lora_in(ensemble.members[0].trunk)),
            "base": base_fingerprint(ensemble.members[0]),
            "labels": ensemble.labels,
            "watermark": ensemble.watermark,
            "round": ensemble.round,
            "refused": refused,
            "means": list(ensemble.means),
            "sds": list(ensemble.sds),
            "degraded": {str(k): why for k, why in ensemble.degraded.items()},
            "fit": None if ensemble.fit is None else asdict(ensemble.fit),
        }
        trunk = json.loads(ensemble.members[0].trunk.config.to_json_string(use_diff=False))
        self._store.save(version_name(ensemble.version), Snapshot(tensors, {"ensemble": document, "trunk": trunk}))

    def numbers(self) -> list[int]:
        """The versions there are, in the order in which they were saved."""
        return [int(name.removeprefix("v")) for name in self._store.names()]

    def accepted(self) -> dict[int, int]:
        """The versions that were ever in use, each with the round that made it."""
        documents = {number: self.document(number) for number in self.numbers()}
        return {number: document["round"] for number, document in documents.items() if not document["refused"]}

    def next_number(self, round: int, in_use: int) -> int:
        """The number of the version that a round makes: one more than the newest of the rounds before it.

        Rounds only count forward, in a run that was rolled back too, so no number is used twice. Versions of this
        round or a later one are what a killed attempt has left; the same round done again makes the same ones again.
        """
        older = [number for number in self.numbers() if self.document(number)["round"] < round]
        return 1 + max([in_use, *older])

    def check_used(self, version: int) -> None:
        """Refuse a version that is not there, or that the gate kept out."""
        used = sorted(self.accepted())
        if version not in used:
            have = ", ".join(map(str, used)) or "none"
            raise HoldfastError(f"There is no version {version} of the ensemble that may be used; there are {have}.")

    def verify(self, version: int) -> None:
        """Refuse a version that is missing or damaged."""
        self._store.load(version_name(version))

    def in_use(self) -> int:
        """The version that a run uses, or the newest one in a directory of versions alone.

        What a run has committed may be older than its newest version, after a rollback or where an owner went back to
        it. A version of a round whose refresh was still to come then has been made since.
        """
        accepted = self.accepted()
        if not accepted:
            raise HoldfastError(
                f"There is no reward ensemble in {self._store.directory} yet; `holdfast reward` trains one."
            )
        version, coming = self._committed()
        if version not in accepted:
            return max(accepted)
        return max([n for n, made in accepted.items() if n > version and made >= coming], default=version)

    def _committed(self) -> tuple[int, int]:
        """The version in use at a run's newest checkpoint, and the next round that may refresh it; 0 without one."""
        # A run has its versions in rewards/, and beside them its checkpoints.
        checkpoints = CheckpointStore(self._store.directory.with_name("checkpoints"))
        document = checkpoints.newest_document(DOCUMENT) if self._store.directory.name == "rewards" else None
        if document is None:
            return 0, 0
        at = document["position"]
        # A round refreshes before its first step; what it has made is known to a checkpoint within it.
        return int(document["ensemble"]["version"]), int(at["round"]) + bool(at["step_in_round"])

    def built_with(self, version: int, config: Config) -> Config:
        """The settings with those parts that a version was built with: members, pooling, adapters."""
        document = self.document(version)
        if not document:
            return config  # loading it says that it is not there
        lora = {f"lora_{name}": value for name, value in document["lora"].items()}
        reward = replace(config.reward, members=document["members"], pooling=document["pooling"])
        return replace(config, reward=reward, policy=replace(config.policy, **lora))

    def load_in_use_into(self, ensemble: Ensemble) -> None:
        """The version in use."""
        self.load_into(ensemble, self.in_use())

    def load_into(self, ensemble: Ensemble, version: int) -> None:
        """Put a saved version's weights and standardisation into `ensemble`."""
        snapshot = self._store.load(version_name(version))
        document: Mapping[str, Any] = snapshot.documents["ensemble"]  # type: ignore[assignment]
        if document["members"] != len(ensemble.members):
            raise HoldfastError(
                f"Reward version {version} has {counted(document['members'], 'member')}, but by reward.members and "
                f"reward.aggregation there {'is' if len(ensemble.members) == 1 else 'are'} {len(ensemble.members)}."
            )
        pooling = document["pooling"]
        if pooling != ensemble.members[0].pooling:
            raise HoldfastError(f"Reward version {version} was trained with reward.pooling = {pooling!r}; set that.")
        if document["base"] != base_fingerprint(ensemble.members[0]):
            raise HoldfastError(
                f"Reward version {version} was not trained on these frozen weights; take the policy and the "
                "policy.lora_rank that it was trained with, or train one with `holdfast reward`."
            )
        for k, member in enumerate(ensemble.members):
            try:
                put_state(member, snapshot.tensors[f"member-{k}"])
            except RuntimeError as error:
                raise HoldfastError(
                    "The reward ensemble was trained on another model than this policy; "
                    "train one for it with `holdfast reward`."
                ) from error
        ensemble.version = int(document["version"])
        ensemble.labels = int(document["labels"])
        ensemble.watermark = int(document["watermark"])
        ensemble.round = int(document["round"])
        ensemble.means, ensemble.sds = tuple(document["means"]), tuple(document["sds"])
        ensemble.degraded = {int(k): str(why) for k, why in document["degraded"].items()}
        fit = document.get("fit")  # versions of before it was written down have none
        ensemble.fit = Share(**fit) if fit else None

    def document(self, number: int) -> dict[str, Any]:
        """What is written down about a version; its weights are not read."""
        path = self._store.directory / version_name(number) / "ensemble.json"
        return dict(read_json(path)) if path.is_file() else {}


def version_name(version: int) -> str:
    """The directory of a version."""
    return f"v{version:03d}"


def members_in(directory: Path) -> int:
    """How many members the ensemble in a directory has."""
    versions = VersionStore(directory)
    return int(versions.document(versions.in_use())["members"])
