"""The audit: fresh comparisons of the policy with the reference and with the last good policy, answered by people.

    prompts -> policy, other -> sides shuffled -> store -> labeller -> who won, beside what the ensemble claims

They measure first. Afterwards they are labels like any other in the store, and the next refresh may train on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Generic

import torch

from holdfast.config.schema import AuditConfig
from holdfast.errors import HoldfastError
from holdfast.guard.alarm import Against
from holdfast.guard.audit import AuditPair, AuditReport, audit
from holdfast.guard.beside import JudgeBeside
from holdfast.guard.claimant import ScalarClaimant, Told
from holdfast.guard.drift import KnownPair
from holdfast.guard.judged import ALONE, STRIDE, JudgedPair
from holdfast.models.prompt import Prompt
from holdfast.preferences.collector import Answering, Collector, Sample, with_free_ids
from holdfast.preferences.comparison import (
    WORTH,
    Choice,
    Comparison,
    Label,
    LabelledComparison,
    Provenance,
    Response,
)
from holdfast.preferences.labeller import Ask, Labeller, SecondedLabeller, labeller_of, seconded
from holdfast.preferences.pair import Pair
from holdfast.randomness import generator, place_of
from holdfast.rollout.sampler import Rollout

# Pairs that are drawn for each pointed one. More point further, at answers that come up ever more seldom.
POINTED = 3

# An answer: its rollout, and its place there.
Drawn = tuple[Rollout, int]


@dataclass(frozen=True)
class Opponent(Generic[Answering]):
    """Whom the policy is compared with, the reference or the last good policy, and in which pairs."""

    against: Against
    policy: Answering
    version: str


@dataclass(frozen=True)
class _Order(Generic[Answering]):
    """So many comparisons with an opponent, numbered from `first` on."""

    opponent: Opponent[Answering]
    first: int
    count: int

    @property
    def pointed(self) -> bool:
        return self.opponent.against == "pointed"

    @property
    def draws(self) -> int:
        return self.count * (POINTED if self.pointed else 1)


@dataclass(frozen=True)
class Pairs:
    """Drawn pairs: the places of their prompts, and the answers of both sides, each side from one rollout."""

    rows: list[int]
    ours: list[Drawn]
    theirs: list[Drawn]

    def among(self, places: Sequence[int]) -> Pairs:
        """Some of them."""
        rows, ours, theirs = self.rows, self.ours, self.theirs
        return Pairs([rows[n] for n in places], [ours[n] for n in places], [theirs[n] for n in places])


@dataclass(frozen=True)
class PosedPair:
    """What is known of a pair before people answer it; what is `told` speaks of the policy's side, exchanged or not."""

    swapped: bool
    against: Against
    told: Told

    def judged(self, choice: Choice | None, people: AuditPair | None) -> JudgedPair:
        """What the judge said of the policy's side, 0 where it said nothing, and people, where they were asked."""
        worth = 0.5 if choice is None else WORTH[choice]
        judge = 0.5 - worth if self.swapped else worth - 0.5
        return JudgedPair(judge, None if people is None else people.policy_won - 0.5)

    def answered(self, item: LabelledComparison) -> AuditPair:
        won = damped(1.0 - item.share_a if self.swapped else item.share_a, item.weight)
        # The claim is damped as well: an answer that counts as half a tie is not held against it.
        claim, asked = damped(self.told.claim, item.weight), item.comparison
        alike = asked.a.text == asked.b.text
        return AuditPair(asked.id, self.against, won, claim, item.labels, alike, self.told.margin, self.told.parts)


def posed(comparison: Comparison, against: Against, told: Told, rng: torch.Generator) -> tuple[Comparison, PosedPair]:
    """The comparison as it is shown, the policy's answer on either side by lot, and what is known of it."""
    swap = bool(torch.randint(2, (), generator=rng))
    return comparison.swap() if swap else comparison, PosedPair(swap, against, told)


# Whoever answers prompts with texts.
Answerer = Callable[[Sequence[Prompt]], Sequence[str]]
# The probability that people prefer the first of two answers, for each prompt.
TextClaims = Callable[[Sequence[Prompt], Sequence[str], Sequence[str]], Sequence[float]]


class Auditor:
    """A blind comparison of any two who answer prompts: which is preferred, and how sure is that?

    `labeller` is a function of (prompt, a, b) that says "a", "b" or "tie", or anything that labels comparisons.
    `claims` says beforehand how often the first will be preferred, such as `RewardEnsemble.claims`.
    """

    def __init__(self, labeller: Labeller | Ask, *, claims: TextClaims | None = None, seed: int = 0) -> None:
        self._labeller, self._claims, self._seed = labeller_of(labeller), claims, seed

    def compare(self, ours: Answerer, theirs: Answerer, prompts: Sequence[Prompt]) -> AuditReport:
        """One comparison for each prompt; `report.reference` holds how often the first was preferred.

        Without claims, what the report says about claims is about one that is always 1/2.
        """
        if isinstance(prompts, str):
            raise HoldfastError("The prompts are one text; give a list of prompts.")
        answers = list(ours(prompts)), list(theirs(prompts))
        for sides in answers:
            if len(sides) != len(prompts):
                raise HoldfastError(f"There are {len(prompts)} prompts, and {len(sides)} answers to them.")
        claims = [0.5] * len(prompts) if self._claims is None else list(self._claims(prompts, *answers))
        rng = generator(self._seed, "auditor")
        pairs = {}
        for n, (prompt, one, other) in enumerate(zip(prompts, *answers, strict=True)):
            a, b = Response(one, Provenance("ours", 0, n)), Response(other, Provenance("theirs", 0, n))
            comparison = Comparison(f"auditor-{n:05d}", prompt, a, b, round=0, purpose="audit")
            shown, pair = posed(comparison, "reference", Told(claims[n]), rng)
            pairs[shown.id] = shown, pair
        labels: dict[str, list[Label]] = {}
        for label in self._labeller.label([shown for shown, _ in pairs.values()]):
            labels.setdefault(label.comparison_id, []).append(label)
        answered = [
            pair.answered(LabelledComparison(shown, tuple(labels[key])))
            for key, (shown, pair) in pairs.items()
            if key in labels
        ]
        return audit(answered)


@dataclass
class RoundAuditor:
    """Asks, within the run's budget of audit labels. Ids follow from the round, so a round redone asks nobody twice,
    unless late answers have changed what it asks about."""

    collector: Collector
    config: AuditConfig
    spent: int = 0
    beside: JudgeBeside | None = None  # where a judge answers beside people

    @property
    def _second(self) -> SecondedLabeller | None:
        """The labeller, where it has a judge beside people."""
        return seconded(self.collector.labeller)

    def meet_judge(self) -> None:
        """Before a round asks: is the judge still the one that it was? If not, an event says so, and it has no say."""
        if self.beside is None or self._second is None:
            return
        second, drift = self._second, self.beside.drift
        anchors = [item.comparison for item in self.collector.store.labelled_among(drift.anchors)]

        def answers() -> dict[str, float]:
            return {key: WORTH[choice] - 0.5 for key, choice in second.ask_again(anchors).items()}

        if drift.lacks:
            for _ in range(drift.lacks):
                drift.begin(answers())
        elif anchors and (found := self.beside.meet(answers())).alarmed:
            self.collector.event("judge_drifted", **asdict(found))
        self.beside.begin_round()

    @property
    def left(self) -> int:
        """Labels of `audit.budget` that are left; none where nobody answers.

        What is asked about follows from these alone: a round that is done again has to ask the same, and of
        `labels.budget` it has spent some already.
        """
        return 0 if self.collector.labeller is None else max(0, self.config.budget - self.spent)

    @property
    def budget_left(self) -> int | None:
        """What is left of both budgets; None where nobody answers, so that nothing is used up."""
        left = self.collector.labels_left
        return None if self.collector.labeller is None else self.left if left is None else min(self.left, left)

    def buy(
        self,
        round: int,
        already: int,
        wanted: Sequence[tuple[Opponent[Answering], int]],
        policy: Answering,
        sample: Sample[Answering],
        rng: torch.Generator,
        more: str = "",
        alone: bool = False,
    ) -> list[AuditPair]:
        """So many answered comparisons with each opponent, asked for in one go, or as many as the budget allows.

        `already` were asked for in this round; `more` says why there are further ones. Where a judge answers too it is
        as many as tell the same, of which people answer some by lot, unless people are to answer `alone`.
        """
        beside = None if alone else self.beside
        plan = ALONE if beside is None else beside.plan
        drawn: list[tuple[Comparison, PosedPair]] = []
        turns: list[int] = []
        left, stride, orders, wanted_alone = self.left, 1 if self.beside is None else STRIDE, [], 0
        for opponent, count in wanted:
            # Numbered by what was wanted: people may leave some unanswered, and their numbers are taken all the same.
            affordable = min(count, left)
            orders.append(_Order(opponent, stride * already, min(plan.pairs(affordable), left)))
            left, already, wanted_alone = left - affordable, already + count, wanted_alone + affordable
        for order, (pairs, claimed) in zip(orders, self._choose(orders, policy, sample, rng), strict=True):
            for n, told in enumerate(claimed):
                comparison = self._comparison(round, order.first + n, pairs, n, order.opponent.version)
                drawn.append(posed(comparison, order.opponent.against, told, rng))
                turns.append(n)
        if not drawn:
            return []
        asked = [comparison for comparison, _ in drawn]
        if self.collector.asks_otherwise:
            asked, others = with_free_ids(self.collector.store, asked)
            self.spent += others
        questions = {comparison.id: question for comparison, (_, question) in zip(asked, drawn, strict=True)}
        peoples = [place_of(f"asked {comparison.id}") < plan.share for comparison in asked]
        theirs = [comparison for comparison, mine in zip(asked, peoples, strict=True) if mine]
        self.collector.ask(
            theirs, f"audit of round {round}", more, [turn for turn, mine in zip(turns, peoples, strict=True) if mine]
        )
        answered = self.collector.store.labelled_among([c.id for c in theirs], self.collector.store.watermark())
        self.spent += len(answered)
        heard = {item.comparison.id: questions[item.comparison.id].answered(item) for item in answered}
        if beside is not None:
            beside.saved += wanted_alone - len(theirs)
            rest = [replace(each, purpose="judged") for each, mine in zip(asked, peoples, strict=True) if not mine]
            self._have_judged(beside, [c for c in theirs if c.id in heard], rest, questions, heard)
        return list(heard.values())

    def _have_judged(
        self,
        beside: JudgeBeside,
        answered: Sequence[Comparison],
        rest: Sequence[Comparison],
        questions: Mapping[str, PosedPair],
        pairs: Mapping[str, AuditPair],
    ) -> None:
        """What the judge says of the pairs that people have answered, and of the rest that it answers alone."""
        assert self._second is not None
        self.collector.store.add_comparisons(rest)
        said = self._second.second([*answered, *rest])
        for comparison in (*answered, *rest):
            question = questions[comparison.id]
            one = question.judged(said.get(comparison.id), pairs.get(comparison.id))
            beside.said.setdefault(question.against, []).append(one)
            if one.people is not None:
                side = -1.0 if question.swapped else 1.0
                beside.known.append(KnownPair(comparison.id, side * one.people))

    def _choose(
        self, orders: Sequence[_Order[Answering]], policy: Answering, sample: Sample[Answering], rng: torch.Generator
    ) -> list[tuple[Pairs, list[Told]]]:
        """The pairs to ask about for each order, as they come or pointed, with what the ensemble claims of them."""
        drawn = self._draw(orders, policy, sample, rng)
        claims = iter(self._claims(drawn))
        claimed = [[next(claims) for _ in pairs.rows] for pairs in drawn]
        return [surest(pairs, each, order.count) for order, pairs, each in zip(orders, drawn, claimed, strict=True)]

    def _draw(
        self, orders: Sequence[_Order[Answering]], policy: Answering, sample: Sample[Answering], rng: torch.Generator
    ) -> list[Pairs]:
        """Fresh pairs of answers for each order; every policy answers all its prompts in one go."""
        everyone = self.collector.prompts
        rows = [torch.randint(len(everyone), (order.draws,), generator=rng).tolist() for order in orders]
        prompts = [[self.collector.codec.encode_prompt(everyone[i]) for i in chosen] for chosen in rows]
        ours = _answered_by(policy, prompts, sample, rng)
        theirs: list[list[Drawn]] = [[] for _ in orders]
        for player in {id(order.opponent.policy): order.opponent.policy for order in orders}.values():
            places = [n for n, order in enumerate(orders) if order.opponent.policy is player]
            for n, answers in zip(places, _answered_by(player, [prompts[n] for n in places], sample, rng), strict=True):
                theirs[n] = answers
        return [Pairs(*each) for each in zip(rows, ours, theirs, strict=True)]

    @property
    def scalar(self) -> ScalarClaimant | None:
        """Who makes the claims, where the reward is one number and not an ensemble."""
        claimant = self.collector.ensemble
        return claimant if isinstance(claimant, ScalarClaimant) else None

    def _claims(self, asked: Sequence[Pairs]) -> list[Told]:
        """The reward's probability that people prefer the policy's answer, for all pairs in one go."""
        pairs = [
            Pair(ours.prompts[n], ours.responses[n], theirs.responses[m], share_a=0.5, round=0)
            for group in asked
            for (ours, n), (theirs, m) in zip(group.ours, group.theirs, strict=True)
        ]
        if self.scalar is not None:
            return self.scalar.told(pairs)
        return [Told(claim) for claim in self.collector.ensemble.claims(pairs).tolist()]

    def _comparison(self, round: int, number: int, pairs: Pairs, place: int, opponent: str) -> Comparison:
        responses = [
            self.collector.response(*side[place], Provenance(version, round, number))
            for side, version in ((pairs.ours, f"round-{round:04d}"), (pairs.theirs, opponent))
        ]
        key = f"{self.collector.key}/audit-{self.collector.mark_after_steps(round)}-{number:05d}"
        # It belongs to the next round, which may train on it: a round done again must not find its own audit there.
        prompt = self.collector.prompts[pairs.rows[place]]
        return Comparison(key, prompt, responses[0], responses[1], round + 1, "audit", self.collector.key)


def _answered_by(
    player: Answering, prompts: Sequence[list[list[int]]], sample: Sample[Answering], rng: torch.Generator
) -> list[list[Drawn]]:
    """One policy's answers to several lists of prompts."""
    everything = [prompt for group in prompts for prompt in group]
    if not everything:
        return [[] for _ in prompts]
    rollout, places = sample(player, everything, rng), iter(range(len(everything)))
    return [[(rollout, next(places)) for _ in group] for group in prompts]


def surest(pairs: Pairs, claims: Sequence[Told], count: int) -> tuple[Pairs, list[Told]]:
    """Of these pairs those in which the reward is surest of the policy, with its claims, in the order they came.

    If the reward means anything the policy wins these more often than others. A planted hack is in just these answers,
    and there people stop following the ensemble first.
    """
    chosen = sorted(sorted(range(len(claims)), key=lambda place: -claims[place].sureness)[:count])
    return pairs.among(chosen), [claims[place] for place in chosen]


def damped(share: float, weight: float) -> float:
    """An outcome as it counts: that of an unreliable labeller is drawn towards a tie, by as much as it weighs less."""
    return 0.5 + weight * (share - 0.5)
