"""What a trainer says of its training when it begins, checked: how much is looked at, how often, and whom it asks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from holdfast.config import Config, load_config
from holdfast.config.schema import AuditConfig
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Prompt, messages_of
from holdfast.serving.protocols import list_of, prompt_of
from holdfast.web.security import Refused

# Where a policy's answers come from: kept from the moment at which it was the present one, or asked for each time.
Source = Literal["kept", "asked"]
# The same of the present policy: asked for, or posted by itself as the trainer evaluates.
Present = Literal["asked", "evaluated"]
Beginning = Literal["first", "reference"]
# Who gives rewards to the answers that the server fetches itself.
Scorer = Literal["client", "nobody"]
# Prompts to each pair of a kind that a round asks about, where each prompt has one answer of the policy's.
FEWEST_PROMPTS = 4
# What has a range of its own among a run's settings, by its name there.
OF_CONFIG = {
    "mode": "guard.mode",
    "false_alarm": "guard.false_alarm",
    "baseline_batches": "guard.baseline_batches",
    "beta_factor": "guard.beta_factor",
    "rollbacks": "guard.rollbacks",
    "pairs": "audit.pairs",
    "more_pairs": "audit.more_pairs",
    "budget": "audit.budget",
    "seed": "run.seed",
}
CHOICES: Mapping[str, tuple[str, ...]] = {
    "baseline": get_args(Beginning),
    "policy": get_args(Present),
    "reference": get_args(Source),
    "anchor": get_args(Source),
    "score": get_args(Scorer),
}
COUNTS = {"answers": (2, 65_536), "every": (1, 100_000), "steps": (1, 10_000_000), "max_tokens": (1, 1_000_000)}


@dataclass(frozen=True)
class TrainingSettings:
    """Audits ask about `prompts`; `answers` make a step, `every` so many steps there is a review, of `steps` in all.

    Baselines are of the first batches, or of those that are declared the reference's. `policy`, `reference` and
    `anchor` say where their answers come from, `score` who gives rewards to those that the server fetches. `guarding`
    are settings of the guard and the audit, by their names there.
    """

    prompts: tuple[Prompt, ...]
    answers: int
    steps: int
    every: int = 10
    baseline: Beginning = "first"
    policy: Present = "asked"
    reference: Source = "kept"
    anchor: Source = "kept"
    score: Scorer = "client"
    max_tokens: int = 512
    temperature: float = 1.0
    guarding: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """Reviews in the whole training."""
        return math.ceil(self.steps / self.every)

    def config(self, given: Config, labeller: str) -> Config:
        """As the settings of a run, over those that the server was given."""
        own = {
            **self.guarding,
            "run.rounds": self.rounds,
            "run.steps_per_round": self.every,
            "ppo.batch": self.answers,
            "world.labeller": labeller,
            "preferences.per_round": 0,
        }
        kept = {f"{section}.{name}": value for section, name, value in _given(given)}
        try:
            return load_config(None, {**kept, **own})
        except HoldfastError as error:
            raise Refused(422, str(error)) from None

    def document(self) -> dict[str, Any]:
        """As JSON, from which `settings_of` makes the same."""
        named = {setting: name for name, setting in OF_CONFIG.items()}
        own = {name: getattr(self, name) for name in (*COUNTS, *CHOICES, "temperature")}
        prompts = [prompt if isinstance(prompt, str) else messages_of(prompt) for prompt in self.prompts]
        return {"prompts": prompts, **own, **{named[name]: value for name, value in self.guarding.items()}}


def settings_of(document: Mapping[str, Any]) -> TrainingSettings:
    """A trainer's own words, refused in a sentence where they are not what they have to be."""
    known = {"prompts", "temperature", *COUNTS, *CHOICES, *OF_CONFIG}
    if strange := sorted(map(str, document.keys() - known)):
        raise Refused(422, f"There is no setting {strange[0]!r}; there are {', '.join(sorted(known))}.")
    if missing := [name for name in ("prompts", "answers", "steps") if name not in document]:
        raise Refused(422, f"The setting {missing[0]!r} is missing; prompts, answers and steps are needed.")
    prompts = tuple(prompt_of(each, f"prompts[{n}]") for n, each in enumerate(list_of(document["prompts"], "prompts")))
    if not prompts or not all(prompts):
        raise Refused(422, "prompts is empty or holds an empty prompt; give the prompts that audits are to ask about.")
    if len(set(prompts)) < len(prompts):
        raise Refused(422, "prompts holds the same prompt twice; give each once.")
    values: dict[str, Any] = {}
    for name, (least, most) in COUNTS.items():
        if name in document:
            values[name] = whole(document[name], name, least, most)
    for name, choices in CHOICES.items():
        if (choice := document.get(name, choices[0])) not in choices:
            raise Refused(422, f"{name} is {choice!r}; it has to be one of {', '.join(choices)}.")
        values[name] = choice
    temperature = document.get("temperature", 1.0)
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 0 <= temperature <= 10:
        raise Refused(422, f"temperature is {temperature!r}; it has to be a number from 0 to 10.")
    _check_evaluated(document, len(prompts))
    guarding = {setting: document[name] for name, setting in OF_CONFIG.items() if name in document}
    if guarding.get("guard.mode") == "off":
        raise Refused(422, "mode is 'off'; choose act or advise, or leave the guard out.")
    return TrainingSettings(prompts=prompts, temperature=float(temperature), guarding=guarding, **values)


def _check_evaluated(document: Mapping[str, Any], prompts: int) -> None:
    """Of an evaluation each prompt has one answer: among few prompts audits would ask about the same pairs again."""
    pairs = document.get("pairs", AuditConfig().pairs)
    if document.get("policy") == "evaluated" and isinstance(pairs, int) and prompts < FEWEST_PROMPTS * pairs:
        raise Refused(
            422,
            f"Audits of {pairs} pairs by evaluations need at least {FEWEST_PROMPTS * pairs} prompts, and there are "
            f"{prompts}; give more prompts, or set pairs lower.",
        )


def whole(value: object, name: str, least: int, most: int) -> int:
    """A whole number within its limits."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Refused(422, f"{name} is {value!r:.40}; it has to be a whole number from {least:,} to {most:,}.")
    return value


def _given(config: Config) -> list[tuple[str, str, Any]]:
    """What the server's owner has said of people and the judge."""
    plain = Config()
    return [
        (section, name, value)
        for section in ("people", "judge")
        for name, value in vars(getattr(config, section)).items()
        if value != getattr(getattr(plain, section), name)
    ]
