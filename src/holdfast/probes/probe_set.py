"""The answers that are probed: built once from whatever data there is, the same in every stage.

chosen, rejected      two answers to a prompt, the better one first
..._varied            the same sentences in another order; of a single sentence, one without one of its tokens
other                 another prompt's chosen answer
permuted, random      the chosen answer's tokens in any order; tokens of the vocabulary at random
initial               the model's own answer when the stage began
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from holdfast.checkpoint.files import read_sealed_json, write_sealed_json
from holdfast.errors import HoldfastError
from holdfast.models.codec import Codec
from holdfast.preferences.comparison import Demonstration, LabelledComparison, PreferencePair
from holdfast.randomness import generator

INITIAL = "initial"
# Demonstrations among which the one to the prompt most like another is looked for.
NEIGHBOURS = 400


@dataclass(frozen=True)
class ProbeSet:
    """Prompts with their answers of each kind, as tokens; `initial` has a stage's own, by its name."""

    prompts: list[list[int]]
    answers: dict[str, list[list[int]]]
    initial: dict[str, list[list[int]]] = field(default_factory=dict)

    def of(self, stage: str) -> dict[str, list[list[int]]]:
        """The answers of each kind that a stage is probed with."""
        own = self.initial.get(stage)
        return self.answers if own is None else {**self.answers, INITIAL: own}

    def with_initial(self, stage: str, answers: list[list[int]]) -> ProbeSet:
        return replace(self, initial={**self.initial, stage: answers})

    def save(self, path: Path) -> None:
        document = {"probes": 1, "prompts": self.prompts, "answers": self.answers, "initial": self.initial}
        write_sealed_json(path, json.loads(json.dumps(document)))

    @classmethod
    def load(cls, path: Path) -> ProbeSet:
        document = read_sealed_json(path)
        return cls(document["prompts"], document["answers"], document["initial"])


def build_set(
    pairs: Sequence[PreferencePair], codec: Codec, seed: int, count: int, context: int | None = None
) -> ProbeSet:
    """A set of `count` prompts (or as many as there are, at least two), drawn and varied with the seed."""
    if len(pairs) < 2:
        raise HoldfastError(f"Probes need at least 2 prompts with answers, and there are {len(pairs)}.")
    rng = generator(seed, "probes")
    drawn = [pairs[i] for i in sorted(torch.randperm(len(pairs), generator=rng)[:count].tolist())]
    prompts = [codec.encode_prompt(pair.prompt) for pair in drawn]
    chosen = [codec.encode_response(pair.chosen) for pair in drawn]
    words = [i for i in range(codec.vocabulary) if i not in set(codec.tokenizer.all_special_ids)]

    def any_words(length: int) -> list[int]:
        places = torch.randint(len(words), (length,), generator=rng).tolist()
        return [*(words[i] for i in places), codec.eos_id]

    answers = {
        "chosen": chosen,
        "rejected": [codec.encode_response(pair.rejected) for pair in drawn],
        "chosen_varied": [varied(codec, pair.chosen, rng) for pair in drawn],
        "rejected_varied": [varied(codec, pair.rejected, rng) for pair in drawn],
        "other": [*chosen[1:], chosen[0]],
        "permuted": [[*(c[i] for i in torch.randperm(len(c) - 1, generator=rng).tolist()), c[-1]] for c in chosen],
        "random": [any_words(len(c) - 1) for c in chosen],
    }
    if context is not None:
        # Another prompt's answer may be longer than this prompt leaves room for.
        room = [max(1, context - len(prompt)) for prompt in prompts]
        answers = {kind: [a[:n] for a, n in zip(of, room, strict=True)] for kind, of in answers.items()}
    return ProbeSet(prompts, answers)


def varied(codec: Codec, text: str, rng: torch.Generator) -> list[int]:
    """The answer's sentences, the first one last; of one sentence, all tokens but one."""
    sentences = re.split(r"(?<=[.!?])\s+", text.strip())
    if len(sentences) > 1:
        return codec.encode_response(" ".join([*sentences[1:], sentences[0]]))
    tokens = codec.encode_response(text)
    if len(tokens) < 3:
        return tokens
    gone = int(torch.randint(len(tokens) - 1, (1,), generator=rng))
    return tokens[:gone] + tokens[gone + 1 :]


def labelled_pairs(labelled: Iterable[LabelledComparison]) -> list[PreferencePair]:
    """The clear-cut comparisons, the preferred side as chosen."""
    pairs = []
    for item in labelled:
        a, b = item.comparison.a.text, item.comparison.b.text
        if item.share_a != 0.5 and a != b:
            better, worse = (a, b) if item.share_a > 0.5 else (b, a)
            pairs.append(PreferencePair(item.comparison.prompt, better, worse))
    return pairs


def demonstration_pairs(demonstrations: Sequence[Demonstration], seed: int, count: int) -> list[PreferencePair]:
    """Demonstrations as chosen; as rejected, the demonstration for the prompt that is most like theirs."""
    order = torch.randperm(len(demonstrations), generator=generator(seed, "probe demonstrations")).tolist()
    drawn = [demonstrations[i] for i in order[: max(count, NEIGHBOURS)]]
    words = [set(str(d.prompt).lower().split()) for d in drawn]
    pairs = []
    for i in range(min(count, len(drawn))):
        likeness = [
            (len(words[i] & other) / max(1, len(words[i] | other)), -j)
            for j, other in enumerate(words)
            if j != i and drawn[j].response != drawn[i].response
        ]
        if likeness:
            nearest = -max(likeness)[1]
            pairs.append(PreferencePair(drawn[i].prompt, drawn[i].response, drawn[nearest].response))
    return pairs
