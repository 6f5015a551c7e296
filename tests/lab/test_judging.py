"""How right versions are, by the truth: pairs of the observer's, and the gate's decisions held against them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from test_trial import SMALL

from holdfast.lab.judging import pairs_by_round, rightness_of
from holdfast.lab.observer import ANSWERS, PAIRS_FILE, PairObserver
from holdfast.lab.trial import Job, run_trial
from holdfast.loop import Answer
from holdfast.models.codec import Codec
from holdfast.models.tiny import word_tokenizer
from holdfast.preferences.types import Prompt
from holdfast.rundir import RunDirectory

PROMPTS = ["one two", "two three"]


def _gold(prompt: Prompt, response: str, finished: bool) -> float:
    return len(response.split()) - (0 if finished else 10)


def _answer(prompts: Sequence[Prompt], seed: int) -> list[Answer]:
    """To the first prompt always the same; to the second longer with every seed."""
    return [Answer("one", True), Answer(" ".join(["two"] * (seed % 7 + 1)), seed % 2 == 0)]


def test_the_observer_keeps_answers_with_their_gold(tmp_path: Path) -> None:
    observer = PairObserver(_gold, tmp_path / PAIRS_FILE, PROMPTS)
    observer.after_round(2, 1, _answer)
    observer.after_round(4, 2, _answer)
    rows = [json.loads(line) for line in (tmp_path / PAIRS_FILE).read_text().splitlines()]
    assert [(row["round"], row["prompt_index"]) for row in rows] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert all(len(row["answers"]) == ANSWERS for row in rows)
    assert {answer["gold"] for answer in rows[0]["answers"]} == {1}
    observer.rewind(2)
    assert len((tmp_path / PAIRS_FILE).read_text().splitlines()) == 2


def test_pairs_are_those_of_which_one_is_truly_better(tmp_path: Path) -> None:
    observer = PairObserver(_gold, tmp_path / PAIRS_FILE, PROMPTS)
    observer.after_round(2, 1, _answer)
    observer.after_round(2, 1, _answer)  # the round was taken back, and observed again
    codec = Codec(word_tokenizer([*PROMPTS]))
    pairs = pairs_by_round(RunDirectory(tmp_path), codec, PROMPTS)[1]
    # Of the first prompt's answers none is better; of the second's four all six pairs have a better side.
    assert len(pairs) == 6
    assert {tuple(pair.prompt) for pair in pairs} == {tuple(codec.encode_prompt(PROMPTS[1]))}
    for pair in pairs:
        gold = [
            len([t for t in side if t != codec.eos_id]) - 10 * (side[-1] != codec.eos_id) for side in (pair.a, pair.b)
        ]
        assert pair.share_a == float(gold[0] > gold[1])


def test_rightness_by_hand() -> None:
    claim_P, truth_P = torch.tensor([0.9, 0.2, 0.6, 0.5]), torch.tensor([1.0, 0.0, 0.0, 1.0])
    right = rightness_of(claim_P, truth_P)
    # Right, right, wrong, undecided: 2.5 of 4.
    assert right.accuracy == pytest.approx(0.625)
    # Each claim in a bin of its own: |.9 - 1| + |.2 - 0| + |.6 - 0| + |.5 - 1| = 1.4, over 4.
    assert right.ece == pytest.approx(0.35)


@pytest.mark.slow
def test_a_run_whose_refreshes_are_judged(tmp_path: Path) -> None:
    job = Job((*SMALL, "guard.mode=off"), 5, tmp_path / "trial", heldout=8, labels="flipped-40", judge_refreshes=True)
    trial = run_trial(job)
    assert [row["round"] for row in trial.judged] == [2, 3]
    for row in trial.judged:
        assert row["harmful"] == (row["after"]["accuracy"] < row["before"]["accuracy"])
        assert 0 <= row["before"]["accuracy"] <= 1
        assert 0 <= row["after"]["ece"] <= 1
    # What one refresh left in use is what the next one starts from.
    assert trial.judged[0]["version"] == 2
    assert run_trial(job) == trial
