"""Model directories as users bring them: random weights of a real architecture, a byte-level BPE tokenizer.

Each tokenizer lacks something that others have: a chat template, a padding token, a beginning-of-text token.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

import tiny_models
from holdfast.worlds.concierge import Concierge

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTEXT = 192


def byte_level_bpe(*special: str, begins_with: str = "", **roles: str) -> Any:
    """A tokenizer trained on the built-in world's texts, made as GPT-2's was."""
    world = Concierge(0, prompts=40, demonstrations=40, heldout=1)
    texts = [str(p) for p in world.prompts()] + [d.response for d in world.demonstrations()]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if begins_with:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begins_with} $A",
            special_tokens=[(begins_with, tokenizer.token_to_id(begins_with))],
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)


def classifier(directory: Path, **changes: Any) -> Path:
    """A sequence-classification model with one label, a chat template and a padding token."""
    tokenizer = byte_level_bpe(
        "<|pad|>", "<|im_start|>", "<|im_end|>", eos_token="<|im_end|>", pad_token="<|pad|>", chat_template=CHATML
    )
    config = LlamaConfig(**{
        "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 2, "max_position_embeddings": CONTEXT, "initializer_range": 0.3,
        "vocab_size": len(tokenizer), "pad_token_id": 0, "num_labels": 1, **changes,
    })  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = LlamaForSequenceClassification(config)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def llama(directory: Path) -> Path:
    """A beginning-of-text token that the tokenizer adds, a padding token, no chat template; untied head."""
    tokenizer = byte_level_bpe(
        "<pad>", "</s>", "<s>", begins_with="<s>", bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    return save(directory, "llama", tokenizer, bos_token_id=2, max_position_embeddings=CONTEXT)


def gpt2(directory: Path) -> Path:
    """One special token for everything, no padding token, learned positions, dropout on, tied head."""
    end = "<|endoftext|>"
    tokenizer = byte_level_bpe(end, bos_token=end, eos_token=end)
    return save(directory, "gpt2", tokenizer, n_positions=CONTEXT, bos_token_id=0, eos_token_id=0, pad_token_id=None)


def qwen2(directory: Path) -> Path:
    """A chat template, answers that end in <|im_end|>, more embeddings than tokens, tied head."""
    tokenizer = byte_level_bpe(
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHATML,
    )
    return save(
        directory,
        "qwen2",
        tokenizer,
        vocab_size=len(tokenizer) + 13,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        eos_token_id=2,
    )


def gemma2(directory: Path) -> Path:
    """Soft-capped logits, so the head is more than a matrix, and layers that see only the last few tokens."""
    tokenizer = byte_level_bpe(
        "<pad>",
        "<eos>",
        "<bos>",
        begins_with="<bos>",
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
    )
    return save(directory, "gemma2", tokenizer, bos_token_id=2, max_position_embeddings=CONTEXT)


MAKERS: dict[str, Callable[[Path], Path]] = {"llama": llama, "gpt2": gpt2, "qwen2": qwen2, "gemma2": gemma2}


def save(directory: Path, architecture: str, tokenizer: Any, **changes: Any) -> Path:
    tiny_models.build(architecture, seed=1, **({"vocab_size": len(tokenizer)} | changes)).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
