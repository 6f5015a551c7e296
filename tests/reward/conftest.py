"""A label store, and training that only scales the members."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from holdfast.preferences.pair import Pair
from holdfast.preferences.store import PreferenceStore
from holdfast.reward import refresher as module
from holdfast.reward.ensemble import Ensemble
from holdfast.reward.training import Fit


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PreferenceStore]:
    with PreferenceStore.open(f"sqlite:///{tmp_path / 'run.db'}") as store:
        yield store


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[list[Pair]]:
    """The pairs of every fit; the fit itself only scales the members, enough to show standardising."""
    fits: list[list[Pair]] = []

    def fit(ensemble: Ensemble, pairs: Sequence[Pair], *_rest: object) -> Fit:
        fits.append(list(pairs))
        with torch.no_grad():
            for member in ensemble.members:
                member.head.weight.mul_(2.0)
                member.head.bias.add_(3.0)
        return Fit(0.5, 0.75)

    monkeypatch.setattr(module, "fit_ensemble", fit)
    return fits
