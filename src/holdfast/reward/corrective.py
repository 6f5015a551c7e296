"""A corrective: one reward model of a run's audit labels, which is added to a reward that is given.

    audit labels -> halves -> is a model of one right about the other? -> a model of all -> standardised -> + the reward

It is a function of the reference, the labels up to a watermark and the seed, so a checkpoint holds what it was made of,
and whoever goes on makes it again.

Shapes: B answers, P pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from holdfast.config.schema import RewardConfig
from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec
from holdfast.preferences.pair import Pair, pairs_of
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import generator, place_of
from holdfast.reward.ensemble import Ensemble, Tokens
from holdfast.reward.training import FitSettings, fit_ensemble
from holdfast.statistics import wilson
from holdfast.text import counted, percent
from holdfast.track.progress import Silent

# Of fewer labels that prefer a side nothing is learnt: the interval of how right it is would be 30 points wide.
FEWEST = 40
# A few labels are gone over more often than reward.epochs says: in a handful of updates nothing is learnt.
LEAST_UPDATES = 60

# What its scores are called among the components of the reward.
AUDIT_LABELS = "audit labels"


@dataclass
class Corrective:
    """What people have said in audits as a reward model, if it is right about what it has not learnt from.

    `fresh` makes an ensemble of one member on a copy of the reference; `prompts` and `responses` are the reference's
    answers, on which it is standardised. `key` names the run whose audits they are.
    """

    fresh: Callable[[], Ensemble]
    store: PreferenceStore
    codec: Codec
    key: str
    config: RewardConfig
    prompts: Tokens
    responses: Tokens
    seed: int
    watermark: int = 0  # of the labels that it knows
    labels: int = 0  # that it has learnt from; 0 while it is not in use
    weights: Mapping[str, float] = field(default_factory=dict)  # of labellers, as they were then
    model: Ensemble | None = None

    @property
    def in_use(self) -> bool:
        return self.model is not None

    def train(self, watermark: int) -> str:
        """Make it anew of the labels up to a watermark, and take it into use or out of it; says what came of it."""
        self.model, self.labels = None, 0
        self.watermark, self.weights = watermark, dict(self.store.weights)
        pairs = self._pairs()
        decided = sum(pair.share_a != 0.5 for pair in pairs)
        if decided < FEWEST:
            return f"no reward model of audit labels: {decided} of them prefer a side, and it takes {FEWEST}"
        which = f"a reward model of {counted(len(pairs), 'audit label')}"
        try:
            right = wilson(self._right_about_others(pairs), decided)
            told = f"right on {percent(right.value)} of those that it had not learnt from"
            if right.low <= 0.5:
                return f"{which} is not used: {told}, which may be chance"
            self.model = self._model_of(pairs, "all")
        except HoldfastError as error:
            return f"{which} is not used: {error}"
        self.labels = len(pairs)
        return f"{which} joins the reward ({told})"

    def scores(self, prompts: Tokens, responses: Tokens) -> Tensor:
        """score_B, with the reference's answers at mean 0 and standard deviation 1; only where it is in use."""
        assert self.model is not None, "asked only where it is in use"
        return self.model.scores(prompts, responses)[0]

    def margins(self, pairs: Sequence[Pair]) -> Tensor:
        """margin_P: how much more the first sides get."""
        prompts = [pair.prompt for pair in pairs]
        return self.scores(prompts, [pair.a for pair in pairs]) - self.scores(prompts, [pair.b for pair in pairs])

    def state(self) -> dict[str, Any]:
        """What it was made of; its weights follow from that."""
        made = {"watermark": self.watermark, "labels": self.labels, "weights": dict(self.weights)}
        return {"in_use": self.in_use, **made}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """The one that a checkpoint speaks of, trained again; none of a run that had none yet."""
        state = state or {"in_use": False, "watermark": 0, "labels": 0, "weights": {}}
        self.watermark, self.labels, self.weights = int(state["watermark"]), int(state["labels"]), state["weights"]
        self.model = None
        if state["in_use"]:
            pairs = self._pairs()
            if len(pairs) != self.labels:
                raise HoldfastError(
                    f"The reward has learnt from {counted(self.labels, 'audit label')}, and the run's store has "
                    f"{len(pairs)} of them: bring its database back, or use another checkpoint."
                )
            self.model = self._model_of(pairs, "all")

    def _pairs(self) -> list[Pair]:
        """The run's audit labels up to the watermark, but for pairs of one text."""
        store = PreferenceStore(self.store.database)
        store.weights = self.weights
        audits = [key for key, purpose in self.store.asked_by(self.key) if purpose == "audit"]
        items = store.labelled_among(audits, self.watermark)
        own = [item for item in items if item.comparison.run == self.key]
        return pairs_of(self.codec, [item for item in own if item.comparison.a.text != item.comparison.b.text])

    def _right_about_others(self, pairs: Sequence[Pair]) -> int:
        """How many of the labels that prefer a side a model of the other half agrees with.

        Labels of one prompt are in one half, but for the prompt in the middle.
        """
        order = sorted(pairs, key=lambda pair: (place_of(f"corrective {pair.prompt}"), pair.key))
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        right = 0
        for n, (learnt, others) in enumerate((halves, halves[::-1])):
            decided = [pair for pair in others if pair.share_a != 0.5]
            margins = self._model_of(learnt, f"half {n}").margins(decided)[0].tolist() if decided else []
            right += sum(m * (pair.share_a - 0.5) > 0 for m, pair in zip(margins, decided, strict=True))
        return right

    def _model_of(self, pairs: Sequence[Pair], which: str) -> Ensemble:
        """A model of these labels, standardised on the reference's answers."""
        ensemble, config = self.fresh(), self.config
        epochs = max(config.epochs, -(-LEAST_UPDATES // -(-len(pairs) // config.batch)))
        rng = generator(self.seed, "corrective", self.watermark, which)
        fit_ensemble(ensemble, pairs, FitSettings(epochs, config.lr, config.warmup_steps), config, rng, Silent())
        ensemble.standardise(self.prompts, self.responses)
        return ensemble
