"""Refreshing the ensemble: a candidate from the current weights and old and new labels, which the gate lets in or not.

store -> old and new labels -> candidate -> standardise, number, save
labels that members have not learnt from -> old and candidate's opinions -> gate -> the candidate, or the old one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

import torch

from holdfast.config.schema import GateConfig, RefreshConfig, RewardConfig
from holdfast.control.ledger import KLLedger
from holdfast.models.codec import Codec
from holdfast.preferences.comparison import WORTH, Comparison
from holdfast.preferences.pair import Pair, pairs_of
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import Streams, generator
from holdfast.reward.ensemble import Ensemble, Tokens, VersionStore
from holdfast.reward.examination import Enquiry, about_held_out, about_trained, log_odds, opinions
from holdfast.reward.gate import Decision, Quality, decision_on, quality
from holdfast.reward.importance import Importance
from holdfast.reward.label_index import Answered
from holdfast.reward.repeats import CANDIDATES, Repeats, as_before, repeat_of, surest
from holdfast.reward.replay import draw_replay, even_shares, holdout_place
from holdfast.reward.training import Fit, FitSettings, ensemble_accuracy, fit_ensemble, unseen_by
from holdfast.statistics import Share
from holdfast.track.progress import Progress, Silent

# Held-out comparisons that are scored for one accuracy: its standard error is below 0.8 points, and no version takes
# longer to measure because the run is long.
MOST_HELD_OUT = 4000

# Passes over what a refresh learns from. More would fit the new labels at the cost of the old.
EPOCHS = 1

# Earlier labels on which a candidate is compared with the version in use, evenly over the rounds: a loss of 3 points is
# then two standard errors.
MOST_EARLIER = 500


@dataclass(frozen=True)
class RefreshOutcome:
    """What a version was trained on and how right it is, and what the gate said of it.

    `version` is the one that was trained and `in_use` the one that is used from now on. `before` and `after` are the
    version that was in use and the new one on the same labels, which neither has learnt from.
    """

    version: int
    labels: int
    trained_on: int
    loss: float
    train_accuracy: float
    holdout_accuracy: float | None
    held_out: int
    accepted: bool = True
    in_use: int = 0
    decision: Decision = field(default_factory=lambda: Decision(True, "the gate was not asked"))
    before: Quality = field(default_factory=Quality)
    after: Quality = field(default_factory=Quality)

    def refresh_event(self) -> dict[str, Any]:
        """What was trained, as the fields of an event."""
        apart = ("decision", "before", "after")
        fields = {name: value for name, value in vars(self).items() if name not in apart}
        return {**fields, "gate_reason": self.decision.reason}

    def gate_event(self) -> dict[str, Any]:
        """What the gate did, as the fields of an event."""
        return {
            "accepted": self.accepted,
            "reason": self.decision.reason,
            "version": self.version,
            "in_use": self.in_use,
            "checks": [asdict(check) for check in self.decision.checks],
            "before": asdict(self.before),
            "after": asdict(self.after),
        }


@dataclass(frozen=True)
class Material:
    """What one version is trained on and measured on; `labels` and `watermark` say which labels it knows.

    `fresh` are those of the pairs that are new, `fresh_held_out` new ones that never train; `earlier` and
    `earlier_held_out` are some that the version in use knows.
    """

    pairs: list[Pair]
    held_out: list[Pair]
    labels: int
    watermark: int
    fresh: list[Pair] = field(default_factory=list)
    fresh_held_out: list[Pair] = field(default_factory=list)
    earlier: list[Pair] = field(default_factory=list)
    earlier_held_out: list[Pair] = field(default_factory=list)


@dataclass
class Refresher:
    """Trains versions of the ensemble from the store. Held-out comparisons never train.

    `last_round` and `last_step` say when the version in use was made. A refresh that is refused leaves them as they
    are: its labels are still new to the ensemble, and it is still due.
    """

    ensemble: Ensemble
    versions: VersionStore
    store: PreferenceStore
    codec: Codec
    reward: RewardConfig
    config: RefreshConfig
    reference_prompts: Tokens
    reference_responses: Tokens
    progress: Progress
    gate: GateConfig = field(default_factory=GateConfig)
    # What ids of this run's comparisons begin with; empty where nothing else is in the store.
    key: str = ""
    # Version 1 is trained right before round 1, so that counts as round 1's refresh.
    last_round: int = 1
    last_step: int = 0
    settled: bool = False
    # Weighs old labels for the present policy where no new ones come in; without it there is no refit for their sake.
    importance: Importance | None = None
    answered: Answered = field(init=False)

    def __post_init__(self) -> None:
        self.answered = Answered(self.store, self.reward.holdout, self.key)

    def state(self) -> dict[str, Any]:
        """The version in use and when it was made; its weights are among the versions."""
        made = {"last_round": self.last_round, "last_step": self.last_step, "settled": self.settled}
        degraded = {str(k): why for k, why in self.ensemble.degraded.items()}
        return {"version": self.ensemble.version, **made, "degraded": degraded}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.versions.load_into(self.ensemble, int(state["version"]))
        self.last_round, self.last_step = int(state["last_round"]), int(state["last_step"])
        self.settled = bool(state["settled"])
        self.ensemble.degraded = {int(k): str(why) for k, why in state["degraded"].items()}

    def first_version(self, streams: Streams) -> RefreshOutcome:
        """Version 1, from every label there is."""
        self.answered.update()
        watermark = self.answered.watermark
        # Encoded one by one as they are read: of many labels the tokens are kept and the texts are not.
        everything = self.store.each_labelled(watermark=watermark)
        once = (x for x in everything if x.comparison.purpose != "repeat")
        train = pairs_of(self.codec, (x for x in once if holdout_place(x.comparison.id) >= self.reward.holdout))
        material = Material(train, self._held_out(None), self.answered.labels(), watermark)
        settings = FitSettings(self.reward.epochs, self.reward.lr, self.reward.warmup_steps)
        fit = self._train(material, settings, generator(streams.seed, "reward initial"), self.progress, round=0)
        self.versions.save(self.ensemble)
        return self._outcome(material, fit)

    def take_as_first_version(self) -> None:
        """Version 1: the members as they are, which know none of the run's labels."""
        self.ensemble.version = 1
        self.ensemble.standardise(self.reference_prompts, self.reference_responses)
        self.versions.save(self.ensemble)

    def refresh(self, round: int, step: int, streams: Streams) -> RefreshOutcome | None:
        """A candidate from new labels and a replay of older ones, put to the gate; None where nothing is new."""
        material = self.material(round, streams)
        if material is None:
            return None
        in_use, watermark, degraded = self.ensemble.version, self.ensemble.watermark, dict(self.ensemble.degraded)
        questions = self._questions(material) if self.gate.use else []
        old = log_odds(self.ensemble, questions)
        settings = FitSettings(EPOCHS, self.config.lr, self.config.warmup_steps)
        fit = self._train(material, settings, streams["refresh"], Silent(), round)
        evidence = opinions(questions, old, log_odds(self.ensemble, [q for q in questions if q.unseen]))
        decision = decision_on(evidence, self.repeats(round)) if self.gate.use else Decision(True, "the gate is off")
        self.versions.save(self.ensemble, refused=not decision.accept)
        outcome = replace(self._outcome(material, fit), accepted=decision.accept, decision=decision)
        was, now = quality(evidence)
        if decision.accept:
            self.last_round, self.last_step, self.settled = round, step, False
        else:
            self.versions.load_into(self.ensemble, in_use)
            self.ensemble.watermark = watermark  # the saved one of a given ensemble speaks of another store
            self.ensemble.degraded = degraded
        return replace(outcome, in_use=self.ensemble.version, before=was, after=now)

    def return_to(self, version: int, ledger: KLLedger) -> None:
        """Use an earlier version again. What was labelled since it was made is new to it, and trains the next one."""
        self.versions.check_used(version)
        self.versions.load_into(self.ensemble, version)
        # The first one counts as round 1's, also where it was given and made in a round of another run.
        first = version == min(self.versions.numbers())
        self.last_round = 1 if first else self.ensemble.round
        self.last_step, self.settled = ledger.last_step_before(self.last_round), False

    def material(self, up_to_round: int, streams: Streams) -> Material | None:
        """What a refresh in a round trains on and is measured on; None where nothing is new."""
        self.answered.update()
        # The round counts too: after a return to an earlier checkpoint the store is ahead of the run, and the
        # watermark of a given ensemble speaks of another store.
        known = up_to_round, self.last_round, self.ensemble.watermark
        old, fresh = self.answered.old_and_fresh(*known)
        if not fresh and self.importance is None:
            return None
        wanted = max(round(self.config.old_per_new * len(fresh)), self.config.comparisons - len(fresh))
        replayed = draw_replay(old, wanted, streams["refresh"])
        # Labels of later rounds are there when this round is done again; they must still be new to the next one.
        watermark = min(self.store.watermark(up_to_round), self.answered.watermark)
        pairs, news = self._pairs([*replayed, *fresh]), set(fresh)
        newer = [pair for pair in pairs if pair.key in news]
        if not (pairs if self.importance else newer):
            return None
        if self.importance is not None:
            pairs = self.importance.weighed(pairs)
        held = list(self.answered.held_out_known(MOST_EARLIER, *known).values())
        trained = [self._some(ids, MOST_EARLIER) for ids in old]
        shares = even_shares([len(h) + len(t) for h, t in zip(held, trained, strict=True)], MOST_EARLIER)
        return Material(
            pairs=pairs,
            held_out=self._held_out(up_to_round),
            labels=self.answered.labels(up_to_round),
            watermark=watermark,
            fresh=newer,
            fresh_held_out=self._pairs(self.answered.held_out_fresh(MOST_HELD_OUT, *known)),
            earlier=self._pairs(
                [key for h, t, n in zip(held, trained, shares, strict=True) for key in t[: max(0, n - len(h))]]
            ),
            earlier_held_out=self._pairs([key for h, n in zip(held, shares, strict=True) for key in h[:n]]),
        )

    def to_repeat(self, round: int, seed: int) -> list[Comparison]:
        """Easy comparisons that the version in use knows, to be asked again in a round; none where no gate asks."""
        count = self.gate.repeats if self.gate.use else 0
        if not count:
            return []
        self.answered.update()
        members = len(self.ensemble.members)
        known = round, self.last_round, self.ensemble.watermark
        trained = [self._some(ids, len(ids)) for ids in self.answered.old_and_fresh(*known)[0]]
        held = self.answered.held_out_known(MOST_EARLIER, *known).values()
        rng = generator(seed, "ask again", round)
        chosen = draw_replay([*trained, *held], CANDIDATES * count, rng)
        pairs = self._pairs(chosen)
        if not pairs:
            return []
        asked = [unseen if (unseen := unseen_by(p.key, members)) is not None else 0 for p in pairs]
        easy = surest(pairs, self.ensemble.opinion_margins(pairs, asked), count)
        items = self.store.labelled_among(easy, self.answered.watermark)
        return [repeat_of(item.comparison, round, self.key) for item in items]

    def repeats(self, up_to_round: int) -> Repeats:
        """How people answered what they were asked again."""
        before, lately = (self._answered_again(ids) for ids in self.answered.repeats(up_to_round, self.last_round))
        return Repeats(sum(lately), len(lately), sum(before), len(before))

    def same_again(self, up_to_round: int) -> dict[str, tuple[float, int]]:
        """Of each labeller, how many comparisons it was asked a second time, and how many it answered as before."""
        self.answered.update()
        ids = [key for each in self.answered.repeats(up_to_round, self.last_round) for key in each]
        again = self.store.labelled_among(ids, self.answered.watermark)
        originals = [key for item in again if (key := item.comparison.repeats)]
        first = {
            (label.comparison_id, label.labeller): WORTH[label.choice]
            for item in self.store.labelled_among(originals, self.answered.watermark)
            for label in item.labels
        }
        counts: dict[str, tuple[float, int]] = {}
        for item in again:
            for label in item.labels:
                was = first.get((item.comparison.repeats or "", label.labeller), 0.5)
                if was != 0.5:
                    same, asked = counts.get(label.labeller, (0.0, 0))
                    counts[label.labeller] = same + as_before(was, WORTH[label.choice]), asked + 1
        return counts

    def _answered_again(self, ids: Sequence[str]) -> list[float]:
        again = {item.comparison.id: item for item in self.store.labelled_among(ids, self.answered.watermark)}
        repeats = [again[key] for key in ids if key in again]
        originals = [key for item in repeats if (key := item.comparison.repeats)]
        share: dict[str | None, float] = {
            item.comparison.id: item.share_a for item in self.store.labelled_among(originals, self.answered.watermark)
        }
        both = [(share[item.comparison.repeats], item.share_a) for item in repeats if item.comparison.repeats in share]
        # People may have changed their minds about the first one since; a tie says nothing.
        return [as_before(first, again) for first, again in both if first != 0.5]

    def holdout_accuracy(self) -> Share | None:
        """How often the present version agrees with held-out labels; None where there are none."""
        self.answered.update()
        return ensemble_accuracy(self.ensemble, self._held_out(None))

    def labelled_answers(self, comparisons: int, up_to_round: int) -> tuple[list[list[int]], list[list[int]]]:
        """Prompts and answers of labels that the version in use knows, evenly over the rounds; always the same."""
        self.answered.update()
        known, _ = self.answered.old_and_fresh(up_to_round, self.last_round, self.ensemble.watermark)
        chosen = self._pairs(draw_replay(known, comparisons, generator(0, "labelled answers", self.ensemble.version)))
        return [p.prompt for p in chosen for _ in range(2)], [side for p in chosen for side in (p.a, p.b)]

    def _held_out(self, up_to_round: int | None) -> list[Pair]:
        return self._pairs(self.answered.held_out(MOST_HELD_OUT, up_to_round))

    def _pairs(self, comparison_ids: Sequence[str]) -> list[Pair]:
        """Comparisons as tokens, in the order given."""
        items = self.store.labelled_among(comparison_ids, self.answered.watermark)
        by_id = {item.comparison.id: item for item in items}
        # One whose labels have been taken back, or are left out, is not there.
        return pairs_of(self.codec, [by_id[key] for key in comparison_ids if key in by_id])

    def _some(self, comparison_ids: Sequence[str], most: int) -> list[str]:
        """The first few of a round's comparisons from which one member never learns."""
        members = len(self.ensemble.members)
        apart = (key for key in comparison_ids if unseen_by(key, members) is not None)
        return list(islice(apart, most))

    def _questions(self, material: Material) -> list[Enquiry]:
        members = len(self.ensemble.members)
        return [
            *about_held_out(material.earlier_held_out, members, fresh=False),
            *about_trained(material.earlier, members, fresh=False),
            *about_held_out(material.fresh_held_out, members, fresh=True),
            *about_trained(material.fresh, members, fresh=True),
        ]

    def _train(
        self, material: Material, settings: FitSettings, rng: torch.Generator, progress: Progress, round: int
    ) -> Fit:
        """Make the ensemble a new version of itself."""
        number = self.versions.next_number(round, self.ensemble.version)
        fit = fit_ensemble(self.ensemble, material.pairs, settings, self.reward, rng, progress)
        self.ensemble.version, self.ensemble.round = number, round
        self.ensemble.labels, self.ensemble.watermark = material.labels, material.watermark
        self.ensemble.fit = Share(fit.accuracy, len(material.pairs))
        self.ensemble.standardise(self.reference_prompts, self.reference_responses)
        return fit

    def _outcome(self, material: Material, fit: Fit) -> RefreshOutcome:
        right = ensemble_accuracy(self.ensemble, material.held_out)
        return RefreshOutcome(
            version=self.ensemble.version,
            labels=self.ensemble.labels,
            trained_on=len(material.pairs),
            loss=fit.loss,
            train_accuracy=fit.accuracy,
            holdout_accuracy=None if right is None else right.value,
            held_out=0 if right is None else right.count,
            in_use=self.ensemble.version,
        )
