"""When a refresh is due, and why."""

from holdfast.control.triggers import RefreshTriggers


def test_nothing_is_due_when_everything_is_off() -> None:
    assert RefreshTriggers().due(100, 0, 1e9, settled=True) is None


def test_rounds() -> None:
    triggers = RefreshTriggers(every_rounds=3)
    assert triggers.due(5, 3, 0.0, settled=False) is None
    assert triggers.due(6, 3, 0.0, settled=False) == "3 rounds since the last refresh"
    assert triggers.due(8, 3, 0.0, settled=False) == "5 rounds since the last refresh"
    assert RefreshTriggers(every_rounds=1).due(4, 3, 0.0, False) == "1 round since the last refresh"
    assert RefreshTriggers(every_rounds=1).due(3, 3, 0.0, False) is None


def test_kl() -> None:
    triggers = RefreshTriggers(kl_since=2.0)
    assert triggers.due(1, 0, 1.99, settled=False) is None
    assert triggers.due(1, 0, 2.345, settled=False) == "2.35 nats of KL since the last refresh (set at 2)"


def test_plateau() -> None:
    triggers = RefreshTriggers(on_plateau=True)
    assert triggers.due(1, 0, 0.0, settled=False) is None
    assert triggers.due(1, 0, 0.0, settled=True) == "the policy has settled against the present ensemble"
    assert RefreshTriggers(on_plateau=False, kl_since=9.0).due(1, 0, 0.0, settled=True) is None


def test_a_frozen_round_is_never_due_and_the_one_after_is() -> None:
    triggers = RefreshTriggers(every_rounds=1, kl_since=1.0, on_plateau=True, freeze=((3, 5), (9, 9)))
    assert [round for round in range(1, 12) if triggers.frozen(round)] == [3, 4, 5, 9]
    assert triggers.due(5, 2, 50.0, settled=True) is None
    assert triggers.due(6, 2, 50.0, settled=True) == "4 rounds since the last refresh"


def test_claims_found_wrong() -> None:
    triggers = RefreshTriggers(on_miscalibration=True, freeze=((7, 7),))
    assert triggers.due(1, 0, 0.0, settled=True, miscalibrated=False) is None
    assert triggers.due(1, 0, 0.0, settled=False, miscalibrated=True) == "an audit found the ensemble's claims wrong"
    assert triggers.due(7, 0, 0.0, settled=False, miscalibrated=True) is None, "not in a freeze period"
    assert RefreshTriggers(on_miscalibration=False).due(1, 0, 0.0, False, miscalibrated=True) is None
