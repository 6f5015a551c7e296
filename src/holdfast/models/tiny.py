"""The built-in policy: a small Llama with a tokenizer of words or pieces, built from a world's own texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIALS = ("<pad>", "<eos>", "<unk>", "<guest>", "<answer>")

# Chosen for how fast so small a model learns to look back at the prompt: larger first weights than a large
# model's, and positions that turn within an answer's length.
INITIAL_SD = 0.06
ROPE_BASE = 100.0

# JSON, and the words of whoever asks for it, as a regular expression that a world may name as its pieces. Keys and
# marks that stand together are one piece, so that what a schema forces is forced at once; so is a number, and a word
# with the space before it.
JSON_PIECES = r'(?:"[a-z]+":|[\[\]{}",:])+| ?\d+(?:\.\d+)?| ?[A-Za-z]+|.'

CHAT_TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}<answer>{{ m['content'] }}{{ eos_token }}"
    "{% else %}<guest>{{ m['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<answer>{% endif %}"
)


@dataclass(frozen=True)
class TinyShape:
    """The size of the built-in policy."""

    hidden: int = 96
    layers: int = 2
    heads: int = 8
    feed_forward: int = 256
    context: int = 160


def word_tokenizer(texts: Iterable[str]) -> Any:
    """One token per word or punctuation mark of `texts`. Spaces live in the words (▁noon), so decoding is exact."""
    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True),
            pre_tokenizers.Split(Regex(r"[.,:?!]"), behavior="isolated"),
        ]
    )
    return _over(texts, split, decoders.Metaspace(replacement="▁", prepend_scheme="always"))


def piece_tokenizer(texts: Iterable[str], pieces: str) -> Any:
    """One token for each match of a regular expression in `texts`. Tokens joined are the text: grammars can be spelt.

    Every character is a token too: a grammar may force one before it is known what it stands together with. In a token
    a space is written ▁; nothing is put before or between them.
    """
    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pieces), behavior="isolated"),
            pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="never", split=False),
        ]
    )
    given = list(texts)
    chars = sorted({char for text in given for char in text})
    return _over([*given, *chars], split, decoders.Metaspace(replacement="▁", prepend_scheme="never"))


def _over(texts: Iterable[str], split: Any, decoder: Any) -> Any:
    """A tokenizer whose tokens are what `split` makes of the texts."""
    words = sorted({piece for text in texts for piece, _ in split.pre_tokenize_str(text)})
    vocabulary = {token: i for i, token in enumerate([*SPECIALS, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoder
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=["<guest>", "<answer>"],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def is_built_in(lm: Any, tokenizer: Any) -> bool:
    """Whether a model is one that was built here, also when it comes from a directory."""
    return bool(lm.config.model_type == "llama" and tokenizer.chat_template == CHAT_TEMPLATE)


def tiny_llama(vocabulary: int, shape: TinyShape, seed: int, pad_id: int = 0, eos_id: int = 1) -> Any:
    """A freshly initialised Llama of the given shape; the same seed gives the same weights."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        intermediate_size=shape.feed_forward,
        max_position_embeddings=shape.context,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=eos_id,
        pad_token_id=pad_id,
        attention_dropout=0.0,
        initializer_range=INITIAL_SD,
        rope_theta=ROPE_BASE,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)
