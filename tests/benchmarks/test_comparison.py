"""From reports to ratios."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks.speed.cases import CASES, PEER, Case
from benchmarks.speed.comparison import compare, ratio_facts, show
from benchmarks.speed.flops import model_flops
from benchmarks.speed.line import Driver, Report
from benchmarks.speed.ours import Job
from benchmarks.speed.peers import chosen

from holdfast.errors import HoldfastError
from holdfast.models.tiny import TinyShape, tiny_llama

MIB = 2**20


def report(seconds: float, tokens: int = 10, samples: int = 2, memory: int = 100 * MIB) -> Report:
    phases = {"sample": seconds / 4, "score": seconds / 4, "update": seconds / 2}
    return Report(seconds, seconds, phases, phases, [(6, tokens)] * samples, memory)


def side(name: str, reports: Sequence[Report]) -> Driver:
    facts = {"threads": 1, "memory_imported": 40 * MIB, "memory_loaded": 60 * MIB}
    return Driver(name, [], Path(name), None, facts, list(reports))


def test_the_ratio_of_whole_iterations_counts_where_answers_are_as_long() -> None:
    facts = ratio_facts([report(2.0, 101), report(3.0, 99)], [report(6.0, 100, memory=150 * MIB)] * 2)
    assert facts["lengths_agree"]
    assert facts["headline"] == facts["iteration"]
    assert facts["headline"]["median"] == 2.5
    assert facts["phases"]["update"]["median"] == 2.5
    assert facts["peak_memory"] == 1.5


def test_time_per_token_counts_where_they_are_not() -> None:
    facts = ratio_facts([report(2.0, 50)], [report(6.0, 100)])
    assert not facts["lengths_agree"]
    assert facts["headline"] == facts["per_token"]
    assert facts["headline"]["median"] == pytest.approx(1.5)
    assert facts["iteration"]["median"] == 3.0


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    tiny_llama(40, TinyShape(16, 2, 2, 32, 64), seed=0).save_pretrained(tmp_path / "policy")
    return tmp_path


def test_a_case_says_what_share_of_the_peak_each_side_reached(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(str(directory), [[1] * 6] * 2, 10, False)
    config = tiny_llama(40, TinyShape(16, 2, 2, 32, 64), seed=0).config
    drivers = {name: side(name, [report(4.0), report(4.0)]) for name in ("ours", "ours+critic", PEER)}
    result = compare(Case("ppo", "fixed", "1m"), job, drivers, peak=1e6)
    policy, trunk = model_flops(config, [16, 16], [10, 10]), model_flops(config, [16, 16], [])
    shares = {name: facts["share_of_peak"] for name, facts in result["sides"].items()}
    assert shares["ours"]["update"] == pytest.approx(job.epochs * policy / (2.0 * 1e6))
    assert shares["ours+critic"]["update"] == pytest.approx(job.epochs * (policy + trunk) / (2.0 * 1e6))
    assert shares[PEER] == shares["ours+critic"]
    assert shares["ours"]["sample"] == pytest.approx(policy / 3 / (1.0 * 1e6))
    assert result["sides"]["ours"]["memory"] == {"imported": 40 * MIB, "loaded": 60 * MIB, "peak": 100 * MIB}
    show({"ppo-natural-15m": result})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.split()[:2] == ["ppo-natural-15m", "ours"] and "1 [1, 1]" in line for line in lines)
    assert "…" not in "".join(lines)


def test_sides_that_did_not_do_the_same_work_are_not_compared(directory: Path) -> None:
    job = Job(str(directory), [[1] * 6] * 2, 10, False)
    drivers = {"ours": side("ours", [report(1.0)]), PEER: side(PEER, [report(1.0, samples=3)])}
    with pytest.raises(HoldfastError, match=r"did not do the same work: samples are ours \[2\], TRL \[3\]"):
        compare(Case("grpo", "natural", "1m"), job, drivers, peak=1.0)


def test_cases_are_chosen_by_how_they_begin() -> None:
    assert chosen(None, quick=False) == list(CASES)
    assert [c.name for c in chosen("ppo-natural-1m, rloo", quick=False)] == [
        "ppo-natural-1m", "rloo-natural-1m", "rloo-natural-15m",
    ]  # fmt: skip
    assert {c.size for c in chosen(None, quick=True)} == {"quick"}
