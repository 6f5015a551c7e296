"""Fresh answers of a trainer's models: whose they are, how uncertain, and that nothing is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from group_trainer import GroupTrainer, trainer_of
from peft import LoraConfig, get_peft_model

from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.store import CheckpointStore
from holdfast.control.kl import FixedKL
from holdfast.errors import HoldfastError
from holdfast.interop.trl import EnsembleReward, ensemble_reward
from holdfast.interop.trl.answers import Player, likelihoods, per_token
from holdfast.interop.trl.answers import draw as draw_answers
from holdfast.interop.trl.draws import TrainerAnswers
from holdfast.interop.trl.hands import Hands
from holdfast.interop.trl.host import Batch, TrainerHost
from holdfast.interop.trl.readings import EnsembleReading
from holdfast.interop.trl.snapshot import capture, differences, put_back, trained_weights

Setting = tuple[GroupTrainer, EnsembleReward, TrainerAnswers]


@pytest.fixture
def setting(prepared: Path, prompts: list[Any], tmp_path: Path) -> Setting:
    reward = ensemble_reward(prepared)
    trainer = trainer_of(prepared / "reference", reward, tmp_path, prompts)
    reward.end_ids = frozenset(trainer.eos_token_ids)
    rows = [{"prompt": prompt} for prompt in prompts[:6]]
    places = {tuple(reward.codec.encode_prompt(row["prompt"][0]["content"])): n for n, row in enumerate(rows)}
    return trainer, reward, TrainerAnswers(hands_of(trainer, rows), EnsembleReading(reward), places)


def hands_of(trainer: GroupTrainer, rows: list[Any]) -> Hands:
    kept = CheckpointStore(Path(trainer.args.output_dir) / "good", keep=2)
    players = [Player(who, trainer) for who in ("policy", "reference", "anchor")]  # type: ignore[arg-type]
    return Hands(trainer, rows, kept, trainer._calculate_rewards, *players)


def drawn(answers: TrainerAnswers, player: Player, seed: int = 1) -> Any:
    return answers.sample(player, [list(ids) for ids in answers.places], torch.Generator().manual_seed(seed))


def spoil(model: Any) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))


def test_each_player_answers_with_its_own_weights(setting: Setting) -> None:
    trainer, _, answers = setting
    policy, reference, anchor = answers.hands.policy, answers.hands.reference, answers.hands.anchor
    anchor.keep()
    at_first = drawn(answers, policy)
    assert drawn(answers, reference).texts == at_first.texts, "both are still the same model"
    trainer.model.train()
    spoil(trainer.model)
    spoilt = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    state = torch.get_rng_state()
    assert drawn(answers, policy).texts != at_first.texts
    assert drawn(answers, anchor).texts == drawn(answers, reference).texts == at_first.texts
    assert drawn(answers, reference, seed=2).texts != at_first.texts
    assert all(torch.equal(p, spoilt[name]) for name, p in trainer.model.named_parameters())
    assert trainer.model.training
    assert torch.equal(torch.get_rng_state(), state), "the trainer's random numbers are where they were"


def test_entropy_is_that_of_the_distributions_drawn_from(setting: Setting) -> None:
    """By a second pass over each answer alone, without padding; an answer ends with its end token."""
    trainer, reward, answers = setting
    asked = [row["prompt"] for row in answers.hands.rows]
    given = draw_answers(trainer, answers.hands.policy, asked, 1)
    assert {len(one.ids) for one in given} != {trainer.args.max_completion_length}, "some answers have ended"
    chosen_BT = likelihoods(trainer, trainer.model, asked, [one.ids for one in given])
    for n, (one, prompt) in enumerate(zip(given, answers.places, strict=True)):
        ids, entropy = one.ids, one.entropy
        with torch.no_grad():
            logits = trainer.model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0]
        logprobs = logits[len(prompt) - 1 : len(prompt) + len(ids) - 1].double().log_softmax(-1)
        assert entropy == pytest.approx(float(-(logprobs.exp() * logprobs).sum()), rel=1e-4)
        picked = logprobs.gather(-1, torch.tensor(ids)[:, None])[:, 0]
        assert chosen_BT[n, : len(ids)].tolist() == pytest.approx(picked.tolist(), rel=1e-4, abs=1e-5)
        assert chosen_BT[n, len(ids) :].abs().sum() == 0.0
        assert reward.codec.eos_id not in ids[:-1]


def test_a_model_with_adapters_is_its_own_reference(setting: Setting) -> None:
    trainer, _, answers = setting
    before = drawn(answers, Player("policy", trainer)).texts
    trainer.model = get_peft_model(trainer.model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))  # type: ignore[arg-type]
    trainer.ref_model = None
    kept = trained_weights(trainer.model)
    assert kept
    assert all("lora_" in name for name in kept), "the base does not move, so it is not kept"
    spoil(trainer.model)
    spoil(trainer.model)
    assert drawn(answers, Player("reference", trainer)).texts == before
    assert drawn(answers, Player("policy", trainer)).texts != before


def test_sampling_of_a_trainer_that_leaves_it_to_a_server(setting: Setting) -> None:
    trainer, _, answers = setting
    with_own = drawn(answers, Player("policy", trainer)).texts
    del trainer.generation_config
    trainer.args.top_p, trainer.args.top_k = 1.0, 0
    assert drawn(answers, Player("policy", trainer)).texts == with_own


def test_people_see_the_policys_text_whatever_the_ensembles_tokenizer_makes_of_it(setting: Setting) -> None:
    _, reward, _ = setting
    rollout = reward.read(["q"], ["Zyx, quite unheard-of words"], [True])
    assert rollout.texts == ["Zyx, quite unheard-of words"]
    assert reward.codec.decode(rollout.responses[0]) != rollout.texts[0]


def test_a_step_is_read_from_the_trainers_kl_and_entropy(setting: Setting) -> None:
    """Two answers of 2 and 4 of the policy's tokens at 0.5 nats a token and a KL of 0.1: 3 tokens on average."""
    trainer, reward, answers = setting
    rollout = reward.read(["q", "q"], ["Yes.", "No, it is closed."], [True, True])
    seen: list[Any] = []

    class Guard:
        def see(self, view: Any) -> dict[str, float]:
            seen.append(view)
            return {}

    class Review:
        guard = Guard()

    class Tracker:
        def metrics(self, *given: Any) -> None:
            seen.append(given)

    over = TrainerHost(
        answers.hands, Review(), FixedKL(0.1), answers, None, Tracker(), None, print, 1,  # type: ignore[arg-type]
    )  # fmt: skip
    over.see(Batch(rollout, reward.score(rollout), [2, 4]), {"kl": 0.1, "entropy": 0.5, "clip_ratio/region_mean": 0.25})
    view = seen[0]
    assert view.surprisal_B.tolist() == pytest.approx([1.0, 2.0])
    assert view.kl_B.tolist() == pytest.approx([0.2, 0.4])
    assert view.learned["policy/clipfrac_avg"] == 0.25
    assert not view.of_reference
    over.see(Batch(rollout, reward.score(rollout), [2, 4]), {})
    assert bool(seen[2].kl_B.isnan().all()), "what the trainer does not say is not made up"
    assert trainer.beta == 0.1


def test_per_token_spreads_a_sum_evenly(setting: Setting) -> None:
    _, reward, _ = setting
    rollout = reward.read(["q", "q"], ["Yes.", ""], [True, False])
    spread_BT = per_token(rollout, torch.tensor([3.0, 5.0]))
    assert spread_BT.sum(1).tolist() == pytest.approx([3.0, 0.0]), "an answer of no tokens has nowhere to put it"
    assert len(set(spread_BT[0].tolist())) == 1


def test_what_is_put_back_is_read_back(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, _, answers = setting
    trainer.create_optimizer_and_scheduler(8)
    kept = capture(trainer)
    spoil(trainer.model)
    torch.rand(1)
    assert {name.split("/")[0] for name in differences(kept, capture(trainer))} == {"policy", "rng"}
    put_back(trainer, kept)
    assert differences(kept, capture(trainer)) == []
    hands = answers.hands
    hands.keep("one", {})
    spoil(trainer.model)
    trainer._last_loaded_step = 7  # as of a trainer that samples with vLLM
    hands.go_back("one")
    assert trainer._last_loaded_step == -1, "the server is sent the weights again"
    assert differences(kept, capture(trainer)) == []
    spoil(trainer.model)
    monkeypatch.setattr("holdfast.interop.trl.snapshot.put_weights", lambda model, weights: None)
    with pytest.raises(HoldfastError, match="policy/"):
        hands.go_back("one")


def test_weights_of_another_model_are_refused(setting: Setting) -> None:
    trainer, _, _ = setting
    trainer.create_optimizer_and_scheduler(8)
    kept = capture(trainer)
    fewer = {name: tensor for name, tensor in kept.tensors["policy"].items() if "lm_head" not in name}
    with pytest.raises(HoldfastError, match="another model"):
        put_back(trainer, Snapshot({**kept.tensors, "policy": fewer}, kept.documents))
