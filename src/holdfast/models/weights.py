"""What moves of a model: the tensors that a checkpoint holds. A frozen base is not among them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from torch import Tensor, nn

# Numbers of each tensor by which a base is known again.
FINGERPRINT = 64


def learning(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that an optimiser may move."""
    return [p for p in model.parameters() if p.requires_grad]


def moving_weights(model: nn.Module) -> dict[str, Tensor]:
    """All of a model's weights by name, without those that are frozen."""
    frozen = _frozen(model)
    return {name: tensor for name, tensor in model.state_dict().items() if name not in frozen}


def load_moving_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put them back; like torch, a RuntimeError says that these are another model's."""
    keys = model.load_state_dict(dict(weights), strict=False)
    missing = [name for name in keys.missing_keys if name not in _frozen(model)]
    if missing or keys.unexpected_keys:
        raise RuntimeError(f"missing {missing[:3]}, unexpected {keys.unexpected_keys[:3]}")


def base_fingerprint(model: nn.Module) -> str:
    """Tells one frozen base from another, by some numbers of each of its tensors; empty where nothing is frozen."""
    frozen = [p for p in model.parameters() if not p.requires_grad]
    if not frozen:
        return ""
    digest = hashlib.sha256()
    for parameter in frozen:
        numbers = parameter.detach().flatten()[:: max(1, parameter.numel() // FINGERPRINT)][:FINGERPRINT]
        digest.update(numbers.float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def _frozen(model: nn.Module) -> set[str]:
    # A tied weight has two names, and both are in a state dict.
    return {name for name, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}
