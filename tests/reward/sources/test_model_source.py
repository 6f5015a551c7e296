"""A sequence-classification directory as a reward: what it reads, which logit it is, and what is no reward model."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    PreTrainedTokenizerFast,
)

import model_directories
from holdfast.errors import HoldfastError
from holdfast.models.prompt import Message
from holdfast.reward.scores import Asked, Scores
from holdfast.reward.sources.model import ModelSource

SIZES: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 96, "initializer_range": 0.3,
}  # fmt: skip
TEXTS = [
    ("How are you?", "Fine."),
    ("Why?", "Because it is so, and it has been so for a long time."),
    ("Hi", ""),
    ("A", "B C"),
]
BATCH = Asked([prompt for prompt, _ in TEXTS], [answer for _, answer in TEXTS])


def save(place: Path, model: Any, tokenizer: Any) -> str:
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    return f"model:{place}"


def chat_llama(place: Path, **changes: Any) -> str:
    """A chat template and a padding token."""
    return f"model:{model_directories.classifier(place, **{**SIZES, **changes})}"


def gpt2(place: Path) -> str:
    """No chat template, no padding token."""
    end = "<|endoftext|>"
    tokenizer = model_directories.byte_level_bpe(end, bos_token=end, eos_token=end)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2, n_positions=96, num_labels=1, initializer_range=0.3
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return save(place, GPT2ForSequenceClassification(config), tokenizer)


def bert(place: Path) -> str:
    """Two texts with a border between them."""
    tokenizer = model_directories.byte_level_bpe("[PAD]", "[CLS]", "[SEP]")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer._tokenizer, cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip
    from tokenizers.processors import TemplateProcessing

    fast._tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    sizes = {name: value for name, value in SIZES.items() if name != "num_key_value_heads"}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return save(place, BertForSequenceClassification(BertConfig(vocab_size=len(fast), num_labels=1, **sizes)), fast)


def opened(spec: str, max_tokens: int = 8192) -> ModelSource:
    return ModelSource(spec, "cpu", max_tokens)


def totals(scores: Scores) -> list[float | None]:
    return [None if math.isnan(value) else value for value in scores.total_B.tolist()]


def alone(model: Any, ids: list[int], **more: list[int]) -> float:
    """The textbook route: one text without padding."""
    with torch.no_grad():
        inputs = {name: torch.tensor([values]) for name, values in more.items()}
        return float(model(input_ids=torch.tensor([ids]), **inputs).logits[0, 0])


def test_by_the_models_own_chat_template(tmp_path: Path) -> None:
    source = opened(chat_llama(tmp_path))
    model, tokenizer = source._model, source._tokenizer
    texts = [
        f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n" for prompt, answer in TEXTS
    ]
    expected = [alone(model, tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    assert totals(source.score(BATCH)) == pytest.approx(expected, abs=1e-5)
    assert totals(opened(f"model:{tmp_path}", max_tokens=30).score(BATCH)) == pytest.approx(expected, abs=1e-5)
    turns = (Message("system", "be brief"), Message("user", "Hi"))
    text = (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n"
    )
    expected = [alone(model, tokenizer(text, add_special_tokens=False)["input_ids"])]
    assert totals(source.score(Asked([turns], ["Yo"]))) == pytest.approx(expected, abs=1e-5)


def test_without_a_template_or_a_padding_token(tmp_path: Path) -> None:
    source = opened(gpt2(tmp_path))
    tokenizer = source._tokenizer
    expected = [
        alone(
            source._model,
            tokenizer(f"{prompt}\n")["input_ids"] + tokenizer(answer)["input_ids"] + [tokenizer.eos_token_id],
        )
        for prompt, answer in TEXTS
    ]
    assert totals(source.score(BATCH)) == pytest.approx(expected, abs=1e-5)
    assert source._model.config.pad_token_id is None


def test_an_encoder_sees_two_texts(tmp_path: Path) -> None:
    source = opened(bert(tmp_path))
    expected = []
    for prompt, answer in TEXTS:
        (ids,), (parts,) = (source._tokenizer([prompt], [answer])[name] for name in ("input_ids", "token_type_ids"))
        assert 1 in parts
        expected.append(alone(source._model, ids, token_type_ids=parts))
    assert totals(source.score(BATCH)) == pytest.approx(expected, abs=1e-5)


def test_of_several_labels_one_is_named(tmp_path: Path) -> None:
    names = {"id2label": {0: "bad", 1: "fair", 2: "good"}, "label2id": {"bad": 0, "fair": 1, "good": 2}}
    spec = chat_llama(tmp_path, num_labels=3, **names)
    with pytest.raises(HoldfastError, match=r"has 3 labels \(bad, fair and good\); say which one .* such as .*#good"):
        opened(spec)
    with pytest.raises(HoldfastError, match="has no label 'best'; there is bad, fair and good"):
        opened(f"{spec}#best")
    source = opened(f"{spec}#good")
    with torch.no_grad():
        ids = source._tokenizer(
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n", add_special_tokens=False
        )["input_ids"]
        logits = source._model(input_ids=torch.tensor([ids])).logits[0].double()
    p = float(logits.softmax(0)[2])
    asked = Asked(["Hi"], ["Yo"])
    assert totals(source.score(asked)) == pytest.approx([math.log(p / (1 - p))], abs=1e-5)
    assert totals(opened(f"{spec}#2").score(asked)) == totals(source.score(asked))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "problem_type": "regression"}))
    assert totals(opened(f"{spec}#good").score(asked)) == pytest.approx([float(logits[2])], abs=1e-5)


def test_a_text_that_is_too_long_has_no_score(tmp_path: Path) -> None:
    scores = opened(chat_llama(tmp_path)).score(Asked(["Hi", "Hi"], ["Yo", "very " * 200]))
    assert totals(scores)[1] is None
    assert totals(scores)[0] is not None
    assert scores.unscored == {1: "the reward model sees no more than 96 tokens"}


def test_a_template_that_refuses_a_prompt(tmp_path: Path) -> None:
    spec = chat_llama(tmp_path)
    path = tmp_path / "chat_template.jinja"
    path.write_text(
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + path.read_text()
    )
    scores = opened(spec).score(Asked([(Message("system", "s"), Message("user", "u")), "Hi"], ["a", "a"]))
    assert scores.scored_B.tolist() == [False, True]
    assert "tokenizer refuses it: no system" in scores.unscored[0]


def test_the_same_batch_has_the_same_bits(tmp_path: Path) -> None:
    spec = chat_llama(tmp_path)
    assert torch.equal(opened(spec).score(BATCH).total_B, opened(spec).score(BATCH).total_B)


def test_what_is_no_reward_model(tmp_path: Path) -> None:
    model_directories.llama(tmp_path / "lm")
    with pytest.raises(
        HoldfastError, match=r"lack 1 tensors of the model, score.weight for one; give a model that was"
    ):
        opened(f"model:{tmp_path / 'lm'}")
    with pytest.raises(HoldfastError, match="no model directory"):
        opened(f"model:{tmp_path / 'nothing'}")
    spec = chat_llama(tmp_path / "own")
    config = json.loads((tmp_path / "own" / "config.json").read_text())
    changed = {**config, "model_type": "own", "auto_map": {"AutoConfig": "code.Own"}}
    (tmp_path / "own" / "config.json").write_text(json.dumps(changed))
    (tmp_path / "own" / "code.py").write_text("raise SystemExit")
    with pytest.raises(HoldfastError, match="it wants Python code of its own to be run"):
        opened(spec)
