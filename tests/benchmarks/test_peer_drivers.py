"""What of the peers' drivers can be tried without the peers: their gates and their settings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks.speed.wire import Stopped
from benchmarks.trl.drivers import group, ppo

JOB: dict[str, Any] = {
    "directory": "/nowhere", "prompts": [[5, 6, 7]] * 16, "new_tokens": 48, "ends": False, "algorithm": "grpo",
    "samples_per_prompt": 4, "epochs": 4, "minibatches": 2, "lr": 1e-6, "beta": 0.05, "rows": 64,
}  # fmt: skip


class Line:
    """Stands in for the wire: lets so many iterations pass."""

    def __init__(self, iterations: int) -> None:
        self.left, self.reports = iterations, []  # type: int, list[dict[str, Any]]

    def wait(self) -> None:
        if self.left == 0:
            raise Stopped
        self.left -= 1

    def done(self, report: dict[str, Any]) -> None:
        self.reports.append(report)


def test_ppo_reports_an_iteration_when_the_next_batch_is_asked_for() -> None:
    line = Line(2)
    batch = {"input_ids": torch.tensor([[0, 5, 6], [5, 6, 7]]), "attention_mask": torch.tensor([[0, 1, 1], [1, 1, 1]])}
    gate = ppo.Gate(line, [batch] * 5, 1)
    answers = torch.tensor([[8, 1, 0, 0], [8, 9, 9, 9]])
    generate = gate.wrap_generation(lambda model, queries, size: (torch.cat([queries, answers], 1), size))

    def train() -> None:
        for given in gate:
            assert generate("model", given["input_ids"], 7)[1] == 7
            gate.before_update()
            gate.before_update()

    with pytest.raises(Stopped):
        train()
    assert [report["lengths"] for report in line.reports] == [[[2, 2], [3, 4]]] * 2
    for report in line.reports:
        assert report["seconds"] == pytest.approx(sum(report["phases"].values()))
        assert set(report["phases"]) == {"sample", "score", "update"}


def test_groups_report_an_iteration_when_the_next_generation_is_asked_for() -> None:
    trainer = SimpleNamespace(_generate=lambda prompts: ([[5, 6]] * 2, [[8, 1], [8, 9, 1]], "texts"))
    trainer._generate_and_score_completions = lambda inputs: trainer._generate(inputs)[2]
    line = Line(2)
    group.Gate(line, trainer)
    assert [trainer._generate_and_score_completions("prompts") for _ in range(2)] == ["texts", "texts"]
    with pytest.raises(Stopped):
        trainer._generate_and_score_completions("prompts")
    assert [report["lengths"] for report in line.reports] == [[[2, 2], [2, 3]]] * 2
    assert line.reports[0]["seconds"] == pytest.approx(sum(line.reports[0]["phases"].values()))


def test_both_trainers_are_told_the_same_work() -> None:
    of_ppo = ppo.settings(JOB)
    assert of_ppo["per_device_train_batch_size"] * of_ppo["gradient_accumulation_steps"] == len(JOB["prompts"])
    assert (of_ppo["num_ppo_epochs"], of_ppo["num_mini_batches"], of_ppo["response_length"]) == (
        4,
        2,
        48,
    )
    assert of_ppo["stop_token"] is None
    of_group = group.settings(JOB)
    assert of_group["per_device_train_batch_size"] * of_group["steps_per_generation"] == 64
    assert (
        of_group["num_iterations"],
        of_group["num_generations"],
        of_group["max_completion_length"],
    ) == (4, 4, 48)
    fewer = group.settings({**JOB, "rows": 8})
    assert (fewer["per_device_train_batch_size"], fewer["steps_per_generation"]) == (8, 8)
    assert fewer["gradient_accumulation_steps"] * 8 == 64 / JOB["minibatches"]
    for settings in (of_ppo, of_group):
        assert not settings["bf16"]
        assert not settings["gradient_checkpointing"]
        assert settings["save_strategy"] == "no"
