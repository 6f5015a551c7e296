"""Loading a model with its tokenizer from a directory, and writing one, with errors a user can act on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging as transformers_logging

from holdfast.checkpoint.files import rename, sync, sync_directory
from holdfast.documents import json_of
from holdfast.errors import HoldfastError, first_line
from holdfast.models.codec import Codec
from holdfast.models.policy import context_of

# Loading bars of a model that is in memory within a second only hide what matters.
transformers_logging.disable_progress_bar()
transformers_logging.set_verbosity_error()

# Nothing is fetched, and nothing in the directory is run: without the second, transformers asks at the terminal.
LOCAL = {"local_files_only": True, "trust_remote_code": False}


def load_causal_lm(directory: Path, dtype: str = "float32") -> tuple[Any, Codec]:
    """Model and codec from a local Hugging Face directory; nothing is fetched and no remote code runs."""
    model = _load_model(directory, AutoModelForCausalLM, "causal-LM", "save the whole causal LM, head included", dtype)
    codec = load_codec(directory)
    check_vocabulary(model, codec.vocabulary, directory)
    return model, codec


def load_classifier(directory: Path) -> tuple[Any, Any]:
    """Sequence-classification model and tokenizer, in the same way."""
    model = _load_model(
        directory,
        AutoModelForSequenceClassification,
        "sequence-classification",
        "give a model that was trained to score or classify texts and saved with its head",
    )
    tokenizer = _load_tokenizer(directory)
    check_vocabulary(model, len(tokenizer), directory)
    return model.eval(), tokenizer


def _load_model(directory: Path, auto: Any, kind: str, whole: str, dtype: str = "float32") -> Any:
    """A model of one kind; `whole` says what to do where tensors of it are missing."""
    if not directory.is_dir():
        raise HoldfastError(f"There is no model directory {directory}; give a local Hugging Face {kind} directory.")
    if not (directory / "config.json").is_file():
        raise HoldfastError(f"{directory} has no config.json, so it is not a Hugging Face model directory.")
    if not any(directory.glob("*.safetensors")):
        raise HoldfastError(
            f"{directory} has no .safetensors weights; "
            "save the model with save_pretrained(..., safe_serialization=True)."
        )
    try:
        # Read by itself first: a config that cannot be read otherwise fails as something else, far away.
        json_of((directory / "config.json").read_text(encoding="utf-8"))
        AutoConfig.from_pretrained(directory, **LOCAL)
        model, loading = auto.from_pretrained(
            directory, use_safetensors=True, dtype=dtype, output_loading_info=True, **LOCAL
        )
    except Exception as error:
        raise HoldfastError(f"The model in {directory} cannot be loaded: {_reason(directory, error)}") from error
    if loading["missing_keys"]:
        # transformers would fill them with random numbers and go on.
        raise HoldfastError(
            f"The weights in {directory} lack {len(loading['missing_keys'])} tensors of the model, "
            f"{min(loading['missing_keys'])} for one; {whole}."
        )
    return model


def weights_in(directory: Path) -> int:
    """How many numbers a directory's weights have, by their headers."""
    count = 0
    for file in directory.glob("*.safetensors"):
        with safe_open(file, framework="pt") as opened:
            count += sum(prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118
    return count


def load_codec(directory: Path) -> Codec:
    """The tokenizer of a local Hugging Face directory; its weights are not read."""
    if not directory.is_dir():
        raise HoldfastError(f"There is no directory {directory}; give one with a Hugging Face tokenizer.")
    return Codec(_load_tokenizer(directory))


def _load_tokenizer(directory: Path) -> Any:
    try:
        return AutoTokenizer.from_pretrained(directory, **LOCAL)
    except Exception as error:
        raise HoldfastError(f"The tokenizer in {directory} cannot be loaded: {_reason(directory, error)}") from error


def load_context(directory: Path) -> int | None:
    """The longest sequence that the model of a local directory can take, where its config says so."""
    if not directory.is_dir():
        raise HoldfastError(f"There is no model directory {directory}; give a local Hugging Face causal-LM directory.")
    try:
        return context_of(AutoConfig.from_pretrained(directory, **LOCAL))
    except Exception as error:
        raise HoldfastError(f"The model in {directory} cannot be loaded: {_reason(directory, error)}") from error


def _reason(directory: Path, error: Exception) -> str:
    """Why a model or tokenizer was not loaded, in a sentence."""
    for name in ("config.json", "tokenizer_config.json"):
        with suppress(OSError, ValueError):
            if "trust_remote_code" in str(error) and "auto_map" in (directory / name).read_text(encoding="utf-8"):
                return (
                    f"it wants Python code of its own to be run (auto_map in {name}), and Holdfast runs no code from a "
                    "model directory. Take a model that transformers knows without it."
                )
    return first_line(error)


def save_model(directory: Path, lm: Any, codec: Codec, state: dict[str, Tensor] | None = None) -> None:
    """A directory that `AutoModelForCausalLM.from_pretrained` loads, tokenizer included; `state` if not as it is."""

    def write(temporary: Path) -> None:
        lm.save_pretrained(temporary, state_dict=state)
        codec.tokenizer.save_pretrained(temporary)

    write_model_directory(directory, write)


def write_model_directory(target: Path, write: Callable[[Path], None]) -> None:
    """Fill a directory beside `target` and rename it there, so that a half-written model is never found."""
    temporary = target.with_name(f".tmp-{target.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        write(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for file in temporary.iterdir():
        with file.open("rb") as opened:
            sync(opened.fileno())
    sync_directory(temporary)
    rename(temporary, target)
    sync_directory(target.parent)


def check_vocabulary(model: Any, tokens: int, directory: Path) -> None:
    rows = int(model.get_input_embeddings().weight.shape[0])
    if tokens > rows:
        raise HoldfastError(
            f"The tokenizer in {directory} has {tokens} tokens but the model embeds only {rows}; "
            "call model.resize_token_embeddings(len(tokenizer)) and save both again."
        )
