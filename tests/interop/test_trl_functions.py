"""The guard over any reward functions of a trainer's, at beta 0: what it sees, claims, finds, and does about it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from group_trainer import GroupTrainer, trainer_of
from observed import EVERY, GUARD, Opinionated, at_step, events, same, weights_of
from peft import LoraConfig, get_peft_model

from holdfast.config.schema import AuditConfig, GuardConfig
from holdfast.interop.trl import HoldfastCallback
from holdfast.interop.trl.assembly import Assembly
from holdfast.interop.trl.readings import FunctionsReading, distinct
from holdfast.preferences.pair import Pair

Made = tuple[GroupTrainer, HoldfastCallback]


def words(completions: Any, **columns: Any) -> list[float]:
    return [float(len(text_of(each).split())) for each in completions]


def short(completions: Any, **columns: Any) -> list[float | None]:
    """An answer of one word cannot be scored."""
    return [None if len(text_of(each).split()) < 2 else -0.1 * len(text_of(each)) for each in completions]


def text_of(completion: Any) -> str:
    return str(completion if isinstance(completion, str) else completion[0]["content"])


@pytest.fixture
def make(prepared: Path, prompts: list[Any], tmp_path: Path) -> Callable[..., Made]:
    def made(
        likes: Callable[[int], bool] = lambda round: True, functions: Any = (words,), name: str = "out", **more: Any
    ) -> Made:
        own = {key: more.pop(key) for key in ("controller", "refresh", "labeller", "prompts") if key in more}
        trainer = trainer_of(prepared / "reference", list(functions), tmp_path / name, prompts, **{"beta": 0.0, **more})
        callback = HoldfastCallback(
            own.pop("labeller", Opinionated(likes)), every=EVERY, guard=GuardConfig(**GUARD),
            audit=AuditConfig(pairs=12, more_pairs=12), say=lambda line: None, **own,
        ).attach(trainer)  # fmt: skip
        return trainer, callback

    return made


def test_a_guard_that_finds_nothing_leaves_training_alone_bit_for_bit(
    make: Callable[..., Made], prepared: Path, prompts: list[Any], tmp_path: Path
) -> None:
    guarded, callback = make(learning_rate=0.003)
    guarded.train()
    alone = trainer_of(prepared / "reference", [words], tmp_path / "alone", prompts, beta=0.0, learning_rate=0.003)
    alone.train()
    assert [row["level"] for row in events(callback, "verdict")] == ["healthy"] * 4
    assert same(weights_of(alone), weights_of(guarded))
    assert guarded.ref_model is None
    (baselines,) = events(callback, "baselines")
    assert set(baselines["left_out"].values()) >= {"several members", "features of a reward model"}
    assert "signal/saturation" in baselines["signals"]


def test_a_hack_is_named_and_rolled_back_and_beta_is_switched_on(make: Callable[..., Made]) -> None:
    trainer, callback = make(lambda round: round != 2, functions=(words, short), steps=8, learning_rate=0.02)
    beginning = weights_of(trainer)
    seen: dict[int, Any] = {}
    at_step(trainer, lambda step: seen.update({step: (weights_of(trainer), trainer.beta)}))
    trainer.train()
    (rollback,) = events(callback, "rollback")
    assert (rollback["to"], rollback["step_from"], rollback["step_to"]) == ("round-0001", 4, 2)
    (verdict,) = [row for row in events(callback, "verdict") if row["level"] == "hacking"]
    assert "while the reward was higher for the policy" in verdict["sentence"]
    assert "the reward function 'words' gained" in verdict["sentence"]
    held = {row["rung"]: row for row in events(callback, "action")}
    assert (held["tighten"]["before"]["beta"], held["tighten"]["after"]["beta"]) == (0.0, pytest.approx(0.04 * 2.0))
    assert held["discount"]["before"]["weights"] == {"words": 1.0, "short": 1.0}
    assert held["discount"]["after"]["weights"] == {"words": 0.25, "short": 1.0}
    assert trainer.reward_weights.tolist() == [0.25, 1.0]
    # From then on the trainer holds the policy to where it began, and tells the KL itself.
    assert trainer.beta == pytest.approx(0.08)
    assert [beta for _, beta in seen.values()] == pytest.approx([0.0] * 4 + [0.08] * 4)
    reference = dict(trainer.ref_model.named_parameters())
    assert same(beginning, {name: p.detach() for name, p in reference.items()})
    assert not any(p.requires_grad for p in reference.values())
    rows = [
        json.loads(row) for row in (Path(trainer.args.output_dir) / "holdfast/metrics.jsonl").read_text().splitlines()
    ]
    assert ["objective/kl" in row for row in rows] == [False, True] * 2 + [True] * 4


def test_resume_goes_on_as_if_there_had_been_no_break(make: Callable[..., Made]) -> None:
    """Round 2 is a hack, so that what is restored has an anchor, a beta from 0, weights and a scale in it."""
    likes, both = (lambda round: round != 2), (words, short)
    whole, unbroken = make(likes, functions=both, name="whole", steps=8, learning_rate=0.02)
    whole.train()
    assert whole.beta > 0.0
    cut, _ = make(likes, functions=both, name="cut", steps=8, learning_rate=0.02)

    def stop(step: int) -> None:
        if step == 7:
            raise KeyboardInterrupt

    at_step(cut, stop)
    with pytest.raises(KeyboardInterrupt):
        cut.train()
    resumed, callback = make(likes, functions=both, name="cut", steps=8, learning_rate=0.02)
    resumed.train(resume_from_checkpoint=str(Path(cut.args.output_dir) / "checkpoint-6"))
    assert same(weights_of(whole), weights_of(resumed))
    assert resumed.beta == whole.beta
    assert resumed.reward_weights.tolist() == whole.reward_weights.tolist() != [1.0, 1.0]
    ends = [made.host.state() for made in (unbroken, callback)]
    for end in ends:
        del end["tracker"]  # times are of different lengths, and one more event says that it was resumed
    assert ends[0] == ends[1]
    assert len(ends[0]["review"]["scale"]["pairs"]) > 30


def test_kl_is_that_of_the_last_batch_to_the_beginning(make: Callable[..., Made]) -> None:
    trainer, callback = make(steps=2)
    batches: list[Any] = []
    at_step(trainer, lambda step: batches.append(callback._hands.newest))  # type: ignore[union-attr]
    beginning = weights_of(trainer)
    trainer.train()
    rows = (Path(trainer.args.output_dir) / "holdfast/metrics.jsonl").read_text().splitlines()
    prompts, answers = batches[-1]

    def told(weights: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        trainer.model.load_state_dict(weights, strict=False)
        out = []
        for prompt, ids in zip(prompts, answers, strict=True):
            asked = trainer.processing_class.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)
            row = asked["input_ids"]
            with torch.no_grad():
                logits = trainer.model.eval()(torch.tensor([[*row, *ids]])).logits[0, len(row) - 1 : -1].double()
            out.append(logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None])[:, 0])
        return out

    now = weights_of(trainer)
    r = torch.cat(told(now)) - torch.cat(told(beginning))
    kl_token = float((torch.expm1(-r) + r).mean())
    mean_length = sum(map(len, answers)) / len(answers)
    assert json.loads(rows[-1])["objective/kl"] == pytest.approx(kl_token * mean_length, rel=1e-3)
    assert kl_token > 1e-4


def test_without_memory_the_beginnings_answers_are_kept(
    make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.interop.trl.assembly.available", lambda: 1000)
    monkeypatch.setattr("holdfast.interop.trl.assembly.KEPT_PROMPTS", 5)
    trainer, callback = make(lambda round: round == 1, steps=6)
    trainer.train()
    host = callback.host
    assert not host.reference.there
    assert len(host.answers.places) == 5
    kept = {tuple(one.ids) for each in host.answers.beginning.values() for one in each}
    drawn = host.sample(host.reference, [list(ids) for ids in host.answers.places], torch.Generator().manual_seed(1))
    assert {tuple(ids) for ids in drawn.responses} <= kept
    assert events(callback, "rollback")
    # Nothing to hold the policy to: the learning rate is lowered instead, by the same factor.
    (change,) = [row for row in events(callback, "action") if row["rung"] == "tighten"][:1]
    assert change["words"] == "beta cannot be raised from 0 here, so the learning rate is lowered"
    assert change["after"]["lr"] == pytest.approx(change["before"]["lr"] / 2.0)
    assert trainer.beta == 0.0
    again, resumed = make(steps=8)
    again.train(resume_from_checkpoint=str(Path(trainer.args.output_dir) / "checkpoint-4"))
    assert resumed.host.answers.beginning == host.answers.beginning


def test_adapters_need_no_second_copy_of_the_model(make: Callable[..., Made]) -> None:
    trainer, callback = make(lambda round: round == 1, steps=4)
    trainer.model = trainer.model_wrapped = get_peft_model(
        trainer.model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"])
    )
    trainer.train()
    host = callback.host
    assert not host.reference.kept
    assert all("lora_" in name for name in host.anchor.kept)
    (rollback,) = events(callback, "rollback")
    assert rollback["step_to"] == 2
    assert trainer.beta > 0.0
    assert trainer.ref_model is None


def test_what_functions_give_is_read_by_name_and_weight(make: Callable[..., Made]) -> None:
    """Weights 2 and 0.5: rewards 1, None and 1e30, and 4, 8 and NaN."""
    trainer, callback = make(functions=(words, short), steps=2)
    trainer.train()
    reading = callback.host.reading
    assert isinstance(reading, FunctionsReading)
    trainer.reward_weights = torch.tensor([2.0, 0.5])
    rollout = reading.read(["q"] * 3, ["a", "b", "c"], [[5, 1], [6], [7, 1]])
    scored = reading.of_batch(rollout, torch.tensor([[1.0, 4.0], [math.nan, 8.0], [1e30, math.nan]]))
    assert scored.given_B is not None
    assert scored.given_B.tolist()[:2] == [4.0, 4.0]
    assert scored.given_B.isnan().tolist() == [False, False, True]
    assert scored.components["short"].tolist()[:2] == [4.0, 8.0]
    assert scored.unscored == {2: "the reward gave 1e+30, beyond any score (1e+06)"}
    assert scored.metrics()["reward/unscored"] == pytest.approx(1 / 3)
    assert distinct(["f", "g", "f"]) == ["f.1", "g", "f.2"]


def test_pairs_are_scored_by_the_trainers_own_functions_with_their_columns(
    make: Callable[..., Made], prompts: list[Any]
) -> None:
    asked: list[Any] = []

    def exact(completions: Any, answer: list[str], log_metric: Any, **columns: Any) -> list[float]:
        asked.append((columns["prompts"], answer))
        log_metric("asked", 1.0)
        return [float(text_of(c) == a) for c, a in zip(completions, answer, strict=True)]

    rows = [{"prompt": prompt, "answer": f"answer {n}"} for n, prompt in enumerate(prompts)]
    trainer, callback = make(functions=(exact,), steps=2, prompts=rows[:3])
    trainer.train_dataset = rows
    trainer.train()
    host = callback.host
    keys = [list(ids) for ids in host.answers.places]
    tokenizer = trainer.processing_class
    right, wrong = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("open", "noon"))
    callback._hands.rows[1] = {**rows[1], "answer": tokenizer.decode(right, skip_special_tokens=True)}  # type: ignore[union-attr]
    asked.clear()
    logged = dict(trainer._pending_metrics)
    told = host.reading.claimant.told([Pair(keys[1], right, wrong, 0.5, 0), Pair(keys[0], right, wrong, 0.5, 0)])  # type: ignore[attr-defined]
    assert [each.margin for each in told] == [1.0, 0.0]
    assert asked == [([prompts[1]] * 2 + [prompts[0]] * 2, [callback._hands.rows[1]["answer"]] * 2 + ["answer 0"] * 2)]  # type: ignore[union-attr]
    assert trainer._pending_metrics == logged, "an audit is no step of training"


def test_one_function_alone_cannot_be_weighed_down(make: Callable[..., Made]) -> None:
    trainer, callback = make(lambda round: round == 1, steps=4)
    trainer.train()
    assert trainer.reward_weights.tolist() == [1.0]
    assert callback.host.discount("words", 0.5) is None


def test_a_reward_of_numbers_claims_nothing_before_audits_say_what_it_is_worth(make: Callable[..., Made]) -> None:
    trainer, callback = make(steps=6)
    trainer.train()
    learnt = events(callback, "claims_learnt")
    assert [row["audits"] for row in learnt] == sorted(row["audits"] for row in learnt)
    first, *_ = events(callback, "audit")
    assert first["claimed_by"] == "the reward"
    assert isinstance(callback._assembly, Assembly)
