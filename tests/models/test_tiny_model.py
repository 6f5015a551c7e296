"""The built-in tokenizer gives every text of its world back, and the built-in Llama follows from its seed."""

import pytest
import torch

from holdfast.models.codec import Codec
from holdfast.models.policy import Policy
from holdfast.models.prompt import Message
from holdfast.models.tiny import SPECIALS, TinyShape, tiny_llama, word_tokenizer
from holdfast.worlds.concierge import Concierge
from holdfast.worlds.concierge.facts import FILLERS, TOPICS


@pytest.fixture(scope="module")
def world() -> Concierge:
    return Concierge(1, prompts=250, demonstrations=250, heldout=50, topics=12, most_asked=4)


@pytest.fixture(scope="module")
def codec(world: Concierge) -> Codec:
    texts = [str(p) for p in (*world.prompts(), *world.heldout_prompts())]
    return Codec(word_tokenizer([*texts, *(d.response for d in world.demonstrations())]))


def test_every_answer_comes_back_exactly(world: Concierge, codec: Codec) -> None:
    unknown = codec.tokenizer.unk_token_id
    for d in world.demonstrations():
        ids = codec.encode_response(d.response)
        assert codec.decode(ids) == d.response
        assert ids[-1] == codec.eos_id
        assert unknown not in ids
        assert not set(ids[:-1]) & {codec.pad_id, codec.eos_id}


def test_every_prompt_comes_back_exactly(world: Concierge, codec: Codec) -> None:
    for prompt in (*world.prompts(), *world.heldout_prompts()):
        ids = codec.encode_prompt(prompt)
        assert codec.decode(ids) == prompt
        assert codec.tokenizer.unk_token_id not in ids


def test_every_sentence_of_the_world_is_one_token_per_word_and_mark(codec: Codec) -> None:
    for sentence in [*FILLERS, *(s for t in TOPICS for s in (*t.true, *t.false))]:
        ids = codec.encode_response(f"{sentence}.")
        assert len(ids) == len(sentence.split()) + 2  # the words, the full stop, EOS
        assert codec.decode(ids) == f"{sentence}."


def test_marks_are_tokens_of_their_own() -> None:
    tokenizer = word_tokenizer(["We open at noon. You, there: who?"])
    assert set(tokenizer.get_vocab()) == {
        *SPECIALS, "▁We", "▁open", "▁at", "▁noon", ".", "▁You", ",", "▁there", ":", "▁who", "?",
    }  # fmt: skip


def test_the_chat_template(codec: Codec) -> None:
    ids = codec.encode_prompt("Hello, is there parking?")
    tokens = codec.tokenizer.convert_ids_to_tokens(ids)
    assert tokens == ["<guest>", "▁Hello", ",", "▁is", "▁there", "▁parking", "?", "<answer>"]
    turns = (
        Message("user", "Hello, is there parking?"),
        Message("assistant", "Yes."),
        Message("user", "Hello?"),
    )
    tokens = codec.tokenizer.convert_ids_to_tokens(codec.encode_prompt(turns))
    assert tokens[:8] == ["<guest>", "▁Hello", ",", "▁is", "▁there", "▁parking", "?", "<answer>"]
    # An answer of an earlier turn is closed before the next turn opens.
    assert tokens[-5:] == ["<eos>", "<guest>", "▁Hello", "?", "<answer>"]
    assert codec.encode_prompt((Message("user", "Hello?"),)) == codec.encode_prompt("Hello?")


def test_saved_and_loaded_the_tokenizer_is_the_same(codec: Codec, world: Concierge, tmp_path) -> None:  # type: ignore[no-untyped-def]
    from transformers import AutoTokenizer

    codec.tokenizer.save_pretrained(tmp_path)
    again = Codec(AutoTokenizer.from_pretrained(tmp_path))
    assert (again.eos_id, again.pad_id, again.vocabulary) == (codec.eos_id, codec.pad_id, codec.vocabulary)
    for d in list(world.demonstrations())[:20]:
        assert again.encode_prompt(d.prompt) == codec.encode_prompt(d.prompt)
        assert again.encode_response(d.response) == codec.encode_response(d.response)
        assert again.decode(again.encode_response(d.response)) == d.response


def test_the_same_seed_gives_the_same_weights_and_leaves_torch_s_own_draws_alone() -> None:
    shape = TinyShape(hidden=16, layers=2, heads=2, feed_forward=24, context=32)
    torch.manual_seed(123)
    expected = torch.rand(1)
    torch.manual_seed(123)
    first = tiny_llama(30, shape, seed=7)
    assert torch.equal(torch.rand(1), expected)
    again, other = tiny_llama(30, shape, seed=7), tiny_llama(30, shape, seed=8)
    for (name, a), b in zip(first.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_the_shape_is_as_asked() -> None:
    lm = tiny_llama(30, TinyShape(hidden=24, layers=3, heads=4, feed_forward=40, context=48), seed=0)
    assert tuple(lm.lm_head.weight.shape) == (30, 24)
    assert len(lm.model.layers) == 3
    assert lm.model.layers[0].mlp.up_proj.weight.shape[0] == 40
    assert Policy(lm).context == 48
    # Positions turn with the package's own base: angles theta^(-2i / 6), the second being base^(-1/3).
    from holdfast.models.tiny import ROPE_BASE

    assert float(lm.model.rotary_emb.inv_freq[1]) == pytest.approx(ROPE_BASE ** (-1 / 3), rel=1e-5)
