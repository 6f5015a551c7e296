"""Nothing in a run depends on gold or on who watches: without an observer, or with one that is lied to, all else is
equal bit for bit.

The lie is told to the lab alone. The simulated labeller has the truth in mind by design, and keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nostalgic
import small_run
from holdfast.cli import session
from holdfast.cli.main import main
from holdfast.lab.observer import Gold, gold_of
from holdfast.models.prompt import Prompt
from holdfast.preferences.store import PreferenceStore
from holdfast.worlds.concierge import Concierge
from holdfast.worlds.protocol import World
from small_run import differences, events_of, rows_of

Lie = Callable[[float], float]

# The guard finds against the policy here and goes back, so that watching and going back meet.
ROLLS_BACK = {
    "run__rounds": "4", "audit__pairs": "12", "audit__more_pairs": "24", "audit__budget": "500",
    "world__labeller": nostalgic.SPEC,
}  # fmt: skip
PIPELINE = small_run.settings(
    run__rounds="1", rollout__max_new_tokens="24", sft__epochs="6", probes__every="2", dpo__epochs="1"
)


def unseen(world: World) -> None:
    """In the place of `gold_of`: nobody knows the truth, so nobody watches."""


def told(lie: Lie) -> Callable[[World], Gold]:
    """In the place of `gold_of`: what it would say, made into a lie."""

    def falsified(world: World) -> Gold:
        gold = gold_of(world)
        assert gold is not None
        return lambda prompt, response, finished: lie(gold(prompt, response, finished))

    return falsified


def negative(value: float) -> float:
    return -value


def constant(value: float) -> float:
    return 7.5


def all_but_gold(run: Path, last: int = small_run.ROUNDS) -> dict[str, Any]:
    """What two equal runs share, with the two newest checkpoints and what happened, and without the lab's file."""
    result = small_run.result_of(run, f"round-{last:04d}")
    del result["gold.jsonl"]
    before = small_run.checkpoint_of(run, f"round-{last - 1:04d}")
    result |= {f"before/{name}": part for name, part in before.items()}
    for name in ("parts", "before/parts"):  # how far the lab's file goes is the lab's own
        result[name] = {part: state for part, state in result[name].items() if part != "audience"}
    return result | {"events": without_clock(events_of(run))}


def without_clock(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in ("time", "seconds")} for row in rows]


def without_gold(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "gold"} for row in rows]


@pytest.fixture(scope="module")
def watched(unbroken: Path) -> dict[str, object]:
    assert rows_of(unbroken / "gold.jsonl")
    return all_but_gold(unbroken)


def test_a_run_that_nobody_watches_is_the_same_run(
    watched: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "gold_of", unseen)
    run = small_run.run(tmp_path)
    (run / "gold.jsonl").touch(exist_ok=False)  # it is not there, and those who compare look for it
    assert differences(watched, all_but_gold(run)) == []


def test_a_run_that_goes_back_unwatched_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = small_run.run(tmp_path / "watched", **ROLLS_BACK)
    assert events_of(watched, "rollback")
    assert rows_of(watched / "gold.jsonl")
    monkeypatch.setattr(session, "gold_of", unseen)
    run = small_run.run(tmp_path / "unwatched", **ROLLS_BACK)
    (run / "gold.jsonl").touch(exist_ok=False)  # it is not there, and those who compare look for it
    assert differences(all_but_gold(watched, last=4), all_but_gold(run, last=4)) == []


@pytest.mark.parametrize("lie", [negative, constant])
def test_a_run_whose_gold_lies_differs_in_the_labs_file_alone(
    lie: Lie, unbroken: Path, watched: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "gold_of", told(lie))
    run = small_run.run(tmp_path)
    honest, lied = rows_of(unbroken / "gold.jsonl"), rows_of(run / "gold.jsonl")
    assert len({row["gold"] for row in honest}) > 5
    assert [row["gold"] for row in lied] == [lie(row["gold"]) for row in honest]
    assert without_gold(lied) == without_gold(honest)
    assert differences(watched, all_but_gold(run)) == []


def test_a_lie_to_the_labeller_too_is_seen_all_over_the_run(
    watched: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison above would find a dependence: this is what one looks like."""
    gold = Concierge.gold

    def falsified(self: Concierge, prompt: Prompt, response: str, finished: bool = True) -> float:
        return -gold(self, prompt, response, finished)

    monkeypatch.setattr(Concierge, "gold", falsified)
    different = differences(watched, all_but_gold(small_run.run(tmp_path)))
    assert {"labels", "metrics.jsonl", "events", "parts", "policy/lm.lm_head.weight"} <= set(different)


def test_a_pipeline_whose_truth_lies_differs_in_the_measurement_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind of stage, each of which is measured before the next one begins."""
    honest = pipeline_in(tmp_path / "honest")
    monkeypatch.setattr(session, "gold_of", told(negative))
    lied = pipeline_in(tmp_path / "lied")
    measured = [[row["gold"]["mean"] for row in rows_of(p / "ledger.jsonl") if "gold" in row] for p in (honest, lied)]
    assert len(measured[0]) == 4
    assert measured[1] == [-value for value in measured[0]]
    left = stages_but_gold(honest)
    assert {"stages/4-ppo/metrics.jsonl", "stages/4-ppo/model/model.safetensors", "labels"} <= left.keys()
    assert differences(left, stages_but_gold(lied)) == []


def pipeline_in(runs: Path) -> Path:
    words = ["--runs", str(runs), "--name", "p", "--stages", "sft,reward,distil,ppo,dpo", *PIPELINE]
    assert main(["pipeline", *words]) == 0
    return runs / "p"


def stages_but_gold(pipeline: Path) -> dict[str, object]:
    """Weights, metrics, samples, probes and events of every stage, the ledger without gold, and the labels."""
    result: dict[str, object] = {"ledger": without_gold(without_clock(rows_of(pipeline / "ledger.jsonl")))}
    with PreferenceStore.open(f"sqlite:///{pipeline / 'run.db'}") as store:
        result["labels"] = store.labelled()
    for file in sorted(pipeline.glob("stages/**/*")):
        name = str(file.relative_to(pipeline))
        if file.suffix == ".safetensors" or file.name in ("metrics.jsonl", "samples.jsonl", "probes.jsonl"):
            result[name] = file.read_bytes()
        elif file.name == "events.jsonl":
            result[name] = without_clock(events_of(file.parent))
    return result
