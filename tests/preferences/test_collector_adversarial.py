"""Which answers of a policy found hacking are labelled beside a good one's."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from holdfast.config.schema import PreferencesConfig
from holdfast.preferences.collector import Collector
from holdfast.preferences.comparison import Choice, Comparison, Label
from holdfast.preferences.labeller import Labeller
from holdfast.rollout.sampler import Rollout

COUNT, ROUND = 4, 3
HACKED, GOOD = "round-0003", "round-0001"
# Of each candidate the margin of each member for the hacked answer. By their means, which are
# -1 2 .5 -3 1 3 0 1.5, the four highest are of 1, 4, 5 and 7; by the first member they would be of 0, 2, 4 and 6, and
# by the second of 1, 3, 5 and 7.
MARGINS_KP = torch.tensor(
    [
        [4.0, 0.0, 6.0, -10.0, 3.0, 1.0, 5.0, 0.5],
        [-6.0, 4.0, -5.0, 4.0, -1.0, 5.0, -5.0, 2.5],
    ]
)
FOOLED = [1, 4, 5, 7]


class Notebook:
    """Stands for the store and for the labeller: writes down what is asked, in the order in which it is."""

    name = "notebook"

    def __init__(self) -> None:
        self.asked: list[Comparison] = []
        self.labels: list[Label] = []

    def add_comparisons(self, comparisons: Sequence[Comparison]) -> None:
        self.asked += comparisons

    def answered(self, ids: Sequence[str]) -> set[str]:
        return set()

    def label(self, comparisons: Sequence[Comparison]) -> list[Label]:
        return [Label(c.id, self.name, Choice.A) for c in comparisons]

    def add_labels(self, labels: Sequence[Label]) -> None:
        self.labels += labels


def hacked_token(candidate: int) -> int:
    return 100 + candidate


def good_token(candidate: int) -> int:
    return 200 + candidate


def sample(player: str, prompts: list[list[int]], rng: torch.Generator) -> Rollout:
    """Answers of one token, which tells whose they are and to which of the prompts."""
    token = {"hacked": hacked_token, "good": good_token}[player]
    nothing = torch.zeros(len(prompts), 1)
    answers = [[token(n)] for n in range(len(prompts))]
    return Rollout(prompts, answers, nothing, None, nothing.bool(), [True] * len(prompts))


def margins(pairs: Any) -> torch.Tensor:
    assert [pair.a for pair in pairs] == [[hacked_token(n)] for n in range(len(pairs))], "margins for the hacked answer"
    assert [pair.b for pair in pairs] == [[good_token(n)] for n in range(len(pairs))]
    return MARGINS_KP


def collecting_with(notebook: Notebook, labeller: Labeller | None) -> Collector:
    codec = SimpleNamespace(encode_prompt=lambda prompt: [len(prompt)], decode=str)
    config = PreferencesConfig()
    prompts, ensemble = ["one", "another", "a third"], cast(Any, SimpleNamespace(margins=margins))
    return Collector("run", cast(Any, codec), prompts, cast(Any, notebook), labeller, ensemble, config, 0)


@pytest.fixture
def notebook() -> Notebook:
    """With what was asked about `COUNT` pairs out of twice as many."""
    written = Notebook()
    labelled = collecting_with(written, written).collect_adversarial(ROUND, COUNT, "hacked", "good", GOOD, sample)
    assert labelled == len(written.labels) == COUNT
    return written


def test_those_pairs_are_asked_about_in_which_the_ensemble_prefers_the_hacked_answer_most(notebook: Notebook) -> None:
    found = [{side.token_ids for side in (c.a, c.b)} for c in notebook.asked]
    assert found == [{(hacked_token(n),), (good_token(n),)} for n in FOOLED]
    assert [c.id for c in notebook.asked] == [f"run/adversarial-r0003-{n:05d}" for n in FOOLED]
    assert [label.comparison_id for label in notebook.labels] == [c.id for c in notebook.asked]


def test_the_hacked_answer_is_the_first_one_in_every_other_pair(notebook: Notebook) -> None:
    sides = [(c.a.provenance.policy_version, c.b.provenance.policy_version) for c in notebook.asked]
    assert sides == [(HACKED, GOOD), (GOOD, HACKED)] * 2
    one, two, three, four = FOOLED
    first = [c.a.token_ids for c in notebook.asked]
    assert first == [(hacked_token(one),), (good_token(two),), (hacked_token(three),), (good_token(four),)]


def test_the_next_round_learns_from_them(notebook: Notebook) -> None:
    assert {c.round for c in notebook.asked} == {ROUND + 1}


@pytest.mark.parametrize(("somebody", "count"), [(False, COUNT), (True, 0)])
def test_where_nobody_is_to_be_asked_nothing_is_sampled(somebody: bool, count: int) -> None:
    def refused(player: str, prompts: list[list[int]], rng: torch.Generator) -> Rollout:
        raise AssertionError("nobody is asked to answer here")

    notebook = Notebook()
    asking = collecting_with(notebook, notebook if somebody else None)
    assert asking.collect_adversarial(ROUND, count, "hacked", "good", GOOD, refused) == 0
    assert notebook.asked == []
