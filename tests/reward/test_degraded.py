"""A member that is constant or zero, raises, runs out of memory or hangs: left out, told of, never a silent zero."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_preferences import reference_answers, toy_ensemble

import tally
from holdfast.errors import HoldfastError
from holdfast.parallel.cores import CORES
from holdfast.reward.aggregate import aggregate
from holdfast.reward.degraded import MemberLeftOut
from holdfast.reward.ensemble import Ensemble, VersionStore

PROMPTS, RESPONSES = reference_answers()


@pytest.fixture
def told() -> list[MemberLeftOut]:
    return []


@pytest.fixture
def ensemble(told: list[MemberLeftOut]) -> Ensemble:
    ensemble = toy_ensemble()
    ensemble.standardise(PROMPTS, RESPONSES)
    ensemble.tell = told.append
    return ensemble


@pytest.fixture(params=[1, 2], ids=["one core", "two cores"])
def cores(request: pytest.FixtureRequest) -> Iterator[None]:
    before = CORES.workers
    CORES.set_workers(request.param)
    yield
    CORES.set_workers(before)


def constant(ensemble: Ensemble, member: int) -> None:
    with torch.no_grad():
        ensemble.members[member].head.weight.zero_()


def zero(ensemble: Ensemble, member: int) -> None:
    constant(ensemble, member)
    with torch.no_grad():
        ensemble.members[member].head.bias.zero_()


def raises(error: Exception) -> Callable[[Ensemble, int], None]:
    def put_in(ensemble: Ensemble, member: int) -> None:
        def hidden(batch: object) -> Any:
            raise error

        ensemble.members[member].hidden = hidden  # type: ignore[method-assign]

    return put_in


def out_of_room(ensemble: Ensemble, member: int) -> None:
    ensemble.members[member].hidden = lambda batch: torch.empty(2**60)  # type: ignore[method-assign]


def hangs(ensemble: Ensemble, member: int) -> None:
    ensemble.patience_seconds = 0.2
    ensemble.members[member].hidden = lambda batch: threading.Event().wait()  # type: ignore[assignment,method-assign,return-value]


FAULTS = {
    "constant": (constant, "gives every answer the same score"),
    "zero": (zero, "gives every answer the same score"),
    "raises": (raises(ValueError("no such layer")), "raised ValueError: no such layer"),
    "no memory on the CPU": (out_of_room, "ran out of memory"),
    "no memory on the GPU": (raises(torch.OutOfMemoryError("CUDA out of memory.")), "ran out of memory"),
    "hangs": (hangs, "gave no scores for 0.2 seconds"),
}


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize("member", [0, 1])
@pytest.mark.parametrize(("fault", "why"), FAULTS.values(), ids=FAULTS.keys())
def test_it_is_left_out_and_the_others_decide(
    fault: Callable[[Ensemble, int], None], why: str, member: int, ensemble: Ensemble, told: list[MemberLeftOut]
) -> None:
    whole_KB, _ = ensemble.judge(PROMPTS, RESPONSES)
    fault(ensemble, member)
    tally.count("broken members")
    scores_KB, features_BD = ensemble.judge(PROMPTS, RESPONSES)
    others = [k for k in range(3) if k != member]
    assert torch.equal(scores_KB, whole_KB[others])
    assert torch.equal(aggregate(scores_KB, "worst"), whole_KB[others].amin(0))
    assert features_BD.abs().sum(1).min() > 0
    assert told == [MemberLeftOut(member, why, ensemble.version, left=2, members=3)]
    # It is not asked again, nor told of again.
    assert torch.equal(ensemble.scores(PROMPTS, RESPONSES), whole_KB[others])
    asked = ensemble.opinions(PROMPTS, RESPONSES, [member] * len(PROMPTS))
    torch.testing.assert_close(asked, ensemble.raw_scores(PROMPTS, RESPONSES).mean(0))
    assert len(told) == 1


def test_what_is_alike_for_a_reason_is_no_fault(ensemble: Ensemble, told: list[MemberLeftOut]) -> None:
    constant(ensemble, 1)
    ensemble.judge(PROMPTS[:1] * 8, RESPONSES[:1] * 8)  # one answer, eight times
    ensemble.judge(PROMPTS[:3], RESPONSES[:3])  # too few to say
    for member in (0, 2):
        constant(ensemble, member)
    ensemble.judge(PROMPTS, RESPONSES)  # nobody moves: the answers, or all of them
    assert told == []


def test_what_no_member_can_do_is_no_members_fault(ensemble: Ensemble, told: list[MemberLeftOut]) -> None:
    with pytest.raises(IndexError):
        ensemble.judge([[10**6]], [[10**6]])
    assert told == []
    assert ensemble.judge(PROMPTS, RESPONSES).scores_KB.shape[0] == 3


def test_with_one_left_of_three_nothing_is_scored(ensemble: Ensemble, told: list[MemberLeftOut]) -> None:
    for member in (0, 2):
        raises(ValueError("no such layer"))(ensemble, member)
    for _ in range(2):
        with pytest.raises(HoldfastError, match=r"Of 3 reward members 1 is left \(member 0 raised ValueError"):
            ensemble.scores(PROMPTS, RESPONSES)
    assert [one.member for one in told] == [0, 2]


def test_a_version_says_who_is_left_out_and_the_next_one_asks_all_again(
    ensemble: Ensemble, told: list[MemberLeftOut], tmp_path: Path
) -> None:
    weight = ensemble.members[2].head.weight.detach().clone()
    constant(ensemble, 2)
    ensemble.standardise(PROMPTS, RESPONSES)
    assert [(one.member, one.left) for one in told] == [(2, 2)]
    VersionStore(tmp_path).save(ensemble)
    loaded = toy_ensemble()
    VersionStore(tmp_path).load_into(loaded, ensemble.version)
    assert loaded.degraded == {2: "gives every answer the same score"}
    assert torch.equal(loaded.scores(PROMPTS, RESPONSES), ensemble.scores(PROMPTS, RESPONSES))
    with torch.no_grad():
        ensemble.members[2].head.weight.copy_(weight)
    ensemble.standardise(PROMPTS, RESPONSES)
    assert ensemble.sound == [0, 1, 2]
    two = toy_ensemble(2)
    two.tell = told.append
    constant(two, 1)
    with pytest.raises(HoldfastError, match="at least 2 are needed"):
        two.standardise(PROMPTS, RESPONSES)
