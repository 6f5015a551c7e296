"""Probes: what is in a set, what a reading says, and when squeezing is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.errors import HoldfastError
from holdfast.models.batches import micro_batches
from holdfast.models.codec import Codec
from holdfast.models.policy import Policy
from holdfast.models.tiny import TinyShape, tiny_llama, word_tokenizer
from holdfast.preferences.comparison import Demonstration, PreferencePair
from holdfast.probes.probe import along, read_probes, read_rollout
from holdfast.probes.probe_set import ProbeSet, build_set, demonstration_pairs, varied
from holdfast.probes.prober import find_squeezing
from tiny_models import ARCHITECTURES, PAD, build, plain_logprobs, sequences

PAIRS = [
    PreferencePair("when do you open", "We open at noon. Have a day.", "We open at nine."),
    PreferencePair("is there parking", "Parking is free.", "There is no parking. What a day."),
    PreferencePair("are dogs allowed", "Dogs are welcome here. We open at noon.", "No."),
]
CODEC = Codec(word_tokenizer([text for p in PAIRS for text in (str(p.prompt), p.chosen, p.rejected)]))


@pytest.fixture
def probes() -> ProbeSet:
    return build_set(PAIRS, CODEC, seed=0, count=3)


def test_the_kinds_by_hand(probes: ProbeSet) -> None:
    said = {kind: [CODEC.decode(a) for a in of] for kind, of in probes.answers.items()}
    assert list(said) == ["chosen", "rejected", "chosen_varied", "rejected_varied", "other", "permuted", "random"]
    assert said["chosen"] == [pair.chosen for pair in PAIRS]
    assert said["rejected"] == [pair.rejected for pair in PAIRS]
    assert said["other"] == [PAIRS[1].chosen, PAIRS[2].chosen, PAIRS[0].chosen]
    assert said["chosen_varied"][0] == "Have a day. We open at noon."
    assert said["rejected_varied"][1] == "What a day. There is no parking."
    for chosen, permuted, anything in zip(*(probes.answers[k] for k in ("chosen", "permuted", "random")), strict=True):
        assert sorted(chosen) == sorted(permuted)
        assert chosen[-1] == permuted[-1] == anything[-1] == CODEC.eos_id
        assert len(anything) == len(chosen)
        assert not set(anything[:-1]) & set(CODEC.tokenizer.all_special_ids)


def test_one_sentence_loses_a_token() -> None:
    tokens = CODEC.encode_response("Parking is free.")
    less = varied(CODEC, "Parking is free.", torch.Generator().manual_seed(0))
    assert len(less) == len(tokens) - 1
    assert less[-1] == CODEC.eos_id


def test_the_seed_decides_and_files_keep(probes: ProbeSet, tmp_path: Path) -> None:
    assert build_set(PAIRS, CODEC, seed=0, count=3) == probes
    assert build_set(PAIRS, CODEC, seed=1, count=3) != probes
    more = probes.with_initial("dpo", probes.answers["other"])
    more.save(tmp_path / "probes.json")
    assert ProbeSet.load(tmp_path / "probes.json") == more
    assert "initial" in more.of("dpo")
    assert "initial" not in more.of("sft")


def test_answers_are_cut_to_the_context() -> None:
    short = build_set(PAIRS, CODEC, seed=0, count=3, context=8)
    longest = max(len(p) + len(a) for of in short.answers.values() for p, a in zip(short.prompts, of, strict=True))
    assert longest <= 8


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(HoldfastError, match="at least 2 prompts"):
        build_set(PAIRS[:1], CODEC, seed=0, count=3)


def test_demonstrations_alone_will_do() -> None:
    texts = [("a b c", "one"), ("a b d", "two"), ("x y z", "three"), ("x y q", "four")]
    found = demonstration_pairs([Demonstration(p, r) for p, r in texts], seed=0, count=4)
    # Rejected is the demonstration to the prompt that is most like this one.
    assert {(pair.chosen, pair.rejected) for pair in found} == {
        ("one", "two"), ("two", "one"), ("three", "four"), ("four", "three"),
    }  # fmt: skip


def tiny() -> Policy:
    return Policy(tiny_llama(CODEC.vocabulary, TinyShape(16, 1, 2, 24, 64), 0))


def test_a_reading_against_the_textbook(probes: ProbeSet) -> None:
    policy = tiny()
    row = read_probes(policy, probes, "dpo", CODEC.pad_id, 64)
    for kind, of in probes.answers.items():
        sums = [float(plain_logprobs(policy.lm, p, a).sum()) for p, a in zip(probes.prompts, of, strict=True)]
        assert row["logprob"][kind] == pytest.approx(sum(sums) / 3, abs=1e-4)
    assert sum(row["each"]["chosen"]) / 3 == pytest.approx(row["logprob"]["chosen"])
    assert row["argmax"] > row["logprob"]["chosen"]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_argmax_curve_by_the_plain_route(name: str) -> None:
    lm = build(name)
    policy = Policy(lm)
    prompts, answers = sequences(4, 2, 6, 1), sequences(4, 3, 9, 2)
    pieces = 1 if policy.fast is not None else 0
    seen = along(policy, micro_batches(prompts, answers, range(4), PAD, 24, "cpu", pieces))
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        with torch.no_grad():
            logprobs = lm(input_ids=torch.tensor([[*prompt, *answer]])).logits[0].log_softmax(-1)
        best = logprobs[len(prompt) - 1 : -1].max(-1)
        assert seen.ids_of(row) == best.indices.tolist()
        assert seen.argmax_of(row) == pytest.approx(float(best.values.sum()), abs=1e-3)
        entropy = -(logprobs.exp() * logprobs).sum(-1)[len(prompt) - 1 : -1]
        assert seen.entropy_N[seen.rows_N == row].tolist() == pytest.approx(entropy.tolist(), abs=1e-4)


def test_tokens_by_the_sign_of_their_advantage() -> None:
    policy = tiny()
    prompts, answers = [[5, 6], [7]], [[8, 9], [10, 11]]
    batches = micro_batches(prompts, answers, range(2), 0, 64, "cpu", 1)
    before, after = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]]), torch.tensor([[-0.5, -2.5], [-2.0, -9.0]])
    advantages, mask = torch.tensor([[1.0, -1.0], [2.0, 5.0]]), torch.tensor([[True, True], [True, False]])
    row = read_rollout(policy, batches, before, after, advantages, mask)
    # Positive: -1 and -3 before, -0.5 and -2 after; the fourth token is outside the mask.
    assert row["positive"] == {"tokens": 2, "before": pytest.approx(-2.0), "after": pytest.approx(-1.25)}
    assert row["negative"] == {"tokens": 1, "before": pytest.approx(-2.0), "after": pytest.approx(-2.5)}


def rows(chosen: list[float], rejected: list[float], argmax: list[float]) -> list[dict[str, Any]]:
    """Probes whose twenty prompts differ a little, always by the same amounts."""
    noise = [0.05 * i for i in range(20)]
    return [
        {
            "step": 25 * n,
            "logprob": {"chosen": c, "rejected": r},
            "argmax": m,
            "each": {
                "chosen": [c + e * (n % 2) for e in noise],
                "rejected": [r - e for e in noise],
                "argmax": [m + e for e in noise],
            },
        }
        for n, (c, r, m) in enumerate(zip(chosen, rejected, argmax, strict=True))
    ]


def test_squeezing_is_found_when_all_three_move() -> None:
    found = find_squeezing(rows([-10, -9, -12], [-12, -14, -20], [-6, -5, -4]))
    assert found is not None
    assert (found.peak_step, found.step) == (25, 50)
    assert found.chosen_fall == pytest.approx(3.475)  # 3 and the mean of the noise of the odd probe, 0.475
    assert found.rejected_fall == pytest.approx(6.0)
    assert found.argmax_rise == pytest.approx(1.0)
    assert "dpo.sft_both" in found.sentence


@pytest.mark.parametrize(
    ("chosen", "rejected", "argmax"),
    [
        ([-10, -9, -8], [-12, -14, -20], [-6, -5, -4]),  # chosen still rises
        ([-10, -9, -12], [-12, -14, -13.9], [-6, -5, -4]),  # rejected does not fall
        ([-10, -9, -12], [-12, -14, -20], [-6, -5, -5.5]),  # the argmax falls as well: plain forgetting
        ([-10], [-12], [-6]),
    ],
)
def test_and_not_otherwise(chosen: list[float], rejected: list[float], argmax: list[float]) -> None:
    assert find_squeezing(rows(chosen, rejected, argmax)) is None


def test_a_fall_within_the_noise_is_none() -> None:
    quiet = rows([-10, -10.01], [-12, -14], [-6, -5])
    quiet[1]["each"]["chosen"] = [-10.01 + (-1) ** i for i in range(20)]
    assert find_squeezing(quiet) is None
