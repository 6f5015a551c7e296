"""A reward ensemble by itself: trained on texts, saved, loaded, scoring, with neither settings nor a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import model_directories
import small_run
from holdfast.errors import HoldfastError
from holdfast.preferences.comparison import Choice, Comparison, Label, LabelledComparison, Provenance, Response
from holdfast.reward.ensemble import VersionStore
from holdfast.reward.standalone import RewardEnsemble

WORDS = ["the", "room", "has", "a", "view", "and", "breakfast", "is", "at", "eight"]
PROMPTS = [f"What about room {n}?" for n in range(40)]
PAIRS = [(p, " ".join(WORDS[: 7 + i % 3]), " ".join(WORDS[: 1 + i % 2])) for i, p in enumerate(PROMPTS)]
LONG, SHORT = " ".join(WORDS[:8]), " ".join(WORDS[:2])
ASKED = ["Is there a pool?", "And a garden?"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_directories.llama(tmp_path_factory.mktemp("model") / "llama")


@pytest.fixture(scope="module")
def trained(model: Path) -> RewardEnsemble:
    return RewardEnsemble.train(model, PAIRS, members=2, epochs=4, lr=3e-3, seed=1)


def test_longer_answers_score_higher_where_people_prefer_them(trained: RewardEnsemble) -> None:
    longer, shorter = trained.score(ASKED, [LONG] * 2), trained.score(ASKED, [SHORT] * 2)
    assert all(a > b + 0.5 for a, b in zip(longer, shorter, strict=True))
    assert trained.member_scores(ASKED, [LONG] * 2).shape == (2, 2)
    labelled = trained.member_scores([p for p, _, _ in PAIRS] * 2, [a for _, a, _ in PAIRS] + [b for _, _, b in PAIRS])
    torch.testing.assert_close(labelled.mean(1), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(labelled.std(1, unbiased=False), torch.ones(2), atol=1e-4, rtol=0)
    assert trained.score([], []) == []


def test_what_was_saved_scores_the_same(trained: RewardEnsemble, model: Path, tmp_path: Path) -> None:
    trained.save(tmp_path / "rm")
    loaded = RewardEnsemble.load(tmp_path / "rm")
    assert loaded.score(ASKED, [LONG, SHORT]) == trained.score(ASKED, [LONG, SHORT])
    assert RewardEnsemble.load(tmp_path / "rm", model, version=1).score(ASKED, [LONG, SHORT]) == trained.score(
        ASKED, [LONG, SHORT]
    )
    VersionStore(tmp_path / "alone").save(trained.ensemble)
    with pytest.raises(HoldfastError, match="give the model directory that it was trained from"):
        RewardEnsemble.load(tmp_path / "alone")
    with pytest.raises(HoldfastError, match="no reward ensemble"):
        RewardEnsemble.load(tmp_path / "nothing")


@pytest.mark.parametrize("changes", [{}, {"policy__lora_rank": "2", "policy__lora_targets": '["q_proj"]'}])
def test_a_run_s_ensemble_is_loaded_without_its_settings(tmp_path: Path, changes: dict[str, str]) -> None:
    run = small_run.run(tmp_path, run__rounds="1", run__steps_per_round="1", reward__members="2", **changes)
    loaded = [RewardEnsemble.load(path) for path in (run, run / "rewards")]
    assert len({tuple(one.score(ASKED, [LONG, SHORT])) for one in loaded}) == 1
    assert len(loaded[0].ensemble.members) == 2


def test_comparisons_with_labels_train_like_texts(model: Path, trained: RewardEnsemble) -> None:
    nobody = Provenance("v", 0, 0)
    labelled = [
        LabelledComparison(
            Comparison(f"pair-{i}", prompt, Response(good, nobody), Response(bad, nobody), round=0),
            (Label(f"pair-{i}", "me", Choice.A),),
        )
        for i, (prompt, good, bad) in enumerate(PAIRS)
    ]
    same = RewardEnsemble.train(model, labelled, members=2, epochs=4, lr=3e-3, seed=1)
    assert same.score(ASKED, [LONG, SHORT]) == trained.score(ASKED, [LONG, SHORT])


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        (PAIRS[:1], "at least 2 labelled comparisons"),
        ([*PAIRS, ("q", "a")], "Pair 40 is not"),
        ([("q", "a", "b"), ("q", "", "b")], "of pair 1 is empty"),
        ([("q", "a", "b"), ("q", 3, "b")], "of pair 1 is empty or no text"),
        ([("q", "a " * 500, "b")] * 2, "but the model sees 192"),
    ],
)
def test_bad_pairs_are_named_in_a_sentence(model: Path, pairs: Any, sentence: str) -> None:
    with pytest.raises(HoldfastError, match=sentence):
        RewardEnsemble.train(model, pairs)


def test_bad_arguments_are_named_in_a_sentence(model: Path, trained: RewardEnsemble, tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match=r"not 0, 2 and 0\.001"):
        RewardEnsemble.train(model, PAIRS, members=0)
    with pytest.raises(HoldfastError, match="no model directory"):
        RewardEnsemble.train(tmp_path / "nothing", PAIRS)
    with pytest.raises(HoldfastError, match="no aggregation 'best'; there are mean, median"):
        RewardEnsemble(trained.ensemble, trained.lm, trained.codec, "best")  # type: ignore[arg-type]
    with pytest.raises(HoldfastError, match="as many answers"):
        trained.score(ASKED, [LONG])
    with pytest.raises(HoldfastError, match="of answer 1 is empty"):
        trained.score(ASKED, [LONG, " "])
