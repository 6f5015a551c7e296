"""Online DPO in the loop: it learns, the guard audits it and takes it back, and a resumed run is the unbroken one."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import Claims, Point, resume, run_until

import nostalgic
import small_run
from holdfast.checkpoint import transaction
from holdfast.checkpoint.store import CheckpointStore
from small_run import differences, events_of, result_of, rows_of

DPO = {"run__optimiser": "dpo", "ppo__samples_per_prompt": "2", "ppo__batch": "8", "kl__beta": "0.1"}
GUARD = {"audit__pairs": "12", "audit__more_pairs": "24", "audit__budget": "500", "run__rounds": "4"}
LAST = "round-0004"
HACKED = Claims(0.7)


@pytest.fixture(scope="module")
def rolled_back(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        small_run.claiming(patch, HACKED.claim)
        return small_run.run(tmp_path_factory.mktemp("dpo"), **DPO, **GUARD, world__labeller=nostalgic.SPEC)


def test_rounds_run_audits_happen_and_a_rollback_works(rolled_back: Path) -> None:
    assert len(events_of(rolled_back, "audit")) == 4
    assert "hacking" in [event["level"] for event in events_of(rolled_back, "verdict")]
    rollback = events_of(rolled_back, "rollback")[-1]
    store = CheckpointStore(rolled_back / "checkpoints")
    good, after = store.load(rollback["to"]), store.load(f"round-{rollback['round']:04d}")
    # Policy, optimiser, streams and cursors came back bit for bit; the remedy is all that differs.
    different = {name.split("/")[0] for name in transaction.differences(good, after, small_run.TAKEN_BACK)}
    assert different == {"controller"}
    assert "critic" not in after.tensors


def test_its_figures_are_written_and_the_margin_grows(tmp_path: Path) -> None:
    run = small_run.run(tmp_path, **DPO, guard__mode="off", ppo__epochs="4", run__rounds="2")
    rows = rows_of(run / "metrics.jsonl")
    assert all("policy/clipfrac_avg" not in row for row in rows)
    assert all(row["objective/kl_step"] > 0.0 for row in rows)
    assert rows[-1]["objective/kl"] > rows[0]["objective/kl"]
    assert rows[-1]["rewards/margins"] > 0.0
    assert {"loss/dpo", "rewards/accuracies", "logps/chosen"} <= rows[0].keys()


def test_a_killed_run_resumes_bit_for_bit(rolled_back: Path, tmp_path: Path) -> None:
    changes = {**DPO, **GUARD, "world__labeller": nostalgic.SPEC}
    run = run_until(tmp_path, Point("holdfast.train.dpo:OnlineDPO.update", call=5), HACKED, **changes)
    resume(run, HACKED)
    assert differences(result_of(run, LAST), result_of(rolled_back, LAST)) == []
