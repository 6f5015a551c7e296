"""When the reward ensemble is due for a refresh, and when it must be left alone."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.text import counted


@dataclass(frozen=True)
class RefreshTriggers:
    """The reasons for a refresh, each of which can be off, and the rounds in which none is allowed.

    `every_rounds`: that many rounds since the last refresh (0: off). `kl_since`: that much KL spent since
    the last refresh (0: off). `on_plateau`: the policy has settled against the present ensemble.
    `on_miscalibration`: an audit has found that people do not prefer what the ensemble claims they do. `freeze`:
    periods of rounds as (first, last), both included, in which the ensemble stays as it is. There is no
    state to save: what it decides on is passed in.
    """

    every_rounds: int = 0
    kl_since: float = 0.0
    on_plateau: bool = False
    freeze: tuple[tuple[int, int], ...] = ()
    on_miscalibration: bool = False

    def frozen(self, round: int) -> bool:
        """Whether the round lies in a freeze period."""
        return any(first <= round <= last for first, last in self.freeze)

    def due(
        self,
        round: int,
        last_refresh_round: int,
        kl_since_refresh: float,
        settled: bool,
        miscalibrated: bool = False,
    ) -> str | None:
        """The reason why a refresh is due in this round, for people to read; None if it is not."""
        if self.frozen(round):
            return None
        rounds = round - last_refresh_round
        if self.every_rounds and rounds >= self.every_rounds:
            return f"{counted(rounds, 'round')} since the last refresh"
        if self.kl_since and kl_since_refresh >= self.kl_since:
            return f"{kl_since_refresh:.3g} nats of KL since the last refresh (set at {self.kl_since:.3g})"
        if self.on_plateau and settled:
            return "the policy has settled against the present ensemble"
        if self.on_miscalibration and miscalibrated:
            return "an audit found the ensemble's claims wrong"
        return None
