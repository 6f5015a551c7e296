"""What a stage starts from: a Hugging Face directory, a run (its newest policy), one of its checkpoints, or SmolLM2.

./my-model    runs/concierge-0    runs/concierge-0@round-0003    smollm2
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.checkpoint.store import CheckpointStore, Loaded
from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec
from holdfast.models.load import load_causal_lm
from holdfast.models.lora import adapted, lora_of, merged
from holdfast.models.smollm2 import NAME, smollm2_directory
from holdfast.models.weights import load_moving_weights
from holdfast.run.directory import RunDirectory


def load_policy(spec: str | Path, dtype: str = "float32") -> tuple[Any, Codec]:
    """Model and codec of a directory, a run, or RUN@CHECKPOINT; nothing is fetched."""
    text = str(spec)
    if text == NAME and not Path(text).exists():
        return load_causal_lm(smollm2_directory(), dtype)
    if not Path(text).exists() and "@" in text:
        path, _, checkpoint = text.rpartition("@")
        return checkpoint_policy(RunDirectory.open(Path(path)), checkpoint, dtype)[:2]
    run = RunDirectory(Path(text))
    if run.manifest_file.is_file() and not (run.path / "config.json").is_file():
        return checkpoint_policy(RunDirectory.open(run.path), None, dtype)[:2]
    return load_causal_lm(run.path, dtype)


def directory_of(spec: str) -> Path:
    """Where the tokenizer and config of a policy are that `load_policy` would load; its weights are not read."""
    if spec == NAME and not Path(spec).exists():
        return smollm2_directory()
    path = spec if Path(spec).exists() or "@" not in spec else spec.rpartition("@")[0]
    run = RunDirectory(Path(path))
    foreign = (run.path / "config.json").is_file() or not run.manifest_file.is_file()
    return run.path if foreign else RunDirectory.open(run.path).reference


def checkpoint_policy(
    run: RunDirectory, checkpoint: str | None, dtype: str = "float32", merge: bool = True
) -> tuple[Any, Codec, Loaded]:
    """The policy of a checkpoint (the newest sound one), and the checkpoint with those that were passed over.

    Adapters are merged into the weights, or, where that is not wanted, stay beside them.
    """
    store = CheckpointStore(run.checkpoints)
    if run.manifest().get("stage") == "pipeline":
        raise HoldfastError(f"{run.path} is a pipeline; name one of the stages in {run.path / 'stages'}.")
    if not run.reference.is_dir() and store.is_empty():
        raise HoldfastError(f"{run.path} has no policy yet; `holdfast resume {run.path}` goes on with it.")
    run.check_reference()
    loaded = store.load_newest() if checkpoint is None else Loaded(checkpoint, store.load(checkpoint), ())
    lm, codec = load_causal_lm(run.reference, dtype)
    lora, prefix = lora_of(run.config().policy), "lm."
    if lora.rank:
        lm = adapted(lm, lora, seed=0)
    moving = loaded.snapshot.tensors["policy"]
    load_moving_weights(lm, {k.removeprefix(prefix): v for k, v in moving.items() if k.startswith(prefix)})
    return merged(lm) if merge else lm, codec, loaded
