"""The ensemble: scores in units of the reference's answers, and versions that come back bit for bit."""

from pathlib import Path

import pytest
import torch
from toy_preferences import reference_answers, toy_ensemble

from holdfast.errors import HoldfastError
from holdfast.models.batches import MicroBatch, take_rows
from holdfast.models.reward_model import RewardModel, trunk_of
from holdfast.reward.ensemble import Ensemble, Tokens, VersionStore, members_in, version_name
from tiny_models import PAD, build

PROMPTS, RESPONSES = reference_answers()


def test_raw_scores_are_each_member_s_own_whatever_the_micro_batches() -> None:
    for max_tokens in (1, 10**6):
        ensemble = toy_ensemble(max_tokens=max_tokens)
        scores_KB = ensemble.raw_scores(PROMPTS, RESPONSES)
        assert scores_KB.shape == (3, 40)
        for k, member in enumerate(ensemble.members):
            for i in (0, 17, 39):
                alone = member(take_rows(PROMPTS, RESPONSES, [i], PAD, "cpu")).detach()
                assert float(scores_KB[k, i]) == pytest.approx(float(alone), abs=1e-5)


def test_standardised_on_the_reference_every_member_has_mean_0_and_sd_1() -> None:
    ensemble = toy_ensemble()
    with torch.no_grad():
        # Members that differ in offset and scale by far.
        ensemble.members[0].head.weight.mul_(100.0)
        ensemble.members[1].head.bias.fill_(-50.0)
    ensemble.standardise(PROMPTS, RESPONSES)
    scores_KB = ensemble.scores(PROMPTS, RESPONSES)
    torch.testing.assert_close(scores_KB.mean(1), torch.zeros(3), atol=1e-3, rtol=0)
    torch.testing.assert_close(scores_KB.std(1, unbiased=False), torch.ones(3), atol=1e-3, rtol=0)


def test_standardised_scores_by_hand() -> None:
    ensemble = toy_ensemble(2)
    ensemble.means, ensemble.sds = (1.0, -2.0), (4.0, 0.5)
    raw_KB = ensemble.raw_scores(PROMPTS[:2], RESPONSES[:2])
    expected_KB = torch.stack([(raw_KB[0] - 1.0) / 4.0, (raw_KB[1] + 2.0) / 0.5])
    torch.testing.assert_close(ensemble.scores(PROMPTS[:2], RESPONSES[:2]), expected_KB)


def test_standardising_again_undoes_what_training_did_to_the_scale() -> None:
    ensemble = toy_ensemble()
    ensemble.standardise(PROMPTS, RESPONSES)
    before_KB = ensemble.scores(PROMPTS, RESPONSES)
    with torch.no_grad():
        for member in ensemble.members:
            member.head.weight.mul_(3.0)
            member.head.bias.add_(1.0)
    assert float((ensemble.scores(PROMPTS, RESPONSES) - before_KB).abs().max()) > 1
    ensemble.standardise(PROMPTS, RESPONSES)
    torch.testing.assert_close(ensemble.scores(PROMPTS, RESPONSES), before_KB, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_member_that_gives_no_number_is_refused(bad: float) -> None:
    ensemble = toy_ensemble()
    with torch.no_grad():
        ensemble.members[1].head.bias.fill_(bad)
    with pytest.raises(HoldfastError, match="not numbers"):
        ensemble.standardise(PROMPTS, RESPONSES)
    assert ensemble.means == ()


def _saved(tmp_path: Path, version: int = 1) -> Ensemble:
    ensemble = toy_ensemble()
    ensemble.version, ensemble.labels, ensemble.watermark = version, 70 + version, 90 + version
    ensemble.standardise(PROMPTS, RESPONSES)
    VersionStore(tmp_path / "rewards").save(ensemble)
    return ensemble


def _another(members: int = 3) -> Ensemble:
    lm = build("llama", seed=77, num_hidden_layers=1)
    return Ensemble([RewardModel(trunk_of(lm), 50 + k) for k in range(members)], PAD, 4096)


def test_a_version_comes_back_bit_for_bit(tmp_path: Path) -> None:
    saved, loaded = _saved(tmp_path), _another()
    VersionStore(tmp_path / "rewards").load_into(loaded, 1)
    for a, b in zip(saved.members, loaded.members, strict=True):
        for name, tensor in a.state_dict().items():
            assert torch.equal(tensor, b.state_dict()[name]), name
    assert (loaded.version, loaded.labels, loaded.watermark) == (1, 71, 91)
    assert (loaded.means, loaded.sds) == (saved.means, saved.sds)
    assert torch.equal(saved.scores(PROMPTS, RESPONSES), loaded.scores(PROMPTS, RESPONSES))


def test_every_version_is_kept_and_the_newest_is_found(tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "rewards")
    for version in range(1, 6):
        _saved(tmp_path, version)
    assert store.numbers() == [1, 2, 3, 4, 5]
    loaded = _another()
    store.load_in_use_into(loaded)
    assert (loaded.version, loaded.labels) == (5, 75)
    store.load_into(loaded, 2)
    assert (loaded.version, loaded.labels) == (2, 72)
    assert version_name(7) == "v007"


def test_another_number_of_members_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    _saved(tmp_path)
    loaded = _another(members=2)
    before = [p.clone() for p in loaded.members[0].parameters()]
    with pytest.raises(HoldfastError, match=r"has 3 members, but by reward\.members and reward\.\w+ there are 2"):
        VersionStore(tmp_path / "rewards").load_into(loaded, 1)
    assert all(torch.equal(a, b) for a, b in zip(before, loaded.members[0].parameters(), strict=True))
    assert loaded.version == 0
    assert members_in(tmp_path / "rewards") == 3


def test_another_model_is_refused(tmp_path: Path) -> None:
    _saved(tmp_path)
    lm = build("llama", hidden_size=24)
    other = Ensemble([RewardModel(trunk_of(lm), k) for k in range(3)], PAD, 4096)
    with pytest.raises(HoldfastError, match="another model"):
        VersionStore(tmp_path / "rewards").load_into(other, 1)


def test_versions_that_are_not_there(tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "rewards")
    with pytest.raises(HoldfastError, match="no reward ensemble"):
        store.load_in_use_into(_another())
    with pytest.raises(HoldfastError, match="no reward ensemble"):
        members_in(tmp_path / "rewards")
    _saved(tmp_path)
    with pytest.raises(HoldfastError, match="v009"):
        store.load_into(_another(), 9)


# --- features, opinions, flaws ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fast", [True, False])
def test_judging_gives_scores_and_features_in_one_pass(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = build("llama", initializer_range=0.1, num_hidden_layers=1)
    ensemble = Ensemble([RewardModel(trunk_of(lm), k, fast) for k in range(2)], PAD, 200)
    ensemble.standardise(PROMPTS, RESPONSES)
    scores_KB, features_BD = ensemble.scores(PROMPTS, RESPONSES), ensemble.features(PROMPTS, RESPONSES)
    passes: list[int] = []
    hidden = RewardModel.hidden

    def counted(self: RewardModel, batch: MicroBatch) -> torch.Tensor:
        passes.extend(batch.rows)
        return hidden(self, batch)

    monkeypatch.setattr(RewardModel, "hidden", counted)
    judged_KB, seen_BD = ensemble.judge(PROMPTS, RESPONSES)
    assert len(passes) == 2 * len(PROMPTS)
    assert torch.equal(judged_KB, scores_KB)
    assert torch.equal(seen_BD, features_BD)
    # The head of the first member reads just this.
    head = ensemble.members[0].head
    torch.testing.assert_close(
        seen_BD @ head.weight[0].detach() + head.bias.detach(), ensemble.raw_scores(PROMPTS, RESPONSES)[0]
    )


def test_each_answer_is_put_to_the_member_that_is_asked() -> None:
    ensemble = toy_ensemble()
    raw_KB = ensemble.raw_scores(PROMPTS, RESPONSES)
    asked = [i % 3 for i in range(40)]
    raw_B = ensemble.opinions(PROMPTS, RESPONSES, asked)
    torch.testing.assert_close(raw_B, raw_KB[asked, list(range(40))])
    ensemble.bonus, ensemble.bonus_scale = _length_bonus, 2.0
    torch.testing.assert_close(
        ensemble.opinions(PROMPTS, RESPONSES, asked) - raw_B, 2.0 * _length_bonus(PROMPTS, RESPONSES)
    )


def _length_bonus(prompts: Tokens, responses: Tokens) -> torch.Tensor:
    return torch.tensor([float(len(r)) for r in responses])


def test_a_planted_flaw_is_added_to_every_raw_score_and_does_not_move_the_units() -> None:
    ensemble = toy_ensemble()
    ensemble.standardise(PROMPTS, RESPONSES)
    raw_KB, scores_KB = ensemble.raw_scores(PROMPTS, RESPONSES), ensemble.scores(PROMPTS, RESPONSES)
    units = ensemble.means, ensemble.sds
    ensemble.bonus = _length_bonus
    assert torch.equal(ensemble.raw_scores(PROMPTS, RESPONSES), raw_KB), "before its onset the scale is 0"
    ensemble.bonus_scale = 0.5
    lengths_B = torch.tensor([float(len(r)) for r in RESPONSES])
    torch.testing.assert_close(ensemble.raw_scores(PROMPTS, RESPONSES), raw_KB + 0.5 * lengths_B)
    expected_KB = scores_KB + 0.5 * lengths_B / torch.tensor(ensemble.sds)[:, None]
    torch.testing.assert_close(ensemble.scores(PROMPTS, RESPONSES), expected_KB)
    torch.testing.assert_close(ensemble.judge(PROMPTS, RESPONSES)[0], expected_KB)
    ensemble.standardise(PROMPTS, RESPONSES)
    assert (ensemble.means, ensemble.sds) == units


def _made(store: VersionStore, number: int, round: int, refused: bool = False) -> None:
    ensemble = toy_ensemble(1)
    ensemble.means, ensemble.sds, ensemble.version, ensemble.round = (0.0,), (1.0,), number, round
    store.save(ensemble, refused)


def test_version_numbers_never_repeat_and_a_round_done_again_makes_the_same_one(tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "rewards")
    assert store.next_number(0, in_use=0) == 1
    _made(store, 1, round=0)
    _made(store, 2, round=2)
    _made(store, 3, round=3, refused=True)
    assert store.next_number(4, in_use=2) == 4
    # Killed after saving, or gone back to a checkpoint from before round 3: it is done again.
    assert store.next_number(3, in_use=2) == 3
    # Rolled back to version 1 in round 5: the numbers go on.
    assert store.next_number(5, in_use=1) == 4
    # An ensemble from another run, made in a late round there.
    given = VersionStore(tmp_path / "given")
    _made(given, 9, round=30)
    assert given.next_number(2, in_use=9) == 10


def test_a_refused_version_is_kept_but_never_the_newest(tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "rewards")
    _made(store, 1, round=0)
    _made(store, 2, round=2)
    _made(store, 3, round=3, refused=True)
    loaded = toy_ensemble(1)
    store.load_in_use_into(loaded)
    assert (loaded.version, loaded.round) == (2, 2)
    store.load_into(loaded, 3)
    assert (loaded.version, loaded.round) == (3, 3)
