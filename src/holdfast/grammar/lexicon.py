"""All that grammars need of one tokenizer: made once, since a large vocabulary takes a second or two to read."""

from __future__ import annotations

from functools import cached_property, lru_cache

from holdfast.grammar.ending import EndInTime
from holdfast.grammar.engine import Engine
from holdfast.grammar.mask import Trie, trie_of
from holdfast.grammar.vocabulary import Vocabulary
from holdfast.models.codec import Codec

# Tokenizers that are known at once.
KEPT = 4


class Lexicon:
    """A tokenizer's vocabulary in bytes, the engine that compiles grammars for it, and how its tokens end things."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary.of(self._codec)

    @cached_property
    def engine(self) -> Engine:
        return Engine(self.vocabulary)

    @cached_property
    def ending(self) -> EndInTime:
        return EndInTime.of(self.vocabulary)

    @cached_property
    def trie(self) -> Trie:
        return trie_of(self.vocabulary)


@lru_cache(KEPT)
def lexicon_of(codec: Codec) -> Lexicon:
    """A codec's own, the same each time."""
    return Lexicon(codec)
