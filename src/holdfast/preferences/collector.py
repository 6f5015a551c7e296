"""Collecting comparisons: which answers people are asked about, and where their labels go."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from holdfast.config.schema import PreferencesConfig
from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec
from holdfast.models.policy import Policy
from holdfast.models.prompt import Prompt
from holdfast.preferences.budget import LabelBudget
from holdfast.preferences.comparison import Comparison, Provenance, Purpose, Response
from holdfast.preferences.label_seal import LabelSeal
from holdfast.preferences.labeller import Labeller, PatientLabeller, answers_of
from holdfast.preferences.pair import Pair
from holdfast.preferences.store import PreferenceStore
from holdfast.randomness import Cursor, generator
from holdfast.rollout.sampler import Rollout

# Whoever answers: a `Policy` in our own loop, a model of another trainer's in `interop`.
Answering = TypeVar("Answering")
Sample = Callable[[Answering, list[list[int]], torch.Generator], Rollout]

# Candidate pairs that are sampled for each one labelled, where the choice is by disagreement.
CANDIDATES = 2


class Claimant(Protocol):
    """Whoever claims which of two answers people prefer: the reward ensemble, or anything that scores answers."""

    @property
    def version(self) -> int: ...

    @property
    def members(self) -> Sequence[object]: ...

    def margins(self, pairs: Sequence[Pair]) -> Tensor:
        """margins_KP: how much better each member finds the first side."""
        ...

    def claims(self, pairs: Sequence[Pair]) -> Tensor:
        """claim_P: the probability that people prefer the first side."""
        ...


@dataclass
class Collector:
    """Samples pairs of answers, selects some, has them labelled, and stores both.

    Ids follow from the run's key and the round, and both sides of the store are idempotent: a round redone after a
    crash asks nobody twice and loses nothing.
    """

    key: str
    codec: Codec
    prompts: Sequence[Prompt]
    store: PreferenceStore
    labeller: Labeller | None
    ensemble: Claimant
    config: PreferencesConfig
    seed: int
    after_people: Callable[[], None] = lambda: None  # when people have answered: how good are their labels?
    # How often an owner took the run back, or its grammar was changed; a round that was cut before asks other things.
    returns: int = 0
    changes: int = 0  # how often an owner changed what steps do; the audit of a round that was cut asks other things
    budget: LabelBudget = LabelBudget()
    branches: bool = False  # whether the run may be resumed from one place more than once
    event: Callable[..., None] = lambda kind, **fields: None
    asked: int = 0  # comparisons that were asked in this sitting, answered or not
    _cost: dict[str, int] | None = None  # what was asked so far, with the answers that each asks for
    _cut: tuple[int, str] = (-1, "")  # the round and reason of what was last cut short, so that each is told once

    def __post_init__(self) -> None:
        self.cursor = Cursor(len(self.prompts), self.seed, "collect")
        self.rng = generator(self.seed, "collect")
        self._seal = LabelSeal()

    def state(self) -> dict[str, Any]:
        """What is labelled next is drawn on from here, also after a rollback.

        From the checkpoint on, the same policy would give the same answers to the same prompts once more: labels spent
        twice, and comparisons that train beside copies that must not.
        """
        self.store.seal(self._seal)
        labels = {"watermark": self._seal.watermark, "labels": self._seal.sha256}
        owner = {"returns": self.returns, "changes": self.changes}
        return {"cursor": self.cursor.state(), "rng": self.rng.get_state(), **labels, **owner}

    def restore(self, state: Mapping[str, Any]) -> None:
        if self.store.watermark() < int(state["watermark"]):
            raise HoldfastError(
                "The label store holds fewer labels than the checkpoint was made with; "
                "bring back the database that belongs to this run."
            )
        seal = LabelSeal()
        self.store.seal(seal, int(state["watermark"]))
        if seal.sha256 != state["labels"]:
            raise HoldfastError(
                "The label store holds other labels than the checkpoint was made with: they, or what they answer, were "
                "changed; bring back the database that belongs to this run."
            )
        self._seal = seal
        self.cursor.restore(state["cursor"])
        self.rng.set_state(state["rng"])
        self.returns, self.changes = int(state["returns"]), int(state["changes"])

    def collect(
        self,
        round: int,
        policy: Policy,
        sample: Sample[Policy],
        more: float = 1.0,
        repeats: Sequence[Comparison] = (),
    ) -> int:
        """A round's comparisons from the current policy; returns how many were labelled.

        `more` multiplies their number; above 1, those are chosen on which members disagree. `repeats` are asked
        with them, and not counted.
        """
        if not self.in_rounds:
            return 0
        count = math.ceil(more * self.config.per_round)
        # One member alone cannot disagree: then there are only more of them.
        choosy = self.config.selection == "disagreement" or (more > 1.0 and len(self.ensemble.members) > 1)
        rows = self.cursor.take(count * (CANDIDATES if choosy else 1))
        candidates = self._candidates(round, rows, policy, sample, self.rng)
        if choosy:
            chosen = select_disagreement(self.ensemble.margins([self._pair(c) for c in candidates]), count)
        else:
            chosen = select_random(len(candidates), count, self.rng)
        asked = [candidates[i] for i in chosen]
        further = []
        if more > 1.0:
            further.append(f"{more:g} times as many, since the guard wants more")
        if repeats:
            further.append(f"{len(repeats):,} of them asked again to check labels (gate.repeats)")
        self.ask([*asked, *repeats], f"round {round}", "; ".join(["comparisons", *further]) if further else "")
        return len(self.store.answered([c.id for c in asked]))

    def collect_initial(self, count: int, reference: Policy, sample: Sample[Policy]) -> int:
        """Comparisons of the reference's answers, for version 1 of the ensemble.

        Drawn apart from everything the rounds draw, so that a run which finds version 1 finished and skips this
        goes on as if it had not.
        """
        if self.labeller is None or count == 0:
            return 0
        rows = Cursor(len(self.prompts), self.seed, "collect initial").take(count)
        rng = generator(self.seed, "collect initial")
        return self.ask(self._candidates(0, rows, reference, sample, rng), "the first comparisons")

    def collect_adversarial(
        self,
        round: int,
        count: int,
        hacked: Answering,
        good: Answering,
        good_version: str,
        sample: Sample[Answering],
    ) -> int:
        """Answers of a policy found hacking beside a good one's, those pairs that fool the ensemble most."""
        if self.labeller is None or count == 0:
            return 0
        rng = generator(self.seed, "adversarial", round)
        rows = torch.randint(len(self.prompts), (count * CANDIDATES,), generator=rng).tolist()
        prompts = [self.codec.encode_prompt(self.prompts[i]) for i in rows]
        sides = sample(hacked, prompts, rng), sample(good, prompts, rng)
        versions = f"round-{round:04d}", good_version
        candidates = []
        for n, row in enumerate(rows):
            one, other = (
                self.response(side, n, Provenance(version, round, n))
                for side, version in zip(sides, versions, strict=True)
            )
            key = f"{self.key}/adversarial-{self.mark_after_steps(round)}-{n:05d}"
            # They belong to the next round, as the audit's do.
            candidates.append(Comparison(key, self.prompts[row], one, other, round + 1, "adversarial", self.key))
        margins_P = self.ensemble.margins([self._pair(c) for c in candidates]).mean(0)
        fooled = sorted(margins_P.argsort(descending=True, stable=True)[:count].tolist())
        # The hacked answer is the first one in every other pair, so that a taste for one side tells nothing.
        asked = [candidates[i].swap() if n % 2 else candidates[i] for n, i in enumerate(fooled)]
        if self.asks_otherwise:
            asked, _ = with_free_ids(self.store, asked)
        return self.ask(asked, f"round {round}", "hacked answers beside good ones, to learn from")

    def mark(self, round: int) -> str:
        """What ids of a round's comparisons have in common."""
        return f"r{round:04d}.{self.returns}" if self.returns else f"r{round:04d}"

    def mark_after_steps(self, round: int) -> str:
        """The same for those that follow from the round's steps."""
        return f"{self.mark(round)}+{self.changes}" if self.changes else self.mark(round)

    @property
    def in_rounds(self) -> bool:
        """Whether somebody labels comparisons in every round."""
        return self.labeller is not None and self.config.per_round > 0

    @property
    def waits_for_people(self) -> bool:
        """Whether answers may take long to come."""
        return isinstance(self.labeller, PatientLabeller)

    @property
    def asks_otherwise(self) -> bool:
        """Whether a round that is done again may ask about other things than before."""
        return self.waits_for_people or self.branches

    def ask(self, wanted: Sequence[Comparison], reason: str, more: str = "", turns: Sequence[int] = ()) -> int:
        """Store the comparisons, then the labels of those that have none; returns how many are labelled now.

        `reason` says what they are for. Where they are more than the settings' own number, `more` says what they are
        and why. Where the budget
        does not last for all of them, those with the lowest of `turns` are asked, else the first.
        """
        comparisons = self.within_budget(wanted, reason, turns)
        if not comparisons:
            return 0
        self.event("labels_asked", comparisons=len(comparisons), reason=reason, more=more)
        self.asked += len(comparisons)
        self.store.add_comparisons(comparisons)
        if isinstance(self.labeller, PatientLabeller):
            why = f"{reason}: {more}" if more else reason
            self.labeller.gather(comparisons, self._claims(comparisons), why)
            self.after_people()
            return len(self.store.answered([c.id for c in comparisons]))
        answered = self.store.answered([c.id for c in comparisons])
        waiting = [c for c in comparisons if c.id not in answered]
        if not waiting or self.labeller is None:
            return len(answered)
        labels = answers_of(self.labeller, waiting)
        self.store.add_labels(labels)
        count = len(answered) + len({label.comparison_id for label in labels})
        if count < len(comparisons):
            who = self.labeller.name
            self.event("labels_missing", reason=reason, comparisons=len(comparisons), answered=count, labeller=who)
        return count

    @property
    def labels_left(self) -> int | None:
        """What of the budget is left, also for audits; None without one."""
        return max(0, self.budget.most - sum(self._asked().values())) if self.budget.most else None

    def within_budget(self, wanted: Sequence[Comparison], reason: str, turns: Sequence[int] = ()) -> list[Comparison]:
        """Those that may be asked. What is in the store has been asked before, and costs nothing now."""
        if not self.budget.most or not wanted:
            return list(wanted)
        asked, kept = self._asked(), self.budget.kept(max(c.round for c in wanted))
        room, granted = self.budget.most - sum(asked.values()) - kept, set[str]()
        order = sorted(range(len(wanted)), key=lambda n: (turns[n] if turns else 0, n))
        for comparison in (wanted[n] for n in order):
            cost = 0 if comparison.id in asked else self._answers_to(comparison.id, comparison.purpose)
            if cost > max(room, 0):
                break
            room, asked[comparison.id] = room - cost, asked.get(comparison.id, cost)
            granted.add(comparison.id)
        left = self.labels_left
        assert left is not None
        request = max(c.round for c in wanted), reason
        if len(granted) < len(wanted) and request != self._cut:
            self._cut = request
            self.event(
                "labels_cut", reason=reason, wanted=len(wanted), comparisons=len(granted), budget=self.budget.most,
                kept=min(left, kept),
            )  # fmt: skip
        return [c for c in wanted if c.id in granted]

    def _asked(self) -> dict[str, int]:
        """Everything that the run has asked, from the store once and kept up from then on."""
        if self._cost is None:
            root = self.key.partition("/")[0]
            asked = self.store.asked_by(root)
            self._cost = {key: self._answers_to(key, purpose) for key, purpose in asked}
        return self._cost

    def _answers_to(self, comparison_id: str, purpose: Purpose) -> int:
        return self.labeller.answers_to(comparison_id, purpose) if isinstance(self.labeller, PatientLabeller) else 1

    def _claims(self, comparisons: Sequence[Comparison]) -> list[float | None]:
        """What the ensemble says of them, for people to see after they have answered; nothing before version 1."""
        if self.ensemble.version == 0:
            return [None] * len(comparisons)
        return list(self.ensemble.claims([self._pair(c) for c in comparisons]).tolist())

    def _candidates(
        self, round: int, rows: list[int], policy: Policy, sample: Sample[Policy], rng: torch.Generator
    ) -> list[Comparison]:
        prompts = [self.codec.encode_prompt(self.prompts[i]) for i in rows]
        seed = rng.initial_seed()
        a, b = sample(policy, prompts, rng), sample(policy, prompts, rng)
        origin = Provenance("reference" if round == 0 else f"round-{round - 1:04d}", round, seed % 2**31)

        return [
            Comparison(
                f"{self.key}/{self.mark(round)}-{n:05d}",
                self.prompts[i],
                self.response(a, n, origin),
                self.response(b, n, origin),
                round,
                "training" if round else "first",
                self.key,
            )
            for n, i in enumerate(rows)
        ]

    def response(self, rollout: Rollout, i: int, origin: Provenance) -> Response:
        ids = rollout.responses[i]
        text = self.codec.decode(ids) if rollout.texts is None else rollout.texts[i]
        return Response(text, origin, tuple(ids), rollout.finished[i])

    def _pair(self, comparison: Comparison) -> Pair:
        return Pair(
            prompt=self.codec.encode_prompt(comparison.prompt),
            a=list(comparison.a.token_ids or ()),
            b=list(comparison.b.token_ids or ()),
            share_a=0.5,
            round=comparison.round,
        )


def with_free_ids(store: PreferenceStore, wanted: list[Comparison]) -> tuple[list[Comparison], int]:
    """The comparisons as they are, or under other ids where theirs stand for something else, which has so many answers.

    A round that is done again draws what it drew before, unless people have answered since: that may change how many
    pairs it asks about. What was asked then keeps its ids and its labels.
    """
    free, others, answers = wanted, 0, 0
    while store.taken(free):
        others += 1
        answers += len(store.answered([comparison.id for comparison in free]))
        free = [replace(comparison, id=f"{comparison.id}.{others}") for comparison in wanted]
    return free, answers


def select_random(n_candidates: int, n: int, generator: torch.Generator) -> list[int]:
    """Draw n of the candidates uniformly without replacement; the indices come back sorted."""
    order_P = torch.randperm(n_candidates, generator=generator, device=generator.device)
    return sorted(order_P[:n].tolist())


def select_disagreement(margins_KP: torch.Tensor, n: int) -> list[int]:
    """Choose the n pairs that the ensemble's members disagree about most; the indices come back sorted.

    A member that scores a pair r_a and r_b holds that a wins with probability sigmoid(r_a - r_b) (Bradley and
    Terry, 1952). Pairs are ranked by the variance of that probability over members, which is large where they
    differ in the sign of the margin and small where they only differ in how sure they are of the same winner.
    Equal variances are taken in order of index.
    """
    if torch.isnan(margins_KP).any():
        raise HoldfastError("A margin is NaN, so pairs cannot be ranked; find the ensemble member that gave it.")
    wins_KP = torch.sigmoid(margins_KP.detach().cpu().double())
    # Rounded, so that pairs which tie in exact arithmetic also tie here, whatever the order of summation.
    variance_P = wins_KP.var(dim=0, correction=0).round(decimals=12)
    order_P = torch.argsort(variance_P, descending=True, stable=True)
    return sorted(order_P[:n].tolist())
