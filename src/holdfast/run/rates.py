"""The learning rates of a run: those that are set, and for the others those that suit its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.config import Config
from holdfast.control.presets import preset_for
from holdfast.models.codec import Codec
from holdfast.models.tiny import is_built_in
from holdfast.text import format_setting


@dataclass(frozen=True)
class ChosenRates:
    """The rates that nobody has set, by the names of their settings, and what kind of model they were chosen for."""

    kind: str = ""
    weights: int = 0
    rates: Mapping[str, float] | None = None

    def __contains__(self, name: str) -> bool:
        return name in (self.rates or {})

    def words(self, names: Sequence[str]) -> list[str]:
        """Those of these settings that were chosen, in a line; `ppo.lr` is only where the sizing of steps begins."""
        told = [f"{name} = {format_setting(rate)}" for name, rate in (self.rates or {}).items() if name in names]
        if not told:
            return []
        sized = "; steps are then sized by the KL that they move" if "ppo.lr" in self and "ppo.lr" in names else ""
        return [f"Learning rates for {self.kind} ({self.weights:,} weights): {', '.join(told)}{sized}."]


def with_rates(
    config: Config, lm: Any, codec: Codec, sealed: Mapping[str, float] | None = None
) -> tuple[Config, ChosenRates]:
    """The settings with a learning rate wherever none is set, and those that were chosen.

    A run that is resumed goes on with those that it was `sealed` with.
    """
    weights = sum(p.numel() for p in lm.parameters())
    preset = preset_for(weights, is_built_in(lm, codec.tokenizer), config.policy.lora_rank > 0)
    chosen, sections = {}, {}
    for name, rate in {**preset.rates, **(sealed or {})}.items():
        section = name.partition(".")[0]
        # There is no ensemble to train, or none to train from the beginning.
        unread = (config.reward.given and section in ("reward", "refresh")) or (
            config.reward.refresh and section == "reward"
        )
        if getattr(config, section).lr == 0.0 and not unread:
            chosen[name] = rate
            sections[section] = replace(getattr(config, section), lr=rate)
    return replace(config, **sections), ChosenRates(preset.kind, weights, chosen)
