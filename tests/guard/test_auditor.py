"""What an audit asks about, and how an answer counts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from holdfast.config.schema import AuditConfig
from holdfast.errors import HoldfastError
from holdfast.guard.auditor import Opponent, Pairs, PosedPair, RoundAuditor, damped, surest
from holdfast.guard.claimant import Told
from holdfast.preferences.comparison import Choice, Comparison, Label, Provenance, Response
from holdfast.preferences.store import PreferenceStore
from holdfast.rollout.sampler import Rollout


@pytest.mark.parametrize(
    ("share", "weight", "outcome"),
    [(1.0, 1.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.3, 0.65), (0.0, 0.3, 0.35), (0.5, 0.3, 0.5)],
)
def test_the_answer_of_an_unreliable_labeller_counts_for_less(share: float, weight: float, outcome: float) -> None:
    assert damped(share, weight) == pytest.approx(outcome)


@pytest.mark.parametrize("weight", [1.0, 0.5, 0.25])
def test_an_unreliable_labeller_cannot_convict_a_run_whose_claims_hold(weight: float) -> None:
    """Seven wins of ten where seven were claimed leave no gap, whatever they weigh; sides exchanged in every other."""
    pairs = []
    for n in range(10):
        share = float((n < 7) != bool(n % 2))
        asked = SimpleNamespace(id=str(n), a=SimpleNamespace(text="one"), b=SimpleNamespace(text="other"))
        item = cast(Any, SimpleNamespace(comparison=asked, share_a=share, weight=weight, labels=()))
        pairs.append(PosedPair(bool(n % 2), "anchor", Told(0.7)).answered(item))
    assert sum(pair.policy_won for pair in pairs) == pytest.approx(sum(pair.claim for pair in pairs))


@pytest.mark.parametrize(
    ("labeller", "spent", "of_all", "told", "left"),
    [
        (None, 0, 7, None, 0),
        ("anna", 30, None, 10, 10),
        ("anna", 50, None, 0, 0),
        ("anna", 30, 7, 7, 10),
        ("anna", 30, 20, 10, 10),
    ],
)
def test_a_budget_that_nobody_can_use_is_not_used_up(
    labeller: str | None, spent: int, of_all: int | None, told: int | None, left: int
) -> None:
    """`labels.budget` is told of, and does not change what an audit that is done again asks about."""
    collector = cast(Any, SimpleNamespace(labeller=labeller, labels_left=of_all))
    auditor = RoundAuditor(collector, AuditConfig(budget=40), spent)
    assert (auditor.budget_left, auditor.left) == (told, left)


def rollout(answers: int) -> Rollout:
    nothing = torch.zeros(answers, 1)
    return Rollout([[1]] * answers, [[2]] * answers, nothing, None, nothing.bool(), [True] * answers)


def test_pairs_that_the_ensemble_is_surest_of() -> None:
    some = rollout(4)
    pairs = Pairs([10, 11, 12, 13], [(some, n) for n in range(4)], [(some, n) for n in range(4)])
    told = [Told(claim) for claim in (0.6, 0.9, 0.2, 0.7)]
    found, claims = surest(pairs, told, 2)
    assert (found.rows, claims) == ([11, 13], [told[1], told[3]])
    assert surest(pairs, told, 4) == (pairs, told), "all of them as they came"


def test_a_reward_that_claims_nothing_yet_points_all_the_same() -> None:
    some = rollout(3)
    pairs = Pairs([10, 11, 12], [(some, n) for n in range(3)], [(some, n) for n in range(3)])
    found, _ = surest(pairs, [Told(0.501, 0.1), Told(0.501, 3.0), Told(0.499, -2.0)], 1)
    assert found.rows == [11], "by how much more reward the policy's answer got"


class Dictating(RoundAuditor):
    """Draws numbers in place of answers, as many as it is asked for, and others where it is asked for more."""

    def _choose(self, orders: Any, policy: Any, sample: Any, rng: torch.Generator) -> Any:
        drawn = []
        for order in orders:
            texts = cast(Any, (order.count + torch.rand(order.count, generator=rng)).tolist())
            sides = [(texts, n) for n in range(order.count)]
            drawn.append((Pairs([0] * order.count, sides, sides), [Told(0.5)] * order.count))
        return drawn


def audit_of(store: PreferenceStore, people: bool) -> RoundAuditor:
    """People prefer the second side of whatever is shown."""

    def response(texts: list[float], place: int, provenance: Provenance) -> Response:
        return Response(f"{texts[place]} of {provenance.policy_version}", provenance)

    def ask(comparisons: list[Comparison], *why: object) -> None:
        store.add_comparisons(comparisons)
        store.add_labels([Label(c.id, "anna", Choice.B) for c in comparisons])

    collector = SimpleNamespace(
        store=store,
        ask=ask,
        response=response,
        labeller="anna",
        key="run",
        prompts=["p"],
        mark_after_steps="r{:04d}".format,
        asks_otherwise=people,
    )
    return Dictating(cast(Any, collector), AuditConfig())


def bought(store: PreferenceStore, *counts: int, people: bool = True) -> list[tuple[str, bool]]:
    """Which comparisons a round asks about, in lots of so many, and whether the policy won."""
    return bought_and_spent(store, *counts, people=people)[0]


def bought_and_spent(store: PreferenceStore, *counts: int, people: bool = True) -> tuple[list[tuple[str, bool]], int]:
    auditor, rng, found, already = audit_of(store, people), torch.Generator().manual_seed(0), [], 0
    nobody = cast(Any, None)
    for count in counts:
        pairs = auditor.buy(1, already, [(Opponent("anchor", nobody, "round-0000"), count)], nobody, nobody, rng)
        found += [(pair.comparison_id, pair.policy_won == 1.0) for pair in pairs]
        already += count
    return found, auditor.spent


def test_a_round_done_again_asks_the_same(tmp_path: Path) -> None:
    store = PreferenceStore.open(f"sqlite:///{tmp_path / 'run.db'}")
    first = bought(store, 2, 3)
    assert bought(store, 2, 3) == first
    assert len(store.labelled()) == 5


def test_a_round_done_again_asks_about_more_after_late_answers(tmp_path: Path) -> None:
    """It was cut when three further pairs had been asked about; now there is reason to ask about four."""
    store = PreferenceStore.open(f"sqlite:///{tmp_path / 'run.db'}")
    first = bought(store, 2, 3)
    before = {item.comparison.id: item.comparison for item in store.labelled()}
    again = bought(store, 2, 4)
    assert again[:2] == first[:2], "those that were to be asked about in either case"
    assert [key for key, _ in again[2:]] == [f"run/audit-r0001-{n:05d}.1" for n in range(2, 6)]
    # Once more; the three answers that are no longer asked for were spent all the same.
    assert bought_and_spent(store, 2, 4) == (again, 2 + 3 + 4)
    after = {item.comparison.id: item.comparison for item in store.labelled()}
    assert {key: after[key] for key in before} == before
    # The sides of each pair were exchanged as its own question says: the policy won where it was shown second.
    assert all(won == after[key].b.provenance.policy_version.startswith("round-0001") for key, won in again)


def test_where_no_answer_can_be_late_a_round_that_draws_otherwise_is_refused(tmp_path: Path) -> None:
    store = PreferenceStore.open(f"sqlite:///{tmp_path / 'run.db'}")
    bought(store, 2, 3, people=False)
    with pytest.raises(HoldfastError, match="a comparison never changes"):
        bought(store, 2, 4, people=False)
