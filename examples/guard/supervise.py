"""Run a trainer's command under guard: begin the training, wait for verdicts, and carry out what is advised.

    python supervise.py --trainer verl --training my-run --prompts audits.jsonl --answers 1024 --steps 400 --every 20 \\
        --checkpoints checkpoints/my-run -- python -m verl.trainer.main_ppo ...

A trainer that cannot be changed while it runs is ended and started again: from the checkpoint of the last good policy,
with a larger KL coefficient, with a smaller learning rate. Save checkpoints as often as there is a review, and keep
all of them. Components are down-weighted by the reward functions beside this file, without a restart. Where the guard
stops, the trainer is ended and this ends with exit code 3; `--resume` goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.interop.guard_client import GuardClient, GuardedTraining, GuardStopped

LOOK_SECONDS = 5.0
# The coefficient of a KL penalty that was off.
FIRST_BETA = 0.001


@dataclass(frozen=True)
class Trainer:
    """How a trainer is told where to begin, and which arguments hold its KL coefficient and its learning rate.

    `joint` stands between an argument's name and its value: "=", or " " for a word of its own.
    """

    back: Callable[[Path, Mapping[str, Any]], list[str]]
    beta: str
    rate: str
    joint: str
    penalty: Sequence[str] = ()  # what else a KL penalty needs that was off

    def value(self, words: Sequence[str], name: str) -> float | None:
        """The last value of an argument."""
        if self.joint == "=":
            found = [word.partition("=")[2] for word in words if word.partition("=")[0] == name]
        else:
            found = [words[n + 1] for n, word in enumerate(words[:-1]) if word == name]
        return float(found[-1]) if found else None

    def given(self, words: Sequence[str], name: str, value: float) -> list[str]:
        """The command with another value; of an argument that comes twice the last one counts."""
        return [*words, f"{name}={value:g}"] if self.joint == "=" else [*words, name, f"{value:g}"]


def verl_back(checkpoints: Path, to: Mapping[str, Any]) -> list[str]:
    if not to["step"]:
        return ["trainer.resume_mode=disable"]
    return ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={checkpoints}/global_step_{to['step']}"]


def openrlhf_back(checkpoints: Path, to: Mapping[str, Any]) -> list[str]:
    """DeepSpeed loads the checkpoint that the file `latest` names."""
    for model in ("_actor", "_critic"):
        if to["step"] and (checkpoints / model).is_dir():
            (checkpoints / model / "latest").write_text(f"global_step{to['step']}")
    return ["--ckpt.load_enable"] if to["step"] else []


def slime_back(checkpoints: Path, to: Mapping[str, Any]) -> list[str]:
    return ["--load", str(checkpoints), "--ckpt-step", str(to["step"] - 1)] if to["step"] else []


TRAINERS = {
    "verl": Trainer(
        verl_back, "actor_rollout_ref.actor.kl_loss_coef", "actor_rollout_ref.actor.optim.lr", "=",
        ["actor_rollout_ref.actor.use_kl_loss=True"],
    ),
    "openrlhf": Trainer(openrlhf_back, "--algo.kl.init_coef", "--actor.adam.lr", " "),
    "slime": Trainer(slime_back, "--kl-loss-coef", "--lr", " ", ["--use-kl-loss"]),
}  # fmt: skip


class Supervisor:
    """The trainer's process, and its command as it is started next."""

    def __init__(
        self, trainer: Trainer, command: Sequence[str], checkpoints: Path, environment: Mapping[str, str]
    ) -> None:
        self.trainer, self.command, self.checkpoints = trainer, list(command), checkpoints
        self.environment, self.starts, self.ended = environment, 0, False
        self.process: subprocess.Popen[bytes] | None = None
        self.begin_at: list[str] = []

    def start(self) -> None:
        own = {**os.environ, **self.environment, "HOLDFAST_GUARD_RUN": str(self.starts)}
        self.process = subprocess.Popen([*self.command, *self.begin_at], env=own)
        self.starts, self.ended = self.starts + 1, False

    def end(self) -> None:
        """Ask it to end, and wait; one that does not is killed."""
        self.ended = True
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def act(self, advice: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Carry out one advice; the trainer is started again when all are carried out."""
        if advice["do"] == "rollback":
            self.end()
            self.begin_at = self.trainer.back(self.checkpoints, advice["to"])
            return {"before": {}, "after": {"begins at": advice["to"]}}
        if advice["do"] == "discount":
            return {"before": {}, "after": {advice["component"]: f"times {advice['factor']:g} in the reward function"}}
        name = {"tighten": self.trainer.beta, "slow_down": self.trainer.rate}[advice["do"]]
        before = self.trainer.value(self.command, name)
        if not before and advice["do"] == "slow_down":
            return None  # its default is the trainer's own, and not known here
        self.end()
        after = before * advice["factor"] if before else FIRST_BETA
        self.command = self.trainer.given(self.command, name, after)
        if not before:
            self.command += self.trainer.penalty
        return {"before": {name: before}, "after": {name: after}}


def supervise(training: GuardedTraining, supervisor: Supervisor, seconds: float = LOOK_SECONDS) -> int:
    """Until the trainer has ended by itself, or the guard has stopped it."""
    supervisor.start()
    while True:
        assert supervisor.process is not None
        code = supervisor.process.poll()
        try:
            if code == 0:
                state = training.end(act=supervisor.act)
                print(json.dumps({"verdict": state["verdict"], "good": state["good"]}))
            elif code is None:
                carry_out(training, supervisor)
        except GuardStopped as stop:
            supervisor.end()
            print(stop, file=sys.stderr)
            return 3
        if code is not None:
            return code
        if supervisor.ended:
            supervisor.start()
        else:
            time.sleep(seconds)


def carry_out(training: GuardedTraining, supervisor: Supervisor) -> None:
    """What is advised at this moment, all of it. Answers come from evaluations, so that nothing else is asked for."""
    state = training.look()
    if state["actions"] or state["state"] in ("stopped", "failed"):
        training.settle(act=supervisor.act)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", choices=sorted(TRAINERS), required=True)
    parser.add_argument("--training", required=True, help="its name at the guard")
    parser.add_argument(
        "--prompts", type=Path, required=True, help="JSON lines with a `prompt`: those of the evaluation"
    )
    parser.add_argument("--answers", type=int, required=True, help="answers that the trainer makes in a step")
    parser.add_argument("--steps", type=int, required=True, help="steps of the whole training")
    parser.add_argument("--every", type=int, required=True, help="steps between evaluations, which are audited")
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--resume", action="store_true", help="a person has looked: go on after a stop")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the trainer's command")
    args = parser.parse_args()
    prompts = [json.loads(line)["prompt"] for line in args.prompts.read_text(encoding="utf-8").splitlines() if line]
    training = GuardClient.of().training(
        args.training, prompts=prompts, answers=args.answers, steps=args.steps, every=args.every, policy="evaluated"
    )
    if args.resume:
        training.resume()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    own = {"HOLDFAST_GUARD_TRAINING": args.training}
    return supervise(training, Supervisor(TRAINERS[args.trainer], command, args.checkpoints, own))


if __name__ == "__main__":
    sys.exit(main())
