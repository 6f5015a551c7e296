"""A comparison as tokens: what reward models learn from and claim something of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.models.codec import Codec
from holdfast.models.prompt import Prompt
from holdfast.preferences.comparison import LabelledComparison, Response


@dataclass(frozen=True)
class Pair:
    """A labelled comparison as tokens; `share_a` is the share of labellers who preferred the first side.

    `key` is the comparison's id, by which members share the labels out; `weight` is how much it counts.
    """

    prompt: list[int]
    a: list[int]
    b: list[int]
    share_a: float
    round: int
    key: str = ""
    weight: float = 1.0

    @property
    def tokens(self) -> int:
        return 2 * (len(self.prompt) + max(len(self.a), len(self.b)))


def response_tokens(codec: Codec, response: Response) -> list[int]:
    """The exact tokens where a model of ours sampled the answer; otherwise the text, encoded."""
    if response.token_ids:
        return list(response.token_ids)
    ids = codec.encode_response(response.text)
    return ids if response.finished else ids[:-1]


def pairs_of(codec: Codec, labelled: Iterable[LabelledComparison]) -> list[Pair]:
    """Labelled comparisons as tokens."""
    prompts: dict[Prompt, list[int]] = {}  # each is asked about again and again, and encoded once

    def encoded(prompt: Prompt) -> list[int]:
        if prompt not in prompts:
            prompts[prompt] = codec.encode_prompt(prompt)
        return prompts[prompt]

    return [
        Pair(
            prompt=encoded(item.comparison.prompt),
            a=response_tokens(codec, item.comparison.a),
            b=response_tokens(codec, item.comparison.b),
            share_a=item.share_a,
            round=item.comparison.round,
            key=item.comparison.id,
            weight=item.weight,
        )
        for item in labelled
    ]
