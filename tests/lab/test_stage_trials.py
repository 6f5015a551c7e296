"""Measuring stages where the truth is known: DPO's trials, and the curves of best-of-n."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from benchmarks.dynamics.best_of_n import at
from benchmarks.trials import DPOJob, run_dpo_trial

import small_run
from holdfast.algorithms.best_of_n import best_of_n_kl
from holdfast.cli.main import main
from holdfast.lab.best_of_n import Point, Pool, curve, draw_pool, fit_curve, proxy_of
from holdfast.lab.observer import gold_of
from holdfast.run.directory import RunDirectory
from holdfast.worlds.registry import load_world


def test_a_trial_of_dpo_is_run_once_and_read_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = [w for w in small_run.settings(probes__every="2")[1::2] if not w.startswith("run.seed")]
    job = DPOJob(overrides, 5, tmp_path / "trial", tmp_path / "references")
    trial = run_dpo_trial(job)
    assert [row["step"] for row in trial.probes] == [0, 2, 4, 6]
    assert len(trial.gold) == len(trial.kl) == len(trial.length) == 3

    def never(*args: object) -> None:
        raise AssertionError("run again")

    monkeypatch.setattr("benchmarks.trials.assemble_dpo", never)
    assert run_dpo_trial(job) == trial


def test_a_pool_of_a_run_and_its_curves(tmp_path: Path) -> None:
    run = RunDirectory(small_run.run(tmp_path))
    world = load_world(run.config())
    gold = gold_of(world)
    assert gold is not None
    pool = draw_pool(run, gold, list(world.heldout_prompts())[:3], 8)
    assert pool.members_KPN.shape == (2, 3, 8)
    assert pool.gold_PN.shape == (3, 8)
    points = curve(proxy_of(pool, "mean"), pool.gold_PN)
    assert [p.n for p in points] == [1, 2, 3, 4, 6, 8]
    # The best of one is the mean of all, the best of all is the highest.
    assert points[0].proxy == pytest.approx(float(pool.members_KPN.mean()), abs=1e-5)
    assert points[-1].proxy == pytest.approx(float(pool.members_KPN.mean(0).max(1).values.mean()), abs=1e-5)
    assert [p.proxy for p in points] == sorted(p.proxy for p in points)


def test_the_lab_shows_the_curves_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run.run(tmp_path)
    capsys.readouterr()
    words = ["lab", "bestofn", str(run), "--prompts", "3", "--answers", "8"]
    assert main([*words, "--json", "--out", str(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((tmp_path / "best-of-n.json").read_text())
    assert list(document) == ["one member", "mean", "worst", "uncertainty"]
    assert (tmp_path / "best-of-n.svg").is_file()
    assert main(words) == 0
    assert "R²" in capsys.readouterr().out
    assert main([*words[:-1], "2"]) == 2
    assert "4 of --answers" in capsys.readouterr().err


def test_a_proxy_that_is_right_makes_gold_rise_and_one_that_is_noise_does_not() -> None:
    gold = torch.randn(20, 64, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(20, 64, generator=torch.Generator().manual_seed(1))
    right, wrong = curve(gold, gold), curve(noise, gold)
    assert right[-1].gold > 2.0
    assert abs(wrong[-1].gold - wrong[0].gold) < 0.5
    pool = Pool(torch.stack([gold, noise]), gold)
    assert torch.equal(proxy_of(pool, "worst"), torch.minimum(gold, noise))


def test_a_curve_of_the_form_is_fitted_by_it() -> None:
    points = [
        Point(n, best_of_n_kl(n), 0.0, 0.3 + (d := best_of_n_kl(n) ** 0.5) * (0.5 - 0.1 * d)) for n in (1, 4, 16, 64)
    ]
    fit = fit_curve(points)
    assert (fit.a, fit.b, fit.r2) == (pytest.approx(0.5), pytest.approx(0.1), pytest.approx(1.0))


def test_between_the_points_of_a_line() -> None:
    assert at([0.0, 1.0, 3.0], [1.0, 2.0, 6.0], 2.0) == pytest.approx(4.0)
    assert at([0.0, 1.0], [1.0, 2.0], 1.0) == pytest.approx(2.0)
    assert at([0.0, 1.0], [1.0, 2.0], 1.5) is None
    assert at([], [], 0.0) is None
