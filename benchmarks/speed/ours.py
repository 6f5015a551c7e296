"""Our side: one PPO step, put together and taken as `Learner.step` does it, alone or as a driver.

python -m benchmarks.speed.ours JOB       JOB is JSON: the keys of `Job`
"""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from benchmarks.speed.cases import SAMPLES, Algorithm, Critic
from benchmarks.speed.wire import Moment, Wire, now, report, serve
from benchmarks.speed.workload import Workload
from holdfast.config import Config
from holdfast.models.batches import MicroBatch
from holdfast.models.codec import Codec
from holdfast.models.load import load_causal_lm
from holdfast.models.policy import Policy
from holdfast.models.reward_model import CriticModel, trunk_of
from holdfast.randomness import Streams
from holdfast.reward.ensemble import Ensemble
from holdfast.reward.source import RewardSource
from holdfast.reward.standalone import build_ensemble
from holdfast.rollout.sampler import Rollout, sample
from holdfast.run.answers import sampling_of
from holdfast.run.inputs import choose_threads, set_up_torch
from holdfast.track.memory import memory
from holdfast.train.ppo import PPO, Experience, experience_of, response_values

# No token has this number, so an answer with it as its end never ends.
NO_END = -1


@dataclass(frozen=True)
class Job:
    """The work of an iteration, the same for every side."""

    directory: str
    prompts: list[list[int]]
    new_tokens: int
    ends: bool
    algorithm: Algorithm = "ppo"
    critic: Critic = "head"
    samples_per_prompt: int = 1
    members: int = 1
    epochs: int = 4
    minibatches: int = 1
    # Small enough that no side's answers change their length while they are being timed.
    lr: float = 1e-6
    beta: float = 0.05
    # Rows that a peer passes through its model at once; we choose for ourselves, by tokens.
    rows: int = SAMPLES
    fast: bool = True

    @classmethod
    def on(cls, workload: Workload, **more: Any) -> Job:
        return cls(str(workload.directory), workload.prompts, workload.new_tokens, workload.ends, **more)

    def with_defaults(self, config: Config) -> Job:
        """The step of a run that changes no setting, instead of one that others do as well."""
        return replace(
            self, epochs=config.ppo.epochs, minibatches=config.ppo.minibatches, members=config.reward.members
        )


def command_of(job: Job) -> list[str]:
    """How to start our driver."""
    return [sys.executable, "-m", "benchmarks.speed.ours", json.dumps(asdict(job))]


def config_of(job: Job) -> Config:
    """Our defaults, but for what both sides have to share."""
    base = Config()
    return replace(
        base,
        policy=replace(base.policy, critic=job.critic, fast=job.fast),
        rollout=replace(base.rollout, max_new_tokens=job.new_tokens),
        reward=replace(base.reward, members=job.members, pooling="last"),
        ppo=replace(
            base.ppo, batch=len(job.prompts), samples_per_prompt=job.samples_per_prompt, epochs=job.epochs,
            minibatches=job.minibatches, advantage="gae" if job.algorithm == "ppo" else job.algorithm, lr=job.lr,
        ),
        kl=replace(base.kl, beta=job.beta, **GROUP_KL.get(job.algorithm, {})),
    )  # fmt: skip


# As GRPO has it: the KL is in the loss, by the third estimator.
GROUP_KL: dict[str, dict[str, Any]] = {"grpo": {"placement": "loss", "estimator": "k3"}}


@dataclass
class Ours:
    """What `Learner.step` works with, and nothing else."""

    config: Config
    codec: Codec
    eos_id: int
    prompts: list[list[int]]
    policy: Policy
    reference: Policy
    ppo: PPO
    rewarding: RewardSource
    threads: int
    streams: Streams = field(default_factory=lambda: Streams(0))
    moments: list[Moment] = field(default_factory=list)

    def step(self) -> Rollout:
        """One iteration; `moments` are its start and the ends of its phases."""
        self.moments = [now()]
        rollout = self.sample()
        self.moments.append(now())
        experience, batches = self.score(rollout)
        self.moments.append(now())
        self.learn(experience, batches)
        self.moments.append(now())
        return rollout

    def sample(self) -> Rollout:
        rows = [p for p in self.prompts for _ in range(self.config.ppo.samples_per_prompt)]
        return sample(
            self.policy, rows, sampling_of(self.config), self.eos_id, self.codec.pad_id, self.streams["rollout"]
        )

    def score(self, rollout: Rollout) -> tuple[Experience, list[MicroBatch]]:
        batches = self.ppo.batches(rollout)
        reference_BT = response_values(self.reference, rollout, batches, self.config.rollout.temperature)
        values_BT = self.ppo.values(rollout, batches)
        verdict = self.rewarding.reward(rollout, self.streams["shaping"])
        beta, ppo, kl = self.config.kl.beta, self.config.ppo, self.config.kl
        return experience_of(rollout, reference_BT, values_BT, verdict.rewards_B, beta, ppo, kl), batches

    def learn(self, experience: Experience, batches: list[MicroBatch]) -> None:
        self.ppo.learn(experience, batches, self.config.kl.beta, self.config.ppo.lr, self.streams["minibatches"])

    def update(self, experience: Experience) -> None:
        """The epochs alone, without the copy that a bad number is taken back from and the measure of the move."""
        self.ppo.update(experience, self.config.kl.beta, self.config.ppo.lr, self.streams["minibatches"])


def put_together(job: Job, config: Config) -> Ours:
    """Our side of a job, with the models in its directory."""
    set_up_torch(config)
    lm, codec = load_causal_lm(Path(job.directory) / "policy")
    ensemble = build_ensemble(config, lm, codec)
    given = load_file(Path(job.directory) / "reward" / "model.safetensors")
    for member in ensemble.members:
        member.trunk.load_state_dict({k.removeprefix("model."): v for k, v in given.items() if k.startswith("model.")})
        with torch.no_grad():
            member.head.weight.copy_(given["score.weight"])
    ensemble.means, ensemble.sds = (0.0,) * len(ensemble.members), (1.0,) * len(ensemble.members)
    return assembled(lm, codec, ensemble, config, job.prompts, job.ends)


def assembled(lm: Any, codec: Codec, ensemble: Ensemble, config: Config, prompts: list[list[int]], ends: bool) -> Ours:
    """As `assembly.build_loop` puts a loop together, without its run directory."""
    threads = choose_threads(config, lm)
    fast, gae = config.policy.fast, config.ppo.advantage == "gae"
    policy = Policy(copy.deepcopy(lm), value_head=gae and config.policy.critic == "head", fast=fast)
    critic = CriticModel(trunk_of(lm), fast) if gae and config.policy.critic == "model" else None

    def no_reference_answers(prompts: list[list[int]], rng: torch.Generator) -> Rollout:
        raise NotImplementedError("rewards are not shaped against reference answers here")

    ppo = PPO(
        policy, critic, config.ppo, config.kl, config.rollout.temperature, config.policy.micro_batch_tokens,
        codec.pad_id, config.rollout.max_new_tokens,
    )  # fmt: skip
    return Ours(
        config, codec, codec.eos_id if ends else NO_END, prompts, policy, Policy(lm, fast=fast), ppo,
        RewardSource(ensemble, config.reward, no_reference_answers), threads,
    )  # fmt: skip


def drive(job: Job) -> None:
    """Answer the benchmark until it says stop."""
    wire = Wire()
    imported = memory()
    ours = put_together(job, config_of(job))
    wire.ready({"threads": ours.threads, "memory_imported": imported, "memory_loaded": memory(), "job": asdict(job)})
    while True:
        wire.wait()
        rollout = ours.step()
        lengths = [[len(p), len(r)] for p, r in zip(rollout.prompts, rollout.responses, strict=True)]
        wire.done(report(ours.moments, lengths))


if __name__ == "__main__":
    serve(lambda job: drive(Job(**job)))
