"""The ensemble as TRL's reward function: what it is given, in which tokens, and what it refuses."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import holdfast.interop.trl as package
from holdfast.errors import HoldfastError
from holdfast.interop.trl import CallableLabeller, EnsembleReward, ensemble_reward
from holdfast.interop.trl.texts import completion_of, prompt_of
from holdfast.models.prompt import Message
from holdfast.preferences.comparison import Choice, Comparison, Provenance, Response
from holdfast.preferences.labeller import labeller_of
from holdfast.reward.aggregate import aggregate
from holdfast.run.directory import RunDirectory

ANSWERS = ["Yes.", "No, it is closed."]


@pytest.fixture
def reward(prepared: Path) -> EnsembleReward:
    return ensemble_reward(prepared)


def by_hand(reward: EnsembleReward, prompt: Any, ends: bool = True) -> list[float]:
    """The aggregate of the members' scores of the ensemble's own tokens, less the penalty where an answer is cut."""
    tokens = [
        reward.codec.encode_response(text) if ends else reward.codec.encode_response(text)[:-1] for text in ANSWERS
    ]
    scores_KB = reward.ensemble.scores([reward.codec.encode_prompt(prompt)] * 2, tokens)
    config = reward.config.reward
    penalty = 0.0 if ends else config.unfinished_penalty
    return [float(x) - penalty for x in aggregate(scores_KB, config.aggregation)]


def test_plain_and_conversational_prompts_score_alike(reward: EnsembleReward) -> None:
    question = "When is breakfast?"
    plain = reward([question] * 2, ANSWERS)
    turns = [[{"role": "user", "content": question}]] * 2
    said = [[{"role": "assistant", "content": text}] for text in ANSWERS]
    parts = [[{"role": "user", "content": [{"type": "text", "text": question}]}]] * 2
    assert plain == pytest.approx(by_hand(reward, question), abs=1e-5)
    assert reward(turns, said) == plain
    assert reward(parts, said) == plain
    assert plain[0] != plain[1]


def test_longer_conversations_go_through_the_chat_template(reward: EnsembleReward) -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    as_ours = (Message("user", "a"), Message("assistant", "b"), Message("user", "c"))
    assert prompt_of(turns) == as_ours
    assert reward([turns] * 2, ANSWERS) == pytest.approx(by_hand(reward, as_ours), abs=1e-5)


def test_a_completion_that_was_cut_off_has_no_end_and_pays_for_it(reward: EnsembleReward) -> None:
    ids = [[7, 8], [7, 8, 9]]
    assert reward(["q"] * 2, ANSWERS, completion_ids=ids) == pytest.approx(by_hand(reward, "q"), abs=1e-5)
    reward.end_ids = frozenset({9})
    cut, whole = reward(["q"] * 2, ANSWERS, completion_ids=ids)
    assert cut == pytest.approx(by_hand(reward, "q", ends=False)[0], abs=1e-5)
    assert whole == pytest.approx(by_hand(reward, "q")[1], abs=1e-5)


def test_whatever_else_a_trainer_passes_is_ignored_but_for_its_metrics(reward: EnsembleReward) -> None:
    logged: dict[str, float] = {}
    with_more = reward(
        prompts=["q"] * 2, completions=ANSWERS, completion_ids=[[1], [1]], trainer_state=None, log_extra=print,
        log_metric=lambda name, value: logged.update({name: value}), answer=["x", "y"],
    )  # fmt: skip
    assert with_more == reward(["q"] * 2, ANSWERS)
    assert list(logged) == ["holdfast/spread"]
    assert logged["holdfast/spread"] > 0


def test_of_several_turns_the_models_own_count(reward: EnsembleReward) -> None:
    turns = [
        {"role": "assistant", "content": "I look it up."},
        {"role": "tool", "content": "8 am"},
        {"role": "assistant", "content": "At 8."},
    ]
    assert completion_of(turns) == "I look it up.\nAt 8."
    assert completion_of([{"role": "assistant", "content": None}]) == ""


def test_an_image_is_refused(reward: EnsembleReward) -> None:
    with pytest.raises(HoldfastError, match="text only"):
        reward([[{"role": "user", "content": [{"type": "image", "image": 0}]}]], ["Yes."])


def test_a_score_that_is_not_a_number_is_never_a_reward(reward: EnsembleReward) -> None:
    with torch.no_grad():
        next(reward.ensemble.members[1].parameters()).fill_(torch.nan)
    with pytest.raises(HoldfastError, match="not numbers"):
        reward(["q"], ["Yes."])


def test_shaping_that_needs_reference_answers_is_refused(reward: EnsembleReward) -> None:
    config = replace(reward.config, reward=replace(reward.config.reward, shaping="sigmoid"))
    with pytest.raises(HoldfastError, match="set it to none"):
        EnsembleReward(reward.ensemble, reward.codec, config)


def test_an_ensemble_without_a_run_needs_its_policy(prepared: Path, reward: EnsembleReward) -> None:
    run = RunDirectory.open(prepared)
    alone = ensemble_reward(run.rewards, policy=run.reference)
    assert alone(["q"] * 2, ANSWERS) == pytest.approx(reward(["q"] * 2, ANSWERS), abs=1e-6)
    with pytest.raises(HoldfastError, match="give the policy"):
        ensemble_reward(run.rewards)
    with pytest.raises(HoldfastError, match="no reward ensemble"):
        ensemble_reward(prepared / "nowhere", policy=run.reference)
    with pytest.raises(HoldfastError, match="v009"):
        ensemble_reward(prepared, version=9)


def test_a_function_answers_blind(reward: EnsembleReward) -> None:
    shown: list[tuple[str, ...]] = []

    def ask(*texts: str) -> str:
        shown.append(texts)
        return "tie"

    origin = Provenance("the policy", 3, 0)
    comparison = Comparison("id", "q", Response("one", origin), Response("two", origin), 1)
    (label,) = CallableLabeller(ask).label([comparison])
    assert label.choice == Choice.TIE
    assert shown == [("q", "one", "two")]
    with pytest.raises(HoldfastError, match='"a", "b" or "tie"'):
        CallableLabeller(lambda *texts: "left").label([comparison])


def test_what_can_label() -> None:
    class Patient:
        name = "people"

        def gather(self, *given: object) -> None: ...

        def answers_to(self, *given: object) -> int:
            return 1

    with pytest.raises(HoldfastError, match="own pages"):
        labeller_of(Patient())  # type: ignore[arg-type]
    with pytest.raises(HoldfastError, match="name and label"):
        labeller_of(3)  # type: ignore[arg-type]
    ours = CallableLabeller(lambda *texts: "a")
    assert labeller_of(ours) is ours


def test_nothing_here_imports_trl() -> None:
    for path in Path(str(package.__file__)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "trl" for name in names), path
