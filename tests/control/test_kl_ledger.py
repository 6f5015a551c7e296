"""The KL account across rounds and rollbacks."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.control.ledger import KLLedger
from holdfast.errors import HoldfastError


def _ledger() -> KLLedger:
    ledger = KLLedger()
    for step, (round, kl) in enumerate([(1, 0.1), (1, 0.2), (2, 0.4), (2, 0.8)], start=1):
        ledger.record(step, round, kl_step=kl, kl_reference=2 * kl)
    return ledger


def _go_back(ledger: KLLedger, steps: int) -> float:
    """Back to how the account was when it had so many entries, of which none was undone."""
    return ledger.return_to({"step": ledger.state()["step"][:steps], "undone": torch.zeros(steps, dtype=torch.int8)})


def test_totals_by_step_and_round() -> None:
    ledger = _ledger()
    assert ledger.spent == pytest.approx(1.5)
    assert ledger.undone == 0.0
    assert ledger.position == pytest.approx(1.5)
    assert ledger.round_total(1) == pytest.approx(0.3)
    assert ledger.round_total(2) == pytest.approx(1.2)
    assert ledger.round_total(3) == 0.0
    assert ledger.since(2) == pytest.approx(1.2)
    assert ledger.since(0) == pytest.approx(1.5)
    assert ledger.reference == 1.6


def test_an_empty_ledger_is_at_the_reference() -> None:
    ledger = KLLedger()
    assert (ledger.spent, ledger.undone, ledger.position, ledger.reference, ledger.since(0)) == (
        0,
        0,
        0,
        0,
        0,
    )


def test_a_rollback_undoes_but_does_not_forget() -> None:
    ledger = _ledger()
    assert _go_back(ledger, 2) == pytest.approx(1.2)
    assert ledger.spent == pytest.approx(1.5)
    assert ledger.undone == pytest.approx(1.2)
    assert ledger.position == pytest.approx(0.3)
    assert ledger.reference == 0.4
    assert ledger.round_total(2) == 0.0
    # The round is tried again with the same step numbers.
    ledger.record(3, 2, kl_step=0.05, kl_reference=0.5)
    assert ledger.round_total(2) == pytest.approx(0.05)
    assert ledger.since(2) == pytest.approx(0.05)
    assert ledger.spent == pytest.approx(1.55)
    assert ledger.position == pytest.approx(0.35)


def test_the_last_step_before_a_round_counts_undone_ones() -> None:
    ledger = KLLedger()
    for step, round in ((1, 1), (2, 1), (3, 2), (4, 2)):
        ledger.record(step, round, 0.5, 1.0)
    _go_back(ledger, 2)
    ledger.record(5, 3, 0.5, 1.0)
    assert [ledger.last_step_before(round) for round in (1, 2, 3, 4)] == [0, 2, 4, 5]


def test_a_rollback_of_a_rollback() -> None:
    ledger = _ledger()
    _go_back(ledger, 3)
    ledger.record(4, 2, 0.3, 0.9)
    assert _go_back(ledger, 1) == pytest.approx(0.2 + 0.4 + 0.3)
    assert ledger.position == pytest.approx(0.1)
    assert ledger.undone == pytest.approx(0.2 + 0.4 + 0.8 + 0.3)
    assert [entry.undone for entry in ledger.entries] == [False, True, True, True, True]


def test_what_was_undone_stays_undone_when_its_step_numbers_come_again() -> None:
    ledger = _ledger()
    _go_back(ledger, 2)
    for step in (3, 4):
        ledger.record(step, 2, 0.01, 0.5)
    saved = ledger.state()
    ledger.record(5, 2, 0.01, 0.5)
    assert ledger.return_to(saved) == 0.01
    assert [entry.undone for entry in ledger.entries] == [False, False, True, True, False, False, True]
    assert ledger.position == pytest.approx(0.32)


def test_who_goes_back_and_then_forth_stands_on_the_steps_between_again() -> None:
    """As an owner may: to step 2, then to step 4 after all, and what came in between is undone."""
    ledger = _ledger()
    at_4 = ledger.state()
    _go_back(ledger, 2)
    ledger.record(5, 3, 0.3, 0.9)
    assert (ledger.position, ledger.undone_spans()) == (pytest.approx(0.6), [(2, 4)])
    assert ledger.return_to(at_4) == 0.3, "what this undoes, and not what it brings back"
    assert ledger.position == pytest.approx(1.5)
    assert (ledger.reference, ledger.since(2), ledger.round_total(2)) == (1.6, pytest.approx(1.2), pytest.approx(1.2))
    assert (ledger.spent, ledger.undone) == (pytest.approx(1.8), 0.3)
    ledger.record(6, 4, 0.1, 0.9)
    assert ledger.undone_spans() == [(4, 5)]


def test_a_ledger_of_another_run_is_not_returned_to() -> None:
    ledger, other = _ledger(), _ledger()
    other.record(5, 3, 0.1, 0.1)
    with pytest.raises(HoldfastError, match="never took"):
        ledger.return_to(other.state())
    assert ledger.entries == _ledger().entries


def test_stretches_of_undone_steps() -> None:
    ledger = _ledger()
    assert ledger.undone_spans() == []
    saved = ledger.state()
    for step in (5, 6):
        ledger.record(step, 3, 0.1, 0.1)
    ledger.return_to(saved)
    ledger.record(7, 4, 0.1, 0.1)
    saved = ledger.state()
    ledger.record(9, 5, 0.1, 0.1)  # a step without a number in between was dropped
    ledger.return_to(saved)
    assert ledger.undone_spans() == [(4, 6), (7, 9)]
    _go_back(ledger, 0)
    assert ledger.undone_spans() == [(0, 9)]


def test_steps_come_in_order_and_with_finite_kl() -> None:
    ledger = _ledger()
    with pytest.raises(ValueError, match="not after step 4"):
        ledger.record(4, 2, 0.1, 0.1)
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="not finite"):
            ledger.record(5, 2, bad, 0.1)
        with pytest.raises(ValueError, match="not finite"):
            ledger.record(5, 2, 0.1, bad)
    assert len(ledger.entries) == 4


def test_state_round_trip_is_exact() -> None:
    ledger = _ledger()
    _go_back(ledger, 2)
    ledger.record(3, 3, 0.1 + 0.2, 1 / 3)
    saved = ledger.state()
    restored = KLLedger()
    restored.restore(saved)
    assert restored.entries == ledger.entries
    assert [restored.round_total(r) for r in (1, 2, 3)] == [ledger.round_total(r) for r in (1, 2, 3)]
    assert (restored.spent, restored.undone, restored.since(1)) == (ledger.spent, ledger.undone, ledger.since(1))
    restored.record(4, 3, 0.1, 0.1)
    assert len(ledger.entries) == 5  # the two share nothing
    assert len(saved["step"]) == 5, "and neither do a ledger and what it saved"


def test_an_empty_ledger_is_saved_and_restored() -> None:
    restored = _ledger()
    restored.restore(KLLedger().state())
    assert restored.entries == ()
    assert restored.spent == 0.0


@given(
    st.lists(st.tuples(st.integers(1, 4), st.floats(-1e6, 1e6), st.one_of(st.none(), st.integers(0, 30))), max_size=30),
    st.integers(0, 30),
)
def test_sums_carried_along_are_sums_made_afresh_to_the_last_bit(
    steps: list[tuple[int, float, int | None]], since: int
) -> None:
    """Whatever is recorded and undone, and whenever it was asked for before."""
    ledger = KLLedger()
    saved = [ledger.state()]
    for round, kl, back in steps:
        if back is not None:
            ledger.return_to(saved[back % len(saved)])
        standing = [e.step for e in ledger.entries if not e.undone]
        ledger.record(max(standing, default=0) + 1, round, kl, kl)
        saved.append(ledger.state())
        ledger.since(since)
    entries = ledger.entries
    assert ledger.spent == math.fsum(e.kl_step for e in entries)
    assert ledger.undone == math.fsum(e.kl_step for e in entries if e.undone)
    assert ledger.position == math.fsum(e.kl_step for e in entries if not e.undone)
    assert ledger.since(since) == math.fsum(e.kl_step for e in entries if e.step > since and not e.undone)
    assert ledger.since(3) == math.fsum(e.kl_step for e in entries if e.step > 3 and not e.undone)
    for round in range(1, 5):
        of_round = [e for e in entries if e.round == round]
        assert ledger.round_total(round) == math.fsum(e.kl_step for e in of_round if not e.undone)
