"""Codec over tokenizers of all habits: with and without template, padding, EOS or an EOS after every text."""

from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec
from holdfast.models.prompt import Message, messages_of, plain_text

WORDS = ["<pad>", "</s>", "<s>", "<unk>", "hello", "there", "user:", "assistant:", "\n", "[", "]"]
TURNS = (Message("user", "hello there"), Message("assistant", "hello"), Message("user", "there"))


def _tokenizer(closing: str = "", **kwargs: Any) -> Any:
    """Words and line ends as tokens; `closing` is a template for what stands around every text."""
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Split(" ", "removed")]
    )
    if closing:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=closing, special_tokens=[("<s>", 2), ("</s>", 1)]
        )
    settings = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", **kwargs}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **{k: v for k, v in settings.items() if v is not None})


def test_without_a_template_a_prompt_is_its_text_and_a_line_end() -> None:
    codec = Codec(_tokenizer())
    assert codec.encode_prompt("hello there") == [4, 5, 8]
    # A text that ends in white space keeps its own ending.
    assert codec.encode_prompt("hello\n") == [4, 8]
    assert codec.encode_prompt("hello ") == [4]


def test_without_a_template_a_conversation_is_a_transcript() -> None:
    assert plain_text(TURNS) == "user: hello there\nassistant: hello\nuser: there"
    assert Codec(_tokenizer()).encode_prompt(TURNS) == [6, 4, 5, 8, 7, 4, 8, 6, 5, 8]


def test_with_a_template_it_is_used_for_plain_prompts_too() -> None:
    template = "{% for m in messages %}[ {{ m['content'] }} {% endfor %}{% if add_generation_prompt %}]{% endif %}"
    codec = Codec(_tokenizer(chat_template=template))
    assert codec.encode_prompt("hello") == [9, 4, 10]
    assert codec.encode_prompt(TURNS) == [9, 4, 5, 9, 4, 9, 5, 10]
    assert messages_of("hello") == [{"role": "user", "content": "hello"}]


def test_a_tokenizer_that_closes_every_text_with_eos() -> None:
    codec = Codec(_tokenizer("<s> $A </s>"))
    # The answer starts before the end: BOS stays, EOS goes.
    assert codec.encode_prompt("hello") == [2, 4, 8]
    # An answer has one EOS, and no BOS in the middle of the sequence.
    assert codec.encode_response("hello there") == [4, 5, 1]
    template = "{% for m in messages %}<s> {{ m['content'] }} ]{% endfor %}"
    codec = Codec(_tokenizer("<s> $A </s>", chat_template=template))
    # The template writes its own special tokens; none is added to them.
    assert codec.encode_prompt("hello") == [2, 4, 10]


def test_padding_falls_back_to_eos() -> None:
    assert Codec(_tokenizer()).pad_id == 0
    assert Codec(_tokenizer(pad_token=None)).pad_id == 1


def test_a_tokenizer_without_an_end_is_refused() -> None:
    with pytest.raises(HoldfastError, match="no end-of-sequence token"):
        Codec(_tokenizer(eos_token=None))


def test_a_prompt_without_tokens_is_refused() -> None:
    with pytest.raises(HoldfastError, match="has no tokens"):
        Codec(_tokenizer(chat_template="{{ messages[0]['content'] }}")).encode_prompt("")
    with pytest.raises(HoldfastError, match="has no tokens"):
        Codec(_tokenizer("$A </s>")).encode_prompt(" ")


def test_decoding_leaves_special_tokens_and_outer_spaces_out() -> None:
    codec = Codec(_tokenizer())
    assert codec.decode([4, 5, 1, 0, 0]) == "hello there"
    assert codec.decode([1]) == ""
    assert codec.encode_response("") == [1]


def test_ids_are_plain_ints_and_the_vocabulary_counts_added_tokens() -> None:
    tokenizer = _tokenizer()
    tokenizer.add_tokens(["new"])
    codec = Codec(tokenizer)
    assert codec.vocabulary == len(WORDS) + 1
    assert {type(i) for i in codec.encode_prompt("hello") + codec.encode_response("hello")} == {int}
