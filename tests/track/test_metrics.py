"""One registry of metrics, and one page generated from it."""

from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.track.metrics import REGISTRY, metric, metrics_markdown

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def test_every_entry_is_filled_in_and_fits_one_line() -> None:
    for name, entry in REGISTRY.items():
        assert name == entry.name
        assert name.count("/") == 1
        assert entry.better in {"up", "down", "neither"}
        for text in (entry.formula, entry.unit):
            assert text
            assert text == text.strip()
            assert "\n" not in text


def test_a_known_name_is_found_and_an_unknown_one_refused_with_a_hint() -> None:
    assert metric("objective/kl").unit == "nats per answer"
    with pytest.raises(HoldfastError, match=r"objective/kll.*did you mean objective/kl\?"):
        metric("objective/kll")
    with pytest.raises(HoldfastError, match=r"add it to holdfast/track/metrics\.py"):
        metric("zzz")


def test_the_sign_of_the_penalty_is_stated() -> None:
    # TRL documents beta * kl here while its code logs the negative; ours says what it is.
    assert "-beta" in metric("objective/non_score_reward").formula
    assert "- beta * KL" in metric("objective/rlhf_reward").formula


def test_the_reference_page_is_the_generated_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == metrics_markdown(), (
        "docs/reference/metrics.md is out of date: write metrics_markdown() to it."
    )


def test_every_metric_has_one_row_of_four_cells() -> None:
    rows = [line for line in metrics_markdown().splitlines() if line.startswith("| `")]
    assert len(rows) == len(REGISTRY)
    for row, name in zip(rows, REGISTRY, strict=True):
        assert row.startswith(f"| `{name}` |")
        # A bar inside a formula must be escaped, or it would start another cell.
        assert row.replace("\\|", "").count("|") == 5
