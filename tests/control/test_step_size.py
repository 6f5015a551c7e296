"""The size of steps: the aim and the search by hand, and against policies whose KL per step is a known function."""

import json
import math
import random

import pytest

from holdfast.control.presets import ADAPTERS, BUILT_IN, PRETRAINED, SMALL_PRETRAINED, preset_for
from holdfast.control.schedule import LearningRate, RefreshSchedule
from holdfast.control.step_size import StepAim, StepSize, far_out, near
from holdfast.errors import HoldfastError


def test_the_aim_by_hand() -> None:
    # A budget of 3.2 nats: 3.2 / 16 = 0.2 a step; of half the rate a quarter of that. First steps within 0.1 to 0.4.
    sizes = StepSize(LearningRate(1e-4, 0))
    whole = sizes.band(3.2, 1.0)
    assert (whole.aim, whole.low, whole.high, whole.ceiling) == pytest.approx((0.2, 0.1, 0.4, 1e-2))
    half = sizes.band(3.2, 0.5)
    assert (half.aim, half.low, half.high) == pytest.approx((0.05, 0.025, 0.1))


def test_later_steps_may_be_short_and_are_taken_back_above_four_times_the_aim() -> None:
    sizes = StepSize(LearningRate(1e-4, 0))
    for _ in range(6):
        sizes.learn(1e-4, 0.2, 0.2)
    later = sizes.band(3.2, 1.0)
    assert (later.aim, later.low, later.high) == pytest.approx((0.2, 0.0, 0.8))


def test_a_step_that_missed_changes_the_next_rate_by_half_of_what_it_missed_by() -> None:
    schedule = LearningRate(1e-4, 0)
    sizes = StepSize(schedule)
    sizes.learn(1e-4, 0.1, 0.2)  # half the KL: (2)^(1/4) = 1.189
    assert schedule.base == pytest.approx(1e-4 * 2**0.25)
    sizes.learn(1e-4, 200.0, 0.2)  # never by more than 1.5
    assert schedule.base == pytest.approx(1e-4 / 1.5)
    sizes.learn(1e-4, 0.0, 0.2)  # a step that has nothing to learn from says nothing of the rate
    assert schedule.base == pytest.approx(1e-4)


def test_a_later_step_that_was_taken_back_moves_the_rate_by_no_more_than_any_other() -> None:
    schedule = LearningRate(1e-4, 0)
    sizes = StepSize(schedule)
    for _ in range(6):
        sizes.learn(1e-4, 0.2, 0.2)
    sizes.learn(1e-5, 0.2, 0.2)  # it stood at a tenth of the rate
    assert schedule.base == pytest.approx(1e-4 / 1.5)


def test_tries_by_hand() -> None:
    aim = StepAim(aim=0.2, low=0.1, high=0.4)
    assert aim.again([(1e-4, 0.11)]) is None
    assert aim.again([(1e-4, 0.05)]) == pytest.approx(2e-4)  # sqrt(0.2 / 0.05) = 2
    assert aim.again([(1e-4, 1e-9)]) == pytest.approx(1e-3)  # at most ten times
    assert aim.again([(1e-4, math.inf)]) == pytest.approx(1e-5)
    # 1e-4 is too small and 4e-4 too large, and sqrt(0.2 / 5) = 0.2 of it lies outside: halfway between them.
    assert aim.again([(1e-4, 0.05), (4e-4, 5.0)]) == pytest.approx(2e-4)
    assert aim.again([(1e-4, 0.0)]) is None, "answers that are all worth the same"
    assert StepAim(0.2, 0.1, 0.4, ceiling=1e-4).again([(1e-4, 0.01)]) is None
    assert StepAim(0.2, 0.1, 0.4, ceiling=1.5e-4).again([(1e-4, 0.01)]) == pytest.approx(1.5e-4)


def tries(aim: StepAim, rate: float, right: float, power: float, most: float) -> list[tuple[float, float]]:
    """Steps of a policy whose step at the rate `right` moves the aim; its KL cannot get above `most`."""
    tried = list[tuple[float, float]]()
    wanted: float | None = rate
    while wanted is not None:
        kl = aim.aim * (wanted / right) ** power
        tried.append((wanted, most * kl / (most + kl)))
        wanted = aim.again(tried)
    return tried


@pytest.mark.parametrize("off", [1e-4, 1e-2, 0.3, 1.0, 3.0, 30.0, 1e3])
@pytest.mark.parametrize("power", [1.0, 2.0, 3.0, 5.0])
def test_whatever_the_policy_a_first_step_comes_within_a_factor_of_two(off: float, power: float) -> None:
    aim = near(0.2)
    tried = tries(aim, rate=3e-5 * off, right=3e-5, power=power, most=15.0)
    assert aim.low <= tried[-1][1] <= aim.high
    assert len(tried) <= 8
    if off == 1.0:
        assert len(tried) == 1


@pytest.mark.parametrize("start", [0.02, 0.2, 1.0, 5.0])
def test_steps_keep_to_the_aim_of_a_policy_whose_right_rate_moves(start: float) -> None:
    """The right rate goes up and down by two over the run, the KL is measured with noise, and the aim is annealed."""
    generator, schedule = random.Random(0), LearningRate(1e-5 * start, 0)
    sizes, missed = StepSize(schedule), []
    for step in range(60):
        right, share = 1e-5 * 2 ** math.sin(step / 10), 1.0 - 0.8 * step / 59
        band = sizes.band(4.0, share)
        tried = list[tuple[float, float]]()
        lr: float | None = schedule.base * share
        while lr is not None:
            kl = 4.0 / 16 * (lr / right) ** 2
            tried.append((lr, kl * math.exp(0.3 * generator.gauss(0, 1))))
            lr = band.again(tried)
        lr, measured = tried[-1]
        missed.append(abs(math.log2(measured / band.aim)))
        assert measured <= band.high
        sizes.learn(lr / share, measured, band.aim)
    assert max(missed[:6]) <= 1.0
    assert sum(m <= 1.0 for m in missed) >= 45


def test_the_rate_never_gets_above_a_hundred_times_its_start() -> None:
    schedule = LearningRate(1e-6, 0)
    sizes = StepSize(schedule)
    for _ in range(40):
        sizes.learn(schedule.base, 1e-9, 0.2)
    assert schedule.base == pytest.approx(1e-4)


def test_a_resumed_size_goes_on_bit_for_bit() -> None:
    def sized() -> tuple[LearningRate, StepSize]:
        schedule = LearningRate(1e-4, 0)
        return schedule, StepSize(schedule)

    (one, unbroken), (other, resumed) = sized(), sized()
    for kl in (0.3, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4):
        unbroken.learn(one.base, kl, 0.2)
    resumed.restore(json.loads(json.dumps(unbroken.state())))
    assert (other.base, resumed.band(4.0, 0.3)) == (one.base, unbroken.band(4.0, 0.3))
    for kl in (0.5, 0.01):
        unbroken.learn(one.base, kl, 0.2)
        resumed.learn(other.base, kl, 0.2)
    assert (other.base, resumed.state()) == (one.base, unbroken.state())


def test_a_set_rate_is_far_out_by_the_step_that_it_makes() -> None:
    # Budget 4: one step of more than 2 nats, or one that 30 times the rate would not bring to 4 / 16 = 0.25.
    limits = far_out(4.0)
    assert limits.again([(1e-3, 1.9)]) is None
    assert limits.again([(1e-3, 2.1)]) is not None
    assert limits.again([(1e-3, 0.25 / 800)]) is None
    assert limits.again([(1e-3, 0.25 / 1000)]) is not None


def test_presets_by_what_the_model_is() -> None:
    assert preset_for(300_000, built_in=True, adapters=False) is BUILT_IN
    assert preset_for(936_000, built_in=False, adapters=False) is SMALL_PRETRAINED
    assert preset_for(135_000_000, built_in=False, adapters=False) is PRETRAINED
    assert preset_for(135_000_000, built_in=False, adapters=True) is ADAPTERS
    for name in BUILT_IN.rates:
        assert PRETRAINED.rates[name] <= SMALL_PRETRAINED.rates[name] <= BUILT_IN.rates[name]


def test_a_schedule_without_a_rate_says_so() -> None:
    with pytest.raises(HoldfastError, match="a run chooses one that suits its model"):
        RefreshSchedule(0.0, 5, 10)
