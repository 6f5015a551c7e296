"""What works on the built-in policy works on a user's own model: four architectures, the whole program.

Shapes: B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import small_run
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli.main import main
from holdfast.control.plateau import Plateau
from holdfast.models.batches import micro_batches
from holdfast.models.codec import Codec
from holdfast.models.load import load_causal_lm
from holdfast.models.policy import Policy
from holdfast.preferences.store import PreferenceStore
from holdfast.rollout.choice import Sampling
from holdfast.rollout.sampler import Rollout, sample
from holdfast.train.ppo import response_values
from holdfast.worlds.concierge import Concierge
from model_directories import MAKERS
from small_run import events_of, rows_of

# A fresh byte-level model knows no words: a short fine-tuning, answers of a few tokens, prompts that fit.
CHANGES = {"run__rounds": "1", "run__steps_per_round": "2", "rollout__max_new_tokens": "10"}
ROWS = 12


@pytest.fixture(scope="module", params=MAKERS)
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def directory(architecture: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MAKERS[architecture](tmp_path_factory.mktemp(architecture) / "model")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MAKERS["llama"](tmp_path_factory.mktemp("llama") / "model")


def test_a_whole_round_with_report_and_export(directory: Path, tmp_path: Path) -> None:
    run = small_run.run(tmp_path, "--policy", str(directory), **CHANGES)
    assert len(rows_of(run / "metrics.jsonl")) == 2
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert "<html" in (tmp_path / "page.html").read_text()
    out = tmp_path / "exported"
    assert main(["export", str(run), str(out)]) == 0
    check_exported(out, run, directory)


def check_exported(out: Path, run: Path, directory: Path) -> None:
    """The exported directory is the newest checkpoint's policy, in the form it was given in."""
    model, told = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(told.values()), told
    saved = CheckpointStore(run / "checkpoints").load("round-0001").tensors["policy"]
    loaded = model.state_dict()
    assert {f"lm.{name}" for name in loaded} == {name for name in saved if name.startswith("lm.")}
    assert all(torch.equal(loaded[name], saved[f"lm.{name}"]) for name in loaded)
    before = AutoModelForCausalLM.from_pretrained(directory).state_dict()
    assert any(not torch.equal(loaded[name], before[name]) for name in loaded)
    given, kept = AutoTokenizer.from_pretrained(directory), AutoTokenizer.from_pretrained(out)
    text = "Hello, is there parking?"
    assert kept(text)["input_ids"] == given(text)["input_ids"]
    assert kept.chat_template == given.chat_template
    assert "round-0001" in (out / "README.md").read_text()


@dataclass(frozen=True)
class Drawn:
    """Answers to prompts of different lengths, by a policy whose rows end at different times."""

    policy: Policy
    codec: Codec
    prompts: list[list[int]]
    eos_id: int

    def sample(self, rows: int = ROWS, eos_id: int | None = None) -> Rollout:
        rng = torch.Generator().manual_seed(5)
        end = self.eos_id if eos_id is None else eos_id
        return sample(self.policy, self.prompts[:rows], Sampling(40), end, self.codec.pad_id, rng)


@pytest.fixture(scope="module")
def drawn(directory: Path) -> Drawn:
    lm, codec = load_causal_lm(directory)
    world = Concierge(0, prompts=ROWS, demonstrations=0, heldout=1)
    endless = Drawn(Policy(lm), codec, [codec.encode_prompt(p) for p in world.prompts()], eos_id=-1)
    assert len({len(p) for p in endless.prompts}) > 3
    # Random weights hardly ever say the real end; the token they like best ends rows at different times.
    favourite = Counter(token for r in endless.sample().responses for token in r).most_common(1)[0][0]
    return replace(endless, eos_id=favourite)


def test_logprobs_of_sampling_are_those_of_a_plain_forward(drawn: Drawn, architecture: str) -> None:
    rollout = drawn.sample()
    assert drawn.policy.plain_head is (architecture != "gemma2")
    assert len(set(rollout.lengths)) > 3
    for row, (prompt, response) in enumerate(zip(rollout.prompts, rollout.responses, strict=True)):
        with torch.no_grad():
            logits_TV = drawn.policy.lm(torch.tensor([prompt + response])).logits[0]
        logprobs_TV = torch.log_softmax(logits_TV, -1)[len(prompt) - 1 : -1]
        plain_T = logprobs_TV.gather(-1, torch.tensor(response)[:, None]).squeeze(-1)
        torch.testing.assert_close(rollout.logprobs_BT[row, : len(response)], plain_T, atol=1e-4, rtol=0.0)


def test_the_update_sees_the_logprobs_of_sampling(drawn: Drawn) -> None:
    """PPO's ratio is 1 before the first update, whatever padding the two passes had."""
    rollout = drawn.sample()
    batches = micro_batches(rollout.prompts, rollout.responses, range(ROWS), drawn.codec.pad_id, 300)
    assert len(batches) > 2
    update_BT = response_values(drawn.policy, rollout, batches)
    torch.testing.assert_close(update_BT, rollout.logprobs_BT, atol=1e-4, rtol=0.0)


def test_rows_that_leave_early_change_nothing_in_the_others(drawn: Drawn) -> None:
    ending, endless = drawn.sample(), drawn.sample(eos_id=-1)
    assert endless.lengths == [40] * ROWS
    for row, response in enumerate(ending.responses):
        assert response == endless.responses[row][: len(response)]
        torch.testing.assert_close(
            ending.logprobs_BT[row, : len(response)],
            endless.logprobs_BT[row, : len(response)],
            atol=1e-5,
            rtol=0.0,
        )


def test_a_row_alone_is_answered_as_among_others(drawn: Drawn) -> None:
    alone, among = drawn.sample(rows=1), drawn.sample()
    assert alone.responses[0] == among.responses[0]


def one_round(llama: Path, tmp_path: Path, **changes: str) -> tuple[Path, list[dict[str, float]]]:
    """A short run on the small Llama as it is; returns its directory and its metrics."""
    run = small_run.run(tmp_path, "--policy", str(llama), **(CHANGES | {"sft__epochs": "0"} | changes))
    return run, rows_of(run / "metrics.jsonl")


def tensors_of(run: Path, group: str) -> list[str]:
    return list(CheckpointStore(run / "checkpoints").load("round-0001").tensors.get(group, ()))


def test_a_critic_of_its_own(llama: Path, tmp_path: Path) -> None:
    run, rows = one_round(llama, tmp_path, policy__critic="model")
    assert "head.linear.weight" in tensors_of(run, "critic")
    assert not any("value_head" in name for name in tensors_of(run, "policy"))
    assert rows[-1]["loss/value_avg"] > 0.0


@pytest.mark.parametrize("kind", ["rloo", "grpo"])
def test_credit_from_other_answers_needs_no_critic(kind: str, llama: Path, tmp_path: Path) -> None:
    run, rows = one_round(llama, tmp_path, ppo__advantage=kind, ppo__samples_per_prompt="2", ppo__batch="4")
    assert tensors_of(run, "critic") == []
    assert not any("value_head" in name for name in tensors_of(run, "policy"))
    assert "loss/value_avg" not in rows[-1]
    assert rows[-1]["objective/kl_cumulative"] > 0.0


def test_bounded_shaping_keeps_the_reward_between_0_and_1(llama: Path, tmp_path: Path) -> None:
    _, rows = one_round(llama, tmp_path, reward__shaping="sigmoid", reward__unfinished_penalty="0.0")
    for row in rows:
        assert 0.0 < row["objective/rlhf_reward"] - row["objective/non_score_reward"] < 1.0


def test_selection_by_disagreement_labels_as_many_as_asked_for(llama: Path, tmp_path: Path) -> None:
    run, _ = one_round(
        llama,
        tmp_path,
        preferences__selection="disagreement",
        run__rounds="2",
        run__steps_per_round="1",
        refresh__freeze="[[1, 9]]",
    )
    with PreferenceStore.open(f"sqlite:///{run / 'run.db'}") as store:
        labelled = [item.comparison for item in store.labelled()]
    ids = [c.id for c in labelled if c.round == 2 and c.purpose == "training"]
    assert len(ids) == 8
    # Of 16 candidates, numbered as they were drawn, not simply the first eight.
    assert ids != [f"small/r0002-{n:05d}" for n in range(8)]
    assert max(int(i[-5:]) for i in ids) < 24
    assert events_of(run, "refresh") == []


def test_kl_in_the_loss_leaves_the_reward_alone(llama: Path, tmp_path: Path) -> None:
    _, rows = one_round(llama, tmp_path, kl__placement="loss", kl__estimator="k3", kl__beta="0.5")
    assert rows[-1]["loss/kl_avg"] > 0.0
    assert all(abs(row["objective/non_score_reward"]) < 1e-6 for row in rows)


def test_a_fixed_beta_does_not_move(llama: Path, tmp_path: Path) -> None:
    _, rows = one_round(llama, tmp_path, kl__controller="fixed", kl__beta="0.07", reward__aggregation="median")
    assert [row["control/beta"] for row in rows] == [0.07, 0.07]
    assert all("control/kl_target" not in row for row in rows)


def test_a_round_ends_early_at_the_hard_limit(llama: Path, tmp_path: Path) -> None:
    run, rows = one_round(
        llama, tmp_path, run__rounds="2", run__steps_per_round="4", ppo__lr="0.03", kl__hard_limit="0.05"
    )
    assert len(events_of(run, "kl_limit")) >= 1
    assert len([row for row in rows if row["round"] == 2]) < 4
    assert len(events_of(run, "round_finished")) == 2


def test_passes_end_when_the_policy_has_moved_enough(llama: Path, tmp_path: Path) -> None:
    _, rows = one_round(llama, tmp_path, ppo__epochs="3", ppo__epoch_kl_stop="1e-9", rollout__top_p="0.9")
    assert all(row["control/epochs_done"] < 3 for row in rows)


def test_a_settled_policy_brings_a_refresh(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With so wide a tolerance every four steps count as settled; no other trigger is on."""
    monkeypatch.setattr("holdfast.run.build.Plateau", lambda: Plateau(2, tolerance=1e9))
    run, rows = one_round(
        llama,
        tmp_path,
        run__rounds="2",
        run__steps_per_round="5",
        refresh__every_rounds="0",
        refresh__on_plateau="true",
        guard__mode="off",
    )
    (refresh,) = events_of(run, "refresh")
    assert refresh["round"] == 2
    assert "settled" in str(refresh["reason"])
    assert [row["ensemble/version"] for row in rows] == [1.0] * 5 + [2.0] * 5
    assert rows[4]["control/lr"] == pytest.approx(0.7 * rows[3]["control/lr"])
