"""How right versions are, by the truth: pairs of the observer's, and the gate's decisions held against them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from test_trial import SMALL

from holdfast.lab.observer import ANSWERS, PAIRS_FILE, PairObserver
from holdfast.lab.trial import Job, run_trial
from holdfast.lab.versions import pairs_by_round, rightness, rightness_of
from holdfast.models.codec import Codec
from holdfast.models.load import load_causal_lm
from holdfast.models.prompt import Prompt
from holdfast.models.tiny import word_tokenizer
from holdfast.reward.ensemble import VersionStore
from holdfast.reward.standalone import build_ensemble
from holdfast.run.directory import RunDirectory
from holdfast.run.observer import Answer
from holdfast.worlds.registry import load_task, load_world

PROMPTS = ["one two", "two three"]


def _gold(prompt: Prompt, response: str, finished: bool) -> float:
    return len(response.split()) - (0 if finished else 10)


def _answer(prompts: Sequence[Prompt], seed: int) -> list[Answer]:
    """To the first prompt always the same; to the second longer with every seed."""
    return [Answer("one", True), Answer(" ".join(["two"] * (seed % 7 + 1)), seed % 2 == 0)]


def test_the_observer_keeps_answers_with_their_gold(tmp_path: Path) -> None:
    observer = PairObserver(_gold, tmp_path / PAIRS_FILE, PROMPTS)
    observer.after_round(2, 1, _answer)
    places: dict[str, Any] = {}
    observer.mark(places)
    observer.after_round(4, 2, _answer)
    rows = [json.loads(line) for line in (tmp_path / PAIRS_FILE).read_text().splitlines()]
    assert [(row["round"], row["prompt_index"]) for row in rows] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert all(len(row["answers"]) == ANSWERS for row in rows)
    assert {answer["gold"] for answer in rows[0]["answers"]} == {1}
    observer.rewind(places)
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
    job = Job((*SMALL, "guard.mode=off"), 5, tmp_path / "trial", heldout=8, judge_refreshes=True)
    trial = run_trial(job)
    assert [row["round"] for row in trial.judged] == [2, 3]
    # By hand: the version in use and the new one, on answers of the policy that the round began with.
    run, config = RunDirectory.open(job.path), job.config()
    lm, codec = load_causal_lm(run.reference)
    ensemble, versions = build_ensemble(config, lm, codec), VersionStore(run.rewards)
    prompts = load_task(config, load_world(config)).heldout_prompts
    pairs = pairs_by_round(run, codec, prompts)
    in_use = 1
    for row in trial.judged:
        before, after = (
            asdict(rightness(ensemble, versions, version, pairs[row["round"] - 1]))
            for version in (in_use, row["version"])
        )
        assert (row["before"], row["after"]) == (before, after)
        assert row["harmful"] == (after["accuracy"] < before["accuracy"])
        in_use = row["version"] if row["accepted"] else in_use
    assert in_use > 1, "a refresh was accepted, so that the next one starts from another version"
    assert trial.judged[1]["before"] != asdict(rightness(ensemble, versions, 1, pairs[2]))
    assert run_trial(job) == trial
