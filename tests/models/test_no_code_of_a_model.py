"""A model directory may ask for Python files of its own to be run. Nothing of them is, whoever answers yes."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM

import model_directories
import tally
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.models.load import load_causal_lm

CODE = """
from pathlib import Path
Path("CANARY").write_text("sung")
from transformers import LlamaConfig, LlamaForCausalLM, LlamaTokenizer
class Own(LlamaConfig):
    model_type = "own"
class OwnModel(LlamaForCausalLM):
    config_class = Own
class OwnTokenizer(LlamaTokenizer):
    pass
"""
KINDS = {
    "config": ("config.json", {"AutoConfig": "code.Own"}),
    "model": ("config.json", {"AutoModelForCausalLM": "code.OwnModel"}),
    "tokenizer": ("tokenizer_config.json", {"AutoTokenizer": ["code.OwnTokenizer", None]}),
}


@pytest.fixture
def kind() -> str:
    return "model"


@pytest.fixture
def directory(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that wants its code run, for a user who says yes to everything."""
    monkeypatch.setattr(builtins, "input", lambda *_: "y")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    path: Path = model_directories.llama(tmp_path / "model")
    name, auto_map = KINDS[kind]
    settings: dict[str, Any] = json.loads((path / name).read_text())
    settings["auto_map"] = auto_map
    if kind == "config":
        settings["model_type"] = "own"
    if kind == "tokenizer":
        settings["tokenizer_class"] = "OwnTokenizer"
        (path / "tokenizer.json").unlink(missing_ok=True)
    (path / name).write_text(json.dumps(settings))
    tally.count("directories with code opened")
    (path / "code.py").write_text(CODE.replace("CANARY", str(tmp_path / "canary")))
    return path


def test_a_model_that_transformers_knows_is_loaded_without_it(directory: Path) -> None:
    model, _ = load_causal_lm(directory)
    assert type(model) is LlamaForCausalLM
    assert not list(directory.parent.rglob("canary"))


@pytest.mark.parametrize("kind", ["config", "tokenizer"])
def test_it_is_refused_in_a_sentence_and_not_run(directory: Path) -> None:
    with pytest.raises(HoldfastError, match=r"cannot be loaded: it wants Python code of its own to be run") as error:
        load_causal_lm(directory)
    assert "\n" not in str(error.value)
    assert not list(directory.parent.rglob("canary"))


@pytest.mark.parametrize("kind", ["config", "tokenizer"])
def test_a_run_on_it_writes_nothing(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--policy", str(directory), "--name", "a"]) == 2
    assert capsys.readouterr().err.startswith("holdfast: The ")
    assert not (tmp_path / "runs").exists()
    assert not list(tmp_path.rglob("canary"))
