"""Best-of-n as people use it: the best is the best, aggregations matter, answers are written, policies distilled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from holdfast.cli.main import main
from holdfast.models.codec import Codec
from holdfast.models.policy import Policy
from holdfast.models.reward_model import RewardModel, trunk_of
from holdfast.models.tiny import TinyShape, tiny_llama, word_tokenizer
from holdfast.reward.ensemble import Ensemble
from holdfast.rollout.choice import Sampling
from holdfast.train.best_of_n import BestOfN, Candidates
from small_run import settings

TEXTS = ["when do you open", "We open at noon.", "is there parking", "Parking is free."]
CODEC = Codec(word_tokenizer(TEXTS))


@pytest.fixture
def chooser() -> BestOfN:
    lm = tiny_llama(CODEC.vocabulary, TinyShape(16, 1, 2, 24, 64), 0)
    members = [RewardModel(trunk_of(lm), seed) for seed in (1, 2, 3)]
    ensemble = Ensemble(members, CODEC.pad_id, 512, means=(0.0,) * 3, sds=(1.0,) * 3)
    return BestOfN(Policy(lm), ensemble, CODEC, Sampling(8))


def test_the_best_is_the_best_of_its_own_candidates(chooser: BestOfN) -> None:
    prompts, rng = ["when do you open", "is there parking"], torch.Generator().manual_seed(0)
    best = chooser.answers(prompts, 12, rng)
    again = list(chooser.candidates(prompts, 12, torch.Generator().manual_seed(0)))
    for answer, candidates in zip(best, again, strict=True):
        mean, spread = candidates.members_KN.mean(0), candidates.members_KN.var(0, unbiased=False)
        scores = mean - 0.1 * spread
        assert answer.score == pytest.approx(float(scores.max()), abs=1e-5)
        assert answer.tokens == candidates.tokens[int(scores.argmax())]
        assert answer.mean_score == pytest.approx(float(scores.mean()), abs=1e-5)
        assert len(candidates.tokens) == answer.n == 12


def test_scores_are_those_of_the_ensemble_whichever_answers_repeat(chooser: BestOfN) -> None:
    (candidates,) = chooser.candidates(["is there parking"], 20, torch.Generator().manual_seed(1))
    ids = [CODEC.encode_prompt("is there parking")] * 20
    torch.testing.assert_close(
        candidates.members_KN, chooser.ensemble.scores(ids, candidates.tokens), atol=1e-5, rtol=0
    )


def test_aggregations_by_hand(chooser: BestOfN) -> None:
    # Answers score (3, -1), (1, 0.8) and (0.5, 0.6): means 1, 0.9, 0.55; worst -1, 0.8, 0.5.
    members = torch.tensor([[3.0, 1.0, 0.5], [-1.0, 0.8, 0.6]])
    candidates = Candidates("when do you open", [[5], [6], [7]], [True] * 3, members)
    picked = {}
    for kind in ("mean", "worst", "uncertainty"):
        chooser.aggregation = kind  # type: ignore[assignment]
        picked[kind] = chooser.pick(candidates).tokens
    # Uncertainty: 1 - 0.1 * 4 = 0.6; 0.9 - 0.1 * 0.01 = 0.899; 0.55 - 0.1 * 0.0025
    assert picked == {"mean": [5], "worst": [6], "uncertainty": [6]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    home = tmp_path_factory.mktemp("trained")
    model, reward = str(home / "sft"), str(home / "rm")
    more = {"sft__epochs": "20", "rollout__max_new_tokens": "24"}
    assert main(["sft", model, *settings(**more)]) == 0
    assert main(["reward", reward, "--policy", model, *settings(**more)]) == 0
    return model, reward


def words(trained: tuple[str, str], *more: str) -> list[str]:
    """The small settings, but for those that have options of their own here."""
    model, reward = trained
    small = settings(rollout__max_new_tokens="24")
    given = [w for w in small[1::2] if not w.startswith(("bestofn.n=", "reward.aggregation=", "world.name="))]
    return ["bestofn", "--policy", model, "--reward", reward, *(x for w in given for x in ("--set", w)), *more]


def test_answers_as_json_and_as_a_file(
    trained: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "answers.jsonl"
    assert main(words(trained, "--json", "--out", str(out), "--n", "6")) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows == [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 8
    assert all(row["n"] == 6 and row["score"] >= row["mean_score"] and len(row["members"]) == 2 for row in rows)


def test_more_answers_find_a_better_one(trained: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    means = []
    for n in ("1", "32"):
        assert main(words(trained, "--json", "--n", n)) == 0
        rows = json.loads(capsys.readouterr().out)
        means.append(sum(row["score"] for row in rows) / len(rows))
    assert means[1] > means[0] + 0.5


def test_prompts_of_one_s_own(trained: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Hello, is there parking?\nHello, when do you open?\n")
    assert main(words(trained, "--json", "--prompts", str(prompts), "--set", "world.options={}")) == 0
    assert [row["prompt"] for row in json.loads(capsys.readouterr().out)] == prompts.read_text().splitlines()


def test_distillation_raises_what_one_answer_scores(
    trained: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stages.distillation.EPOCHS", 4)
    better = tmp_path / "better"
    more = ["--set", "bestofn.prompts=64", "--set", "bestofn.lr=0.01"]
    assert main(words(trained, "--distil", str(better), "--json", "--n", "16", *more)) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["score_imitated"] > told["score_before"]
    scores = []
    for model in (trained[0], str(better)):
        assert main(words((model, trained[1]), "--json", "--n", "32")) == 0
        rows = json.loads(capsys.readouterr().out)
        scores.append(sum(row["mean_score"] for row in rows) / len(rows))
    assert scores[1] > scores[0]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--n", "0"], "bestofn.n is 0"),
        (["--aggregation", "best"], "reward.aggregation is 'best'"),
        (["--limit", "0"], "--limit is 0"),
        (["--out", "MODEL"], "exists already"),
        (["--distil", "MODEL"], "exists already"),
        (["--reward", "gone"], "no reward ensemble in gone"),
        (["--prompts", "gone.txt"], "gone.txt"),
    ],
)
def test_bad_input(
    more: list[str], sentence: str, trained: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [trained[0] if word == "MODEL" else word for word in more]
    assert main(words(trained, *given)) == 2
    assert sentence in capsys.readouterr().err
