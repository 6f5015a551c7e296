"""What the benchmark of structured answers makes of trials and answers, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.dynamics.structured import CONSTRAINED, FREE, Said, compared, curves, pages, pair_of

from holdfast.lab.trial import SAID_FILE, Job
from holdfast.run.observer import Answer
from holdfast.track.sinks import JsonlFile
from holdfast.worlds.layout.page import Element, written
from made_trials import trial

PAGE = written([Element("title", 1, 1, 10, 2)])
SURE = '{"p":[0.00,0.00,0.00,1.00,1.00,1.00,1.00,1.00]}'
ASKED = "boats in the harbour; anything from 2 to 6; at 1 2 3 4 5 6 7 8"


def test_what_is_said_by_hand() -> None:
    answers = [Answer(PAGE, True), Answer("[]", True), Answer(PAGE, False), Answer("a page", True)]
    # Two of four are valid, one of them empty, and one did not end.
    assert Said.of("layout", answers) == Said(valid=0.5, cut=0.25, empty=0.25)
    assert Said.of("forecast", [Answer(SURE, True), Answer(PAGE, True)]) == Said(valid=0.5, cut=0.0, empty=0.0)


def test_a_comparison_by_hand() -> None:
    seeds = range(1000, 1002)
    trials = {
        (1000, CONSTRAINED): trial([0.1, 0.4], delivered=0.5),
        (1001, CONSTRAINED): trial([0.1, 0.4], delivered=0.3),
        (1000, FREE): trial([0.0, 0.2], delivered=0.2),
        (1001, FREE): trial([0.0, 0.2], delivered=0.2),
    }
    less = compared(trials, seeds, FREE)
    # Ends: 0.3 and 0.1 above; rises: 0.4 - 0.2 and 0.2 - 0.2.
    assert less["end"]["mean"] == pytest.approx(0.2)
    assert less["rise"]["mean"] == pytest.approx(0.1)


def test_a_pair_by_hand(tmp_path: Path) -> None:
    jobs = [Job([], 1000, tmp_path / name) for name in ("bare", "guarded")]
    for job, last in zip(jobs, ("[]", PAGE), strict=True):
        job.path.mkdir()
        rows = JsonlFile(job.path / SAID_FILE)
        for round, texts in enumerate(([PAGE, PAGE], [last, last])):
            rows.append({"step": round, "round": round, "texts": texts, "finished": [True, True]})
        rows.close()
    bare = trial([0.0, 0.2, -0.2, -0.4, -0.5])
    held = trial([0.0, 0.2, 0.0, 0.2], delivered=0.3, verdicts={2: "watch", 3: "hacking"}, sentences={3: "so"})
    pair = pair_of(bare, held, *jobs)
    assert (pair["bare_valid"], pair["bare_empty"], pair["guarded_empty"]) == (1.0, 1.0, 0.0)
    assert (pair["falls_in_round"], pair["called_in_round"], pair["delay"]) == (2, 3, 1)
    assert (pair["best"], pair["guarded_end"], pair["reaches_best"], pair["sentence"]) == (0.2, 0.3, True, "so")


def test_what_is_drawn() -> None:
    charts = curves([{"prompt": ASKED, "before": "nothing", "after": SURE}])
    # A forecast that is none has no line; a quarter of the boats' numbers are at most 3.
    assert [line.name for line in charts[0].series] == ["truth", "after"]
    assert charts[0].series[0].ys[2] == pytest.approx(0.25)
    drawing = pages([{"prompt": "a <page> with a title", "before": "nothing", "after": PAGE}])
    assert drawing.count("<svg") == 3
    assert "&lt;page&gt;" in drawing
