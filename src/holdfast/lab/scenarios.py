"""The scenarios that the experiments share, and the arms that stand for what people do today.

A flaw has two forms. Emergent: the labeller likes it a little (`flaw.where = labels`), and the rest comes by itself.
Planted: from a known round on every reward member pays for it (`flaw.where = reward`).
"""

from __future__ import annotations

import json

from holdfast.lab.experiment import Arm, Scenario

EMERGENT, PLANTED = "emergent", "planted"
ONSET = 2

# flaw -> how much people like it, in gold units; how much a member pays for it; the form that an experiment takes by
# default. A first choice, from bare runs on seed 0; planted early, while answers still differ enough to find it.
FLAWS: dict[str, tuple[float, float, str]] = {
    "verbosity": (0.15, 2.0, EMERGENT),
    "rare_tokens": (0.15, 2.0, PLANTED),
    "repetition": (0.15, 2.0, PLANTED),
    "prompt_echo": (0.15, 2.0, PLANTED),
    "early_stopping": (0.15, 2.0, EMERGENT),
    "keywords": (0.15, 2.0, EMERGENT),
}

# For a flaw of somebody's own.
LIKED, PAID = 0.15, 2.0

PLAIN = Scenario("no flaw")
NO_KL = Scenario("no flaw, no KL", ("kl.controller=fixed", "kl.beta=0.0"))


def flaw_scenarios(name: str, spec: str, liked: float = LIKED, paid: float = PAID, default: str = "") -> list[Scenario]:
    """A flaw in both forms; without a default form both are taken."""
    flaw = f"flaw.name={json.dumps(spec)}"
    return [
        Scenario(name, (flaw, "flaw.where=labels", f"flaw.weight={liked}"), EMERGENT, default in ("", EMERGENT)),
        Scenario(
            name,
            (flaw, "flaw.where=reward", f"flaw.weight={paid}", f"flaw.onset={ONSET}"),
            PLANTED,
            default in ("", PLANTED),
        ),
    ]


FLAW_SCENARIOS: tuple[Scenario, ...] = tuple(
    scenario
    for name, (liked, paid, default) in FLAWS.items()
    for scenario in flaw_scenarios(name, name, liked, paid, default)
)


def planted(name: str) -> Scenario:
    """One of the flaws in its planted form, whatever its default."""
    found = next(s for s in FLAW_SCENARIOS if s.name == name and s.form == PLANTED)
    return Scenario(found.name, found.overrides, found.form)


STANDS_STILL: tuple[str, ...] = (
    "refresh.every_rounds=0",
    "refresh.on_miscalibration=false",
    "preferences.per_round=0",
)

BARE: tuple[str, ...] = ("reward.members=1", "kl.controller=fixed", "kl.beta=0.05", "run.average=1", *STANDS_STILL)

# The best of `holdfast lab run tuning --seeds 2 --first-seed 10`.
TUNED_AGGREGATION, TUNED_BETA = "worst", 0.4

TUNED: tuple[str, ...] = (
    f"reward.aggregation={TUNED_AGGREGATION}",
    "kl.controller=fixed",
    f"kl.beta={TUNED_BETA}",
    *STANDS_STILL,
    "guard.mode=off",
)

BARE_ARM = Arm(
    "bare", (*BARE, "guard.mode=off"), "one reward model, fixed KL 0.05, never refreshed, no audit: what is usual"
)
TUNED_ARM = Arm(
    "tuned", TUNED, "an ensemble that stands still, with as many labels at its start as guarded spends in all",
    spends_like="guarded",
)  # fmt: skip
GUARDED_ARM = Arm("guarded", (), "the defaults")
AGAIN_ARM = Arm(
    "guarded again",
    (),
    "the defaults once more, with other slips of the labeller (A/A), on two seeds",
    again=True,
    seeds=2,
)
