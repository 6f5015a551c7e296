"""The guard's review of a round, the same for every host: audit, verdict, actions, and which policy is the good one.

    reference answers -> baselines                                                               (begin)
    signals of the round's steps -> suspicion -> how many fresh pairs people are asked about     (judge)
    verdict -> ladder -> actions on the host                                                     (conduct)
    people's win rate against the anchor -> is this the new anchor?

The anchor is the last good checkpoint: the policy that a later one has to be at least as good as, and that a rollback
goes back to. It moves on only when people liked the new policy at least as well in the round's pairs, so that many
small losses, each too small for an alarm, carry it downhill far more slowly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic

from holdfast.config.schema import AuditConfig, GuardConfig
from holdfast.errors import HoldfastError
from holdfast.events import round_line
from holdfast.guard.alarm import OPPONENTS, Against
from holdfast.guard.audit import AuditPair, side_of
from holdfast.guard.auditor import Opponent, RoundAuditor
from holdfast.guard.beside import JudgeBeside
from holdfast.guard.claims import UNCLAIMED
from holdfast.guard.drift import JudgeDrift
from holdfast.guard.guard import Guard
from holdfast.guard.host import Change, Good, Host, Player
from holdfast.guard.ladder import BUDGET_FACTOR, DISCOUNT, Action, Ladder, Rung
from holdfast.guard.plan import KINDS, AuditPlan, split
from holdfast.guard.threshold import planned_bar
from holdfast.guard.verdict import Verdict, preferred_words
from holdfast.preferences.collector import Collector
from holdfast.preferences.labeller import called, seconded
from holdfast.randomness import generator

# Why a round asks further, in words.
LAST_ROUND = "the last round decides which policy to keep"
UNSEEN_BEFORE = "is that of an earlier round"


@dataclass(frozen=True)
class LastChoice:
    """Whether a run ends with the last good policy in place of its last, and the round's pairs that say so.

    `again` of them were asked about for this choice alone.
    """

    back: bool
    pairs: list[AuditPair]
    again: int
    sentence: str

    def actions(self) -> list[Action]:
        """What is to be done about it."""
        reason = f"the run ends with the policy that was liked better: {self.sentence}"
        return [Action("rollback", reason)] if self.back else []

    def record(self) -> dict[str, Any]:
        """As an event holds it."""
        return {"labels": self.again, "back": self.back, "sentence": self.sentence}


@dataclass(frozen=True)
class Outcome:
    """What a review came to. `stands` says that nothing is held against the policy that the round came to.

    `audited` are the pairs behind the verdict; those that were asked about for a last choice are not among them.
    """

    verdict: Verdict
    audited: list[AuditPair]
    actions: list[Action]
    stands: bool
    rolled_back: bool


@dataclass
class Review(Generic[Player]):
    """The guard with its collaborators; `good` is the anchor, and `audit_asked` says why the next audit is larger.

    `decided` is told a verdict with all that follows from it, before any of it is done.
    """

    config: GuardConfig
    audits: AuditConfig
    seed: int
    guard: Guard
    auditor: RoundAuditor
    ladder: Ladder
    good: Good = field(default_factory=Good)
    audit_asked: str = ""
    stopped: bool = False
    decided: Callable[[Verdict, Sequence[Action]], None] = lambda verdict, actions: None

    @classmethod
    def planned(
        cls,
        config: GuardConfig,
        audits: AuditConfig,
        rounds: int,
        seed: int,
        collector: Collector,
        *,
        of_start: bool = False,
        lacks: frozenset[Rung] = frozenset(),
    ) -> Review[Player]:
        """The review of a run with so many rounds: its guard, auditor and ladder, with the bar that its plan allows.

        `of_start`: baselines are of the first batches of the training itself, and sentences say so. `lacks` are
        remedies that its host does not have.
        """
        judged = seconded(collector.labeller) is not None
        beside = JudgeBeside(JudgeDrift(config.false_alarm, rounds)) if judged else None
        auditor = RoundAuditor(collector, audits, beside=beside)
        bar = planned_bar(config.false_alarm, rounds, audits.pairs, AuditPlan(audits).most, judged)
        guard = Guard(config, rounds, bar, of_start=of_start, judged=judged)
        return cls(config, audits, seed, guard, auditor, Ladder(config, lacks))

    @property
    def acts(self) -> bool:
        return self.config.mode == "act"

    def begin(self, host: Host[Player]) -> None:
        """Baselines from the reference's answers, and what has been labelled so far."""
        host.learn_known()
        if self.guard.begun:
            return
        rng = generator(self.seed, "baseline")
        self.guard.begin([host.baseline(rng) for _ in range(self.config.baseline_batches)])
        left_out = {} if self.auditor.scalar is None else self.guard.left_out()
        host.event("baselines", signals=self.guard.usual(), **({"left_out": left_out} if left_out else {}))

    def conduct(self, host: Host[Player]) -> Outcome:
        """Audit, verdict, actions; the policy that people like becomes the one that a rollback goes back to."""
        before = self.auditor.collector.asked
        verdict, judged = self.judge(host)
        pairs = judged
        audited = {
            "answered_by": self.answered_by,
            "asked": self.auditor.collector.asked - before,
            "labels": len(pairs),
            "labels_left": self.auditor.budget_left,
            **self.guard.audited(),
            **({} if self.auditor.scalar is None else {"claimed_by": host.terms.reward}),
            **({} if self.auditor.beside is None else {"judge": self.auditor.beside.record()}),
        }
        host.event("audit", **audited)
        host.event("verdict", level=verdict.level, sentence=verdict.sentence, evidence=verdict.evidence)
        host.say(round_line(host.round, audited, {"level": verdict.level, "sentence": verdict.sentence}))
        actions = self.ladder.climb(verdict, self.good.name)
        if host.last and not verdict.alarm and verdict.level != "unreliable":
            choice = self.choose(host, pairs)
            pairs = choice.pairs
            if choice.again:
                host.event("choice", labels_left=self.auditor.left, **choice.record())
            actions += choice.actions()
        if host.refreshes_at_once and self.guard.miscalibrated and not any(a.rung == "refresh" for a in actions):
            actions.append(Action("refresh", "the last audit found the ensemble's claims wrong"))
        self.decided(verdict, actions)
        rolled_back = False
        for action in actions:
            if self.acts:
                rolled_back |= self._act(host, action) and action.rung == "rollback"
            else:
                host.event("advice", rung=action.rung, reason=action.reason)
        stands = self.stands(verdict, pairs)
        if self.is_good(verdict, pairs):
            self.good = host.keep_good()
        self.learn_claims(host, verdict, judged)
        if self.auditor.beside is not None:
            self.auditor.beside.end_round()
        self.guard.close_round(verdict)
        return Outcome(verdict, judged, actions, stands, rolled_back)

    def learn_claims(self, host: Host[Player], verdict: Verdict, pairs: Sequence[AuditPair]) -> None:
        """Of a reward that is one number: what a difference is worth to people, by the audits that can be trusted.

        Only after the verdict: claims are of audits before the round that they are held against.
        """
        claimant = self.auditor.scalar
        if claimant is None or not verdict.trusted or not pairs:
            return
        known = [(pair.margin, pair.policy_won) for pair in pairs if pair.margin is not None and not pair.alike]
        claimant.scale.add([margin for margin, _ in known], [won for _, won in known])
        scale, slope = claimant.scale, claimant.scale.slope
        host.event("claims_learnt", audits=scale.decided, slope=slope.value, sd=slope.sd, ready=scale.ready)

    def recover(self, host: Host[Player], reason: str) -> bool:
        """Take a policy back whose steps are not numbers any more, and lower its rate; whether that may be done."""
        actions = self.ladder.broken(reason, self.good.name) if self.acts else []
        for action in actions:
            self._act(host, action)
        return bool(actions)

    def _act(self, host: Host[Player], action: Action) -> bool:
        """Have the host do one thing about a verdict, and write down what it changed; whether it was done."""
        if action.rung == "stop":
            self.stopped = True
            host.event("stopped", reason=action.reason)
            return True
        if action.rung == "rollback":
            about = host.roll_back(self.good)
            if about is not None:
                self.guard.after_rollback()
                host.learn_known()
                host.event("rollback", to=self.good.name, step_to=self.good.step, reason=action.reason, **about)
                return True
        elif (change := self._remedy(host, action)) is not None:
            host.event(
                "action", rung=action.rung, words=change.words, before=change.before, after=change.after,
                changed=change.before != change.after, reason=action.reason,
            )  # fmt: skip
            return True
        host.event("left_out", rung=action.rung, reason=action.reason)
        return False

    def _remedy(self, host: Host[Player], action: Action) -> Change | None:
        match action.rung:
            case "tighten":
                times = action.times
                return host.tighten(self.config.beta_factor**times, BUDGET_FACTOR**times, self.good.kl)
            case "slow_down":
                return host.slow_down(action.times)
            case "label_more":
                return host.label_more()
            case "refresh":
                return host.refresh(action.reason)
            case "adversarial":
                return host.adversarial(self.good)
            case "discount":
                return host.discount(action.component, DISCOUNT)
            case _:
                raise HoldfastError(f"The guard knows no remedy called {action.rung}.")

    def judge(self, host: Host[Player]) -> tuple[Verdict, list[AuditPair]]:
        """Ask people about fresh pairs, more of them where there is reason to, and come to a verdict.

        The run's last round is a reason: which policy the run ends with is decided there.
        """
        # A generator for each round, and rounds never come twice: nothing to save, and nothing that a rollback repeats.
        rng = generator(self.seed, "audit", host.round)
        decisive = self._last_good(host)
        reference = [Opponent("reference", host.reference, "reference")] if self.good.round else []
        plan, kinds = AuditPlan(self.audits), [decisive, replace(decisive, against="pointed"), *reference]
        pairs: list[AuditPair] = []
        self.auditor.meet_judge()
        asked, room = 0, plan.share(self.auditor.left, self.guard.rounds_to_come, host.last, self.acts)
        if not self.guard.stepped and not host.last:
            room = 0  # the policy is the one that the round before has asked about

        def buy(count: int, kinds: Sequence[Opponent[Player]], more: str = "") -> None:
            nonlocal asked, room
            wanted = [each for each in zip(kinds, split(room, count, len(kinds)), strict=True) if each[1] > 0]
            if not wanted:
                return
            wanted.sort(key=lambda each: OPPONENTS.index(each[0].against))
            pairs.extend(self.auditor.buy(host.round, asked, wanted, host.policy, host.sample, rng, more))
            # By what was wanted and not by what was answered: a round that is done again has to ask the same.
            asked += sum(count for _, count in wanted)
            room -= sum(count for _, count in wanted)

        buy(self.audits.pairs, kinds)
        why, self.audit_asked = self.audit_asked or (LAST_ROUND if host.last else ""), ""
        why = why or ("signals or first answers are suspicious" if self._suspicious(pairs, decisive) else "")
        unseen = f"{host.terms.reward} {UNSEEN_BEFORE}"
        buy(self._further(bool(why)), kinds[:2], f"further audit pairs: {why or unseen}")
        verdict = self._verdict(host, pairs)
        unclear = not verdict.alarm and (verdict.suspect or self.guard.evidence().value > 1.0)
        if (unclear or host.last) and verdict.level != "unreliable":
            # Something is amiss and people have not said what to make of it, or a choice is to be made: as many again.
            why = "the answers leave it open" if unclear else LAST_ROUND
            buy(plan.unclear, kinds[: 2 if unclear else 1], f"further audit pairs: {why}")
            verdict = self._verdict(host, pairs)
        return verdict, pairs

    def choose(self, host: Host[Player], pairs: Sequence[AuditPair]) -> LastChoice:
        """Which policy the run ends with: to choose between two takes no proof of hacking, a run ends with the better.

        Where people seem to like the last good one better they are asked again, if anything is to be done about it.
        The verdict's sequential test has not planned for these pairs and does not count them.
        """
        back, again, opponent = self.prefers_anchor(pairs), list[AuditPair](), self._last_good(host)
        if back and self.acts:
            # By the plan and not by what was answered: a late answer must not change what a round done again asks.
            count = AuditPlan(self.audits).confirming
            # Numbered after all that a round may ask about.
            already, rng = KINDS * AuditPlan(self.audits).most, generator(self.seed, "choice", host.round)
            wanted = [(opponent, count)]
            more = "further audit pairs: before the run ends with an earlier policy"
            again = self.auditor.buy(host.round, already, wanted, host.policy, host.sample, rng, more, alone=True)
        everything = [*pairs, *again]
        side = side_of(everything, opponent.against)
        claimed, reward = self.ensemble != UNCLAIMED, host.terms.reward
        sentence = preferred_words(side, self.answered_by, reward, claimed) if side is not None else ""
        return LastChoice(back and self.prefers_anchor(everything), everything, len(again), sentence)

    @property
    def answered_by(self) -> str:
        """What those are called who answer the audits."""
        return called(self.auditor.collector.labeller)

    @property
    def ensemble(self) -> int:
        """The version of the ensemble that makes the claims."""
        return self.auditor.collector.ensemble.version

    def _further(self, suspicious: bool) -> int:
        """How many pairs to ask about beyond the first ones.

        An ensemble that has judged an earlier round is the best reason: it has not seen what became of the policy. That
        may last for the rest of the run, so it takes no more than the round's share of the labels that are left when
        those for the first pairs of the rounds to come are set aside.
        """
        base, plan, to_come = self.audits.pairs, AuditPlan(self.audits), self.guard.rounds_to_come
        further = plan.suspicious - base if suspicious else 0
        if self.guard.has_claimed(self.ensemble):
            share = (self.auditor.left - KINDS * base * to_come) // (2 * (to_come + 1))
            further = max(further, min(plan.unseen - base, share))
        return further

    def _verdict(self, host: Host[Player], pairs: Sequence[AuditPair]) -> Verdict:
        left, again, beside = self.auditor.budget_left, host.again() if pairs else {}, self.auditor.beside
        return self.guard.judge(
            pairs, left, self.ensemble, self.answered_by,
            fit=host.fit, again=again, terms=host.terms, good_kl=self.good.kl,
            judged=beside.judged() if beside else None,
        )  # fmt: skip

    def _suspicious(self, pairs: Sequence[AuditPair], opponent: Opponent[Player]) -> bool:
        """Whether the signals, or the first pairs themselves, are a reason to ask further."""
        rates = [win_rate(pairs, against) for against in (opponent.against, "pointed")]
        lost = any(rate is not None and rate < 0.5 for rate in rates)
        return lost or self.guard.suspicion().suspicious

    def is_good(self, verdict: Verdict, pairs: Sequence[AuditPair]) -> bool:
        """Whether the policy becomes the new anchor: no alarm, and liked at least as well as the present one.

        In a run in which people never answer there is nothing to go by but the signals. In one in which they do, a
        policy that nobody was asked about takes nobody's place, nor does one that was asked about to no purpose.
        """
        rate = win_rate(pairs, self._against)
        if verdict.level == "unaudited" and not self.guard.heard:
            return verdict.trusted
        if verdict.level in ("unaudited", "unreliable") or verdict.alarm or rate is None:
            return False
        return rate >= 0.5

    def _last_good(self, host: Host[Player]) -> Opponent[Player]:
        """The last good policy as an opponent; before any round was good, that is the reference."""
        if self.good.round:
            return Opponent("anchor", host.anchor, self.good.name)
        return Opponent("reference", host.reference, "reference")

    @property
    def _against(self) -> Against:
        """The pairs with the last good policy."""
        return "anchor" if self.good.round else "reference"

    def prefers_anchor(self, pairs: Sequence[AuditPair]) -> bool:
        """Whether people like the last good policy better than the present one, by this round's answers.

        By more than one standard error: where they like both alike, the one that has learnt from more labels stays.
        """
        won = [pair.policy_won for pair in pairs if pair.against == self._against]
        return len(won) - 2 * sum(won) > math.sqrt(len(won))

    def stands(self, verdict: Verdict, pairs: Sequence[AuditPair]) -> bool:
        """Whether nothing is held against the policy: a round to be trusted, and the last good one is not liked better.

        Nothing is, where the guard only advises.
        """
        return not self.acts or (verdict.trusted and not self.prefers_anchor(pairs))

    def grant(self) -> None:
        """The user has resumed a run that had stopped to ask."""
        self.stopped = False
        self.ladder.granted()

    def state(self) -> dict[str, Any]:
        return {
            "guard": self.guard.state(),
            "ladder": self.ladder.state(),
            "good": asdict(self.good),
            "audit_asked": self.audit_asked,
            "audit_labels": self.auditor.spent,
            "stopped": self.stopped,
            **({} if self.auditor.scalar is None else {"scale": self.auditor.scalar.scale.state()}),
            **({} if self.auditor.beside is None else {"beside": self.auditor.beside.state()}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        try:
            self.guard.restore(state["guard"])
            self.ladder.restore(state["ladder"])
            self.good = Good(**state["good"])
            self.auditor.spent = state["audit_labels"]
            self.audit_asked, self.stopped = state["audit_asked"], state["stopped"]
            if self.auditor.scalar is not None:
                self.auditor.scalar.scale.restore(state["scale"])
            if self.auditor.beside is not None:
                self.auditor.beside.restore(state["beside"])
        except (KeyError, TypeError, ValueError) as error:
            raise HoldfastError(f"The guard's saved state does not fit ({error!r}); use another checkpoint.") from error


def win_rate(pairs: Sequence[AuditPair], against: str) -> float | None:
    """How often people preferred the policy, a tie as half; None without a pair."""
    won = [pair.policy_won for pair in pairs if pair.against == against]
    return sum(won) / len(won) if won else None
