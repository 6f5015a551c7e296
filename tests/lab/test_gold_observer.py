"""The observer writes what is true, for the lab alone, and forgets what a resumed run will do again."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.lab.observer import GoldObserver, gold_of
from holdfast.models.prompt import Prompt
from holdfast.run.observer import Answer
from holdfast.worlds.concierge import Concierge


def _gold(prompt: Prompt, response: str, finished: bool) -> float:
    """The number in the prompt plus the number in the response, less 10 if it did not end."""
    return float(str(prompt)) + float(response) - (0 if finished else 10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gold.jsonl"


def _observer(path: Path, heldout: Sequence[str] = ("1", "2", "3"), count: int = 2) -> GoldObserver:
    return GoldObserver(_gold, path, heldout, count)


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_step_is_one_row_with_the_mean(path: Path) -> None:
    # 1 + 2 = 3 and 5 + 6 - 10 = 1: the mean is 2.
    _observer(path).after_step(7, 2, ["1", "5"], [Answer("2", True), Answer("6", False)])
    assert _rows(path) == [{"step": 7, "round": 2, "split": "rollout", "gold": 2.0}]


def test_samples_are_a_row_each(path: Path) -> None:
    _observer(path).after_samples(7, 2, ["1", "5"], [Answer("2", True), Answer("6", True)])
    assert _rows(path) == [
        {"step": 7, "round": 2, "split": "samples", "prompt_index": 0, "gold": 3.0},
        {"step": 7, "round": 2, "split": "samples", "prompt_index": 1, "gold": 11.0},
    ]


def test_each_heldout_prompt_may_be_answered_more_than_once(path: Path) -> None:
    asked: list[str] = []

    def answer(prompts: Sequence[Prompt], seed: int) -> list[Answer]:
        asked.extend(str(p) for p in prompts)
        return [Answer(str(10 * n), True) for n in range(len(prompts))]

    GoldObserver(_gold, path, ["1", "2"], 2, answers=2).after_round(5, 1, answer)
    assert sorted(asked) == ["1", "1", "2", "2"]
    # 1 + 0, 2 + 10, 1 + 20, 2 + 30: the mean is 66 / 4.
    assert _rows(path) == [{"step": 5, "round": 1, "split": "heldout", "gold": 16.5, "answers": 4}]


def test_after_a_round_heldout_prompts_are_answered_with_one_fixed_seed(path: Path) -> None:
    asked = []

    def answer(prompts: Sequence[Prompt], seed: int) -> list[Answer]:
        asked.append((list(prompts), seed))
        return [Answer("10", True) for _ in prompts]

    observer = _observer(path)
    observer.after_round(5, 1, answer)
    observer.after_round(9, 2, answer)
    # Two of the three held-out prompts: 1 + 10 and 2 + 10, mean 11.5; the same draws every time.
    assert asked[0] == asked[1]
    assert asked[0][0] == ["1", "2"]
    assert _rows(path)[0] == {"step": 5, "round": 1, "split": "heldout", "gold": 11.5, "answers": 2}
    assert [r["step"] for r in _rows(path)] == [5, 9]


def test_without_heldout_prompts_nothing_is_asked(path: Path) -> None:
    def answer(prompts: Sequence[Prompt], seed: int) -> list[Answer]:
        raise AssertionError("nobody was to be asked")

    _observer(path, heldout=()).after_round(5, 1, answer)
    assert _rows(path) == []


def test_prompts_and_answers_have_to_match(path: Path) -> None:
    with pytest.raises(Exception, match=r"shorter|longer"):
        _observer(path).after_step(1, 1, ["1", "2"], [Answer("1", True)])


def _three_steps(path: Path) -> GoldObserver:
    observer = _observer(path)
    for step in (1, 2, 3):
        observer.after_step(step, 1, ["1"], [Answer(str(step), True)])
    return observer


def _places(observer: GoldObserver) -> dict[str, Any]:
    places: dict[str, Any] = {}
    observer.mark(places)
    return places


def test_rewind_drops_later_rows_and_goes_on(path: Path) -> None:
    observer = _observer(path)
    observer.after_step(1, 1, ["1"], [Answer("1", True)])
    places = _places(observer)
    observer.after_step(2, 1, ["1"], [Answer("2", True)])
    with path.open("ab") as file:
        file.write(b'{"step": 3, \xff\xfe')
    observer.rewind(places)
    assert [r["step"] for r in _rows(path)] == [1]
    observer.after_step(2, 1, ["1"], [Answer("9", True)])
    assert [(r["step"], r["gold"]) for r in _rows(path)] == [(1, 2.0), (2, 10.0)]
    observer.rewind({})
    assert path.read_text() == ""


def test_rewind_refuses_rows_that_were_changed(path: Path) -> None:
    observer = _observer(path)
    observer.after_step(1, 1, ["1"], [Answer("1", True)])
    places = _places(observer)
    path.write_text(path.read_text().replace("2.0", "9.0"))
    with pytest.raises(HoldfastError, match=r"gold\.jsonl was changed: .* bring the file back"):
        _observer(path).rewind(places)
    assert [r["gold"] for r in _rows(path)] == [9.0]


def test_gold_is_found_where_a_world_has_it() -> None:
    world = Concierge(0, prompts=5, demonstrations=2, heldout=3)
    gold = gold_of(world)
    assert gold is not None
    assert gold(world.prompts()[0], "", True) == 0.0

    class NoTruth:
        name = "files"

    assert gold_of(NoTruth()) is None  # type: ignore[arg-type]
