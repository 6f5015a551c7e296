"""How many comparisons a run will ask for, by its settings: what comes first, in a round, in audits, in all.

The numbers of an audit are `AuditPlan`'s, which the audit itself goes by; a test holds real runs against both bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.checkpoint.store import CheckpointStore
from holdfast.checkpoint.transaction import DOCUMENT
from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.guard.ladder import MORE_LABELS
from holdfast.guard.plan import AuditPlan, budget_for
from holdfast.preferences.budget import LabelBudget
from holdfast.run.directory import RunDirectory

PEOPLE = ("people", "people+judge")


@dataclass(frozen=True)
class Bounds:
    """At least and at most so many comparisons."""

    least: int = 0
    most: int = 0

    def __add__(self, other: Bounds) -> Bounds:
        return Bounds(self.least + other.least, self.most + other.most)

    def __mul__(self, times: int) -> Bounds:
        return Bounds(self.least * times, self.most * times)

    def capped(self, most: int) -> Bounds:
        return Bounds(min(self.least, most), min(self.most, most))

    def words(self) -> str:
        """ "24", "up to 60", "48 to 408"."""
        if self.least == self.most:
            return f"{self.most:,}"
        return f"{self.least:,} to {self.most:,}" if self.least else f"up to {self.most:,}"


@dataclass(frozen=True)
class RoundsDone:
    """What a run has behind it: preparation, whole rounds, the comparisons of the next one, and so many asked."""

    prepared: bool = False
    rounds: int = 0
    collected: bool = False
    asked: int = 0


NOTHING: RoundsDone = RoundsDone()


def done_of(run: RunDirectory, asked: int = 0) -> RoundsDone:
    """What a run that is resumed has behind it; nothing where there is no checkpoint that can be read.

    A rollback that is waiting comes first: then it is what the checkpoint has that the run goes back to.
    """
    store = CheckpointStore(run.checkpoints)
    try:
        document = store.newest_document(DOCUMENT)
        if document is not None and (goal := run.rollback_waiting()) is not None:
            document = store.newest_document(DOCUMENT, goal) or document
    except HoldfastError:
        return NOTHING
    if document is None:
        return NOTHING
    at = document["position"]
    begun = at["step_in_round"] > 0 or at["audit_due"]
    return RoundsDone(True, at["round"] - at["freed"] - 1, begun, asked)


@dataclass(frozen=True)
class Demand:
    """A forecast for a run that goes through all its rounds: `rounds` of them collect comparisons, `audits` have one.

    Of a run that is under way it is about what is left. `audit` is that of a round before the last, and `remedies`
    are hacked answers after a rollback.
    """

    first: Bounds
    first_again: Bounds
    rounds: int
    round: Bounds
    again: Bounds
    audits: int
    audit: Bounds
    last_audit: Bounds
    remedies: Bounds
    total: Bounds
    budget: int
    asked: int
    under_way: bool

    def rows(self) -> list[tuple[str, str]]:
        """What is asked for, and how many comparisons, in words."""
        only = "the last round" if self.under_way else "the second round"
        rounds, again = (only, "it") if self.rounds == 1 else (f"each of {self.rounds:,} rounds", "each")
        earlier = self.audits - 1
        audit = "the audit before the last" if earlier == 1 else f"each of {earlier:,} audits but the last"
        rows = [
            ("first", self.first, 1),
            ("of these again, to check labels", self.first_again, 1),
            (rounds, self.round, self.rounds),
            (f"again in {again}, to check labels", self.again, self.rounds),
            (audit, self.audit, earlier),
            ("the last audit", self.last_audit, self.audits),
            ("hacked answers, after rollbacks", self.remedies, 1),
            ("in all", self.total, 1),
        ]
        return [(name, bounds.words()) for name, bounds, times in rows if times > 0 and bounds.most]

    def words(self) -> str:
        """The forecast in some lines of less than 80 columns."""
        rows = "\n".join(f"  {name:<36}{number}" for name, number in self.rows())
        cap = f", and no more than labels.budget = {self.budget}" if self.budget else ""
        if cap and self.asked:
            cap += f" in all, of which {self.asked:,} are asked"
        will = "will still ask" if self.under_way else "will ask"
        return f"Comparisons that this run {will} for by its settings{cap}:\n{rows}"


def label_demand(config: Config, ensemble_given: bool = False, done: RoundsDone = NOTHING) -> Demand | None:
    """What a run with a labeller asks for, or still will; None where it has done all its rounds.

    With an ensemble that is given it needs no first comparisons, and with a reward that is given only audits.

    Second opinions of people, and check items, are not among these comparisons.
    """
    given, audits, rounds = config.reward.given, AuditPlan(config.audit), config.run.rounds
    labels = 0 if given else config.preferences.per_round  # nothing learns from them where the reward is given
    left = rounds - done.rounds
    if left <= 0:
        return None
    acts, audited = config.guard.mode == "act", config.guard.mode != "off"
    repeats = config.gate.repeats if config.gate.use and labels else 0
    ready = given or ensemble_given or done.prepared or config.reward.refresh
    first = 0 if ready else config.reward.initial_comparisons
    collected = Bounds(labels, math.ceil(MORE_LABELS * labels) if acts else labels)
    audit = Bounds(audits.fewest(last=False), audits.greatest(False, acts)) if audited else Bounds()
    if config.world.labeller == "people+judge":
        audit = Bounds(0, audit.most)  # how much of an audit the judge can take follows from how far it agrees
    last = Bounds(audits.fewest(last=True), audits.greatest(True, acts)) if audited else Bounds()
    remedies = Bounds(0, config.guard.rollbacks * audits.adversarial if acts and not given else 0)
    known = repeats if config.data.preferences else first  # of labels that are given there may be any number
    first_again = Bounds(0, 0 if ensemble_given or done.prepared else min(repeats, known))
    # Round 1 begins with the reference, whose answers the first comparisons are of.
    collecting = rounds - max(done.rounds, 1) - (done.collected and done.rounds > 0)
    training = (collected + Bounds(0, repeats)) * collecting
    all_audits = (audit * (left - 1) + last).capped(config.audit.budget)
    total = Bounds(first, first) + first_again + training + all_audits + remedies
    budget = config.labels.budget
    room = max(0, budget - done.asked) if budget else total.most
    firsts = Bounds(first, first).capped(room - label_budget(config).kept(0) if budget else room)

    def afforded(bounds: Bounds) -> Bounds:
        """What is left for it after the first comparisons; it may be nothing where not even the least is."""
        capped = bounds.capped(room - firsts.most)
        return Bounds(0, capped.most) if total.least > room else capped

    return Demand(
        first=firsts,
        first_again=afforded(first_again),
        rounds=collecting,
        round=afforded(collected),
        again=afforded(Bounds(0, repeats)),
        audits=left if audited else 0,
        audit=afforded(audit.capped(config.audit.budget)),
        last_audit=afforded(last.capped(config.audit.budget)),
        remedies=afforded(remedies),
        total=total.capped(room),
        budget=budget,
        asked=done.asked,
        under_way=done.prepared,
    )


def label_budget(config: Config) -> LabelBudget:
    """The cap of a run, with what is kept for its audits."""
    if config.guard.mode == "off":
        return LabelBudget(config.labels.budget)
    overlap = config.people.overlap if config.world.labeller in PEOPLE else 0.0
    return budget_for(config.labels, config.audit, config.run.rounds, overlap)
