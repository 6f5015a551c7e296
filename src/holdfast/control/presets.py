"""Learning rates for a model that nobody has tuned for, by what it is.

Those of the built-in model were found on it. Of pretrained ones they are what is usual and safe: a fine-tuning that is
a little slow costs some accuracy, one that is too fast the model. `ppo.lr` is where steps begin, which are sized then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Weights above which a pretrained model takes the rates of large ones.
SMALL = 5_000_000


@dataclass(frozen=True)
class Preset:
    """Rates by the names of their settings, and the kind of model that they are for."""

    kind: str
    rates: Mapping[str, float]


def _preset(kind: str, sft: float, reward: float, refresh: float, ppo: float, dpo: float, bestofn: float) -> Preset:
    rates = {"sft": sft, "reward": reward, "refresh": refresh, "ppo": ppo, "dpo": dpo, "bestofn": bestofn}
    return Preset(kind, {f"{section}.lr": rate for section, rate in rates.items()})


BUILT_IN = _preset("the built-in model", sft=4e-3, reward=1e-3, refresh=5e-4, ppo=2e-4, dpo=2e-4, bestofn=1e-3)
SMALL_PRETRAINED = _preset(
    "a small pretrained model", sft=3e-4, reward=3e-4, refresh=1e-4, ppo=3e-6, dpo=1e-5, bestofn=1e-4
)
PRETRAINED = _preset("a pretrained model", sft=1e-5, reward=1e-5, refresh=1e-5, ppo=3e-7, dpo=5e-7, bestofn=1e-5)
ADAPTERS = _preset(
    "adapters on a pretrained model", sft=1e-4, reward=5e-4, refresh=1e-4, ppo=1e-5, dpo=1e-5, bestofn=1e-4
)


def preset_for(weights: int, built_in: bool, adapters: bool) -> Preset:
    """The preset of a model of so many weights: one that Holdfast has built, or a pretrained one, with LoRA or not."""
    if built_in:
        return BUILT_IN
    if adapters:
        return ADAPTERS
    return PRETRAINED if weights > SMALL else SMALL_PRETRAINED
