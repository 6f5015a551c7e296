"""A published reward model that learns: its rate, labels that were brought, and its service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import model_directories
import small_run
from holdfast.config import load_config
from holdfast.control.presets import BUILT_IN, SMALL_PRETRAINED
from holdfast.models.load import load_causal_lm, load_codec
from holdfast.models.prompt import Message
from holdfast.reward.ensemble import VersionStore
from holdfast.reward.scores import Asked
from holdfast.reward.sources.model import ModelSource
from holdfast.run.inputs import build_tiny
from holdfast.run.rates import with_rates
from holdfast.worlds.registry import load_task, load_world
from reward_server import serving_rewards, texts_of
from small_run import events_of, rows_of

LEARNS = {"reward__refresh": "true", "preferences__per_round": "16", "gate__use": "false"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"model:{model_directories.classifier(tmp_path_factory.mktemp('published'))}"


def test_its_rate_is_by_its_own_size(model: str) -> None:
    config = load_config(None, {"reward.source": model, "reward.refresh": True})
    lm, codec = build_tiny(config, load_task(config, load_world(config)))
    rated, chosen = with_rates(config, lm, codec)
    assert rated.refresh.lr == SMALL_PRETRAINED.rates["refresh.lr"] != BUILT_IN.rates["refresh.lr"]
    assert (rated.reward.lr, "reward.lr" in chosen) == (0.0, False), "no first version is trained"


def test_labels_that_were_brought_are_new_to_it(model: str, tmp_path: Path) -> None:
    words = ("open", "late", "far", "warm", "good", "near")
    rows = [{"prompt": f"is it {word} ?", "chosen": "yes", "rejected": "no"} for word in words]
    file = tmp_path / "preferences.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {**LEARNS, "preferences__per_round": "0", "run__rounds": "2", "reward__source": model}
    learnt = [
        events_of(small_run.run(tmp_path / name, **settings, **brought), "refresh")[0]["trained_on"]
        for name, brought in (("without", {}), ("with", {"data__preferences": str(file)}))
    ]
    assert 0 < learnt[1] - learnt[0] <= len(rows), "beside labels of audits; a few may be held out"


def test_its_versions_are_served(model: str, tmp_path: Path) -> None:
    """By the service, which is told texts."""
    run = small_run.run(tmp_path, reward__source=model, **{**LEARNS, "run__rounds": "1", "run__steps_per_round": "1"})
    texts = texts_of(run, 4)
    codec = load_codec(run / "reference")  # of which a word may be nothing, or two
    heard = [codec.decode(codec.encode_response(answer)) for _, answer in texts]
    expected = ModelSource(model, "cpu", 8192).score(Asked([prompt for prompt, _ in texts], heard))
    document = VersionStore(run / "rewards").document(1)
    standard = (expected.total_B - document["means"][0]) / document["sds"][0]
    with serving_rewards(run) as served:
        asked = {"prompts": [prompt for prompt, _ in texts], "responses": [answer for _, answer in texts]}
        status, answered, _ = served.post("/score", asked)
    assert status == 200
    assert [answer["members"][0] for answer in answered["answers"]] == pytest.approx(standard.tolist(), abs=1e-3)
    assert rows_of(run / "metrics.jsonl")[0]["ensemble/version"] == 1


def test_whose_tokens_these_are(tmp_path: Path) -> None:
    turns = (Message("system", "be brief"), Message("user", "Hi"))
    _, codec = load_causal_lm(model_directories.qwen2(tmp_path / "policy"))
    tokens = codec.encode_prompt(turns)
    assert "be brief" in str(codec.prompt_of(tokens)), "nobody has kept it, so it is what it says"
    codec.remember_prompts()
    codec.encode_prompt(turns)
    assert codec.prompt_of(tokens) == turns
