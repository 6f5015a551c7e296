"""What comes after a rollback: neither what people said of the policy before it counts, nor the ensemble of before it.

The labeller dislikes the policy of round 2 and holds nothing against any other. Round 2 refreshes the ensemble, and
round 3, which comes after the rollback, may not: it goes on with the version that came back.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import small_run
from holdfast.cli.main import main
from holdfast.events.levels import ALARMS
from holdfast.preferences.comparison import Choice, Comparison
from nostalgic import Nostalgic
from small_run import events_of, rows_of

ROUNDS = 3

SETTINGS = {
    "run__rounds": str(ROUNDS),
    "guard__mode": "act",
    "guard__rollbacks": "3",
    "audit__pairs": "8",
    "audit__more_pairs": "16",
    "audit__budget": "80",  # 16 pairs in round 1, 32 in round 2, and 24 in round 3: too few to outweigh those of before
    "refresh__every_rounds": "1",
    "refresh__freeze": "[[3, 3]]",
    "gate__use": "false",
    "checkpoint__keep": "9",
    "track__samples": "0",
    "world__labeller": f"{__file__}:Forgiving",
}


class Forgiving(Nostalgic):
    """As its like, but from round 3 on it likes now the new policy and now the one of before, as often."""

    name = "forgiving"

    def choose(self, c: Comparison) -> Choice:
        liked = super().choose(c)
        of_one_policy = c.a.provenance.policy_version == c.b.provenance.policy_version
        return liked.swap() if c.a.provenance.round > 2 and not of_one_policy and int(c.id[-1]) % 2 else liked


@pytest.fixture(scope="module")
def forgiven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run.run(tmp_path_factory.mktemp("forgiven"), **SETTINGS)


def test_what_was_rolled_back_is_not_held_against_the_policy_that_follows(forgiven: Path) -> None:
    verdicts = {event["round"]: event for event in events_of(forgiven, "verdict")}
    assert verdicts[2]["level"] in ALARMS
    assert verdicts[2]["evidence"]["evidence"] >= verdicts[2]["evidence"]["evidence_needed"]
    assert verdicts[3]["level"] == "healthy"
    # The evidence begins anew, below 1, and answers that come out even do not raise it.
    assert verdicts[3]["evidence"]["evidence"] < 1.0
    assert [event["round"] for event in events_of(forgiven, "rollback")] == [2]
    assert [event["labels"] for event in events_of(forgiven, "audit")] == [16, 32, 24]


def test_signals_compare_with_what_the_ensemble_that_came_back_makes_of_the_labelled_answers(
    forgiven: Path, tmp_path: Path
) -> None:
    """A run that is resumed after the rollback asks its ensemble anew; one that goes on has to read the same."""
    refreshed = {event["round"]: event["version"] for event in events_of(forgiven, "refresh")}
    assert refreshed == {2: 2}
    assert events_of(forgiven, "rollback")[0]["ensemble_version"] == 1
    again = tmp_path / small_run.NAME
    shutil.copytree(forgiven, again)
    shutil.rmtree(again / "checkpoints" / "round-0003")
    assert main(["resume", str(again)]) == 0
    assert readings(again) == readings(forgiven)


def readings(run: Path) -> list[dict[str, Any]]:
    """What the signals read in the steps of the round after the rollback."""
    rows = [row for row in rows_of(run / "metrics.jsonl") if row["round"] == ROUNDS]
    found = [{name: value for name, value in row.items() if name.startswith("signal/")} for row in rows]
    assert len(found) == small_run.STEPS
    assert all("signal/feature_distance" in row for row in found)
    return found
