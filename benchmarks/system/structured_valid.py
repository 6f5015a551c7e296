"""Are answers that are sampled under a grammar what it asks for? As others judge it: jsonschema, and Python's re.

JSON schemas, patterns and choices by hypothesis, none of them seen before; a small model of random weights answers
under each through the real sampler, at temperatures 0.5, 1 and 2, with three tokenizers in turn: characters, a
byte-level BPE of 512 tokens, and SmolLM2's of 49,152 where its package is installed. An answer has 64 tokens, or as
many as the shortest one needs and 32 more. Answers that end are judged; those that are cut are counted apart. So are
grammars that are refused, with the reason.

python -m benchmarks structured_valid  writes benchmarks/results/structured_valid.json
python -m benchmarks structured_valid --schemas 20 --answers 4
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from benchmarks.record import keep, parser_of
from benchmarks.system import made_schemas
from holdfast.errors import HoldfastError
from holdfast.grammar.grammars import Grammars
from holdfast.models.codec import Codec
from holdfast.models.load import load_codec
from holdfast.models.policy import Policy
from holdfast.models.smollm2 import smollm2_directory
from holdfast.models.tiny import TinyShape, piece_tokenizer, tiny_llama
from holdfast.randomness import generator
from holdfast.rollout.choice import Sampling
from holdfast.rollout.sampler import sample

TEMPERATURES = (0.5, 1.0, 2.0)
ROOM, SPARE, ENOUGH = 64, 32, 1000
# Weights so large that a model of random ones prefers some tokens to others.
SHAPE = TinyShape(hidden=16, layers=1, heads=2, feed_forward=24, context=1200)
LOUDER = 12.0


@dataclass(frozen=True)
class Asked:
    """A grammar, and how others judge whether a text is what it asks for."""

    kind: str
    written: str
    right: Callable[[str], bool]


def of_schema(schema: dict[str, Any]) -> Asked:
    validator = jsonschema.Draft202012Validator(schema)

    def right(text: str) -> bool:
        return bool(validator.is_valid(json.loads(text)))

    return Asked("schema", json.dumps(schema), right)


def of_pattern(pattern: str) -> Asked:
    return Asked("pattern", f"regex:{pattern}", lambda text: re.fullmatch(pattern, text) is not None)


def of_choices(choices: list[str]) -> Asked:
    return Asked("choices", f"choices:{'|'.join(choices)}", lambda text: text in choices)


KINDS: dict[str, st.SearchStrategy[Asked]] = {
    "schema": made_schemas.schemas().map(of_schema),
    "pattern": made_schemas.patterns().map(of_pattern),
    "choices": made_schemas.choices().map(of_choices),
}


def made(kind: str, count: int, number: int) -> list[Asked]:
    """So many grammars of a kind, no two the same, by hypothesis from a seed."""
    found: dict[str, Asked] = {}

    @seed(number)
    @settings(
        max_examples=2 * count, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(KINDS[kind])
    def note(asked: Asked) -> None:
        if len(found) < count:
            found.setdefault(asked.written, asked)

    note()
    return list(found.values())


def byte_level(size: int) -> Codec:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<pad>", "<eos>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    texts = [asked.written for asked in made("schema", 60, 0)]
    tokenizer.train_from_iterator(texts, trainer)
    return Codec(PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"))


def tokenizers() -> dict[str, Codec]:
    characters = "".join(map(chr, range(32, 127))) + "éñ–\n\t"
    found = {"characters": Codec(piece_tokenizer([characters], r"[\s\S]")), "byte-level BPE": byte_level(512)}
    try:
        found["SmolLM2"] = load_codec(smollm2_directory())
    except HoldfastError as error:
        print(f"note: {error}")
    return found


@dataclass
class Judged:
    """What came of the answers under one kind of grammar with one tokenizer at one temperature."""

    valid: int = 0
    invalid: int = 0
    cut: int = 0


def judge(asked: Asked, texts: Sequence[str], finished: Sequence[bool], judged: Judged) -> Iterator[str]:
    """Count the answers; those that are not what they have to be are given back."""
    for text, ended in zip(texts, finished, strict=True):
        if not ended:
            judged.cut += 1
            continue
        try:
            right = asked.right(text)
        except ValueError:
            right = False
        judged.valid += right
        judged.invalid += not right
        if not right:
            yield text


def main(words: Sequence[str] | None = None) -> int:
    parser = parser_of("structured_valid", __doc__)
    parser.add_argument("--schemas", type=int, default=300, help="JSON schemas (300), a fifth as many of the others")
    parser.add_argument("--answers", type=int, default=12, help="to each at each temperature (12)")
    parser.add_argument("--seed", type=int, default=1000, help="of grammars, weights and draws (1000)")
    args = parser.parse_args(words)
    began = time.perf_counter()
    trial = Trial(args.answers, args.seed, tokenizers())
    tried = {kind: made(kind, args.schemas if kind == "schema" else -(-args.schemas // 5), args.seed) for kind in KINDS}
    for kind, grammars in tried.items():
        for place, asked in enumerate(grammars):
            trial.answers(kind, place, asked)
    rows = [
        {"kind": kind, "tokenizer": name, "temperature": temperature, **vars(judged)}
        for (kind, name, temperature), judged in trial.counts.items()
    ]
    for row in rows:
        print("  ".join(f"{value:>14}" for value in row.values()))
    total = {name: sum(vars(judged)[name] for judged in trial.counts.values()) for name in vars(Judged())}
    refused = dict(trial.refused.most_common())
    print(f"{total}; refused: {refused}")
    keep("structured_valid", {
        "seconds": round(time.perf_counter() - began), "grammars": {kind: len(found) for kind, found in tried.items()},
        "total": total, "refused": refused, "rows": rows, "wrong": trial.wrong,
    })  # fmt: skip
    return 1 if trial.wrong else 0


class Trial:
    """Grammar after grammar, answered by a model for each tokenizer, and judged."""

    def __init__(self, answers: int, seed: int, codecs: dict[str, Codec]) -> None:
        self._answers, self._seed, self._codecs = answers, seed, codecs
        self._policies = {name: _policy(codec, seed) for name, codec in codecs.items()}
        self.counts: dict[tuple[str, str, float], Judged] = {}
        self.refused: Counter[str] = Counter()
        self.wrong: list[dict[str, str]] = []

    def answers(self, kind: str, place: int, asked: Asked) -> None:
        """Answers under one grammar at every temperature, with the tokenizer whose turn it is."""
        name = list(self._codecs)[place % len(self._codecs)]
        codec = self._codecs[name]
        try:
            grammars, room = _grammars(asked, codec)
        except HoldfastError as error:
            self.refused[f"{kind}, {name}: {str(error).partition(' cannot be ')[2]}"] += 1
            return
        prompt = codec.encode_prompt("a")
        for temperature in TEMPERATURES:
            judged = self.counts.setdefault((kind, name, temperature), Judged())
            rollout = sample(
                self._policies[name], [prompt] * self._answers, Sampling(room, temperature), codec.eos_id, codec.pad_id,
                generator(self._seed, f"{kind} {place} {temperature}"), [grammars.of_prompt(prompt)] * self._answers,
            )  # fmt: skip
            texts = [codec.tokenizer.decode(response, skip_special_tokens=True) for response in rollout.responses]
            if not all(rollout.finished):
                print(f"cut  {asked.written[:300]}\n     {texts[rollout.finished.index(False)]!r}")
            for text in judge(asked, texts, rollout.finished, judged):
                self.wrong.append({"grammar": asked.written, "answer": text, "tokenizer": name})
                print(f"NOT VALID  {asked.written}\n           {text!r}")


def _policy(codec: Codec, number: int) -> Policy:
    lm = tiny_llama(codec.vocabulary, SHAPE, number, codec.pad_id, codec.eos_id)
    for weight in (lm.get_output_embeddings().weight, lm.get_input_embeddings().weight):
        weight.data *= LOUDER
    return Policy(lm.eval())


def _grammars(asked: Asked, codec: Codec) -> tuple[Grammars, int]:
    """The grammar in as much room as a careful person would give it."""
    grammars = Grammars.of(asked.written, codec, ENOUGH)
    assert grammars is not None
    room = max(ROOM, grammars.needs + SPARE)
    return Grammars(asked.written, codec, room), room
