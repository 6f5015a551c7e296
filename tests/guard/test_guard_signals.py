"""Every signal against numbers worked out by hand, and the rule that a file is a signal."""

from __future__ import annotations

import math
import zlib
from array import array
from dataclasses import replace
from pathlib import Path

import guard_views
import pytest
import torch
from guard_views import known, view
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.guard import signals
from holdfast.guard.signal import Signal, Usual, level
from holdfast.guard.signals import SIGNALS, find_signals
from holdfast.guard.view import Known, StepView

EXPECTED = {
    "clip_fraction", "compression", "ensemble_spread", "ensemble_spread_growth", "entropy", "explained_variance",
    "feature_distance", "feature_shift", "kl_acceleration", "kl_per_answer", "kl_per_token", "kl_step",
    "length", "ppo_ratio", "prompt_copying", "rare_tokens", "repeated_spans", "repeated_trigrams", "self_perplexity",
    "similarity", "unfinished", "unlabelled_tokens", "value_error",
}  # fmt: skip


def read(name: str, batch: StepView, about: Known | None = None) -> float | None:
    reader = SIGNALS[name].read
    assert reader is not None
    return reader(batch, known() if about is None else about)


def derive(name: str, history: list[float]) -> float | None:
    maker = SIGNALS[name].derive
    assert maker is not None
    return maker(history)


# --- finding them -----------------------------------------------------------------------------------------------


def test_the_signals_there_are() -> None:
    assert set(SIGNALS) >= EXPECTED


def test_each_says_what_it_means_in_one_line() -> None:
    for signal in SIGNALS.values():
        assert "\n" not in signal.meaning
        assert signal.unit
        assert signal.metric == f"signal/{signal.name}"
        assert signal.better == {"high": "down", "low": "up", "both": "neither"}[signal.side]


def test_a_new_file_is_a_new_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "brand_new.py").write_text(
        "from holdfast.guard.signal import Signal, level\n"
        "SIGNAL = Signal(family='length', meaning='new', unit='1', words=level('it is'), read=lambda view, known: 1)\n"
    )
    monkeypatch.setattr(signals, "__path__", [*signals.__path__, str(tmp_path)])
    assert find_signals()["brand_new"].metric == "signal/brand_new"
    assert set(find_signals()) == {*SIGNALS, "brand_new"}


def test_a_file_without_a_signal_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "forgotten.py").write_text("x = 1\n")
    monkeypatch.setattr(signals, "__path__", [*signals.__path__, str(tmp_path)])
    with pytest.raises(HoldfastError, match=r"forgotten\.py"):
        find_signals()


def test_a_signal_is_read_or_derived_and_not_both() -> None:
    for more in ({}, {"read": lambda view, known: 1.0, "derived_from": "length", "derive": lambda history: 1.0}):
        with pytest.raises(HoldfastError, match="odd"):
            Signal(name="odd", family="length", meaning="", unit="", side="high", words=level(""), **more)


# --- what the answers look like ---------------------------------------------------------------------------------


def test_length_and_ending() -> None:
    batch = view([[1, 2, 3], [4], []], finished=[True, False, False])
    assert read("length", batch) == pytest.approx(4 / 3)
    assert read("unfinished", batch) == pytest.approx(2 / 3)


def test_repetition() -> None:
    # [1 2 1 2 1]: 121 212 121, one of three repeats; the other has two different ones; the third is too short.
    batch = view([[1, 2, 1, 2, 1], [5, 6, 7, 8], [1, 2]])
    assert read("repeated_trigrams", batch) == pytest.approx((1 / 3 + 0) / 2)
    # Runs of six in 1 2 3 4 5 6 1 2 3 4 5 6: seven, of which the last is the first again.
    assert read("repeated_spans", view([[*range(1, 7), *range(1, 7)]])) == pytest.approx(1 / 7)
    assert read("repeated_spans", view([[1, 2, 3, 4, 5]])) is None


def test_compression() -> None:
    answers = [[7] * 40, list(range(40)), []]
    packed = [zlib.compress(array("i", answer).tobytes(), 1) for answer in answers[:2]]
    assert read("compression", view(answers)) == pytest.approx(2 * 160 / sum(map(len, packed)))
    one_word, many_words = read("compression", view([[7] * 40])), read("compression", view([list(range(40))]))
    assert (one_word or 0) > 4 * (many_words or 0)


def test_words_people_have_seen() -> None:
    about = known([6, 1, 0])  # 7 labelled tokens of 3 kinds: shares 7/10, 2/10, 1/10 with one added to each
    batch = view([[0, 1], [2]])
    assert read("rare_tokens", batch, about) == pytest.approx(-(math.log(0.7) + math.log(0.2) + math.log(0.1)) / 3)
    assert read("unlabelled_tokens", batch, about) == pytest.approx(1 / 3)
    assert read("rare_tokens", batch, known([0, 0, 0])) is None
    assert read("unlabelled_tokens", batch, known([0, 0, 0])) is None


def test_copying_the_prompt() -> None:
    # Pairs 12 23 34 of the first: 12 and 23 are in its prompt. The second copies the first's prompt, which is not its.
    batch = view([[1, 2, 3, 4], [1, 2, 3], [9]], prompts=[[0, 1, 2, 3], [5, 6, 7], [9, 9]])
    assert read("prompt_copying", batch) == pytest.approx((2 / 3 + 0) / 2)
    assert read("prompt_copying", view([[1], [2]])) is None
    assert read("prompt_copying", view([[1, 2]], prompts=[[]])) == 0.0


def test_one_answer_to_everything() -> None:
    # {12 23}, {12 24}, {12 23}: Jaccard 1/3, 1 and 1/3 over the three pairs
    answers = [[1, 2, 3], [1, 2, 4], [1, 2, 3]]
    assert read("similarity", view(answers)) == pytest.approx((1 / 3 + 1 + 1 / 3) / 3)
    # The last two answer the same prompt, so their likeness does not count.
    assert read("similarity", view(answers, prompts=[[1], [2], [2]])) == pytest.approx((1 / 3 + 1) / 2)
    assert read("similarity", view([[1, 2, 3]])) is None


def test_similarity_of_a_large_batch_takes_some_of_it() -> None:
    rng = torch.Generator().manual_seed(0)
    whole = guard_views.drawn_view(rng, answers=300)
    found = read("similarity", whole)
    assert found is not None
    assert 0.0 <= found < 0.05


# --- probabilities ----------------------------------------------------------------------------------------------


def test_distance_and_certainty() -> None:
    batch = view([[1, 2, 3], [4]], logprob=-1.0, reference_logprob=-1.5)
    assert read("kl_per_answer", batch) == pytest.approx((1.5 + 0.5) / 2)
    assert read("kl_per_token", batch) == pytest.approx(0.5)
    assert read("entropy", batch) == pytest.approx((3 + 1) / 2)
    assert read("self_perplexity", batch) == pytest.approx(math.e)


def test_the_reference_has_no_distance_to_itself() -> None:
    batch = replace(view([[1, 2, 3]]), of_reference=True)
    assert read("kl_per_answer", batch) is None
    assert read("kl_per_token", batch) is None
    assert read("entropy", batch) is not None


def test_what_the_update_says() -> None:
    batch = view([[1]])
    assert read("kl_step", batch) == 0.04
    assert read("ppo_ratio", batch) == 1.01
    assert read("clip_fraction", batch) == 0.1
    assert read("value_error", batch) == 0.2
    assert read("explained_variance", batch) == 0.6
    for name in ("kl_step", "ppo_ratio", "clip_fraction", "value_error", "explained_variance"):
        assert read(name, view([[1]], learned={})) is None


# --- the ensemble -----------------------------------------------------------------------------------------------


def test_disagreement() -> None:
    scores_KB = torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    assert read("ensemble_spread", view([[1], [2]], scores_KB=scores_KB)) == pytest.approx(0.5)
    assert read("ensemble_spread", view([[1], [2]], scores_KB=scores_KB[:1])) is None


def test_distance_from_labelled_answers() -> None:
    rng = torch.Generator().manual_seed(0)

    def features(rows: int, shift: float) -> Tensor:
        return torch.randn(rows, 2, generator=rng) + shift

    about = known([1], features(100, 0.0))
    near, far = features(20, 0.0), features(20, 2.0)
    for name in ("feature_shift", "feature_distance"):
        at_home = read(name, view([[0]] * 20, features_BD=near), about)
        away = read(name, view([[0]] * 20, features_BD=far), about)
        assert at_home is not None
        assert away is not None
        assert away > at_home + 0.5
        assert read(name, view([[0]] * 20, features_BD=near)) is None


def test_growth_and_acceleration_need_six_steps() -> None:
    assert derive("ensemble_spread_growth", [1, 1, 1, 2, 2]) is None
    assert derive("ensemble_spread_growth", [9, 1, 1, 1, 2, 2, 2]) == pytest.approx(math.log(2))
    assert derive("kl_acceleration", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]) == pytest.approx(0.3)
    assert derive("ensemble_spread_growth", [0] * 6) is None


# --- odd batches, scales, words ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(n for n, signal in SIGNALS.items() if signal.read is not None))
def test_empty_and_odd_batches_are_read_as_numbers_or_not_at_all(name: str) -> None:
    rich = known([3, 0, 4, 1], torch.randn(30, 2, generator=torch.Generator().manual_seed(0)))
    for batch in (view([]), view([[]]), view([[], []]), view([[1]]), view([[1], []], learned={})):
        for about in (rich, known()):
            value = read(name, batch, about)
            assert value is None or math.isfinite(value)


def test_scales() -> None:
    def scaled(scale: str, x: float) -> float:
        signal = SIGNALS["length"]
        more = {name: getattr(signal, name) for name in ("family", "meaning", "unit", "side", "words", "read")}
        return Signal(name="s", scale=scale, **more).scaled(x)  # type: ignore[arg-type]

    assert scaled("plain", -2.5) == -2.5
    assert scaled("root", 9.0) == 3.0
    assert scaled("root", -9.0) == -3.0
    assert scaled("log", math.e) == pytest.approx(1.0)
    assert math.isfinite(scaled("log", 0.0))


@pytest.mark.parametrize(
    ("name", "now", "usual", "words"),
    [
        ("length", 84, Usual(40, True), "answers are 2.1x longer than the reference's"),
        ("length", 20, Usual(44, False), "answers are 2.2x shorter than in healthy rounds"),
        ("length", 50, Usual(40, True), "answers are 25% longer than the reference's"),
        ("repeated_trigrams", 0.31, Usual(0.02, True),
         "31% of an answer's runs of 3 tokens repeat against 2.0% for the reference"),
        ("kl_per_answer", 9.0, Usual(3.25, False),
         "KL to the reference is 9 nats an answer against 3.25 in healthy rounds"),
        ("length", 0.0, Usual(40, True), "answers are 0 against 40 for the reference"),
    ],
)  # fmt: skip
def test_words(name: str, now: float, usual: Usual, words: str) -> None:
    assert SIGNALS[name].words(now, usual) == words
