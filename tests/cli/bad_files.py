"""Files that are wrong in one way each, written into the working directory of a test."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from model_directories import byte_level_bpe, save

GOOD_WORLD = """
from holdfast.preferences.comparison import Choice, Demonstration, Label


class Good:
    name = "good"

    def __init__(self, seed, **options):
        pass

    def prompts(self):
        return [f"what is {n}" for n in range(8)]

    def heldout_prompts(self):
        return ["what is nine"]

    def demonstrations(self):
        return [Demonstration(p, "it is a number") for p in self.prompts()]

    def labeller(self, settings):
        return Longest(0)


class Longest:
    name = "longest"

    def __init__(self, seed):
        pass

    def label(self, comparisons):
        return [Label(c.id, self.name, self.choice(c)) for c in comparisons]

    def choice(self, c):
        return Choice.A if len(c.a.text) > len(c.b.text) else Choice.B
"""

# class -> what it does otherwise than the good world
BAD_WORLDS = {
    "NoPrompts": "def prompts(self):\n        return []",
    "Raising": "def prompts(self):\n        raise RuntimeError('the server is down')",
    "NoArguments": "def __init__(self):\n        pass",
    "Numbers": "def prompts(self):\n        return [1, 2, 3]",
    "Tuples": "def demonstrations(self):\n        return [('what', 'that')]",
    "RaisingLabeller": "def labeller(self, settings):\n        raise ValueError('nobody is there')",
}


def write_worlds() -> None:
    """worlds.py with worlds and labellers, good and bad; syntax.py that is not Python."""
    text = GOOD_WORLD
    for name, body in BAD_WORLDS.items():
        text += f"\n\nclass {name}(Good):\n    {body}\n"
    text += "\n\nclass Bare:\n    def __init__(self, seed):\n        self.prompts = list\n"
    Path("worlds.py").write_text(text)
    Path("syntax.py").write_text("def prompts(:\n")


def write_data() -> None:
    prompts = [json.dumps({"prompt": f"question {n}"}) for n in range(8)]
    Path("prompts.jsonl").write_text("\n".join(prompts))
    Path("empty.jsonl").write_text("")
    Path("broken.jsonl").write_text('{"prompt": "a"}\n{"prompt": \n')
    Path("columns.jsonl").write_text('{"question": "a"}\n')
    Path("prompts.dat").write_text("When do you open?\n")
    Path("long.jsonl").write_text(json.dumps({"prompt": "word " * 300}))
    Path("same.jsonl").write_text(json.dumps({"prompt": "a", "chosen": "b", "rejected": "b"}))
    Path("one.jsonl").write_text(json.dumps({"prompt": "a", "chosen": "b", "rejected": "c"}))
    rows = [{"prompt": "a", "chosen": "word " * 300, "rejected": f"c{n}"} for n in range(3)]
    Path("long_labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
    Path("long_demonstrations.jsonl").write_text(json.dumps({"prompt": "a", "completion": "word " * 300}))
    Path("not.toml").write_text("[run\nseed = 1\n")
    Path("bytes.toml").write_bytes(b"\xff\xfe")
    Path("keys.toml").write_text("[kl]\nbetta = 0.1\n")


def corrupt(directory: Path) -> None:
    """The header of the weights says one thing and the file holds another."""
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def lose_a_layer(directory: Path) -> None:
    """Take one tensor out of the weights, leaving a sound file."""
    path = directory / "model.safetensors"
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    last = max((k for k in header if k != "__metadata__"), key=lambda k: header[k]["data_offsets"][0])
    end = header.pop(last)["data_offsets"][0]
    encoded = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data[8 + length : 8 + length + end])


def without_eos(directory: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(directory)
    tokenizer.eos_token = None
    tokenizer.save_pretrained(directory)


def with_too_many_tokens(directory: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(directory)
    tokenizer.add_tokens([f"<extra-{n}>" for n in range(5)])
    tokenizer.save_pretrained(directory)


def without_tokenizer(directory: Path) -> None:
    for path in directory.glob("token*"):
        path.unlink()


def without_weights(directory: Path) -> None:
    (directory / "model.safetensors").unlink()


def bad_config(directory: Path) -> None:
    (directory / "config.json").write_text("{")


def unknown_architecture(directory: Path) -> None:
    (directory / "config.json").write_text('{"model_type": "no-such-model"}')


BAD_MODELS: dict[str, Callable[[Path], None]] = {
    "corrupt": corrupt,
    "a-layer-short": lose_a_layer,
    "without-eos": without_eos,
    "too-many-tokens": with_too_many_tokens,
    "without-tokenizer": without_tokenizer,
    "without-weights": without_weights,
    "bad-config": bad_config,
    "unknown-architecture": unknown_architecture,
}


def write_models(good: Path) -> None:
    """A sound model directory and one for each way to break it."""
    shutil.copytree(good, "model")
    for name, breaking in BAD_MODELS.items():
        breaking(Path(shutil.copytree(good, name)))
    Path("empty").mkdir()


def save_small_gpt2(directory: Path) -> Path:
    """Learned positions: one token too many is an index error deep inside the model."""
    end = "<|endoftext|>"
    tokenizer = byte_level_bpe(end, bos_token=end, eos_token=end)
    return save(directory, "gpt2", tokenizer, n_positions=64, bos_token_id=0, eos_token_id=0, pad_token_id=None)
