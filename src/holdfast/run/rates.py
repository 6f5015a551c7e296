"""The learning rates of a run: those that are set, and for the others those that suit its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.config import Config
from holdfast.control.presets import preset_for
from holdfast.models.codec import Codec
from holdfast.models.load import weights_in
from holdfast.models.tiny import is_built_in
from holdfast.reward.classifier import directory_of
from holdfast.text import format_setting

# A rate that is set to so many times what suits the model is warned of.
FAR = 30.0


@dataclass(frozen=True)
class ChosenRates:
    """The rates that nobody has set, by the names of their settings, and what kind of model they were chosen for.

    `far` are those that somebody has set far above what suits such a model, each with what does.
    """

    kind: str = ""
    weights: int = 0
    rates: Mapping[str, float] | None = None
    far: Mapping[str, tuple[float, float]] | None = None
    published: bool = False  # the reward model is not made from it

    def __contains__(self, name: str) -> bool:
        return name in (self.rates or {})

    def words(self, names: Sequence[str]) -> list[str]:
        """Which of these settings are far out, and which were chosen; `ppo.lr` is where the sizing of steps begins."""
        large = [
            f"WARNING: {name} = {format_setting(rate)} is {rate / suits:,.0f} times the {format_setting(suits)} that "
            f"suits {self.kind} of {self.weights:,} weights; leave it out to have that."
            for name, (rate, suits) in (self.far or {}).items()
            if name in names
        ]
        by_own = {"refresh.lr": " (by the reward model's own size)"} if self.published else {}
        told = [
            f"{name} = {format_setting(rate)}{by_own.get(name, '')}"
            for name, rate in (self.rates or {}).items()
            if name in names
        ]
        if not told:
            return large
        sized = "; steps are then sized by the KL that they move" if "ppo.lr" in self and "ppo.lr" in names else ""
        return [*large, f"Learning rates for {self.kind} ({self.weights:,} weights): {', '.join(told)}{sized}."]


def with_rates(
    config: Config, lm: Any, codec: Codec, sealed: Mapping[str, float] | None = None
) -> tuple[Config, ChosenRates]:
    """The settings with a learning rate wherever none is set, and those that were chosen.

    A run that is resumed goes on with those that it was `sealed` with.
    """
    weights = sum(p.numel() for p in lm.parameters())
    preset = preset_for(weights, is_built_in(lm, codec.tokenizer), config.policy.lora_rank > 0)
    refresh = {"refresh.lr": rate_of_published(config)} if config.reward.refresh else {}
    chosen, sections, far = {}, {}, {}
    for name, rate in {**preset.rates, **refresh, **(sealed or {})}.items():
        section = name.partition(".")[0]
        # There is no ensemble to train, or none to train from the beginning.
        unread = (config.reward.given and section == "refresh") or (
            section == "reward" and not config.reward.trains_from_policy
        )
        given = getattr(config, section).lr
        if given == 0.0 and not unread:
            chosen[name] = rate
            sections[section] = replace(getattr(config, section), lr=rate)
        elif name != "ppo.lr" and given >= FAR * rate:  # that one is tried before the first step
            far[name] = given, rate
    return replace(config, **sections), ChosenRates(preset.kind, weights, chosen, far, config.reward.refresh)


def rate_of_published(config: Config) -> float:
    """For a published reward model that is refreshed, by its own size."""
    weights = weights_in(directory_of(config.reward.source))
    return preset_for(weights, built_in=False, adapters=config.policy.lora_rank > 0).rates["refresh.lr"]
