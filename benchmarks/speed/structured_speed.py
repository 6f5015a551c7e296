"""What a grammar costs and saves while answers are sampled, in turns, in one process on one model.

64 answers to the layout world's prompts by models of the default size, of 1m and 15m parameters, fine-tuned on some of
its demonstrations, with its tokenizer filled up to their vocabularies. Times are of the processor, since machines are
shared. Four questions:

    masks       whole layouts, against the same with sets that are known beforehand
    stretches   whole layouts, with what the schema forces appended, against decoding every token of the same layouts
    decoded     48 tokens each, all of them decoded under the schema without an end, against 48 without a grammar
    memory      what a rollout keeps of its sets: under the grammar, and under top-k and top-p as ids, as bits, and as
                whichever is smaller

python -m benchmarks structured_speed       writes bench-structured_speed-Ncore.json
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from benchmarks.speed.measure import Spread, in_turns, ratios
from benchmarks.speed.options import Settings, on_cores, parser_with_turns, publish, settings_of
from benchmarks.speed.ours import NO_END
from benchmarks.speed.workload import SIZES
from holdfast.cli.tables import show_table
from holdfast.config import Config
from holdfast.config.schema import WorldConfig
from holdfast.grammar.grammars import Grammars
from holdfast.grammar.walk import Grammar, Walk, allowed_rows, look_ahead
from holdfast.models.codec import Codec
from holdfast.models.policy import Policy
from holdfast.models.prompt import plain_text
from holdfast.models.tiny import piece_tokenizer, tiny_llama
from holdfast.models.token_sets import KeptSets
from holdfast.randomness import generator
from holdfast.rollout.choice import Sampling
from holdfast.rollout.sampler import Rollout, sample
from holdfast.track.progress import Silent
from holdfast.train.sft import fine_tune
from holdfast.worlds.protocol import Task
from holdfast.worlds.registry import load_task, load_world

BATCH, FIXED, ROOM = 64, 48, 64
SHOWN = 256  # demonstrations, once
OPTIONS = {"prompts": 512, "demonstrations": 512, "heldout": 8}


@dataclass
class Decoded:
    """A grammar that names nothing that has to come, so that every token is decoded."""

    grammar: Grammar

    def begin(self) -> DecodedWalk:
        return DecodedWalk(self.grammar.begin())


@dataclass
class DecodedWalk:
    walk: Walk

    def allowed(self) -> Tensor:
        return self.walk.allowed()

    @classmethod
    def together(cls, walks: Sequence[Self]) -> Tensor:
        return allowed_rows([of.walk for of in walks])

    @classmethod
    def look_ahead(cls, walks: Sequence[Self]) -> None:
        look_ahead([of.walk for of in walks])

    def forced(self) -> list[int]:
        return []

    def take(self, token: int) -> None:
        self.walk.take(token)


@dataclass
class Known:
    """A grammar of one answer, whose sets are known beforehand."""

    grammar: Grammar
    answer: list[int]

    def __post_init__(self) -> None:
        walk = self.grammar.begin()
        self.sets, self.stretches = list[Tensor](), list[list[int]]()
        for token in self.answer:
            self.stretches.append(walk.forced())
            self.sets.append(walk.allowed().clone())
            walk.take(token)

    def begin(self) -> KnownWalk:
        return KnownWalk(self)


@dataclass
class KnownWalk:
    known: Known
    at: int = 0

    def allowed(self) -> Tensor:
        return self.known.sets[self.at]

    @classmethod
    def together(cls, walks: Sequence[Self]) -> Tensor:
        return torch.stack([of.known.sets[of.at] for of in walks])

    @classmethod
    def look_ahead(cls, walks: Sequence[Self]) -> None:
        pass

    def forced(self) -> list[int]:
        return self.known.stretches[self.at]

    def take(self, token: int) -> None:
        self.at += 1


@dataclass
class Layouts:
    """A model with the layout world's prompts and schema."""

    policy: Policy
    codec: Codec
    prompts: list[list[int]]
    schema: dict[str, Any]

    @classmethod
    def of(cls, size: str) -> Layouts:
        config = Config(world=WorldConfig(name="layout", options=OPTIONS))
        task = load_task(config, load_world(config))
        given = SIZES[size]
        codec = _codec(task, given.vocabulary)
        lm = tiny_llama(max(given.vocabulary, codec.vocabulary), given.shape, seed=0)
        policy, prompts = Policy(lm), [codec.encode_prompt(prompt) for prompt in task.prompts[:BATCH]]
        sft = replace(given.sft, epochs=1, batch=8, warmup_steps=4)
        fine_tune(policy, codec, task.demonstrations[:SHOWN], sft, 8192, generator(0, "sft"), Silent())
        return cls(policy, codec, prompts, json.loads(task.grammar))

    def sample(self, grammar: Grammar | list[Known] | None, sampling: Sampling, eos_id: int) -> Rollout:
        under = grammar if isinstance(grammar, list) else [grammar] * len(self.prompts)
        return sample(self.policy, self.prompts, sampling, eos_id, self.codec.pad_id, generator(0, "turn"), under)

    def grammar(self, schema: dict[str, Any], in_time: bool) -> Grammar:
        grammars = Grammars.of(json.dumps(schema), self.codec, ROOM if in_time else 4096, in_time=in_time)
        found = None if grammars is None else grammars.of_prompt(self.prompts[0])
        assert found is not None
        return found


def _codec(task: Task, vocabulary: int) -> Codec:
    texts = [plain_text(p) for p in task.prompts]
    texts += [text for d in task.demonstrations for text in (plain_text(d.prompt), d.response)]
    tokenizer = piece_tokenizer(texts, task.pieces)
    tokenizer.add_tokens([f"<unused-{n}>" for n in range(vocabulary - len(tokenizer))])
    return Codec(tokenizer)


def main(words: Sequence[str]) -> None:
    settings = settings_of("structured_speed", parser_with_turns("structured_speed", __doc__).parse_args(words))
    with on_cores(settings.cores):
        cases = {size: measure(size, settings) for size in (("quick",) if settings.quick else ("default", "1m", "15m"))}
        publish(settings, {"batch": BATCH, "cases": cases}, lambda: show(cases))


def measure(size: str, settings: Settings) -> dict[str, Any]:
    on = Layouts.of(size)
    settings.say(f"structured {size}: {settings.turns} turns")
    return {
        "parameters": on.policy.weights,
        "vocabulary": on.policy.vocabulary,
        "layouts": layouts(on, settings),
        "decoded": decoded(on, settings),
        "memory": memory(on),
    }


def layouts(on: Layouts, settings: Settings) -> dict[str, Any]:
    """The same layouts as they are sampled, with sets that are known, and with every token decoded."""
    grammar, sampling = on.grammar(on.schema, in_time=True), Sampling(ROOM)
    drawn = on.sample(grammar, sampling, on.codec.eos_id)
    known = [Known(grammar, answer) for answer in drawn.responses]
    sides: dict[str, Callable[[], Rollout]] = {
        "appended": lambda: on.sample(grammar, sampling, on.codec.eos_id),
        "known": lambda: on.sample(known, sampling, on.codec.eos_id),
        "decoded": lambda: on.sample(Decoded(grammar), sampling, on.codec.eos_id),
    }
    assert all(draw().responses == drawn.responses for draw in sides.values())
    times = in_turns(sides, settings.turns, clock=cpu_seconds)
    return {
        "seconds": {side: vars(Spread.of(taken)) for side, taken in times.items()},
        "masks_times_as_long": vars(ratios(times["appended"], times["known"])),
        "stretches_times_as_fast": vars(ratios(times["decoded"], times["appended"])),
        "tokens": sum(drawn.lengths) / len(drawn.lengths),
        "forced": 1.0 - int(drawn.mask_BT.sum()) / sum(drawn.lengths),
    }


def decoded(on: Layouts, settings: Settings) -> dict[str, Any]:
    """The same number of tokens, all decoded, with masks and without a grammar."""
    endless = on.grammar({**on.schema, "minItems": 20, "maxItems": 40}, in_time=False)
    sampling = Sampling(FIXED)
    sides: dict[str, Callable[[], Rollout]] = {
        "masks": lambda: on.sample(Decoded(endless), sampling, on.codec.eos_id),
        "free": lambda: on.sample(None, sampling, NO_END),
    }
    assert {n for side in sides.values() for n in side().lengths} == {FIXED}
    times = in_turns(sides, settings.turns, clock=cpu_seconds)
    return {
        "seconds": {side: vars(Spread.of(taken)) for side, taken in times.items()},
        "times_as_long": vars(ratios(times["masks"], times["free"])),
    }


def cpu_seconds(work: Callable[[], object]) -> float:
    """The processor's time of one call, in all threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


def memory(on: Layouts) -> dict[str, Any]:
    """Bytes of what is kept of the sets, as a share of the bytes of the rollout itself."""
    grammar = on.grammar(on.schema, in_time=True)
    rollout = on.sample(grammar, Sampling(ROOM), on.codec.eos_id)
    support = rollout.support
    assert support is not None
    # One reference to a grammar for each answer; which tokens were free is the rollout's own mask.
    assert support.kept is None
    assert support.free_BT is rollout.mask_BT
    assert support.grammars is not None
    share = 8 * len(support.grammars) / bytes_of(rollout)
    sets = support.sets.grammar
    assert sets is not None
    kept = {}
    for name, sampling in {"top-k 50": Sampling(ROOM, top_k=50), "top-p 0.9": Sampling(ROOM, top_p=0.9)}.items():
        truncated = on.sample(None, sampling, NO_END)
        assert truncated.support is not None
        own = truncated.support.kept
        assert own is not None
        kept[name] = forms(own) | {"of_rollout": own.bytes / bytes_of(truncated)}
    return {"grammar_of_rollout": share, "walked_again": sets.out_UX.nbytes + sets.which_N.nbytes, "kept": kept}


def bytes_of(rollout: Rollout) -> int:
    """Tokens as they stand in lists, log-probs and the mask."""
    return 8 * sum(rollout.lengths) + rollout.logprobs_BT.nbytes + rollout.mask_BT.nbytes


def forms(kept: KeptSets) -> dict[str, float]:
    """Bytes for each position: as ids, as bits, and as kept."""
    flags_NV = kept.kept()
    count = len(flags_NV)
    id_bytes = kept.ids_I.dtype.itemsize
    return {
        "ids": float(flags_NV.sum()) * id_bytes / count,
        "bits": float(-(-kept.vocabulary // 8)),
        "kept": kept.bytes / count,
    }


def show(cases: dict[str, Any]) -> None:
    rows = [
        [
            size,
            f"{Spread(**case['layouts']['masks_times_as_long'])}",
            f"{Spread(**case['layouts']['stretches_times_as_fast'])}",
            f"{case['layouts']['forced']:.0%}",
            f"{Spread(**case['decoded']['times_as_long'])}",
            f"{case['memory']['grammar_of_rollout']:.2%}",
        ]
        for size, case in cases.items()
    ]
    columns = ["model", "masks: longer", "appended: faster", "forced", "decoded: longer", "memory"]
    show_table(f"Sampling {BATCH} layouts", columns, rows)
    print("\nMedians [quartiles] of the ratios of each turn, and what is kept of sets as a share of the rollout.")
