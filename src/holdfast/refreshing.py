"""Refreshing the ensemble: fine-tune from the current weights on old and new labels, standardise, number, save."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from holdfast.config.schema import RefreshConfig, RewardConfig
from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec
from holdfast.preferences.store import PreferenceStore
from holdfast.preferences.types import LabelledComparison
from holdfast.randomness import Streams, generator
from holdfast.reward.ensemble import Ensemble, Tokens, VersionStore
from holdfast.reward.training import (
    FitSettings,
    Pair,
    ensemble_accuracy,
    fit_ensemble,
    pairs_of,
    replay_mix,
    split_holdout,
)
from holdfast.track.progress import Progress, Silent


@dataclass(frozen=True)
class RefreshOutcome:
    """What a version was trained on and how right it is."""

    version: int
    labels: int
    trained_on: int
    loss: float
    train_accuracy: float
    holdout_accuracy: float | None


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

    def first_version(self, streams: Streams) -> RefreshOutcome:
        """Version 1, from every label there is."""
        labelled = self.store.labelled()
        train, held = split_holdout(labelled, self.reward.holdout)
        if len(train) < 2:
            raise HoldfastError(
                f"A reward model needs at least 2 labelled comparisons to train on, and there are only {len(train)}; "
                "label more, or raise reward.initial_comparisons."
            )
        settings = FitSettings(self.reward.epochs, self.reward.lr, self.reward.warmup_steps)
        return self._fit(
            pairs_of(self.codec, train),
            labelled,
            held,
            settings,
            self.store.watermark(),
            generator(streams.seed, "reward initial"),
            self.progress,
        )

    def refresh(self, round: int, step: int, streams: Streams) -> RefreshOutcome | None:
        """The next version, from the labels that are new and a replay of older ones; None where nothing is new."""
        labelled = self.store.labelled(up_to_round=round)
        # The round counts too: after a return to an earlier checkpoint the store is ahead of the run, and the
        # watermark of a given ensemble speaks of another store.
        seen = self.store.labelled(up_to_round=self.last_round, watermark=self.ensemble.watermark)
        known = {item.comparison.id for item in seen}
        train, held = split_holdout(labelled, self.reward.holdout)
        fresh = [item for item in train if item.comparison.id not in known]
        if not fresh:
            return None
        old = [item for item in train if item.comparison.id in known]
        rng = streams["refresh"]
        mix = replay_mix(pairs_of(self.codec, old), pairs_of(self.codec, fresh), self.config.old_per_new, rng)
        settings = FitSettings(self.config.epochs, self.config.lr, self.config.warmup_steps)
        # Labels of later rounds are there when this round is done again; they must still be new to the next one.
        outcome = self._fit(mix, labelled, held, settings, self.store.watermark(round), rng, Silent())
        self.last_round, self.last_step, self.settled = round, step, False
        return outcome

    def holdout_accuracy(self) -> float | None:
        """How often the present version agrees with held-out labels; None where there are none."""
        held = split_holdout(self.store.labelled(), self.reward.holdout)[1]
        return ensemble_accuracy(self.ensemble, pairs_of(self.codec, held))

    def _fit(
        self,
        pairs: list[Pair],
        labelled: list[LabelledComparison],
        held: list[LabelledComparison],
        settings: FitSettings,
        watermark: int,
        rng: torch.Generator,
        progress: Progress,
    ) -> RefreshOutcome:
        fit = fit_ensemble(self.ensemble, pairs, settings, self.reward, rng, progress)
        self.ensemble.version += 1
        self.ensemble.labels = sum(len(item.labels) for item in labelled)
        self.ensemble.watermark = watermark
        self.ensemble.standardise(self.reference_prompts, self.reference_responses)
        self.versions.save(self.ensemble)
        return RefreshOutcome(
            version=self.ensemble.version,
            labels=self.ensemble.labels,
            trained_on=len(pairs),
            loss=fit.loss,
            train_accuracy=fit.accuracy,
            holdout_accuracy=ensemble_accuracy(self.ensemble, pairs_of(self.codec, held)),
        )
