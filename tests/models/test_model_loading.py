"""Loading a model directory: what works, and a sentence for each way in which it does not."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.errors import HoldfastError
from holdfast.models.load import load_causal_lm
from holdfast.models.tiny import word_tokenizer
from tiny_models import build

TEXTS = ["we open at noon. hello, there?"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A whole model directory."""
    return _save(tmp_path / "model", build("llama"))


def _save(path: Path, model: Any, words: int = 0) -> Path:
    model.save_pretrained(path)
    word_tokenizer([*TEXTS, *(f"w{i}" for i in range(words))]).save_pretrained(path)
    return path


def test_a_saved_model_comes_back_with_its_tokenizer(directory: Path) -> None:
    model, codec = load_causal_lm(directory)
    expected = build("llama")
    for (name, a), b in zip(expected.state_dict().items(), model.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert codec.decode(codec.encode_response(TEXTS[0])) == TEXTS[0]
    assert not model.training


def test_half_precision_weights_are_loaded_as_float32(tmp_path: Path) -> None:
    model, _ = load_causal_lm(_save(tmp_path / "half", build("llama").to(torch.bfloat16)))
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_tied_weights_are_not_missing_weights(tmp_path: Path) -> None:
    for name, model in (("gpt2", build("gpt2")), ("tied", build("llama", tie_word_embeddings=True))):
        loaded, _ = load_causal_lm(_save(tmp_path / name, model))
        assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="no model directory"):
        load_causal_lm(tmp_path / "none")


def test_no_config(directory: Path) -> None:
    (directory / "config.json").unlink()
    with pytest.raises(HoldfastError, match=r"has no config\.json"):
        load_causal_lm(directory)


def test_no_safe_weights(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    with pytest.raises(HoldfastError, match=r"has no \.safetensors weights"):
        load_causal_lm(directory)


@pytest.mark.parametrize("text", ["{", "", '{"model_type": "no-such-model"}'])
def test_a_config_that_is_none(directory: Path, text: str) -> None:
    (directory / "config.json").write_text(text)
    with pytest.raises(HoldfastError, match=f"The model in {directory} cannot be loaded"):
        load_causal_lm(directory)


def test_weights_cut_short(directory: Path) -> None:
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(HoldfastError, match="cannot be loaded"):
        load_causal_lm(directory)


def test_weights_of_another_shape(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
    with pytest.raises(HoldfastError, match="cannot be loaded"):
        load_causal_lm(directory)


def test_a_trunk_without_its_head_is_not_completed_with_random_numbers(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match=r"lack 1 tensors of the model, lm_head\.weight"):
        load_causal_lm(_save(tmp_path / "trunk", build("llama").model))


def test_no_tokenizer(directory: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"):
        (directory / name).unlink(missing_ok=True)
    with pytest.raises(HoldfastError, match=r"The tokenizer in .* cannot be loaded"):
        load_causal_lm(directory)


def test_more_tokens_than_the_model_embeds(tmp_path: Path) -> None:
    directory = _save(tmp_path / "small", build("llama"), words=30)
    with pytest.raises(HoldfastError, match="but the model embeds only 23"):
        load_causal_lm(directory)
