"""The ensemble behind a reward function: what it has been taught, and teaching it more where that is wanted.

Labels of the run that it came from and labels of audits are in one store; versions are written beside it. Nothing of
the run that the ensemble came from is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.guard.guard import Guard
from holdfast.interop.trl.reward import EnsembleReward
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import Streams, derive_seed
from holdfast.reward.refresher import Refresher, RefreshOutcome

# Labelled comparisons whose answers tell the signals which words have been judged, and answers whose features do.
KNOWN_COMPARISONS, KNOWN_ANSWERS = 1000, 400


def take_over_labels(reward: EnsembleReward, store: PreferenceStore) -> None:
    """Copy the labels of the run that the ensemble came from."""
    if reward.run is None:
        return
    with PreferenceStore.open(reward.run.database_url(reward.run.config())) as given:
        labelled = given.labelled()
    store.add_comparisons([item.comparison for item in labelled])
    store.add_labels([label for item in labelled for label in item.labels])


@dataclass
class EnsembleTeacher:
    """`wanted` says whether the ensemble is to learn from audits at all."""

    reward: EnsembleReward
    store: PreferenceStore
    refreshing: Refresher
    seed: int
    wanted: bool

    @property
    def version(self) -> int:
        """The version in use."""
        return self.reward.ensemble.version

    def learn_known(self, guard: Guard) -> None:
        """Tell the signals what has been labelled, as the present version sees it."""
        prompts, responses = self.refreshing.labelled_answers(KNOWN_COMPARISONS, self.refreshing.last_round)
        if prompts:
            features_MD = self.reward.ensemble.features(prompts[:KNOWN_ANSWERS], responses[:KNOWN_ANSWERS])
            guard.know(responses, features_MD, self.reward.codec.vocabulary)

    def refresh(self, round: int, step: int) -> RefreshOutcome | None:
        """A new version from old and new labels, if there are new ones and the gate lets it in."""
        return self.refreshing.refresh(round, step, Streams(derive_seed(self.seed, "refresh", round)))

    def go_back(self, version: int) -> None:
        """The version that was in use when the good policy was kept."""
        self._use(version)

    def state(self) -> dict[str, int]:
        return {
            "version": self.version,
            "watermark": self.reward.ensemble.watermark,
            "last_round": self.refreshing.last_round,
            "last_step": self.refreshing.last_step,
        }

    def restore(self, state: Mapping[str, int]) -> None:
        self._use(int(state["version"]))
        # That of a version which came from another run speaks of that run's store.
        self.reward.ensemble.watermark = int(state["watermark"])
        self.refreshing.last_round, self.refreshing.last_step = int(state["last_round"]), int(state["last_step"])

    def _use(self, version: int) -> None:
        if version != self.version:
            self.refreshing.versions.load_into(self.reward.ensemble, version)
