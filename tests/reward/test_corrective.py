"""The corrective: learns what people say in audits, stays out where chance explains it, and comes back whole."""

from __future__ import annotations

import torch
from toy_preferences import reference_answers, toy_config, toy_ensemble, toy_pairs

from holdfast.models.codec import Codec
from holdfast.models.tiny import word_tokenizer
from holdfast.preferences.comparison import Choice, Comparison, Label, Provenance, Purpose, Response
from holdfast.preferences.pair import Pair
from holdfast.preferences.store import PreferenceStore
from holdfast.reward.corrective import AUDIT_LABELS, FEWEST, Corrective
from holdfast.reward.ensemble import Ensemble
from holdfast.reward.given import GIVEN, GivenReward, PromptRow, Standard
from holdfast.reward.sources.adjusted import AdjustedSource
from holdfast.reward.sources.function import CallableSource
from holdfast.rollout.sampler import Rollout
from tiny_models import EOS

RUN = "small"
CODEC = Codec(word_tokenizer(["hello there you are"]))
PROMPT = tuple(CODEC.encode_prompt("hello"))


def corrective_of(store: PreferenceStore, seed: int = 0) -> Corrective:
    config = toy_config(epochs=2, lr=1e-2, warmup_steps=3)
    return Corrective(fresh, store, CODEC, RUN, config, *reference_answers(), seed)


def fresh() -> Ensemble:
    return toy_ensemble(1)  # the same one each time


def audit(
    store: PreferenceStore, pairs: list[Pair], run: str = RUN, purpose: Purpose = "audit", same: bool = False
) -> None:
    """Have people answer these pairs, as an audit of a run."""
    origin = Provenance("v", 1, 0)
    choice = {1.0: Choice.A, 0.0: Choice.B, 0.5: Choice.TIE}
    asked, labels = [], []
    for n, pair in enumerate(pairs):
        key = f"{run}/{purpose}-{pair.key}"
        texts = ("same", "same") if same else (f"a{n}", f"b{n}")
        sides = [Response(text, origin, tuple(side)) for text, side in zip(texts, (pair.a, pair.b), strict=True)]
        asked.append(Comparison(key, "hello", *sides, 1, purpose, run))
        labels.append(Label(key, "someone", choice[pair.share_a]))
    store.add_comparisons(asked)
    store.add_labels(labels)


def by_chance(count: int) -> list[Pair]:
    """Pairs whose labels have nothing to do with their texts."""
    toss = torch.randint(2, (count,), generator=torch.Generator().manual_seed(1)).tolist()
    return [Pair(p.prompt, p.a, p.b, float(won), p.round, p.key) for p, won in zip(toy_pairs(count), toss, strict=True)]


def test_it_prefers_what_people_prefer(store: PreferenceStore) -> None:
    audit(store, toy_pairs(96))
    corrective = corrective_of(store)
    words = corrective.train(store.watermark())
    assert words.startswith("a reward model of 96 audit labels joins the reward (right on ")
    assert (corrective.in_use, corrective.labels) == (True, 96)
    new = [Pair(list(PROMPT), p.a, p.b, p.share_a, 0, p.key) for p in toy_pairs(100, seed=99)]
    right = [(m > 0) == (p.share_a > 0.5) for m, p in zip(corrective.margins(new).tolist(), new, strict=True)]
    assert sum(right) > 85
    # In units of the reference's spread, so that it weighs as much as the reward that is given.
    scores_B = corrective.scores(*reference_answers())
    assert abs(float(scores_B.mean())) < 1e-4
    assert abs(float(scores_B.std(unbiased=False)) - 1.0) < 1e-4


def test_labels_that_nothing_can_be_learnt_from_are_not_used(store: PreferenceStore) -> None:
    audit(store, by_chance(96))
    corrective = corrective_of(store)
    words = corrective.train(store.watermark())
    assert "96 audit labels is not used: right on " in words
    assert (corrective.in_use, corrective.labels) == (False, 0)


def test_one_that_later_labels_do_not_bear_out_leaves_the_reward(store: PreferenceStore) -> None:
    audit(store, toy_pairs(48))
    corrective = corrective_of(store)
    corrective.train(store.watermark())
    assert corrective.in_use
    turned = [Pair(p.prompt, p.a, p.b, 1.0 - p.share_a, p.round, p.key) for p in toy_pairs(48, seed=7)]
    audit(store, turned)
    assert "is not used" in corrective.train(store.watermark())
    assert not corrective.in_use


def test_it_takes_enough_labels_of_audits_of_this_run_on_two_texts(store: PreferenceStore) -> None:
    audit(store, toy_pairs(FEWEST - 1))
    audit(store, [Pair(p.prompt, p.a, p.b, 0.5, 0, p.key) for p in toy_pairs(20, seed=2)])
    audit(store, toy_pairs(60, seed=3), purpose="training")
    audit(store, toy_pairs(60, seed=4), run="another")
    audit(store, toy_pairs(60, seed=5), same=True)
    corrective = corrective_of(store)
    assert corrective.train(store.watermark()) == (
        f"no reward model of audit labels: {FEWEST - 1} of them prefer a side, and it takes {FEWEST}"
    )
    assert not corrective.in_use
    before = store.watermark()
    audit(store, toy_pairs(1, seed=6))
    assert "no reward model" in corrective.train(before), "one more came after the watermark"
    assert corrective.train(store.watermark()).startswith(f"a reward model of {FEWEST + 20} audit labels")


def test_restored_it_is_the_same_bit_for_bit_whatever_was_labelled_since(store: PreferenceStore) -> None:
    audit(store, toy_pairs(64))
    corrective = corrective_of(store)
    corrective.train(store.watermark())
    state = corrective.state()
    audit(store, by_chance(64)[:30], purpose="training")
    audit(store, toy_pairs(20, seed=8))
    store.weights = {"someone": 0.0}  # found unreliable meanwhile: it was made of what they said all the same
    again = corrective_of(store)
    again.restore(state)
    assert again.state() == state
    new = reference_answers(seed=11)
    assert torch.equal(again.scores(*new), corrective.scores(*new))
    other = corrective_of(store, seed=1)
    other.restore(state)
    assert not torch.equal(other.scores(*new), corrective.scores(*new))
    again.restore(None)
    assert not again.in_use, "a checkpoint from before there was one"


def given_reward(corrective: Corrective | None) -> GivenReward:
    rows: dict[tuple[int, ...], PromptRow] = {PROMPT: PromptRow("hello", {})}
    source = AdjustedSource(CallableSource(lambda answer: float(len(answer.split())), name="words"))
    reward = GivenReward(source, toy_config(), rows, lambda tokens: " ".join("x" for _ in tokens), EOS)
    reward.standard, reward.corrective = Standard(mean=3.0, sd=2.0), corrective
    return reward


def test_a_given_reward_has_it_on_top_in_steps_and_in_audits(store: PreferenceStore) -> None:
    audit(store, toy_pairs(96))
    corrective = corrective_of(store)
    reward, plain = given_reward(corrective), given_reward(None)
    pairs = [Pair(list(PROMPT), p.a, p.b, p.share_a, 0, p.key) for p in toy_pairs(6, seed=21)]
    answers = [p.a for p in pairs]
    rollout = a_rollout(answers)
    rng = torch.Generator()
    assert torch.equal(reward.reward(rollout, rng).scores_B, plain.reward(rollout, rng).scores_B), "not in use yet"
    corrective.train(store.watermark())
    added_B = corrective.scores([list(PROMPT)] * 6, answers)
    scored, without = reward.reward(rollout, rng), plain.reward(rollout, rng)
    assert torch.equal(scored.scores_B, without.scores_B + added_B)
    assert torch.equal(scored.rewards_B, without.rewards_B + added_B)
    assert torch.equal(scored.components[AUDIT_LABELS], 2.0 * added_B)
    assert torch.equal(scored.components[GIVEN], torch.tensor([float(len(a)) for a in answers]))
    margin_P, parts, whole_P = reward.margins(pairs)
    assert torch.equal(whole_P, margin_P), "nothing counts for less"
    assert torch.allclose(margin_P, plain.margins(pairs)[0] + 2.0 * corrective.margins(pairs))
    assert torch.allclose(sum(parts.values(), torch.zeros(6)), margin_P)
    assert reward.discount(AUDIT_LABELS, 0.5) is None, "what people have said is no hack"
    assert torch.equal(reward.reward(rollout, rng).scores_B, scored.scores_B)
    # A checkpoint tells of it, and one from before it does not.
    again = given_reward(corrective_of(store))
    again.restore(reward.state())
    assert torch.equal(again.reward(rollout, rng).scores_B, scored.scores_B)
    again.restore(plain.state())
    assert torch.equal(again.reward(rollout, rng).scores_B, without.scores_B)


def a_rollout(responses: list[list[int]]) -> Rollout:
    mask_BT = torch.ones(len(responses), 8, dtype=torch.bool)
    none_BT = torch.zeros(len(responses), 8)
    return Rollout([list(PROMPT) for _ in responses], responses, none_BT, None, mask_BT, [True] * len(responses))
