"""What each rung of the guard's ladder does to a run, and that a rung which does nothing is found out.

The labeller likes the policy of round 1 and none that comes after it. So the run goes back to round 1 after rounds 2
and 3, each time with remedies, and stops after round 4. Nothing but the guard asks for a refresh.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import nostalgic
import small_run
from holdfast.checkpoint.store import CheckpointStore
from holdfast.checkpoint.transaction import differences
from holdfast.cli.main import main
from holdfast.guard.ladder import BUDGET_FACTOR, Action, Rung
from holdfast.guard.review import Review
from holdfast.models.policy import Policy
from holdfast.preferences.collector import Collector
from holdfast.preferences.comparison import Choice, Comparison, Label
from holdfast.preferences.store import PreferenceStore
from holdfast.rollout.sampler import Rollout
from holdfast.run.answers import Answers
from small_run import TAKEN_BACK, events_of, rows_of

ROUNDS, PER_ROUND, ADVERSARIAL = 5, 8, 16
BETA_FACTOR = 1.6
MORE = 16  # twice the 8 comparisons of a round
KL_SINCE = 0.4
HACKED = 0.7  # what the ensemble claims for policies that nobody likes, so that they are hacked and not just worse

SETTINGS = {
    "run__rounds": str(ROUNDS),
    "preferences__per_round": str(PER_ROUND),
    "guard__mode": "act",
    "guard__rollbacks": "2",
    "guard__beta_factor": str(BETA_FACTOR),
    "audit__pairs": "8",
    "audit__more_pairs": str(ADVERSARIAL),
    "audit__budget": "500",
    "refresh__every_rounds": "0",
    "refresh__on_miscalibration": "false",
    "gate__use": "false",
    "kl__budget_per_1000_labels": "0.0",  # so that nothing but the guard moves the KL that is aimed at
    "checkpoint__keep": "9",
    "track__samples": "0",
    "world__labeller": nostalgic.SPEC,
}


class Delighted:
    """Prefers round 1's policy every time, which no modest claim foresees, and later likes everything alike."""

    name = "delighted"

    def __init__(self, seed: int) -> None:
        pass

    def label(self, comparisons: Sequence[Comparison]) -> Sequence[Label]:
        return [Label(c.id, self.name, self.choose(c)) for c in comparisons]

    def choose(self, c: Comparison) -> Choice:
        liked = [side.provenance.policy_version == "round-0001" for side in (c.a, c.b)]
        if c.a.provenance.round > 1 or liked[0] == liked[1]:
            return Choice.TIE
        return Choice.A if liked[0] else Choice.B


@dataclass(frozen=True)
class Run:
    """A run that is over: where it is, and what it told the shell."""

    path: Path
    code: int

    def events(self, kind: str) -> dict[int, dict[str, Any]]:
        """The events of a kind, of which a round has one at most, by round."""
        found = events_of(self.path, kind)
        by_round = {event["round"]: event for event in found}
        assert len(by_round) == len(found)
        return by_round

    def rows(self, round: int) -> list[dict[str, Any]]:
        return [row for row in rows_of(self.path / "metrics.jsonl") if row["round"] == round]

    def labelled(self, part: str) -> list[Comparison]:
        """Labelled comparisons whose ids hold a part."""
        with PreferenceStore.open(f"sqlite:///{self.path / 'run.db'}") as store:
            return [item.comparison for item in store.labelled() if part in item.comparison.id]


def run_to_its_end(runs: Path, **changes: str) -> Run:
    code = main(small_run.run_arguments(runs, **{**SETTINGS, **changes}))
    return Run(runs / small_run.NAME, code)


Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Candidate:
    """A pair that might have been labelled: its answers, and how far apart two members are about who wins."""

    answers: tuple[Tokens, Tokens]
    disagreement: float


@dataclass
class Witness:
    """Sees what a run keeps nothing of: who said what, which policy a round came to, which pairs it chose from."""

    said: dict[str, set[Tokens]] = field(default_factory=dict)  # by the weights of whoever said it
    came_to: dict[int, str] = field(default_factory=dict)  # the policy's weights at the end of a round's steps
    candidates: dict[int, list[Candidate]] = field(default_factory=dict)

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        sample, collect, conduct = Answers.sample, Collector.collect, Review.conduct

        def sampled(answers: Answers, policy: Policy, *rest: Any, **more: Any) -> Rollout:
            rollout = sample(answers, policy, *rest, **more)
            self.said.setdefault(fingerprint(policy.state_dict()), set()).update(map(tuple, rollout.responses))
            return rollout

        def watched(review: Review[Policy], host: Any) -> Any:
            self.came_to[host.round] = fingerprint(host.policy.state_dict())
            return conduct(review, host)

        def collected(collector: Collector, round: int, policy: Policy, sample: Any, *rest: Any) -> int:
            sides: list[Rollout] = []

            def kept(*asked: Any) -> Rollout:
                sides.append(sample(*asked))
                return sides[-1]

            found = collect(collector, round, policy, kept, *rest)
            if sides:
                self.candidates[round] = candidates_of(collector, *sides)
            return found

        patch.setattr(Answers, "sample", sampled)
        patch.setattr(Review, "conduct", watched)
        patch.setattr(Collector, "collect", collected)


def fingerprint(weights: Mapping[str, torch.Tensor]) -> str:
    return hashlib.sha256(b"".join(weights[name].numpy().tobytes() for name in sorted(weights))).hexdigest()


def candidates_of(collector: Collector, one: Rollout, other: Rollout) -> list[Candidate]:
    scores_KP = (collector.ensemble.scores(side.prompts, side.responses) for side in (one, other))
    first_P, second_P = torch.sigmoid(next(scores_KP) - next(scores_KP))
    apart = (first_P - second_P).abs().tolist()
    answers = zip(map(tuple, one.responses), map(tuple, other.responses), strict=True)
    return [Candidate(both, far) for both, far in zip(answers, apart, strict=True)]


@pytest.fixture(scope="module")
def witness() -> Witness:
    return Witness()


@pytest.fixture(scope="module")
def guarded(witness: Witness, tmp_path_factory: pytest.TempPathFactory) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        witness.watch(patch)
        small_run.claiming(patch, HACKED)
        return run_to_its_end(tmp_path_factory.mktemp("guarded"))


def held_closer(run: Run) -> bool:
    before, after = run.rows(2)[0], run.rows(3)[0]
    return bool(
        after["control/beta"] == pytest.approx(BETA_FACTOR * before["control/beta"])
        and after["control/kl_target"] == pytest.approx(BUDGET_FACTOR * before["control/kl_target"])
    )


def labels_more(run: Run) -> bool:
    return bool(run.events("labels_collected")[4]["comparisons"] == MORE)


def refreshes(run: Run) -> bool:
    refresh = run.events("refresh").get(3)
    return refresh is not None and refresh["reason"].startswith("the guard asked for it: ")


def labels_hacked_answers(run: Run) -> bool:
    return len(run.labelled("/adversarial-r0002")) == ADVERSARIAL


def goes_back(run: Run) -> bool:
    store = CheckpointStore(run.path / "checkpoints")
    then, now = store.load("round-0001"), store.load("round-0002")
    return differences(then, now, TAKEN_BACK - {"controller"}) == []


def stops(run: Run) -> bool:
    return run.code == 3 and not run.rows(ROUNDS)


# That the learning rate is lowered is for worse policies, in `test_verdicts.py`, and broken ones, in `test_faults.py`;
# components are discounted in `test_given_rewards.py`.
ELSEWHERE = {"slow_down", "discount"}
EFFECTS: dict[Rung, Callable[[Run], bool]] = {
    "tighten": held_closer,
    "label_more": labels_more,
    "refresh": refreshes,
    "adversarial": labels_hacked_answers,
    "rollback": goes_back,
    "stop": stops,
}


def test_every_rung_has_an_effect_that_is_looked_for() -> None:
    assert EFFECTS.keys() | ELSEWHERE == set(get_args(Rung))


@pytest.mark.parametrize("rung", EFFECTS)
def test_a_rung_that_does_nothing_is_found_out(
    rung: Rung, guarded: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    act = Review._act

    def all_but_one(review: Review[Policy], host: Any, action: Action) -> bool:
        asked.append(action.rung)
        return action.rung != rung and act(review, host, action)

    monkeypatch.setattr(Review, "_act", all_but_one)
    small_run.claiming(monkeypatch, HACKED)
    broken = run_to_its_end(tmp_path)
    assert rung in asked
    assert EFFECTS[rung](guarded)
    assert not EFFECTS[rung](broken)


def test_two_rollbacks_are_remedied_and_the_third_stops_the_run(guarded: Run) -> None:
    done = [
        (event["round"], event.get("rung", event["event"]))
        for event in events_of(guarded.path)
        if event["event"] in ("action", "rollback", "stopped", "run_finished")
    ]
    assert done == [
        *((2, rung) for rung in ("adversarial", "rollback", "tighten", "refresh")),
        *((3, rung) for rung in ("adversarial", "rollback", "tighten", "refresh", "label_more")),
        *((4, rung) for rung in ("rollback", "tighten", "stopped")),
    ]
    rollbacks = guarded.events("rollback")
    assert {event["to"] for event in rollbacks.values()} == {"round-0001"}
    assert guarded.events("stopped")[4]["reason"] == f"2 rollbacks have not cured it: {rollbacks[4]['reason']}"
    assert guarded.code == 3


def test_the_second_return_to_a_checkpoint_tightens_twice_as_hard(guarded: Run) -> None:
    good, once, twice = (guarded.rows(number)[0] for number in (2, 3, 4))
    first, second, _ = (event for event in events_of(guarded.path, "action") if event["rung"] == "tighten")
    for name, factor in (("beta", BETA_FACTOR), ("kl_target", BUDGET_FACTOR)):
        checkpoint = good[f"control/{name}"]
        assert first["before"][name] == second["before"][name] == checkpoint
        assert first["after"][name] == once[f"control/{name}"] == pytest.approx(factor * checkpoint)
        assert second["after"][name] == twice[f"control/{name}"] == pytest.approx(factor**2 * checkpoint)


@pytest.mark.parametrize("number", [2, 3])
def test_the_answers_labelled_beside_good_ones_are_those_of_the_policy_found_hacking(
    number: int, guarded: Run, witness: Witness
) -> None:
    good = fingerprint(CheckpointStore(guarded.path / "checkpoints").load("round-0001").tensors["policy"])
    hacked = witness.came_to[number]
    assert hacked != good
    pairs = guarded.labelled(f"/adversarial-r{number:04d}")
    sides = [{side.provenance.policy_version: side.token_ids for side in (c.a, c.b)} for c in pairs]
    assert len(sides) == ADVERSARIAL
    assert {answers[f"round-{number:04d}"] for answers in sides} <= witness.said[hacked]
    assert {answers["round-0001"] for answers in sides} <= witness.said[good]


def test_more_labels_are_of_pairs_on_which_members_disagree(guarded: Run, witness: Witness) -> None:
    collected = {number: event["comparisons"] for number, event in guarded.events("labels_collected").items()}
    assert collected == {2: PER_ROUND, 3: PER_ROUND, 4: MORE}
    asked = {
        number: {int(c.id[-5:]): (c.a.token_ids, c.b.token_ids) for c in guarded.labelled(f"/r{number:04d}-")}
        for number in collected
    }
    assert sorted(asked[3]) == list(range(PER_ROUND)), "as they come"
    candidates = witness.candidates[4]
    assert (len(asked[4]), len(candidates)) == (MORE, 2 * MORE)
    assert asked[4] == {place: candidates[place].answers for place in asked[4]}
    left = [candidate.disagreement for place, candidate in enumerate(candidates) if place not in asked[4]]
    assert min(candidates[place].disagreement for place in asked[4]) > max(left)


def test_the_round_after_a_rollback_refreshes_for_the_reason_of_the_rollback(guarded: Run) -> None:
    rollbacks = guarded.events("rollback")
    reasons = {number: event["reason"] for number, event in guarded.events("refresh").items()}
    assert reasons == {number + 1: f"the guard asked for it: {rollbacks[number]['reason']}" for number in (2, 3)}


def test_what_the_guard_asked_for_is_asked_for_one_round(guarded: Run, tmp_path: Path) -> None:
    """A run that stopped to ask goes on as it was held last, and nothing was asked of the round that comes next."""
    path = tmp_path / small_run.NAME
    shutil.copytree(guarded.path, path)
    resumed = Run(path, main(["resume", str(path)]))
    assert len(resumed.rows(ROUNDS)) == small_run.STEPS
    assert resumed.rows(ROUNDS)[0]["control/kl_target"] == guarded.rows(4)[0]["control/kl_target"]
    assert ROUNDS not in resumed.events("refresh")
    assert resumed.events("labels_collected")[ROUNDS]["comparisons"] == PER_ROUND


def test_a_refresh_comes_when_enough_kl_was_spent_since_the_last_one(tmp_path: Path) -> None:
    run = run_to_its_end(tmp_path, guard__mode="off", refresh__kl_since=str(KL_SINCE))
    since, due = 0.0, {}
    for number in range(1, ROUNDS):
        since += sum(row["objective/kl_step"] for row in run.rows(number))
        if since >= KL_SINCE:
            due[number + 1] = f"{since:.3g} nats of KL since the last refresh (set at {KL_SINCE:.3g})"
            since = 0.0
    assert 1 < len(due) < ROUNDS - 1, "too little KL to tell a part of it from all of it"
    assert {number: event["reason"] for number, event in run.events("refresh").items()} == due


def test_a_refresh_comes_when_people_contradict_the_claims(tmp_path: Path) -> None:
    labeller = f"{__file__}:{Delighted.__name__}"
    run = run_to_its_end(
        tmp_path, guard__mode="advise", refresh__on_miscalibration="true", world__labeller=labeller, run__rounds="3"
    )
    wrong = {number: event["evidence"]["miscalibrated"] for number, event in run.events("verdict").items()}
    assert wrong == {1: True, 2: False, 3: False}
    reasons = {number: event["reason"] for number, event in run.events("refresh").items()}
    assert reasons == {2: "an audit found the ensemble's claims wrong"}
