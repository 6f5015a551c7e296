"""A trainer that is a command, as verl is called: a scripted policy, checkpoints, an evaluation every so often.

python guarded_trainer.py DIRECTORY trainer.resume_from_path=... actor_rollout_ref.actor.kl_loss_coef=...
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.system.scripted_trainer import PROMPTS, ScriptedTrainer

from holdfast.interop.guard_client import GuardClient

EVERY, STEPS = 4, 20


def main(directory: Path, words: list[str]) -> None:
    given = dict(word.split("=", 1) for word in words)
    trainer = ScriptedTrainer(hacked=True, pace=0.5, seed=1020 + int(os.environ["HOLDFAST_GUARD_RUN"]))
    trainer.beta = float(given.get("actor_rollout_ref.actor.kl_loss_coef", 0))
    if start := given.get("trainer.resume_from_path"):
        trainer.step, trainer.dial = json.loads(Path(start).read_text())
    training = GuardClient.of().training(os.environ["HOLDFAST_GUARD_TRAINING"])
    while True:
        if trainer.step % EVERY == 0:
            (directory / f"global_step_{trainer.step}").write_text(json.dumps([trainer.step, trainer.dial]))
            answers = [trainer.say(trainer.dial, trainer.rng) for _ in PROMPTS]
            rewards = [sum(each.values()) for each in trainer.score(PROMPTS, answers)]
            training.post(PROMPTS, answers, rewards, of="evaluation", step=trainer.step)
        if trainer.step == STEPS:
            break
        training.post(**trainer.batch())
        time.sleep(0.05)
    (directory / "end").write_text(json.dumps([trainer.step, trainer.dial, trainer.beta]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
