"""Under a mask, top-k and top-p everything is what enumeration says: draws, log-probs, KL, entropy and gradient."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast.algorithms.kl import kl_estimate
from holdfast.grammar.walk import Grammar
from holdfast.models.policy import Policy
from holdfast.rollout.choice import Sampling
from holdfast.rollout.sampler import Rollout, sample
from holdfast.train.ppo import response_values, rollout_batches
from masked_language import Rules, may_follow
from tiny_models import EOS, PAD, VOCABULARY, build

PROMPT = [3, 17, 4]
LONGEST = 4
COUNT = 3000

# Tokens that may follow, of which something is left in every case.
Allowed = Callable[[Sequence[int]], Sequence[int]]


@dataclass(frozen=True)
class Case:
    """A way to leave tokens out: as the sampler is told, and as it is written down here."""

    grammar: Grammar | None = None
    allowed: Allowed = lambda tokens: range(VOCABULARY)
    settings: dict[str, Any] = field(default_factory=dict)

    def sampling(self) -> Sampling:
        return Sampling(**{"max_new_tokens": LONGEST, "temperature": 0.8, **self.settings})

    def kept(self, probs: list[float], allowed: Sequence[int]) -> list[int]:
        """Top-k, then top-p of what is left, by sorting."""
        order = sorted(allowed, key=lambda token: -probs[token])
        order = order[: self.settings.get("top_k") or None]
        total, done, kept = sum(probs[token] for token in order), 0.0, []
        for token in order:
            if done / total >= self.settings.get("top_p", 1.0):
                break
            kept.append(token)
            done += probs[token]
        return kept


CASES = {
    "mask": Case(Rules(), may_follow),
    "mask, every token decoded": Case(Rules(stretches=False), may_follow),
    "top-k": Case(settings={"top_k": 3, "max_new_tokens": 3}),
    "top-p": Case(settings={"top_p": 0.5, "max_new_tokens": 3}),
    "mask, top-k and top-p": Case(Rules(), may_follow, {"top_k": 6, "top_p": 0.9}),
}
MODELS = {"llama, fast": ("llama", True), "llama": ("llama", False), "gpt2": ("gpt2", True), "gemma2": ("gemma2", True)}
# Where rows go on one token at a time, since layers look back less far, forced tokens are what is different.
EVERY = pytest.mark.parametrize(
    ("model", "case"), [(model, case) for model in MODELS for case in CASES if model != "gemma2" or case == "mask"]
)


@dataclass(frozen=True)
class Truth:
    """An answer as enumeration finds it: of each free token its log-prob, the reference's, and how many there were."""

    logprobs: list[Tensor]
    reference: list[Tensor]
    free: list[int]

    @property
    def logprob(self) -> Tensor:
        return torch.stack(self.logprobs).sum() if self.logprobs else torch.zeros((), dtype=torch.float64)

    @property
    def probability(self) -> float:
        return math.exp(float(self.logprob))


def enumerate_answers(
    lm: Any, reference: Any, case: Case, kept: dict[tuple[int, ...], list[int]]
) -> dict[tuple[int, ...], Truth]:
    """Every answer there can be. `kept` is what is kept after each beginning: filled here, or taken as it is."""
    longest, temperature = case.sampling().max_new_tokens, case.sampling().temperature
    found: dict[tuple[int, ...], Truth] = {}

    def scores(model: Any, tokens: tuple[int, ...]) -> Tensor:
        return model(input_ids=torch.tensor([[*PROMPT, *tokens]])).logits[0, -1] / temperature  # type: ignore[no-any-return]

    def go_on(tokens: tuple[int, ...], so_far: Truth) -> None:
        if len(tokens) == longest or (tokens and tokens[-1] == EOS):
            found[tokens] = so_far
            return
        allowed = list(case.allowed(tokens))
        ours = scores(lm, tokens)
        if tokens not in kept:
            kept[tokens] = case.kept(ours.softmax(-1).tolist(), allowed)
        support = kept[tokens]
        with torch.no_grad():
            theirs = scores(reference, tokens)
        forced = len(allowed) == 1
        for token in support:
            own = ours[token] - ours[support].logsumexp(0)
            other = theirs[token] - theirs[allowed].logsumexp(0)
            go_on(
                (*tokens, token),
                so_far if forced else Truth(
                    [*so_far.logprobs, own], [*so_far.reference, other], [*so_far.free, len(tokens)]
                ),
            )  # fmt: skip

    go_on((), Truth([], [], []))
    return found


@dataclass(frozen=True)
class Both:
    """What the package drew and computed, beside what is true."""

    policy: Policy
    reference: Policy
    rollout: Rollout
    update_BT: Tensor
    reference_BT: Tensor
    truth: dict[tuple[int, ...], Truth]
    kept: dict[tuple[int, ...], list[int]]
    rows: dict[tuple[int, ...], int]


@cache
@torch.no_grad()
def truth_of(name: str, case: str) -> tuple[dict[tuple[int, ...], Truth], dict[tuple[int, ...], list[int]]]:
    """Every answer, and what is kept after each beginning."""
    kept: dict[tuple[int, ...], list[int]] = {}
    policy, reference = (build(name, seed).double() for seed in (1, 2))
    return enumerate_answers(policy, reference, CASES[case], kept), kept


@cache
def both(model: str, case: str) -> Both:
    name, fast = MODELS[model]
    of = CASES[case]
    policy, reference = (Policy(build(name, seed), fast=fast) for seed in (1, 2))
    assert (policy.fast is not None) == (model == "llama, fast")
    grammars = None if of.grammar is None else [of.grammar] * COUNT
    rng = torch.Generator().manual_seed(5)
    sampling = of.sampling()
    rollout = sample(policy, [PROMPT] * COUNT, sampling, EOS, PAD, rng, grammars)
    batches = rollout_batches(policy, rollout, None, PAD, 1 << 16)
    update_BT = response_values(policy, rollout, batches, sampling.temperature)
    reference_BT = response_values(reference, rollout, batches, sampling.temperature, truncated=False)
    truth, kept = truth_of(name, case)
    rows = {tuple(response): row for row, response in enumerate(rollout.responses)}
    return Both(policy, reference, rollout, update_BT, reference_BT, truth, kept, rows)


def expected(made: Both, of: Callable[[int, Truth], float]) -> float:
    """The mean over answers by their true probabilities; those that were never drawn are too rare to count."""
    rare = sum(truth.probability for answer, truth in made.truth.items() if answer not in made.rows)
    assert rare < 0.01
    seen = [(truth, made.rows[answer]) for answer, truth in made.truth.items() if answer in made.rows]
    return sum(truth.probability * of(row, truth) for truth, row in seen)


def near(sampled_B: Tensor, truth: float) -> bool:
    """Whether a mean over answers is what it should be, but for chance."""
    return abs(float(sampled_B.mean()) - truth) < 4.5 * float(sampled_B.std()) / math.sqrt(len(sampled_B))


@EVERY
def test_answers_come_as_often_as_they_should(model: str, case: str) -> None:
    made = both(model, case)
    drawn = Counter(map(tuple, made.rollout.responses))
    assert set(drawn) <= set(made.truth)
    assert sum(truth.probability for truth in made.truth.values()) == pytest.approx(1.0)
    for answer, truth in made.truth.items():
        p = truth.probability
        assert abs(drawn[answer] / COUNT - p) < 4.5 * math.sqrt(p * (1 - p) / COUNT) + 1e-3


@EVERY
def test_logprobs_are_over_what_could_have_been_drawn(model: str, case: str) -> None:
    made = both(model, case)
    for answer, row in made.rows.items():
        truth = made.truth[answer]
        assert made.rollout.mask_BT[row].nonzero()[:, 0].tolist() == truth.free
        for ours_BT in (made.rollout.logprobs_BT, made.update_BT):
            ours = ours_BT[row]
            assert ours[truth.free].tolist() == pytest.approx([float(x) for x in truth.logprobs], abs=2e-5)
            assert not ours[~made.rollout.mask_BT[row]].any(), "what had to come has a log-prob of exactly 0"
        assert made.reference_BT[row][truth.free].tolist() == pytest.approx(
            [float(x) for x in truth.reference], abs=2e-5
        )


@EVERY
def test_the_ratio_begins_at_one(model: str, case: str) -> None:
    made = both(model, case)
    ratio_N = (made.update_BT - made.rollout.logprobs_BT).double().exp()[made.rollout.mask_BT]
    assert abs(float(ratio_N.mean()) - 1.0) < 1e-6
    assert float((ratio_N - 1.0).abs().max()) < 1e-5


@EVERY
def test_kl_and_entropy(model: str, case: str) -> None:
    made = both(model, case)
    mask_BT = made.rollout.mask_BT
    for kind in ("k1", "k2", "k3"):
        ours_B = (kl_estimate(made.rollout.logprobs_BT, made.reference_BT, kind) * mask_BT).sum(1)  # type: ignore[arg-type]
        truths = {
            answer: float(kl_estimate(torch.stack(t.logprobs), torch.stack(t.reference), kind).sum())  # type: ignore[arg-type]
            for answer, t in made.truth.items()
        }
        by_row = {made.rows[answer]: value for answer, value in truths.items() if answer in made.rows}
        assert expected(made, lambda row, _, v=ours_B: float(v[row])) == pytest.approx(  # type: ignore[misc]
            expected(made, lambda row, _, v=by_row: v[row]),
            rel=1e-4,  # type: ignore[misc]
        )
        if kind == "k1":
            exact = sum(t.probability * truths[answer] for answer, t in made.truth.items())
            assert near(ours_B, exact)
            assert exact > 0.2
    entropy = -sum(t.probability * float(t.logprob) for t in made.truth.values())
    assert near(-(made.rollout.logprobs_BT * mask_BT).sum(1), entropy)


@EVERY
def test_policy_gradient(model: str, case: str) -> None:
    """d/dw sum_a p(a) f(a), by autograd through all probabilities, and by log-probs weighted with p f."""
    made, of = both(model, case), CASES[case]
    score = {answer: math.sin(1.0 + sum((t + 1) * token for t, token in enumerate(answer))) for answer in made.truth}
    lm = copy.deepcopy(made.policy.lm).double()
    found = enumerate_answers(lm, lm, of, made.kept)
    seen = [answer for answer in found if answer in made.rows]
    total = torch.stack([found[answer].logprob.exp() * score[answer] for answer in seen]).sum()
    weight = lm.get_input_embeddings().weight
    (truth,) = torch.autograd.grad(total, weight)

    rows = [made.rows[answer] for answer in seen]
    batches = rollout_batches(made.policy, made.rollout, rows, PAD, 1 << 16)
    weight_B = torch.zeros(COUNT)
    for answer in seen:
        weight_B[made.rows[answer]] = made.truth[answer].probability * score[answer]
    loss = torch.zeros(())
    for batch in batches:
        logprobs_N = made.policy(batch, of.sampling().temperature).logprobs_N
        loss = loss + (logprobs_N * weight_B[batch.rows][batch.row_N]).sum()
    (ours,) = torch.autograd.grad(loss, made.policy.lm.get_input_embeddings().weight)
    assert float((ours.double() - truth).norm() / truth.norm()) < 1e-4
