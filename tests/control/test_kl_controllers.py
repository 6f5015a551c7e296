"""KL controllers: the rule by numbers, what they refuse, and the closed loop against simulated policies."""

import itertools
import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from holdfast.control.kl import AdaptiveKL, BudgetKL, FixedKL, KLController
from holdfast.errors import HoldfastError

BATCH = 64
HORIZON = 5 * BATCH


@dataclass
class LaggingPolicy:
    """KL relaxes over `lag` steps towards strength / beta^power, and is measured with noise."""

    strength: float
    power: float
    lag: float
    noise: float = 0.12
    kl: float = 0.0
    generator: random.Random | None = None

    def step(self, beta: float) -> float:
        self.generator = self.generator or random.Random(0)
        self.kl += (self.strength / beta**self.power - self.kl) / self.lag
        return self.kl * (1 + self.noise * self.generator.gauss(0, 1))


@dataclass
class TiltedPolicy:
    """pi ~ ref exp(theta r): theta is drawn to 1 / beta at bounded speed, and KL = var theta^2 / 2."""

    variance: float
    speed: float
    noise: float = 0.12
    theta: float = 0.0
    generator: random.Random | None = None

    @property
    def kl(self) -> float:
        return self.variance * self.theta**2 / 2

    def step(self, beta: float) -> float:
        self.generator = self.generator or random.Random(0)
        self.theta = max(0.0, self.theta + self.speed * math.tanh(3 * (1 - beta * self.theta)))
        return self.kl * (1 + self.noise * self.generator.gauss(0, 1))


def _run(policy: LaggingPolicy | TiltedPolicy, controller: KLController, steps: int) -> list[float]:
    kls = []
    for _ in range(steps):
        measured = policy.step(controller.beta)
        kls.append(policy.kl)
        controller.update(measured, BATCH, labels=0)
    return kls


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


class ZieglerAlone:
    """The published rule without additions, to compare with."""

    def __init__(self, beta: float, target: float, horizon: float) -> None:
        self.beta, self.target, self.horizon = beta, target, horizon

    def update(self, kl: float, batch: int, labels: int) -> None:
        self.beta *= 1 + min(max(kl / self.target - 1, -0.2), 0.2) * batch / self.horizon


def test_the_rule_by_hand() -> None:
    # KL 6.6 at target 6 is 10% over: beta 0.15 * (1 + 0.1 * 64 / 640) = 0.15 * 1.01 = 0.1515.
    controller = AdaptiveKL(beta=0.15, target=6.0, horizon=640)
    controller.update(6.6, 64, 0)
    assert controller.beta == pytest.approx(0.1515)
    # KL 12 is far over. Level 0.5 * 12 + 0.5 * 6.6 = 9.3 > 9, so the bound is 1; slope 0.3 * 2.7 = 0.81,
    # ahead 9.3 + 8 * 0.81 = 15.78 is 163% over, held at 100%: 0.1515 * (1 + 64 / 640) = 0.16665.
    controller.update(12.0, 64, 0)
    assert controller.beta == pytest.approx(0.16665)


def test_errors_are_bounded_as_ziegler_has_it_below_the_overrun() -> None:
    low = AdaptiveKL(beta=1.0, target=6.0, horizon=640)
    low.update(0.0, 64, 0)  # 100% below, held at -20%: 1 - 0.2 * 0.1
    assert low.beta == pytest.approx(0.98)
    high = AdaptiveKL(beta=1.0, target=6.0, horizon=640)
    high.update(8.4, 64, 0)  # 40% over, not an overrun, held at +20%
    assert high.beta == pytest.approx(1.02)


def test_a_negative_kl_estimate_counts_as_below_the_target() -> None:
    controller = AdaptiveKL(beta=1.0, target=6.0, horizon=640)
    controller.update(-0.5, 64, 0)
    assert controller.beta == pytest.approx(0.98)


def test_a_rising_kl_stops_the_shrinking_before_the_target_is_reached() -> None:
    controller = AdaptiveKL(beta=1.0, target=6.0, horizon=640)
    betas = []
    for kl in (0.0, 1.0, 2.0, 3.0, 4.0, 5.0):
        controller.update(kl, 64, 0)
        betas.append(controller.beta)
    assert betas[-1] > betas[-2]  # the last KL is still below the target


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_horizon_target_and_beta_that_cannot_steer_are_refused(bad: float) -> None:
    with pytest.raises(HoldfastError, match="horizon"):
        AdaptiveKL(beta=0.1, target=6.0, horizon=bad)
    with pytest.raises(HoldfastError, match="target"):
        AdaptiveKL(beta=0.1, target=bad, horizon=100)
    with pytest.raises(HoldfastError, match="beta"):
        AdaptiveKL(beta=bad, target=6.0, horizon=100)


def test_a_horizon_shorter_than_the_batch_never_turns_beta_negative() -> None:
    controller = AdaptiveKL(beta=0.1, target=6.0, horizon=1)
    for kl, expected in ((0.0, 0.05), (0.0, 0.025), (1000.0, 0.05)):  # halved, halved, doubled
        controller.update(kl, 64, 0)
        assert controller.beta == pytest.approx(expected)


def test_beta_stays_within_a_hundredfold_of_its_start() -> None:
    idle = AdaptiveKL(beta=0.1, target=6.0, horizon=64)
    wild = AdaptiveKL(beta=0.1, target=6.0, horizon=64)
    for _ in range(200):
        idle.update(0.01, 64, 0)
        wild.update(500.0, 64, 0)
    assert idle.beta == pytest.approx(0.001)
    assert wild.beta == pytest.approx(10.0)


@pytest.mark.parametrize("kl", [math.nan, math.inf])
@pytest.mark.parametrize("controller", [FixedKL(0.1), AdaptiveKL(0.1, 6.0, 100), BudgetKL(0.1, 2.0, 1.0, 6.0, 100)])
def test_a_kl_that_is_not_finite_is_refused_and_changes_nothing(controller: KLController, kl: float) -> None:
    before = controller.state()
    with pytest.raises(ValueError, match="drop the step"):
        controller.update(kl, 64, 10)
    assert controller.state() == before


def test_fixed_kl_stays() -> None:
    controller = FixedKL(0.05)
    controller.update(100.0, 64, 1000)
    assert controller.beta == 0.05
    assert controller.target is None
    assert FixedKL(0.0).beta == 0.0
    with pytest.raises(HoldfastError, match="0 or above"):
        FixedKL(-0.1)


def test_a_budget_grows_with_labels_up_to_its_ceiling() -> None:
    controller = BudgetKL(beta=0.1, start=2.0, per_1000_labels=4.0, ceiling=7.0, horizon=640)
    assert controller.target == 2.0
    for labels, target in ((0, 2.0), (250, 3.0), (1000, 6.0), (1250, 7.0), (90_000, 7.0)):
        controller.update(2.0, 64, labels)
        assert controller.target == pytest.approx(target)


def test_a_budget_steers_towards_the_target_of_the_moment() -> None:
    controller = BudgetKL(beta=1.0, start=2.0, per_1000_labels=2.0, ceiling=9.0, horizon=640)
    controller.update(3.0, 64, labels=0)  # 50% over 2, held at 20%
    assert controller.beta == pytest.approx(1.02)
    controller.update(3.0, 64, labels=500)  # the target is 3 now: no error
    assert controller.beta == pytest.approx(1.02)


def test_budgets_that_make_no_sense_are_refused() -> None:
    with pytest.raises(HoldfastError, match="ceiling"):
        BudgetKL(0.1, start=5.0, per_1000_labels=1.0, ceiling=4.0, horizon=100)
    with pytest.raises(HoldfastError, match="per 1000 labels"):
        BudgetKL(0.1, start=5.0, per_1000_labels=-1.0, ceiling=9.0, horizon=100)
    with pytest.raises(HoldfastError, match="target"):
        BudgetKL(0.1, start=0.0, per_1000_labels=1.0, ceiling=9.0, horizon=100)


def test_tightening_lasts() -> None:
    fixed, adaptive = FixedKL(0.1), AdaptiveKL(0.1, 6.0, 640)
    budget = BudgetKL(0.1, start=2.0, per_1000_labels=4.0, ceiling=8.0, horizon=640)
    for controller in (fixed, adaptive, budget):
        controller.tighten(beta_factor=2.0, target_factor=0.5)
        assert controller.beta == pytest.approx(0.2)
    assert adaptive.target == 3.0
    budget.update(1.0, 64, labels=1000)
    assert budget.target == 3.0  # half of 6
    budget.update(1.0, 64, labels=100_000)
    assert budget.target == 4.0  # half of the ceiling
    with pytest.raises(ValueError, match="above 0"):
        adaptive.tighten(beta_factor=0.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedKL(0.1),
        lambda: AdaptiveKL(0.1, 6.0, 300),
        lambda: BudgetKL(0.1, start=2.0, per_1000_labels=3.0, ceiling=7.0, horizon=300),
    ],
)
def test_a_restored_controller_continues_bit_for_bit(make: Callable[[], KLController]) -> None:
    generator = random.Random(1)
    kls = [abs(generator.gauss(5, 2)) for _ in range(40)]
    unbroken = make()
    unbroken.tighten(1.5, 0.9)
    for i, kl in enumerate(kls[:20]):
        unbroken.update(kl, 64, 37 * i)
    saved = json.loads(json.dumps(unbroken.state()))
    resumed = make()
    resumed.restore(saved)
    assert resumed.state() == unbroken.state()
    for i, kl in enumerate(kls[20:]):
        assert (resumed.beta, resumed.target) == (unbroken.beta, unbroken.target)
        for controller in (unbroken, resumed):
            controller.update(kl, 64, 700 + 37 * i)
    assert resumed.state() == unbroken.state()


def test_a_state_that_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(HoldfastError, match=r"'fixed'.*'adaptive'"):
        AdaptiveKL(0.1, 6.0, 300).restore(FixedKL(0.1).state())


# The closed loop. `right` is the beta at which the policy would rest on the target. Every run begins at beta
# 0.1 and KL 0, so with 0.05 beta must come down, and with 0.3 it must go up while the KL is still on its way.
@pytest.mark.parametrize("target", [2.0, 5.0, 10.0])
@pytest.mark.parametrize("right", [0.05, 0.1, 0.3])
@pytest.mark.parametrize(("power", "lag"), [(1.0, 5.0), (1.0, 15.0), (2.0, 5.0), (2.0, 15.0)])
def test_the_loop_holds_its_target_when_it_comes_from_below(
    target: float, right: float, power: float, lag: float
) -> None:
    policy = LaggingPolicy(strength=target * right**power, power=power, lag=lag)
    kls = _run(policy, AdaptiveKL(0.1, target, HORIZON), steps=120)
    assert _mean(kls[60:]) == pytest.approx(target, rel=0.2)


@pytest.mark.parametrize("target", [2.0, 5.0, 10.0])
@pytest.mark.parametrize("right", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("pace", [0.1, 0.2])
def test_the_loop_holds_its_target_on_a_policy_of_bounded_speed(target: float, right: float, pace: float) -> None:
    # At the right beta theta is 1 / right and var theta^2 / 2 is the target; pace is its share per step.
    policy = TiltedPolicy(variance=2 * target * right**2, speed=pace / right)
    kls = _run(policy, AdaptiveKL(0.1, target, HORIZON), steps=120)
    assert _mean(kls[60:]) == pytest.approx(target, rel=0.2)


@pytest.mark.parametrize("target", [2.0, 5.0, 10.0])
@pytest.mark.parametrize("shift", [0.4, 3.0])
def test_the_loop_comes_back_to_its_target_after_a_shift(target: float, shift: float) -> None:
    # As when a refresh changes the scale of the reward: the same beta now gives another KL.
    policy = LaggingPolicy(strength=target * 0.1, power=1.0, lag=8.0)
    controller = AdaptiveKL(0.1, target, HORIZON)
    _run(policy, controller, steps=60)
    policy.strength *= shift
    kls = _run(policy, controller, steps=80)
    assert _mean(kls[40:]) == pytest.approx(target, rel=0.2)


def test_in_short_runs_the_additions_cut_the_overshoot_and_the_error_of_the_bare_rule() -> None:
    # Over 150 steps the bare rule holds the mean as well, after a higher peak; over 60 it has not come back.
    peaks: dict[str, list[float]] = {"bare": [], "ours": []}
    errors: dict[str, list[float]] = {"bare": [], "ours": []}
    for target, right, lag in itertools.product((2.0, 5.0, 10.0), (0.05, 0.1, 0.5), (5.0, 15.0)):
        for name, kind in (("bare", ZieglerAlone), ("ours", AdaptiveKL)):
            policy = LaggingPolicy(strength=target * right**2, power=2.0, lag=lag)
            kls = _run(policy, kind(0.1, target, HORIZON), steps=60)  # type: ignore[arg-type]
            peaks[name].append(max(kls) / target)
            errors[name].append(abs(_mean(kls[30:]) / target - 1))
    assert _mean(peaks["ours"]) < 0.75 * _mean(peaks["bare"])
    assert _mean(errors["ours"]) < 0.5 * _mean(errors["bare"])
