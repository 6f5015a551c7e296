"""The guard on a trainer that is not ours: transformers' own, with its real hooks, checkpoints and resume."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from group_trainer import GroupTrainer, trainer_of
from observed import EVERY, GUARD, Opinionated, at_step, events, moments_of, same, weights_of

import small_run
from holdfast.config.schema import AuditConfig, GuardConfig
from holdfast.control.kl import AdaptiveKL
from holdfast.errors import HoldfastError
from holdfast.interop.trl import HoldfastCallback, ensemble_reward

Made = tuple[GroupTrainer, HoldfastCallback]


@pytest.fixture
def make(prepared: Path, prompts: list[Any], tmp_path: Path) -> Callable[..., Made]:
    def made(likes: Callable[[int], bool] = lambda round: True, name: str = "out", **more: Any) -> Made:
        guard = GuardConfig(**{**GUARD, **more.pop("guard", {})})
        own = {key: more.pop(key) for key in ("controller", "refresh", "labeller") if key in more}
        reward = ensemble_reward(prepared)
        trainer = trainer_of(prepared / "reference", reward, tmp_path / name, prompts, **more)
        callback = HoldfastCallback(
            own.pop("labeller", Opinionated(likes)), every=EVERY, guard=guard,
            audit=AuditConfig(pairs=12, more_pairs=12), say=lambda line: None, **own,
        ).attach(trainer)  # fmt: skip
        return trainer, callback

    return made


@pytest.fixture
def hacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ensemble claims what nobody grants: a policy that is liked less is hacked, and not just worse."""
    small_run.claiming(monkeypatch, 0.7)


def test_a_guard_that_finds_nothing_leaves_training_alone_bit_for_bit(
    make: Callable[..., Made], prepared: Path, prompts: list[Any], tmp_path: Path
) -> None:
    guarded, callback = make()
    guarded.train()
    reward = ensemble_reward(prepared)
    alone = trainer_of(prepared / "reference", reward, tmp_path / "alone", prompts)
    reward.end_ids = frozenset(alone.eos_token_ids)
    alone.train()
    assert [row["level"] for row in events(callback, "verdict")] == ["healthy"] * 4
    assert same(weights_of(alone), weights_of(guarded))
    losses = [[row.get("loss") for row in t.state.log_history] for t in (alone, guarded)]
    assert losses[0] == losses[1]
    assert callback.host.review.good.round == 4


@pytest.mark.usefixtures("hacked")
def test_a_hack_is_rolled_back_and_something_changes(make: Callable[..., Made]) -> None:
    trainer, callback = make(lambda round: round == 1, steps=4)
    seen: dict[int, Any] = {}

    def look(step: int) -> None:
        seen[step] = {
            "weights": weights_of(trainer),
            "optimiser": moments_of(trainer),
            "rate": trainer.lr_scheduler.get_last_lr(),
            "python": random.getstate(),
            "numpy": np.random.get_state()[1].tolist(),
            "torch": torch.get_rng_state(),
        }

    at_step(trainer, look)
    trainer.train()
    (rollback,) = events(callback, "rollback")
    assert (rollback["to"], rollback["step_from"], rollback["step_to"]) == ("round-0001", 4, 2)
    good = seen[2]
    assert not same(good["weights"], seen[4]["weights"])
    assert same(good["weights"], weights_of(trainer))
    assert len(good["optimiser"]) > 20
    assert same(good["optimiser"], moments_of(trainer))
    assert trainer.lr_scheduler.get_last_lr() == good["rate"] != seen[4]["rate"]
    assert random.getstate() == good["python"]
    assert np.random.get_state()[1].tolist() == good["numpy"]
    assert torch.equal(torch.get_rng_state(), good["torch"])
    assert trainer._buffered_inputs is None
    assert trainer.beta == pytest.approx(0.1 * 2.0)
    (tightened,) = [row for row in events(callback, "action") if row["rung"] == "tighten"]
    assert (tightened["before"]["beta"], tightened["after"]["beta"]) == pytest.approx((0.1, 0.2))


def test_a_worse_policy_goes_back_with_a_lower_rate_each_time(
    make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_run.claiming(monkeypatch, 0.44)
    trainer, callback = make(lambda round: round == 1)
    rates: dict[int, tuple[float, float]] = {}
    read = lambda: (trainer.lr_scheduler.get_last_lr()[0], trainer.optimizer.param_groups[0]["lr"])  # noqa: E731
    at_step(trainer, lambda step: rates.update({step: read()}))
    trainer.train()
    assert [row["level"] for row in events(callback, "verdict")] == ["healthy", *["worse"] * 3]
    assert {row["rung"] for row in events(callback, "action")} == {"slow_down"}
    assert trainer.beta == 0.1
    # Step 3 once more with half the rate, and with half of that; the scheduler sets it anew in every step.
    assert rates[5] == pytest.approx([rate / 2 for rate in rates[3]])
    assert rates[7] == pytest.approx([rate / 4 for rate in rates[3]])


@pytest.mark.usefixtures("hacked")
def test_attempts_are_bounded_and_the_run_stops_at_its_last_good_policy(make: Callable[..., Made]) -> None:
    trainer, callback = make(lambda round: round == 1, steps=40)
    seen: dict[int, Any] = {}
    at_step(trainer, lambda step: seen.update({step: weights_of(trainer)}))
    trainer.train()
    assert len(events(callback, "rollback")) == 3, "two that are allowed, and the one with which it stops"
    assert [row["round"] for row in events(callback, "stopped")] == [4]
    assert trainer.state.global_step == 8
    assert trainer.control.should_training_stop
    assert same(seen[2], weights_of(trainer))
    betas = [row["after"]["beta"] for row in events(callback, "action") if row["rung"] == "tighten"]
    # Twice the first time and four times the second, which is how it is left.
    assert betas == pytest.approx([0.2, 0.4, 0.4])


def test_a_run_ends_with_the_policy_that_people_like_better(make: Callable[..., Made]) -> None:
    """12 losses of 12 are an alarm; 8 of 12 are none, and decide the last round all the same."""
    asked = iter(range(10_000))

    def likes(round: int) -> bool:
        return True if round < 4 else next(asked) % 12 < 4

    trainer, callback = make(likes)
    trainer.train()
    (rollback,) = events(callback, "rollback")
    assert rollback["to"] == "round-0003"
    assert "liked better" in rollback["reason"]
    assert events(callback, "verdict")[-1]["level"] != "hacking"


def test_advice_changes_nothing(make: Callable[..., Made]) -> None:
    trainer, callback = make(lambda round: round == 1, guard={"mode": "advise"})
    trainer.train()
    assert not events(callback, "rollback")
    assert "rollback" in {row["rung"] for row in events(callback, "advice")}
    assert trainer.beta == 0.1
    assert trainer.state.global_step == 8


@pytest.mark.usefixtures("hacked")
def test_resume_goes_on_as_if_there_had_been_no_break(make: Callable[..., Made]) -> None:
    """Round 3 is a hack, so that what is restored has an anchor, a ladder and a raised beta in it."""
    likes = lambda round: round != 3  # noqa: E731
    whole, unbroken = make(likes, name="whole", steps=10)
    whole.train()
    cut, _ = make(likes, name="cut", steps=10)

    def stop(step: int) -> None:
        if step == 7:
            raise KeyboardInterrupt

    at_step(cut, stop)
    with pytest.raises(KeyboardInterrupt):
        cut.train()
    saved = json.loads((Path(cut.args.output_dir) / "checkpoint-6" / "trainer_state.json").read_text())
    assert saved["stateful_callbacks"]["holdfast"]["review"]["ladder"]["rollbacks"] == 1
    resumed, callback = make(likes, name="cut", steps=10)
    resumed.train(resume_from_checkpoint=str(Path(cut.args.output_dir) / "checkpoint-6"))
    assert same(weights_of(whole), weights_of(resumed))
    assert resumed.beta == whole.beta == pytest.approx(0.2)
    ends = [made.host.state() for made in (unbroken, callback)]
    for end in ends:
        del end["tracker"]  # times are of different lengths, and one more event says that it was resumed
    assert ends[0] == ends[1]
    assert [row["round"] for row in events(callback, "verdict")] == [1, 2, 3, 4, 5]


def test_good_policies_are_there_for_every_checkpoint_that_can_be_resumed_from(make: Callable[..., Made]) -> None:
    trainer, callback = make(steps=12, save_total_limit=2)
    # As a log does when a step had nothing to average.
    at_step(trainer, lambda step: trainer.state.log_history.append({"step": step, "loss": float("nan")}))
    trainer.train()
    kept = callback.host.hands.kept
    output = Path(trainer.args.output_dir)
    assert sorted(path.name for path in output.glob("checkpoint-*")) == ["checkpoint-10", "checkpoint-12"]
    assert kept.names()[-2:] == ["round-0005", "round-0006"]
    assert len(kept.names()) <= 3, "those of checkpoints that are gone go too"
    early, _ = make(name="early", steps=6)
    early.train()
    again, resumed = make(name="early", steps=6)
    again.train(resume_from_checkpoint=str(Path(early.args.output_dir) / "checkpoint-2"))
    assert resumed.host.hands.kept.names()[-1] == "round-0003.2", "the other future's is kept beside it"


def test_a_run_that_stopped_to_ask_goes_on_when_it_is_resumed(make: Callable[..., Made]) -> None:
    trainer, _ = make(lambda round: round == 1, steps=12)
    trainer.train()
    assert trainer.state.global_step == 8
    again, callback = make(steps=12)
    again.train(resume_from_checkpoint=str(Path(trainer.args.output_dir) / "checkpoint-8"))
    assert again.state.global_step == 12
    assert not callback.host.review.stopped


def test_sides_are_shuffled(make: Callable[..., Made]) -> None:
    labeller = Opinionated(lambda round: True)
    trainer, _ = make(labeller=labeller)
    trainer.train()
    # 24 pairs in the first audit, 60 in each of three more, for the ensemble is never refreshed, 12 for the last word;
    # four standard errors are 0.14.
    assert len(labeller.policy_first) == 216
    assert 0.36 < sum(labeller.policy_first) / 216 < 0.64


@pytest.mark.usefixtures("hacked")
def test_the_ensemble_learns_from_audits_where_that_is_wanted(make: Callable[..., Made]) -> None:
    trainer, callback = make(lambda round: round == 1, steps=4, refresh=True)
    before = callback.reward(["q"], ["Yes."])
    trainer.train()
    (refresh,) = [row for row in events(callback, "refresh") if row["round"] == 2]
    assert callback.reward.ensemble.version == refresh["in_use"]
    assert refresh["trained_on"] > 12
    (hacked,) = [row for row in events(callback, "action") if row["rung"] == "adversarial"]
    assert hacked["after"]["labels"] - hacked["before"]["labels"] == 12
    if refresh["accepted"]:
        assert callback.reward(["q"], ["Yes."]) != before
    others, unmoved = make(lambda round: round == 1, name="still", steps=4)
    others.train()
    assert unmoved.reward.ensemble.version == 1
    assert not events(unmoved, "refresh")
    assert {row["rung"] for row in events(unmoved, "left_out")} == {"adversarial", "refresh"}


def test_beta_follows_the_kl(make: Callable[..., Made]) -> None:
    controller = AdaptiveKL(0.1, target=1e-4, horizon=64.0)
    trainer, _ = make(controller=controller)
    trainer.train()
    assert trainer.beta == controller.beta > 0.1
    rows = (Path(trainer.args.output_dir) / "holdfast" / "metrics.jsonl").read_text().splitlines()
    betas = [json.loads(row)["control/beta"] for row in rows]
    assert betas == sorted(betas)
    assert len(betas) == 8


def test_the_audit_is_among_the_trainers_own_metrics(make: Callable[..., Made]) -> None:
    trainer, _ = make(steps=4)
    trainer.train()
    logged = [row for row in trainer.state.log_history if "holdfast/win_rate_reference" in row]
    assert logged[0]["holdfast/win_rate_reference"] == 1.0
    assert "holdfast/evidence" in logged[0]


def test_a_step_is_read_by_the_numbers_since_the_last_one(make: Callable[..., Made]) -> None:
    """Two micro-batches, then one, then one after the trainer has logged and forgotten the others."""
    trainer, callback = make()
    logged = trainer._metrics["train"]["kl"]
    logged += [1.0, 3.0]
    assert callback._metrics() == {"kl": 2.0}
    logged.append(5.0)
    assert callback._metrics() == {"kl": 5.0}
    assert callback._metrics() == {}
    callback.on_log(trainer.args, trainer.state, trainer.control)
    logged[:] = [7.0]
    assert callback._metrics() == {"kl": 7.0}


def test_evaluation_is_no_step(make: Callable[..., Made]) -> None:
    trainer, callback = make(steps=2)
    trainer.train()
    asked = [{"prompt": "q"}], ["q"], ["Yes."], [[1, 2]]
    trainer.model.eval()
    trainer._calculate_rewards(*asked)
    assert callback._batches == []
    trainer.model.train()
    trainer._calculate_rewards(*asked)
    assert len(callback._batches) == 1


def test_what_cannot_be_guarded_is_refused(
    make: Callable[..., Made], prepared: Path, prompts: list[Any], tmp_path: Path
) -> None:
    reward = ensemble_reward(prepared)
    with pytest.raises(HoldfastError, match="sync_ref_model"):
        make(sync_ref_model=True)
    trainer, _ = make(steps=2)
    plain = trainer_of(prepared / "reference", lambda completions, **more: [0.0] * len(completions), tmp_path, prompts)
    with pytest.raises(HoldfastError, match="there is none among"):
        HoldfastCallback(lambda *texts: "a", refresh=True).attach(plain)
    plain.reward_funcs = [reward, ensemble_reward(prepared)]
    with pytest.raises(HoldfastError, match="several ensembles"):
        HoldfastCallback(lambda *texts: "a").attach(plain)
    with pytest.raises(HoldfastError, match="has no beta"):
        HoldfastCallback(lambda *texts: "a").attach(object())
    with pytest.raises(HoldfastError, match="leave the callback out"):
        HoldfastCallback(lambda *texts: "a", guard=GuardConfig(mode="off"))
    with pytest.raises(HoldfastError, match="1 or more"):
        HoldfastCallback(lambda *texts: "a", every=0)
    loose = HoldfastCallback(lambda *texts: "a")
    with pytest.raises(HoldfastError, match="call attach"):
        loose.on_train_begin(trainer.args, trainer.state, trainer.control)
    trainer.train()
    again, _ = make(steps=2)
    with pytest.raises(HoldfastError, match="an earlier run"):
        again.train()
