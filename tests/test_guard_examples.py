"""The examples of the guard over HTTP: each driven as its trainer drives it, against a server that runs.

Where verl, OpenRLHF or slime is installed, by its own code; elsewhere by stand-ins for as much of it as an example sees
of verl 0.9.1, OpenRLHF 0.11.2 and slime of August 2026 (624b824).
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import types
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.system.scripted_trainer import PROMPTS, SETTINGS, labeller_in

from guard_server import TOKEN, ServedGuard, events_of, serving_guard
from holdfast.interop.guard_client import GuardedTraining
from holdfast.models.tiny import word_tokenizer

EXAMPLES = Path(__file__).parents[1] / "examples" / "guard"
EVALUATED = {**SETTINGS, "pairs": 10, "more_pairs": 16, "policy": "evaluated"}


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedGuard]:
    with serving_guard(tmp_path / "guard", labeller_in(tmp_path)) as running:
        monkeypatch.setenv("HOLDFAST_GUARD_URL", running.address)
        monkeypatch.setenv("HOLDFAST_GUARD_TOKEN", TOKEN)
        monkeypatch.setenv("HOLDFAST_GUARD_TRAINING", "mine")
        yield running


@pytest.fixture
def training(served: ServedGuard) -> GuardedTraining:
    return served.client().training("mine", **EVALUATED)


def example(name: str) -> Any:
    """A file that is named by its path, as verl and OpenRLHF load it."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # which a dataclass in it looks itself up in
    spec.loader.exec_module(module)
    return module


def posted(served: ServedGuard) -> list[dict[str, Any]]:
    """What the server has stored of the training, answer by answer."""
    records = served.service.training("mine")._records
    rows, seq = [], 0
    while page := records.batches_after(seq):
        for batch in page:
            seq, document = batch.seq, batch.document
            for n, answer in enumerate(document["answers"]):
                parts = {name: values[n] for name, values in document["components"].items()}
                own = {name: document[name][n] for name in ("rewards", "prompts", "finished", "tokens", "logprobs")}
                rows.append({"answer": answer, "of": document.get("of", "policy"), "parts": parts, **own})
    return rows


def installed(name: str) -> bool:
    """Whether a trainer's module can be imported here."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def rewarded_by_openrlhf(file: Path, asked: Sequence[tuple[str, str, Any]]) -> list[dict[str, Any]]:
    """Lists of one, in threads, the text with its special tokens: as SingleTurnAgentExecutor does."""
    if installed("openrlhf"):
        from openrlhf.utils.agent import SingleTurnAgentExecutor

        call = SingleTurnAgentExecutor(str(file))._fetch_rewards_via_func
    else:
        reward_func = example(file.stem).reward_func

        async def call(*columns: Any) -> list[dict[str, Any]]:
            return [await asyncio.to_thread(reward_func, *columns)]

    async def called() -> list[list[dict[str, Any]]]:
        return await asyncio.gather(*(call([query], [prompt], [label]) for query, prompt, label in asked))

    return [each for one in asyncio.run(called()) for each in one]


def test_openrlhf_calls_the_function_with_one_answer_in_many_threads(
    served: ServedGuard, training: GuardedTraining
) -> None:
    prompts = [f"<|im_start|>user\n{p}<|im_end|>\n<|im_start|>assistant\n" for p in [*PROMPTS[:6], "When is noon?"]]
    asked = [(f"{prompt}noon ferry<|im_end|>", prompt, "noon") for prompt in prompts[:-1]]
    told = rewarded_by_openrlhf(
        EXAMPLES / "openrlhf_guard.py", [*asked, (f"{prompts[-1]}cut off", prompts[-1], "noon")]
    )
    assert all(
        each["rewards"].shape == each["scores"].shape == each["extra_logs"]["guard_alarm"].shape for each in told
    )
    assert float(told[0]["rewards"]) == pytest.approx(1.0 - 0.002)
    rows = posted(served)
    assert sorted((row["of"], row["answer"], row["finished"]) for row in rows) == [
        *[("evaluation", "noon ferry", True)] * 6, ("policy", "cut off", False),
    ]  # fmt: skip
    assert {row["prompts"] for row in rows if row["of"] == "evaluation"} == set(PROMPTS[:6])
    assert rows[0]["parts"].keys() == {"correct", "brief"}


class SampleStatus(Enum):
    COMPLETED = "completed"
    TRUNCATED = "truncated"


@dataclass
class SlimeSample:
    """As much of slime's Sample as its hooks are given."""

    prompt: Any
    response: str
    label: str | None = None
    reward: Any = None
    response_length: int = 0
    rollout_log_probs: list[float] | None = None
    status: Any = SampleStatus.COMPLETED
    metadata: dict[str, Any] = field(default_factory=dict)

    Status = SampleStatus


def slimes() -> tuple[Any, Any]:
    """Its Sample, and what it asks for a reward with."""
    if installed("slime.utils.types"):
        from slime.rollout.rm_hub import async_rm
        from slime.utils.types import Sample

        return Sample, async_rm

    async def async_rm(args: Any, sample: Any) -> float:
        module, _, name = args.custom_rm_path.rpartition(".")
        reward: float = await getattr(importlib.import_module(module), name)(args, sample)
        return reward

    return SlimeSample, async_rm


def test_slime_posts_rollouts_and_evaluations(
    served: ServedGuard, training: GuardedTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "slime_guard", guard := example("slime_guard"))
    kind, async_rm = slimes()

    def sample(prompt: str, response: str, status: str = "COMPLETED", **more: Any) -> Any:
        own = {"label": "noon", "response_length": 2, "rollout_log_probs": [-0.5, -0.25]}
        return kind(prompt=prompt, response=response, status=kind.Status[status], **own, **more)

    groups = [[sample(PROMPTS[0], "noon ferry"), sample(PROMPTS[0], "ferry", "TRUNCATED")]]
    flat, args = [one for group in groups for one in group], Namespace(custom_rm_path="slime_guard.custom_rm")

    async def scored() -> None:
        for one in flat:
            one.reward = await async_rm(args, one)

    asyncio.run(scored())
    assert [one.reward for one in flat] == pytest.approx([0.998, -0.001])
    for _ in range(2):  # a rollout that is logged again is stored once
        assert guard.log_rollout(6, args, flat, {}, 1.0) is False
    audited = [sample(f"<|user|>{PROMPTS[3]}<|assistant|>", "noon", metadata={"components": {"correct": 1.0}})]
    assert guard.log_evaluation(6, args, {"audits": {"rewards": [1.0], "samples": audited}}) is False
    assert posted(served) == [
        {"answer": "noon ferry", "of": "policy", "parts": {"correct": 1.0, "brief": -0.002}, "rewards": 0.998,
         "prompts": PROMPTS[0], "finished": True, "tokens": 2, "logprobs": -0.75},
        {"answer": "ferry", "of": "policy", "parts": {"correct": 0.0, "brief": -0.001}, "rewards": -0.001,
         "prompts": PROMPTS[0], "finished": False, "tokens": 2, "logprobs": -0.75},
        {"answer": "noon", "of": "evaluation", "parts": {"correct": 1.0}, "rewards": 1.0, "prompts": PROMPTS[3],
         "finished": True, "tokens": 2, "logprobs": -0.75},
    ]  # fmt: skip


class VerlItem:
    """One row of verl's DataProto, which gives itself for each slice and place of it."""

    def __init__(self, batch: Any, non_tensor_batch: Any) -> None:
        self.batch, self.non_tensor_batch = {name: values[0] for name, values in batch.items()}, {}
        for name, values in non_tensor_batch.items():
            self.non_tensor_batch[name] = values[0]

    def __getitem__(self, place: Any) -> VerlItem:
        return self


class VerlManager:
    """verl's NaiveRewardManager, as far as its subclass sees it."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **other: Any) -> None:
        self.tokenizer, self.compute_score, self.loop = tokenizer, compute_score, asyncio.get_running_loop()

    async def run_single(self, data: Any) -> dict[str, Any]:
        result = self.compute_score(None, None, None)
        return {"reward_score": result["score"], "reward_extra_info": dict(result)}


def verls(monkeypatch: pytest.MonkeyPatch, reward: Path) -> tuple[Any, Any]:
    """What makes a row of a batch, and what loads the reward manager."""
    if installed("verl"):
        from omegaconf import OmegaConf
        from tensordict import TensorDict
        from verl import DataProto
        from verl.trainer.ppo.reward import load_reward_manager

        own = {"path": str(reward), "name": "compute_score", "reward_kwargs": {}}
        file = {"path": str(EXAMPLES / "verl_guard.py")}
        manager = {"source": "importlib", "name": "GuardedRewardManager", "module": file}
        config = OmegaConf.create({"reward": {"custom_reward_function": own, "reward_manager": manager}})
        row = lambda batch, other: DataProto(batch=TensorDict(batch, batch_size=1), non_tensor_batch=other)  # noqa: E731
        return row, lambda tokenizer: load_reward_manager(config, tokenizer, reward_router_address=None)
    for name, known in (
        ("verl", {"DataProto": VerlItem}),
        ("verl.experimental.reward_loop.reward_manager.naive", {"NaiveRewardManager": VerlManager}),
    ):
        module = types.ModuleType(name)
        vars(module).update(known)
        monkeypatch.setitem(sys.modules, name, module)
    scope: dict[str, Any] = {}
    exec(reward.read_text(), scope)
    kind = example("verl_guard").GuardedRewardManager
    return VerlItem, lambda tokenizer: kind(None, tokenizer, scope["compute_score"])


def test_verls_manager_posts_what_it_returns(
    served: ServedGuard, training: GuardedTraining, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reward = tmp_path / "my_reward.py"
    reward.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return {'score': 1.5, 'tone': 0.5}\n"
    )
    row, load = verls(monkeypatch, reward)
    tokenizer = word_tokenizer(["noon ferry"])
    words = tokenizer("noon ferry")["input_ids"]

    def answered(prompt: str, ids: list[int]) -> Any:
        mask = torch.tensor([[*[1] * (4 + len(ids)), 0, 0]])
        batch = {
            "prompts": torch.ones(1, 4, dtype=torch.int64),
            "responses": torch.tensor([[*ids, 0, 0]]),
            "attention_mask": mask,
        }
        other = {
            "data_source": "x",
            "reward_model": {"ground_truth": ""},
            "extra_info": {},
            "tool_extra_fields": {},
            "__num_turns__": 1,
        }
        columns = {name: np.array([value], dtype=object) for name, value in other.items()}
        columns["raw_prompt"] = np.empty(1, dtype=object)
        columns["raw_prompt"][0] = [{"role": "user", "content": prompt}]
        return row(batch, columns)

    async def managed() -> list[dict[str, Any]]:
        manager = load(tokenizer)
        items = [
            answered("another question", [*words, tokenizer.eos_token_id]),
            *(answered(p, words) for p in PROMPTS[:5]),
        ]
        return await asyncio.gather(*(manager.run_single(item) for item in items))

    told = asyncio.run(managed())
    assert [each["reward_score"] for each in told] == [1.5] * 6
    rows = sorted(posted(served), key=lambda row: row["of"], reverse=True)
    assert [row["of"] for row in rows] == ["policy"] + ["evaluation"] * 5
    assert (rows[0]["prompts"], rows[0]["finished"], rows[0]["tokens"], rows[0]["answer"]) == (
        [{"role": "user", "content": "another question"}], True, 3, "noon ferry",
    )  # fmt: skip
    assert rows[0]["parts"] == {"tone": 0.5}
    assert {row["prompts"] for row in rows[1:]} == set(PROMPTS[:5]), "as the training began with them"
    assert not any(row["finished"] for row in rows[1:])


def test_a_hacked_trainer_that_is_a_command_is_taken_back_and_started_again(
    served: ServedGuard, tmp_path: Path
) -> None:
    prompts, checkpoints = tmp_path / "audits.jsonl", tmp_path / "checkpoints"
    checkpoints.mkdir()
    prompts.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS))
    served.client().training("mine", **{**EVALUATED, "steps": 20})
    supervise = example("supervise")
    words = [sys.executable, str(Path(__file__).parent / "guarded_trainer.py"), str(checkpoints)]
    supervisor = supervise.Supervisor(
        supervise.TRAINERS["verl"], words, checkpoints,
        {"HOLDFAST_GUARD_TRAINING": "mine", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert supervise.supervise(served.client().training("mine"), supervisor, 0.05) == 0
    written = tmp_path / "guard" / "mine"
    assert events_of(written, "verdict")[0]["level"] == "hacking"
    (rollback,) = events_of(written, "rollback")
    assert rollback["reported"]["after"]["begins at"]["step"] == 0
    assert supervisor.starts == 2
    name = "actor_rollout_ref.actor.kl_loss_coef"
    (tightened,) = [event for event in events_of(written, "action") if event["rung"] == "tighten"]
    assert (tightened["before"], tightened["after"]) == ({name: None}, {name: 0.001})
    assert json.loads((checkpoints / "end").read_text()) == [20, 0.0, 0.001], "it ends where people liked it"


def test_how_each_trainer_is_told_where_to_begin(tmp_path: Path) -> None:
    supervise = example("supervise")
    verl, openrlhf, slime = (supervise.TRAINERS[name] for name in ("verl", "openrlhf", "slime"))
    (tmp_path / "_actor").mkdir()
    to, start = {"step": 40, "checkpoint": None}, {"step": 0}
    assert verl.back(tmp_path, to)[1] == f"trainer.resume_from_path={tmp_path}/global_step_40"
    assert verl.back(tmp_path, start) == ["trainer.resume_mode=disable"]
    assert openrlhf.back(tmp_path, to) == ["--ckpt.load_enable"]
    assert (tmp_path / "_actor" / "latest").read_text() == "global_step40"
    assert openrlhf.back(tmp_path, start) == []
    # slime's rollout 39 is the fortieth.
    assert slime.back(tmp_path, to) == ["--load", str(tmp_path), "--ckpt-step", "39"]
    words = ["train", "--algo.kl.init_coef", "0.01", "--actor.adam.lr", "1e-6"]
    assert openrlhf.value(words, openrlhf.beta) == 0.01
    assert openrlhf.given(words, openrlhf.beta, 0.015)[-2:] == ["--algo.kl.init_coef", "0.015"]
    supervisor = supervise.Supervisor(openrlhf, words, tmp_path, {})
    slower = supervisor.act({"do": "slow_down", "factor": 0.5})
    assert slower == {"before": {"--actor.adam.lr": 1e-6}, "after": {"--actor.adam.lr": 5e-7}}
    assert supervisor.act({"do": "tighten", "factor": 1.5})["after"] == {"--algo.kl.init_coef": pytest.approx(0.015)}
    unknown = supervise.Supervisor(slime, ["train"], tmp_path, {})
    assert unknown.act({"do": "slow_down", "factor": 0.5}) is None, "what the rate was is not known here"
    subprocess.run([sys.executable, str(EXAMPLES / "supervise.py"), "--help"], check=True, capture_output=True)
