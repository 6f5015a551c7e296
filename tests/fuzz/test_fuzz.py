"""A short campaign against each target: no input may bring forth anything but a result or a sentence."""

from pathlib import Path

import pytest
from campaign import TARGETS, campaign

pytestmark = pytest.mark.slow
SECONDS = dict.fromkeys(TARGETS, 10.0) | {"drawings": 2.0, "grammars": 3.0}  # of which a second holds hundreds
SEED = 26


@pytest.mark.parametrize("target", TARGETS)
def test_every_input_is_used_or_refused_in_a_sentence(target: str, tmp_path: Path) -> None:
    result = campaign(target, SECONDS[target], SEED, tmp_path / "failures")
    assert result["failures"] == []
    assert result["inputs"] > 2
