"""The guard of a trainer in two processes: decided once, done in both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TRAINING = """
import json, os, sys
from hashlib import sha256
from pathlib import Path
import torch
from group_trainer import trainer_of
from observed import EVERY, GUARD, Opinionated, at_step
from holdfast.config.schema import AuditConfig, GuardConfig
from holdfast.interop.trl import HoldfastCallback

def words(completions, **more):
    return [float(len(each[0]["content"].split())) for each in completions]

def short(completions, **more):
    return [-0.1 * len(each[0]["content"]) for each in completions]

def digest():
    state = trainer.accelerator.unwrap_model(trainer.model).state_dict()
    return sha256(b"".join(tensor.numpy().tobytes() for tensor in state.values())).hexdigest()

def look(step):
    seen[step] = [digest(), float(trainer.beta), trainer.reward_weights.tolist()]
    if step == cut:
        os._exit(7)

run, out, prompts, resume, cut = Path(sys.argv[1]), Path(sys.argv[2]), *map(json.loads, sys.argv[3:6])
rank, seen, labeller = int(os.environ["RANK"]), {}, Opinionated(lambda round: round != 2)
trainer = trainer_of(
    run / "reference", [words, short], out, prompts, steps=8, beta=0.0, learning_rate=0.02, ddp_backend="gloo",
    generation_batch_size=32,
)
callback = HoldfastCallback(
    labeller, every=EVERY, guard=GuardConfig(**GUARD), audit=AuditConfig(pairs=12, more_pairs=12)
).attach(trainer)
at_step(trainer, look)
torch.manual_seed(rank)  # as TRL seeds each process
trainer.train(resume_from_checkpoint=resume or None)
kept = {name: sha256(t.numpy().tobytes()).hexdigest() for name, t in callback._hands.anchor.kept.items()}
told = {"seen": seen, "asked": len(labeller.policy_first), "end": digest(), "anchor": kept, "rng": torch.rand(1).item()}
(out / f"rank{rank}.json").write_text(json.dumps(told))
if rank == 0:
    state = callback.host.state()
    del state["tracker"]
    (out / "state.json").write_text(json.dumps(state))
"""


SLOW = """
import json, sys, time
from pathlib import Path
from group_trainer import trainer_of
from holdfast.interop.trl import HoldfastCallback, callback

callback.PATIENCE = 0.1  # six seconds, of which the labeller takes more
asked = []

def labeller(prompt, a, b):
    asked.append(1)
    if len(asked) == 1:
        time.sleep(9.0)
    if len(asked) == 3:
        raise ValueError("she has gone home")
    return "a"

run, out, prompts = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
flat = lambda completions, **more: [float(n) for n in range(len(completions))]
trainer = trainer_of(run / "reference", flat, out, prompts, steps=2, beta=0.0, ddp_backend="gloo")
HoldfastCallback(labeller, every=2).attach(trainer)
trainer.train()
"""


def launch(script: str, output: Path, *words: str) -> subprocess.CompletedProcess[str]:
    interop = Path(__file__).parent
    paths = [str(interop), str(interop.parent), str(interop.parents[1] / "src")]
    file = output.parent / "training.py"
    file.write_text(script)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        str(file),
        *words,
    ]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=240, check=False)


def train(prepared: Path, output: Path, prompts: list[Any], resume: str = "", cut: int = 0) -> str:
    words = [json.dumps(prompts[:16]), json.dumps(resume), json.dumps(cut)]
    done = launch(TRAINING, output, str(prepared), str(output), *words)
    assert (done.returncode == 0) == (not cut), done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_two_processes_go_back_together_and_resume(prepared: Path, prompts: list[Any], tmp_path: Path) -> None:
    said = train(prepared, tmp_path / "out", prompts)
    assert said.count("ROLLED BACK") == 1, "the second process says nothing"
    first, second = (json.loads((tmp_path / "out" / f"rank{n}.json").read_text()) for n in (0, 1))
    assert first["asked"] > 0
    assert second["asked"] == 0, "people are asked once"
    for name in ("seen", "end", "anchor"):
        assert first[name] == second[name]
    assert first["rng"] != second["rng"], "each process has gone on with its own random numbers"
    rows = [json.loads(row) for row in (tmp_path / "out/holdfast/events.jsonl").read_text().splitlines()]
    (rollback,) = [row for row in rows if row["event"] == "rollback"]
    assert (rollback["step_from"], rollback["step_to"]) == (4, 2)
    beta, weights = first["seen"]["5"][1:]
    assert (beta, sorted(weights)) == (pytest.approx(0.08), [0.25, 1.0])
    # Killed in the middle of a step, and resumed from the checkpoint after the rollback.
    train(prepared, tmp_path / "cut", prompts, cut=7)
    train(prepared, tmp_path / "cut", prompts, resume=str(tmp_path / "cut" / "checkpoint-6"))
    for name in ("rank0.json", "rank1.json"):
        whole, resumed = (json.loads((tmp_path / run / name).read_text()) for run in ("out", "cut"))
        assert (resumed["end"], resumed["anchor"], resumed["rng"]) == (whole["end"], whole["anchor"], whole["rng"])
    assert (tmp_path / "out/state.json").read_text() == (tmp_path / "cut/state.json").read_text()


@pytest.mark.slow
def test_a_labeller_may_take_its_time_and_where_it_fails_all_processes_end(
    prepared: Path, prompts: list[Any], tmp_path: Path
) -> None:
    done = launch(SLOW, tmp_path / "out", str(prepared), str(tmp_path / "out"), json.dumps(prompts[:8]))
    assert done.returncode != 0
    # Both say why, and neither that another has kept it waiting: it was told that the first is still there.
    assert done.stderr.count("The labeller callable failed: ValueError") >= 2
    assert "Another process" not in done.stderr
