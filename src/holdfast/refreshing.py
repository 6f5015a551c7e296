"""Refreshing the ensemble: fine-tune from the current weights on old and new labels, standardise, number, save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from holdfast.config.schema import RefreshConfig, RewardConfig
from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import Streams, generator
from holdfast.reward.answered import Answered
from holdfast.reward.ensemble import Ensemble, Tokens, VersionStore
from holdfast.reward.replay import draw_replay, holdout_place
from holdfast.reward.training import FitSettings, Pair, ensemble_accuracy, fit_ensemble, pairs_of
from holdfast.track.progress import Progress, Silent

# Held-out comparisons that are scored for one accuracy: its standard error is below 0.8 points, and no version takes
# longer to measure because the run is long.
MOST_HELD_OUT = 4000


@dataclass(frozen=True)
class RefreshOutcome:
    """What a version was trained on and how right it is."""

    version: int
    labels: int
    trained_on: int
    loss: float
    train_accuracy: float
    holdout_accuracy: float | None


@dataclass(frozen=True)
class Material:
    """What one version is trained on and measured on; `labels` and `watermark` say which labels it knows."""

    pairs: list[Pair]
    held_out: list[Pair]
    labels: int
    watermark: int


@dataclass
class Refreshing:
    """Trains versions of the ensemble from the store. Held-out comparisons never train."""

    ensemble: Ensemble
    versions: VersionStore
    store: PreferenceStore
    codec: Codec
    reward: RewardConfig
    config: RefreshConfig
    reference_prompts: Tokens
    reference_responses: Tokens
    progress: Progress
    # Version 1 is trained right before round 1, so that counts as round 1's refresh.
    last_round: int = 1
    last_step: int = 0
    settled: bool = False
    answered: Answered = field(init=False)

    def __post_init__(self) -> None:
        self.answered = Answered(self.store, self.reward.holdout)

    def first_version(self, streams: Streams) -> RefreshOutcome:
        """Version 1, from every label there is."""
        self.answered.update()
        watermark = self.answered.watermark
        # Encoded one by one as they are read: of many labels the tokens are kept and the texts are not.
        everything = self.store.each_labelled(watermark=watermark)
        train = pairs_of(self.codec, (x for x in everything if holdout_place(x.comparison.id) >= self.reward.holdout))
        if len(train) < 2:
            raise HoldfastError(
                f"A reward model needs at least 2 labelled comparisons to train on, and there are only {len(train)}; "
                "label more, or raise reward.initial_comparisons."
            )
        material = Material(train, self._held_out(None), self.answered.labels(), watermark)
        settings = FitSettings(self.reward.epochs, self.reward.lr, self.reward.warmup_steps)
        return self._fit(material, settings, generator(streams.seed, "reward initial"), self.progress)

    def refresh(self, round: int, step: int, streams: Streams) -> RefreshOutcome | None:
        """The next version, from the labels that are new and a replay of older ones; None where nothing is new."""
        material = self.material(round, streams)
        if material is None:
            return None
        settings = FitSettings(self.config.epochs, self.config.lr, self.config.warmup_steps)
        outcome = self._fit(material, settings, streams["refresh"], Silent())
        self.last_round, self.last_step, self.settled = round, step, False
        return outcome

    def material(self, up_to_round: int, streams: Streams) -> Material | None:
        """What a refresh in a round trains on and is measured on; None where nothing is new."""
        self.answered.update()
        # The round counts too: after a return to an earlier checkpoint the store is ahead of the run, and the
        # watermark of a given ensemble speaks of another store.
        old, fresh = self.answered.old_and_fresh(up_to_round, self.last_round, self.ensemble.watermark)
        if not fresh:
            return None
        replayed = draw_replay(old, round(self.config.old_per_new * len(fresh)), streams["refresh"])
        # Labels of later rounds are there when this round is done again; they must still be new to the next one.
        watermark = min(self.store.watermark(up_to_round), self.answered.watermark)
        return Material(
            pairs=self._pairs([*replayed, *fresh]),
            held_out=self._held_out(up_to_round),
            labels=self.answered.labels(up_to_round),
            watermark=watermark,
        )

    def holdout_accuracy(self) -> float | None:
        """How often the present version agrees with held-out labels; None where there are none."""
        self.answered.update()
        return ensemble_accuracy(self.ensemble, self._held_out(None))

    def _held_out(self, up_to_round: int | None) -> list[Pair]:
        return self._pairs(self.answered.held_out(MOST_HELD_OUT, up_to_round))

    def _pairs(self, comparison_ids: Sequence[str]) -> list[Pair]:
        """Comparisons as tokens, in the order given."""
        items = self.store.labelled_among(comparison_ids, self.answered.watermark)
        by_id = {item.comparison.id: item for item in items}
        return pairs_of(self.codec, [by_id[key] for key in comparison_ids])

    def _fit(
        self, material: Material, settings: FitSettings, rng: torch.Generator, progress: Progress
    ) -> RefreshOutcome:
        fit = fit_ensemble(self.ensemble, material.pairs, settings, self.reward, rng, progress)
        self.ensemble.version += 1
        self.ensemble.labels = material.labels
        self.ensemble.watermark = material.watermark
        self.ensemble.standardise(self.reference_prompts, self.reference_responses)
        self.versions.save(self.ensemble)
        return RefreshOutcome(
            version=self.ensemble.version,
            labels=self.ensemble.labels,
            trained_on=len(material.pairs),
            loss=fit.loss,
            train_accuracy=fit.accuracy,
            holdout_accuracy=ensemble_accuracy(self.ensemble, material.held_out),
        )
