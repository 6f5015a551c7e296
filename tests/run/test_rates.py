"""Which learning rates a run has: what is set, what suits the model, what an earlier start has chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

import model_directories
from holdfast.config import Config, load_config
from holdfast.control.presets import ADAPTERS, BUILT_IN, SMALL_PRETRAINED
from holdfast.models.load import load_causal_lm, save_model
from holdfast.run.inputs import build_tiny
from holdfast.run.rates import with_rates
from holdfast.worlds.registry import load_task, load_world


@pytest.fixture(scope="module")
def built_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in model as a directory, as a run's reference is one."""
    config = load_config(None, ["world.options={prompts = 8, demonstrations = 8, heldout = 1}"])
    path = tmp_path_factory.mktemp("built-in") / "model"
    save_model(path, *build_tiny(config, load_task(config, load_world(config))))
    return path


def rates_of(config: Config) -> dict[str, float]:
    return {name: getattr(config, name.partition(".")[0]).lr for name in BUILT_IN.rates}


def test_the_built_in_model_is_known_from_its_directory_and_any_other_is_not(built_in: Path, tmp_path: Path) -> None:
    config, chosen = with_rates(Config(), *load_causal_lm(built_in))
    assert (chosen.kind, rates_of(config)) == (BUILT_IN.kind, BUILT_IN.rates)
    config, chosen = with_rates(Config(), *load_causal_lm(model_directories.llama(tmp_path / "llama")))
    assert (chosen.kind, rates_of(config)) == (SMALL_PRETRAINED.kind, SMALL_PRETRAINED.rates)
    assert chosen.words(["reward.lr", "ppo.lr"]) == [
        f"Learning rates for a small pretrained model ({chosen.weights:,} weights): reward.lr = 0.0003, ppo.lr = 3e-6; "
        "steps are then sized by the KL that they move."
    ]


def test_adapters_have_rates_of_their_own_but_for_the_built_in_model(built_in: Path, tmp_path: Path) -> None:
    lora = load_config(None, ["policy.lora_rank=4"])
    assert rates_of(with_rates(lora, *load_causal_lm(model_directories.gpt2(tmp_path)))[0]) == ADAPTERS.rates
    assert rates_of(with_rates(lora, *load_causal_lm(built_in))[0]) == BUILT_IN.rates


def test_a_rate_thirty_times_what_suits_the_model_is_warned_of(tmp_path: Path) -> None:
    given = load_config(None, ["reward.lr=0.009", "refresh.lr=0.0029", "ppo.lr=1.0"])
    _, chosen = with_rates(given, *load_causal_lm(model_directories.llama(tmp_path / "llama")))
    (warning, _) = chosen.words(["reward.lr", "refresh.lr", "sft.lr", "ppo.lr"])
    assert warning.startswith(
        "WARNING: reward.lr = 0.009 is 30 times the 0.0003 that suits a small pretrained model of "
    )
    assert chosen.words(["refresh.lr", "ppo.lr"]) == [], "29 times is not told, and a step at ppo.lr is tried"


def test_a_rate_that_is_set_stays_and_one_that_was_chosen_before_comes_again(built_in: Path) -> None:
    given = load_config(None, ["ppo.lr=1e-6", "sft.lr=0.05"])
    config, chosen = with_rates(given, *load_causal_lm(built_in), {"ppo.lr": 0.7, "reward.lr": 0.125})
    assert (config.ppo.lr, config.sft.lr, config.reward.lr) == (1e-6, 0.05, 0.125)
    assert "ppo.lr" not in chosen
    assert "reward.lr" in chosen
    assert chosen.words(["ppo.lr", "sft.lr"]) == []
