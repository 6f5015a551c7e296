"""A store of labels, and a `Refresher` over small members whose training only scales them."""

from collections.abc import Sequence
from pathlib import Path

import torch
from toy_preferences import labelled, number_of, reference_answers, toy_config

from holdfast.config.schema import GateConfig, RefreshConfig
from holdfast.models.codec import Codec
from holdfast.models.reward_model import RewardModel, trunk_of
from holdfast.models.tiny import word_tokenizer
from holdfast.preferences.comparison import LabelledComparison
from holdfast.preferences.pair import Pair
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import Streams
from holdfast.reward.ensemble import Ensemble, VersionStore
from holdfast.reward.refresher import Refresher
from holdfast.reward.replay import holdout_place
from holdfast.track.progress import Silent
from tiny_models import PAD, build

PROMPTS, RESPONSES = reference_answers(20)


def refreshing_of(store: PreferenceStore, tmp_path: Path, holdout: float = 0.0, old_per_new: float = 2.0) -> Refresher:
    lm = build("llama")
    codec = Codec(word_tokenizer(["hello"]))
    return Refresher(
        Ensemble([RewardModel(trunk_of(lm), k) for k in range(2)], PAD, 4096),
        VersionStore(tmp_path / "rewards"), store, codec, toy_config(holdout=holdout, epochs=1),
        RefreshConfig(old_per_new=old_per_new, comparisons=0, lr=5e-4), PROMPTS, RESPONSES, Silent(),
        GateConfig(use=True),
    )  # fmt: skip


def add(store: PreferenceStore, numbers: Sequence[int], round: int) -> list[LabelledComparison]:
    items = [labelled(n, round) for n in numbers]
    store.add_comparisons([x.comparison for x in items])
    store.add_labels([label for x in items for label in x.labels])
    return items


def is_held_out(item: LabelledComparison, share: float) -> bool:
    return holdout_place(item.comparison.id) < share


def numbers_of(pairs: Sequence[Pair]) -> list[int]:
    return sorted(number_of(p) for p in pairs)


def weights_of(ensemble: Ensemble) -> list[torch.Tensor]:
    return [p.clone() for m in ensemble.members for p in m.parameters()]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def begun(store: PreferenceStore, tmp_path: Path, holdout: float = 0.0) -> Refresher:
    add(store, range(40), 0)
    refreshing = refreshing_of(store, tmp_path, holdout)
    refreshing.first_version(Streams(0))
    return refreshing
