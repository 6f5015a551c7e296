"""A toy preference that a small reward model can learn: an answer with GOOD in it beats one without."""

from __future__ import annotations

import torch

from holdfast.config.schema import RewardConfig
from holdfast.models.reward_model import RewardModel, trunk_of
from holdfast.preferences.comparison import Choice, Comparison, Label, LabelledComparison, Provenance, Response
from holdfast.preferences.pair import Pair
from holdfast.reward.ensemble import Ensemble
from tiny_models import EOS, PAD, VOCABULARY, build

GOOD = 9


def toy_ensemble(members: int = 3, max_tokens: int = 4096) -> Ensemble:
    lm = build("llama", initializer_range=0.1, num_hidden_layers=1)
    return Ensemble([RewardModel(trunk_of(lm), k) for k in range(members)], PAD, max_tokens)


def toy_config(**changes: object) -> RewardConfig:
    """Every number a test depends on, whatever the defaults are."""
    pinned: dict[str, object] = {
        "batch": 8, "label_smoothing": 0.0, "aggregation": "mean", "shaping": "none",
        "unfinished_penalty": 0.0, "holdout": 0.2, "lr": 1e-3,
    }  # fmt: skip
    return RewardConfig(**{**pinned, **changes})  # type: ignore[arg-type]


def _answer(rng: torch.Generator, good: bool) -> list[int]:
    length = int(torch.randint(2, 7, (1,), generator=rng))
    tokens = [t if t != GOOD else GOOD + 1 for t in torch.randint(2, VOCABULARY, (length,), generator=rng).tolist()]
    if good:
        tokens[int(torch.randint(length, (1,), generator=rng))] = GOOD
    return [*tokens, EOS]


def toy_pairs(count: int, seed: int = 0, round: int = 0) -> list[Pair]:
    """Pairs of which the good side is first or second by chance."""
    rng = torch.Generator().manual_seed(seed)
    pairs = []
    for n in range(count):
        prompt = torch.randint(2, VOCABULARY, (3,), generator=rng).tolist()
        good_first = bool(torch.rand(1, generator=rng) < 0.5)
        a, b = _answer(rng, good_first), _answer(rng, not good_first)
        pairs.append(Pair(prompt, a, b, float(good_first), round, f"toy-{seed}-{n}"))
    return pairs


def reference_answers(count: int = 40, seed: int = 5) -> tuple[list[list[int]], list[list[int]]]:
    pairs = toy_pairs(count, seed)
    return [p.prompt for p in pairs], [p.a for p in pairs]


def labelled(number: int, round: int = 0, choice: Choice = Choice.A, prompt: str = "hello") -> LabelledComparison:
    """A labelled comparison whose first answer spells its number, a token for each digit."""
    origin = Provenance("test", round, 0)
    digits = tuple(int(d) + 5 for d in f"{number:05d}")
    a, b = Response(f"a{number}", origin, (*digits, EOS)), Response(f"b{number}", origin, (5, EOS))
    comparison = Comparison(f"r{round}-{number:05d}", prompt, a, b, round)
    return LabelledComparison(comparison, (Label(comparison.id, "someone", choice),))


def number_of(pair: Pair) -> int:
    """Which `labelled` comparison a pair came from."""
    return int("".join(str(t - 5) for t in pair.a[:5]))
