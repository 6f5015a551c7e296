"""What is measured: two workloads on models of a few sizes, made once in the work directory and shared by all sides.

    fixed     random weights, prompts of one length, answers that never end before their limit
    natural   a model fine-tuned on the built-in world, its prompts, answers that end by themselves

A model directory holds policy/ and reward/ as transformers writes them, the prompts, and how long answers are.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from holdfast.config import Config
from holdfast.config.schema import SFTConfig, WorldConfig
from holdfast.models.codec import Codec
from holdfast.models.load import save_model
from holdfast.models.policy import Policy
from holdfast.models.prompt import messages_of, plain_text
from holdfast.models.reward_model import RewardModel, trunk_of
from holdfast.models.tiny import SPECIALS, TinyShape, tiny_llama, word_tokenizer
from holdfast.randomness import derive_seed, generator
from holdfast.rollout.choice import Sampling
from holdfast.rollout.sampler import sample
from holdfast.track.progress import Silent
from holdfast.train.sft import fine_tune
from holdfast.worlds.protocol import Task
from holdfast.worlds.registry import load_task, load_world

SEED = 0
FACTS = "workload.json"


@dataclass(frozen=True)
class Size:
    """A Llama, and how much fine-tuning it takes until its answers end where the demonstrations' do."""

    shape: TinyShape
    vocabulary: int
    sft: SFTConfig
    world: WorldConfig = WorldConfig()


@dataclass(frozen=True)
class Kind:
    """A workload: `prompt_tokens` for made-up prompts, None for those of the built-in world."""

    new_tokens: int
    prompt_tokens: int | None


SIZES = {
    "default": Size(TinyShape(), 0, SFTConfig(lr=4e-3)),
    "1m": Size(TinyShape(128, 4, 4, 384, 160), 1024, SFTConfig(epochs=2, lr=2e-3)),
    # 15 million parameters twice: two wide layers, where the vocabulary weighs more, and five narrower ones.
    "15m": Size(TinyShape(512, 2, 8, 1376, 160), 8192, SFTConfig(epochs=1, lr=5e-4)),
    "deep": Size(TinyShape(384, 5, 6, 1024, 160), 8192, SFTConfig(epochs=1, lr=5e-4)),
    "quick": Size(
        TinyShape(16, 1, 2, 32, 96),
        0,
        SFTConfig(epochs=1, lr=2e-2, warmup_steps=2),
        WorldConfig(options={"prompts": 64, "demonstrations": 128, "heldout": 8}),
    ),
}
KINDS = {"fixed": Kind(48, 16), "natural": Kind(64, None)}
QUICK_KINDS = {"fixed": Kind(6, 5), "natural": Kind(12, None)}


@dataclass(frozen=True)
class Workload:
    """A model directory with its prompts, ready to be worked on by any side."""

    name: str
    directory: Path
    prompts: list[list[int]]
    new_tokens: int
    ends: bool
    parameters: int
    mean_length: float

    @property
    def policy(self) -> Path:
        return self.directory / "policy"

    @property
    def reward(self) -> Path:
        return self.directory / "reward"


def workload(kind: str, size: str, samples: int, work: Path, say: Callable[[str], None]) -> Workload:
    """The workload in the work directory, made if it is not there yet, or is there in another shape."""
    shape = (QUICK_KINDS if size == "quick" else KINDS)[kind]
    directory = work / "models" / f"{kind}-{size}"
    if not _is_made(directory, SIZES[size]):
        say(f"making the {kind} {size} model in {directory}")
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".making-") as making:
            _make(kind, shape, SIZES[size], Path(making) / "made")
            shutil.rmtree(directory, ignore_errors=True)
            (Path(making) / "made").replace(directory)
    facts = json.loads((directory / FACTS).read_text())
    prompts = facts["prompts"][:samples]
    return Workload(
        f"{kind}-{size}", directory, prompts, shape.new_tokens, shape.prompt_tokens is None,
        facts["parameters"], facts["mean_length"],
    )  # fmt: skip


def _is_made(directory: Path, size: Size) -> bool:
    if not (directory / FACTS).is_file():
        return False
    made, shape = json.loads((directory / "policy" / "config.json").read_text()), size.shape
    wanted = (shape.hidden, shape.layers, shape.heads, shape.feed_forward)
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    return tuple(made[name] for name in names) == wanted and made["vocab_size"] >= size.vocabulary


def _make(name: str, kind: Kind, size: Size, directory: Path) -> None:
    config = Config(world=size.world)
    task = load_task(config, load_world(config))
    codec = _codec(task, size)
    vocabulary = max(size.vocabulary, codec.vocabulary)
    lm = tiny_llama(vocabulary, size.shape, derive_seed(SEED, "policy"))
    rng = generator(SEED, "prompts", name)
    if kind.prompt_tokens is None:
        tokens = config.policy.micro_batch_tokens
        fine_tune(Policy(lm), codec, task.demonstrations, size.sft, tokens, generator(SEED, "sft"), Silent())
        chosen = [task.prompts[i] for i in torch.randperm(len(task.prompts), generator=rng)[:512].tolist()]
        prompts = [codec.encode_prompt(p) for p in chosen]
        texts = [
            codec.tokenizer.apply_chat_template(messages_of(p), tokenize=False, add_generation_prompt=True)
            for p in chosen
        ]
    else:
        draws = torch.randint(len(SPECIALS), vocabulary, (512, kind.prompt_tokens), generator=rng)
        prompts, texts = draws.tolist(), []
    save_model(directory / "policy", lm, codec)
    _save_reward(directory / "reward", lm, codec)
    facts = {
        "parameters": sum(p.numel() for p in lm.parameters()),
        "new_tokens": kind.new_tokens,
        "mean_length": _mean_length(lm, codec, prompts, kind),
        "prompts": prompts,
        "texts": texts,
    }
    (directory / FACTS).write_text(json.dumps(facts))


def _codec(task: Task, size: Size) -> Codec:
    """The built-in world's words, and words that nobody says up to the size's vocabulary."""
    texts = [plain_text(p) for p in task.prompts]
    texts += [text for d in task.demonstrations for text in (plain_text(d.prompt), d.response)]
    tokenizer = word_tokenizer(texts)
    unused = size.vocabulary - len(tokenizer)
    if unused > 0:
        tokenizer.add_tokens([f"<unused-{n}>" for n in range(unused)])
    return Codec(tokenizer)


def _save_reward(directory: Path, lm: Any, codec: Codec) -> None:
    """A reward model of the policy's own architecture, in the form that other libraries load."""
    from transformers import LlamaConfig, LlamaForSequenceClassification

    config = LlamaConfig(**{**lm.config.to_dict(), "architectures": None, "num_labels": 1})
    model = LlamaForSequenceClassification(config)
    model.model.load_state_dict(lm.base_model.state_dict())
    with torch.no_grad():
        model.score.weight.copy_(RewardModel(trunk_of(lm), derive_seed(SEED, "reward")).head.weight)
    save_model(directory, model, codec)


def _mean_length(lm: Any, codec: Codec, prompts: list[list[int]], kind: Kind) -> float:
    if kind.prompt_tokens is not None:
        return float(kind.new_tokens)
    rollout = sample(
        Policy(lm), prompts, Sampling(kind.new_tokens), codec.eos_id, codec.pad_id, generator(SEED, "length")
    )
    return sum(rollout.lengths) / len(rollout.lengths)
