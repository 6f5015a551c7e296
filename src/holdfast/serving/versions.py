"""Where the service's versions come from: a run that may still be going, or a directory of `holdfast reward`.

run        the version that the run uses: its newest, or the one that a rollback or an owner went back to
directory  the newest version in it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from holdfast.config import Config
from holdfast.data.formats import read_preferences
from holdfast.errors import HoldfastError
from holdfast.guard.grams import lay_flat
from holdfast.guard.guard import NOTHING_KNOWN
from holdfast.guard.view import Known
from holdfast.models.codec import Codec
from holdfast.models.load import load_causal_lm
from holdfast.models.policy import Policy
from holdfast.preferences.comparison import LabelledComparison
from holdfast.preferences.pair import pairs_of
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import generator
from holdfast.reward.ensemble import Ensemble, VersionStore
from holdfast.reward.label_index import Answered
from holdfast.reward.replay import draw_replay
from holdfast.reward.sources.opening import open_source
from holdfast.reward.standalone import load_ensemble
from holdfast.run.directory import RunDirectory
from holdfast.run.host import KNOWN_ANSWERS, KNOWN_COMPARISONS
from holdfast.run.inputs import choose_threads, set_up_torch
from holdfast.run.origin import load_policy
from holdfast.serving.encoder import Encoder, Prompts
from holdfast.serving.given import GivenVersions
from holdfast.serving.scorer import Scorer

# Later than any round and any label.
ALWAYS = 2**62


@dataclass(frozen=True)
class EnsembleSource:
    """A store of versions, and the model whose tokenizer they read with; `run` is None for a bare directory."""

    rewards: Path
    config: Config
    lm: Any
    codec: Codec
    run: RunDirectory | None = None
    labels: Sequence[LabelledComparison] = ()
    prompts: Prompts = "auto"

    def in_use(self) -> int:
        """The version that scores unless somebody asks for another one."""
        return VersionStore(self.rewards).in_use()

    def numbers(self) -> list[int]:
        """The versions that were ever in use."""
        return sorted(VersionStore(self.rewards).accepted())

    def load(self, number: int) -> Scorer:
        """A version, verified and tried, in memory of its own."""
        versions = VersionStore(self.rewards)
        versions.check_used(number)
        ensemble = load_ensemble(self.rewards, self.lm, self.codec, self.config, number)
        encoder = Encoder(self.codec, Policy(self.lm, fast=False).context, self.prompts)
        reward = self.config.reward
        scorer = Scorer(ensemble, encoder, reward.aggregation, self._known(ensemble))
        scorer.check()
        return scorer

    def _known(self, ensemble: Ensemble) -> Known:
        """What the version has been taught on, as it sees it; with no labels at hand nothing is known."""
        items = self._labelled(ensemble.watermark)
        if not items:
            return NOTHING_KNOWN
        pairs = pairs_of(self.codec, items)
        prompts, responses = [p.prompt for p in pairs for _ in range(2)], [r for p in pairs for r in (p.a, p.b)]
        counts_V = torch.bincount(lay_flat(responses)[0], minlength=self.codec.vocabulary)
        return Known(counts_V, ensemble.features(prompts[:KNOWN_ANSWERS], responses[:KNOWN_ANSWERS]))

    def _labelled(self, watermark: int) -> Sequence[LabelledComparison]:
        """Some of the labels that the version knows, evenly over the rounds."""
        if self.run is None:
            return self.labels[:KNOWN_COMPARISONS]
        if not self.config.preferences.url and not (self.run.path / "run.db").is_file():
            return ()
        with PreferenceStore.open(self.run.database_url(self.config)) as store:
            answered = Answered(store, self.config.reward.holdout, self.run.key)
            answered.update()
            known, _ = answered.old_and_fresh(ALWAYS, ALWAYS, watermark)
            chosen = draw_replay(known, KNOWN_COMPARISONS, generator(0, "served answers", watermark))
            return store.labelled_among(chosen, answered.watermark)


def open_run(path: Path, prompts: Prompts = "auto") -> EnsembleSource:
    """The ensemble of a run directory."""
    run = RunDirectory.open(path)
    config = run.config()
    if not run.reference.is_dir() or not run.rewards.is_dir():
        raise HoldfastError(f"{path} has no reward ensemble yet; wait until the run has trained its first one.")
    run.check_reference()
    set_up_torch(config)
    lm, codec = load_causal_lm(run.reference)
    choose_threads(config, lm)
    return EnsembleSource(run.rewards, config, lm.to(config.run.device), codec, run, prompts=prompts)


def open_given(config: Config) -> GivenVersions:
    """A reward that stands still, by the settings that name it."""
    set_up_torch(config)
    source = open_source(config.reward, config.judge, config.run.device, config.policy.micro_batch_tokens)
    assert source is not None, "a run whose reward is given, or a source that was named"
    return GivenVersions(source)


def open_directory(path: Path, config: Config, labels: Path | None, prompts: Prompts = "auto") -> EnsembleSource:
    """A directory of `holdfast reward`; the tokenizer is that of the policy in the config."""
    if not config.policy.path:
        raise HoldfastError(f"{path} holds an ensemble alone; give the policy that it was trained from: --policy DIR.")
    set_up_torch(config)
    lm, codec = load_policy(Path(config.policy.path))
    choose_threads(config, lm)
    preferences = read_preferences(labels) if labels is not None else []
    return EnsembleSource(path, config, lm.to(config.run.device), codec, labels=preferences, prompts=prompts)
