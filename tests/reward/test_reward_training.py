"""Fitting an ensemble: it learns, members differ, seeds repeat, and no side or split is favoured."""

import dataclasses

import pytest
import torch
from toy_preferences import GOOD, labelled, number_of, reference_answers, toy_config, toy_ensemble, toy_pairs

from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec
from holdfast.models.tiny import word_tokenizer
from holdfast.preferences.comparison import Choice, Label, LabelledComparison, Provenance, Response
from holdfast.preferences.pair import Pair, pairs_of, response_tokens
from holdfast.reward.ensemble import Ensemble, Tokens
from holdfast.reward.training import FitSettings, _accumulate, ensemble_accuracy, fit_ensemble, labels_for, unseen_by
from holdfast.track.progress import Silent
from tiny_models import EOS

PACE = FitSettings(epochs=3, lr=1e-2, warmup_steps=3)


def _fit(ensemble: Ensemble, pairs: list[Pair], seed: int = 0, **changes: object) -> Ensemble:
    fit_ensemble(ensemble, pairs, PACE, toy_config(**changes), torch.Generator().manual_seed(seed), Silent())
    ensemble.standardise(*reference_answers())
    return ensemble


def test_a_separable_preference_is_learnt_and_members_differ() -> None:
    ensemble = _fit(toy_ensemble(), toy_pairs(96))
    new = toy_pairs(100, seed=99)
    accuracy = ensemble_accuracy(ensemble, new)
    assert accuracy is not None
    assert accuracy.value > 0.9
    margins_KP = ensemble.margins(new)
    for a, b in ((0, 1), (1, 2), (0, 2)):
        assert float((margins_KP[a] - margins_KP[b]).abs().mean()) > 0.01
    # It is GOOD that they learnt: an answer with it scores higher than the same one without.
    with_good, without = [[4, GOOD, 6, EOS]], [[4, GOOD + 1, 6, EOS]]
    gain_K1 = ensemble.scores([[3, 3, 3]], with_good) - ensemble.scores([[3, 3, 3]], without)
    assert float(gain_K1.min()) > 0


def test_two_fits_with_one_seed_are_bit_equal() -> None:
    pairs = toy_pairs(24)
    a, b = (
        _fit(toy_ensemble(2), pairs),
        _fit(toy_ensemble(2), pairs),
    )
    for x, y in zip(a.members, b.members, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(x.parameters(), y.parameters(), strict=True))
    assert a.means == b.means
    c = _fit(toy_ensemble(2), pairs, seed=1)
    assert not torch.equal(c.members[0].head.weight, a.members[0].head.weight)


def test_members_with_the_same_start_part_by_their_data_order() -> None:
    ensemble = toy_ensemble(2)
    ensemble.members[1].load_state_dict(ensemble.members[0].state_dict())
    _fit(ensemble, toy_pairs(40))
    assert not torch.equal(ensemble.members[0].head.weight, ensemble.members[1].head.weight)


def test_averaged_weights_are_the_mean_of_members_that_began_alike() -> None:
    """Members that are fitted side by side from one beginning, and averaged by hand, twice over."""
    averaged, several = toy_ensemble(1), toy_ensemble(3)
    pairs = toy_pairs(40)
    for round in range(2):
        for member in several.members:
            member.load_state_dict(averaged.members[0].state_dict())
        _fit(several, pairs, seed=round)
        _fit(averaged, pairs, seed=round, aggregation="averaged", members=3)
        apart = [dict(member.named_parameters()) for member in several.members]
        for name, found in averaged.members[0].named_parameters():
            torch.testing.assert_close(found, sum(of[name] for of in apart) / 3, msg=name)  # type: ignore[arg-type]
        assert not torch.equal(apart[0]["head.weight"], apart[1]["head.weight"])
    accuracy = ensemble_accuracy(averaged, toy_pairs(100, seed=99))
    assert accuracy is not None
    assert accuracy.value > 0.9


def _gradients(pairs: list[Pair], max_tokens: int = 10**6, **changes: object) -> list[torch.Tensor]:
    ensemble = toy_ensemble(1, max_tokens)
    _accumulate(ensemble, ensemble.members[0], pairs, toy_config(**changes))
    return [p.grad for p in ensemble.members[0].parameters() if p.grad is not None]


def _close(a: list[torch.Tensor], b: list[torch.Tensor]) -> None:
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, atol=1e-6, rtol=1e-5)


ALL_TERMS = {"label_smoothing": 0.1}


def _with_ties(pairs: list[Pair]) -> list[Pair]:
    return [dataclasses.replace(p, share_a=0.5) if i % 3 == 0 else p for i, p in enumerate(pairs)]


def test_neither_order_nor_micro_batches_change_the_gradient() -> None:
    pairs = _with_ties(toy_pairs(9))
    expected = _gradients(pairs, **ALL_TERMS)
    _close(_gradients(pairs[::-1], **ALL_TERMS), expected)
    for max_tokens in (1, 40, 60):
        _close(_gradients(pairs, max_tokens, **ALL_TERMS), expected)


@pytest.mark.parametrize("terms", [{}, ALL_TERMS])
def test_neither_side_is_favoured(terms: dict[str, object]) -> None:
    """The same judgements with the sides exchanged pull the weights the same way."""
    pairs = _with_ties(toy_pairs(9))
    swapped = [Pair(p.prompt, p.b, p.a, 1 - p.share_a, p.round) for p in pairs]
    _close(_gradients(swapped, **terms), _gradients(pairs, **terms))


def test_a_tie_pulls_the_two_scores_together() -> None:
    (pair,) = toy_pairs(1)
    tie = dataclasses.replace(pair, share_a=0.5)

    def gap(ensemble: Ensemble) -> float:
        a, b = (ensemble.raw_scores([tie.prompt], [side])[0, 0] for side in (tie.a, tie.b))
        return abs(float(a - b))

    ensemble = toy_ensemble(1)
    before = gap(ensemble)
    assert before > 0.01
    fit_ensemble(
        ensemble,
        [tie, tie],
        FitSettings(20, 1e-2, 0),
        toy_config(),
        torch.Generator().manual_seed(0),
        Silent(),
    )
    assert gap(ensemble) < 0.2 * before


def test_loss_and_accuracy_of_a_batch_by_hand() -> None:
    # Scores of a member that is a constant 0: every pair costs log 2 = .693, and equal scores are half right.
    ensemble = toy_ensemble(1)
    with torch.no_grad():
        ensemble.members[0].head.weight.zero_()
    loss, accuracy = _accumulate(ensemble, ensemble.members[0], toy_pairs(5), toy_config())
    assert loss == pytest.approx(0.693147, abs=1e-5)
    assert accuracy == pytest.approx(0.5)


def test_a_gradient_that_is_not_a_number_never_reaches_the_weights() -> None:
    ensemble = toy_ensemble(1)
    member = ensemble.members[0]
    before = {name: p.clone() for name, p in member.named_parameters()}
    member.head.weight.register_hook(lambda grad: grad * float("nan"))
    with pytest.raises(HoldfastError, match="gradient that is not a number"):
        fit_ensemble(ensemble, toy_pairs(8), PACE, toy_config(), torch.Generator().manual_seed(0), Silent())
    assert all(torch.equal(p, before[name]) for name, p in member.named_parameters())


def test_fewer_than_two_labels_are_refused() -> None:
    with pytest.raises(HoldfastError, match="at least 2 labelled comparisons"):
        fit_ensemble(toy_ensemble(1), toy_pairs(1), PACE, toy_config(), torch.Generator(), Silent())


class Counting:
    """Progress that counts."""

    total = done = 0

    def begin(self, what: str, total: int) -> None:
        self.total = total

    def advance(self, **figures: float) -> None:
        self.done += 1
        assert set(figures) == {"loss", "accuracy"}


def test_progress_is_announced_as_it_happens() -> None:
    progress = Counting()
    fit_ensemble(
        toy_ensemble(2), toy_pairs(17), FitSettings(2, 1e-3, 0), toy_config(),
        torch.Generator(), progress,
    )  # fmt: skip
    assert progress.done == progress.total > 0


def test_accuracy_leaves_ties_out_and_counts_the_members_mean() -> None:
    ensemble = _fit(toy_ensemble(), toy_pairs(96))
    pairs = toy_pairs(20, seed=4)
    accuracy = ensemble_accuracy(ensemble, pairs)
    ties = [dataclasses.replace(p, share_a=0.5) for p in toy_pairs(20, seed=8)]
    assert ensemble_accuracy(ensemble, [*pairs, *ties]) == accuracy
    assert ensemble_accuracy(ensemble, ties) is None
    assert ensemble_accuracy(ensemble, []) is None
    wrong = [dataclasses.replace(p, share_a=1 - p.share_a) for p in pairs]
    turned = ensemble_accuracy(ensemble, wrong)
    assert accuracy is not None
    assert turned is not None
    assert (turned.value, turned.count) == (pytest.approx(1 - accuracy.value), 20)
    # Two of three labellers for a: a is what people preferred.
    leaning = [dataclasses.replace(p, share_a=2 / 3 if p.share_a else 1 / 3) for p in pairs]
    assert ensemble_accuracy(ensemble, leaning) == accuracy


@pytest.fixture(scope="module")
def codec() -> Codec:
    return Codec(word_tokenizer(["hello we open at noon."]))


def test_pairs_keep_exact_tokens_or_encode_the_text(codec: Codec) -> None:
    origin = Provenance("p", 0, 0)
    assert response_tokens(codec, Response("hello", origin, (7, 8))) == [7, 8]
    whole = codec.encode_response("we open")
    assert response_tokens(codec, Response("we open", origin)) == whole
    assert whole[-1] == codec.eos_id
    # An answer that did not end has no EOS to end with.
    assert response_tokens(codec, Response("we open", origin, finished=False)) == whole[:-1]


def test_pairs_carry_share_and_round(codec: Codec) -> None:
    item = labelled(123, round=4, choice=Choice.B)
    (pair,) = pairs_of(codec, [item])
    assert (pair.share_a, pair.round, number_of(pair)) == (0.0, 4, 123)
    assert pair.prompt == codec.encode_prompt("hello")
    votes = [("x", Choice.A), ("y", Choice.TIE), ("z", Choice.B), ("w", Choice.A)]
    labels = tuple(Label(item.comparison.id, name, choice) for name, choice in votes)
    (pair,) = pairs_of(codec, [LabelledComparison(item.comparison, labels)])
    assert pair.share_a == pytest.approx(2.5 / 4)
    # Two sides, each as long as the longer one: 2 x (prompt + 6).
    assert pair.tokens == 2 * (len(pair.prompt) + 6)


# --- who learns from which label --------------------------------------------------------------------------------


def _learners(pairs: list[Pair], members: int) -> list[set[str]]:
    return [{p.key for p in labels_for(k, members, pairs)} for k in range(members)]


def test_a_member_never_learns_from_its_own_fold() -> None:
    pairs = toy_pairs(500)
    shares = _learners(pairs, 3)
    asked = {p.key: unseen_by(p.key, 3) for p in pairs}
    for k, seen in enumerate(shares):
        assert seen == {key for key, member in asked.items() if member != k}
        # Four fifths of 500, give or take 4 standard deviations of a binomial.
        assert len(seen) == pytest.approx(400, abs=36)
    assert sum(member is not None for member in asked.values()) == pytest.approx(300, abs=44)


def test_folds_do_not_change_as_labels_come_in() -> None:
    few, many = toy_pairs(60), toy_pairs(200)
    for before, after in zip(_learners(few, 3), _learners(many, 3), strict=True):
        assert before == after & {p.key for p in few}


def test_one_alone_learns_from_all() -> None:
    pairs = toy_pairs(30)
    assert _learners(pairs, 1) == [{p.key for p in pairs}]
    assert all(unseen_by(p.key, 1) is None for p in pairs)


def test_training_learns_to_take_a_planted_flaw_back() -> None:
    """A bonus for answers without GOOD turns every claim over; labels bring the right one back through it."""

    def bonus(prompts: Tokens, responses: Tokens) -> torch.Tensor:
        return torch.tensor([float(GOOD not in r) for r in responses])

    ensemble, new = _fit(toy_ensemble(), toy_pairs(96)), toy_pairs(100, seed=99)
    ensemble.bonus, ensemble.bonus_scale = bonus, 20.0
    spoilt = ensemble_accuracy(ensemble, new)
    assert spoilt is not None
    assert spoilt.value < 0.2
    ensemble.bonus_scale = 2.0
    _fit(ensemble, toy_pairs(96, seed=1))
    mended = ensemble_accuracy(ensemble, new)
    assert mended is not None
    assert mended.value > 0.9


def test_a_flaw_is_in_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.reward.training.CENTRING", 0.0)
    ensemble, pairs = toy_ensemble(1), toy_pairs(1)
    with torch.no_grad():
        ensemble.members[0].head.weight.zero_()
    # The side people preferred gets 3 more than the other: -log sigma(3) = .048587.
    ensemble.bonus_scale = 1.0
    ensemble.bonus = lambda prompts, responses: torch.tensor([3.0 * (GOOD in r) for r in responses])
    loss, accuracy = _accumulate(ensemble, ensemble.members[0], pairs, toy_config())
    assert (loss, accuracy) == pytest.approx((0.048587, 1.0), abs=1e-5)


def test_margins_of_one_member_for_each_pair() -> None:
    ensemble, pairs = toy_ensemble(), toy_pairs(9)
    margins_KP = ensemble.raw_margins(pairs)
    asked = [2, 0, 1] * 3
    torch.testing.assert_close(ensemble.opinion_margins(pairs, asked), margins_KP[asked, list(range(9))])
