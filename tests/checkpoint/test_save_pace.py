"""Saving within a round: as often as it is cheap beside the work that it keeps, by a clock of our own."""

from holdfast.checkpoint.pace import SavePace


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def saves_in(steps: int, step_seconds: float, save_seconds: float) -> list[int]:
    """The steps after which a save is made."""
    clock, saved = Clock(), []
    pace = SavePace(clock)
    for step in range(steps):
        clock.now += step_seconds
        if pace.due:
            with pace.saving():
                clock.now += save_seconds
            saved.append(step)
    return saved


def test_slow_steps_are_saved_each_and_quick_ones_now_and_then() -> None:
    assert saves_in(6, step_seconds=30.0, save_seconds=2.0) == [0, 1, 2, 3, 4, 5]
    # 2 s is a tenth of 20 s, which are four steps of 5 s; the first save is made to see what one takes.
    assert saves_in(10, step_seconds=5.0, save_seconds=2.0) == [0, 4, 8]


def test_over_a_long_run_saving_takes_a_tenth_of_the_time_at_the_most() -> None:
    for step_seconds in (0.3, 1.0, 7.0):
        saved = saves_in(1000, step_seconds, save_seconds=2.0)
        assert 2.0 * len(saved) <= 0.1 * 1000 * step_seconds + 2.0


def test_a_save_that_has_become_slow_is_made_less_often() -> None:
    clock = Clock()
    pace = SavePace(clock)
    for save_seconds, wait in ((1.0, 10.0), (8.0, 80.0)):
        with pace.saving():
            clock.now += save_seconds
        clock.now += 0.9 * wait
        assert not pace.due
        clock.now += 0.11 * wait
        assert pace.due
