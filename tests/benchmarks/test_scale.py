"""Growth: every measurement does what it says, growth is read off the curve, results are kept."""

import json
import math
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.__main__ import main
from benchmarks.growth import process
from benchmarks.growth import run as growing_run
from benchmarks.growth import step as growing_step
from benchmarks.growth import store as growing_store
from benchmarks.growth.curves import AREAS, RUN, STEPS, STORE, Area, Curve, Found, Measurement, exponent
from benchmarks.growth.figure import figure
from benchmarks.growth.process import Once, Stopwatch, figures_of, measure
from benchmarks.growth.scale import chosen
from benchmarks.speed import options
from benchmarks.speed.ours import Ours

from holdfast.errors import HoldfastError
from holdfast.models.tiny import tiny_llama
from holdfast.rollout.sampler import Rollout

MODULES = {"store": growing_store, "run": growing_run, "step": growing_step}


def prepared(function: str, directory: Path, n: int) -> AbstractContextManager[Any]:
    module, _, name = function.partition(":")
    prepare: AbstractContextManager[Any] = getattr(MODULES[module], name)(directory, n)
    return prepare


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MOST_REPEATS", 1)


@pytest.mark.usefixtures("once")
def test_the_store_is_measured_with_so_many_labels(tmp_path: Path) -> None:
    for measurement in STORE.measurements:
        figures = figures_of(prepared(measurement.function, tmp_path, 400))
        assert figures["seconds"] > 0, measurement.name
        if measurement.name == "add labels":
            with growing_store.open_store(tmp_path) as store:
                assert store.counts().labels == 400
                assert store.unlabelled() == []
    # A round asked and two refreshed on top: 200 labels each.
    with growing_store.open_store(tmp_path) as store:
        assert store.counts().labels == 400 + 3 * growing_store.PER_ROUND
    assert len((tmp_path / "labels.jsonl").read_text().splitlines()) > 350


@pytest.mark.usefixtures("once")
def test_a_run_is_measured_with_so_many_steps(tmp_path: Path) -> None:
    found = {m.name: figures_of(prepared(m.function, tmp_path, 30)) for m in RUN.measurements}
    run = tmp_path / "run"
    # The last measurement writes one more step.
    assert [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()] == [*range(1, 32)]
    assert found["report"]["bytes"] == (tmp_path / "report.html").stat().st_size
    assert (run / "checkpoints" / "round-0003" / "ledger.safetensors").is_file()


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize("area", STEPS, ids=lambda area: area.name)
def test_a_step_is_measured_at_a_size(area: Area, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the area is named after is what changes, and the step that is timed is a whole one."""
    taken: list[Rollout] = []
    step = Ours.step

    def watched(self: Ours) -> Rollout:
        taken.append(step(self))
        assert len(self.rewarding.ensemble.members) == (3 if area.name.endswith("members") else 2)
        return taken[-1]

    monkeypatch.setattr(Ours, "step", watched)
    monkeypatch.setattr(growing_step, "STEP", growing_step.Step(4, 5, 20_000, 2))
    (measurement,) = area.measurements
    figures_of(prepared(measurement.function, tmp_path, 3))
    assert len(taken) == 2, "one to warm up"
    assert len(taken[-1].responses) == (3 if area.name.endswith("batch") else 4)
    assert {len(r) for r in taken[-1].responses} == {3 if area.name.endswith("length") else 5}


@pytest.mark.parametrize("wanted", [100_000, 1_000_000, 10_000_000])
def test_models_have_about_the_size_that_is_asked_for(wanted: int) -> None:
    with torch.device("meta"):
        lm = tiny_llama(growing_step.VOCABULARY, growing_step.shape_of(wanted, 64), 0)
    assert sum(p.numel() for p in lm.parameters()) == pytest.approx(wanted, rel=0.15)


@pytest.mark.usefixtures("once")
def test_versions_are_saved_on_top_of_others(tmp_path: Path) -> None:
    figures_of(growing_run.save_version(tmp_path, 3))
    assert sorted(path.name for path in (tmp_path / "rewards").iterdir()) == [f"v{n:05d}" for n in range(5)]


def test_comparisons_are_the_same_each_time() -> None:
    assert growing_store.comparisons(150, 250) == growing_store.comparisons(0, 300)[150:250]
    assert len({c.id for c in growing_store.comparisons(0, 1000)}) == 1000
    assert {c.round for c in growing_store.comparisons(0, 1000)} == set(range(5))


def test_a_process_of_its_own_measures_and_says_what_went_wrong(tmp_path: Path) -> None:
    figures = measure("benchmarks.growth.store:add_comparisons", tmp_path, 50)
    assert figures.keys() == {"seconds", "processor", "memory"}
    with growing_store.open_store(tmp_path) as store:
        assert store.counts().comparisons == 50
    with pytest.raises(HoldfastError, match=r"store:nonsense at 3 failed: .*nonsense"):
        measure("benchmarks.growth.store:nonsense", tmp_path, 3)


def test_work_that_cannot_be_repeated_is_done_once() -> None:
    calls: list[int] = []

    class Work:
        def __enter__(self) -> Once:
            return Once(lambda: calls.append(1))

        def __exit__(self, *error: object) -> None:
            pass

    figures_of(Work())
    assert calls == [1]


def test_work_that_times_itself_is_believed() -> None:
    class Work:
        def __enter__(self) -> Any:
            return lambda: {"seconds": 2.0, "processor": 1.5, "bytes": 7}

        def __exit__(self, *error: object) -> None:
            pass

    assert figures_of(Work()) | {"memory": 0.0} == {"seconds": 2.0, "processor": 1.5, "bytes": 7, "memory": 0.0}


def test_a_stopwatch_adds_up() -> None:
    watch = Stopwatch()
    for _ in range(3):
        with watch:
            sum(range(100_000))
    assert watch.processor > 0
    assert watch.figures() == {"seconds": watch.seconds, "processor": watch.processor}


def test_the_exponent_is_of_the_upper_half() -> None:
    sizes = [10, 100, 1000, 10_000]
    assert exponent(sizes, [5.0, 5.0, 1.0, 100.0]) == pytest.approx(2.0)
    assert exponent(sizes, [n * math.log(n) for n in sizes]) == pytest.approx(1.125, abs=0.001)
    assert exponent([10, 20], [3.0, 3.0]) == pytest.approx(0.0)
    assert exponent([10], [3.0]) is None
    assert exponent(sizes, [0.0] * 4) is None


def curve(values: list[float], why: str = "") -> Curve:
    made = Curve(Measurement("store", "reading", "x:y", "it reads", "whole", why))
    for n, value in zip((10, 100, 1000, 10_000), values, strict=True):
        made.add(n, {"seconds": 99.0, "processor": value, "memory": 1e6})
    return made


def test_what_is_steep_gets_a_sentence() -> None:
    assert curve([1.0, 10.0, 100.0, 1000.0]).note() == ""
    steep = curve([1.0, 10.0, 100.0, 10_000.0], "Pairs are compared.")
    assert steep.exponents() == {"time": pytest.approx(2.0), "memory": pytest.approx(0.0)}
    assert steep.note() == "reading: time grows as n^2.00. Pairs are compared."
    assert "not known" in curve([1.0, 10.0, 100.0, 10_000.0]).note()


def test_the_figure_has_two_charts_for_each_panel() -> None:
    svg = figure([Found(STORE, [curve([1.0, 10.0, 100.0, 1000.0])], {})])
    assert svg.count('class="title"') == 2
    assert "Work on the whole store: time" in svg
    assert "Work on the whole store: memory" in svg


def test_only_names_what_is_measured() -> None:
    assert [area.name for area in chosen(None)] == [area.name for area in AREAS]
    assert [area.name for area in chosen("store")] == ["store"]
    (run,) = chosen("report")
    assert [m.name for m in run.measurements] == ["make", "report"]
    with pytest.raises(HoldfastError, match="give some of store"):
        chosen("stores")
    with pytest.raises(HoldfastError, match="give some of store"):
        chosen(",")


def test_results_are_kept_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def made_up(function: str, directory: Path, n: int) -> dict[str, float]:
        assert directory.is_dir()
        more = {"bytes": 5e5} if function.endswith((":report", ":export")) else {}
        return {"seconds": n * 2e-4, "processor": n * 1e-4, "memory": n * 1e4, **more}

    monkeypatch.setattr(process, "measure", made_up)
    out, work = tmp_path / "out", tmp_path / "work"
    out.mkdir()
    assert main(["scale", "--quick", "--out", str(out), "--work", str(work)]) == 0
    printed = capsys.readouterr().out
    assert "labelled()" in printed
    assert "report, bytes at 60: 500,000, n^0.00" in printed
    kept = json.loads((out / "scale-quick.json").read_text())
    store = next(area for area in kept["areas"] if area["name"] == "store")
    assert store["curves"]["labelled()"]["n"] == [200, 400]
    assert store["curves"]["labelled()"]["exponents"] == {"time": 1.0, "memory": 1.0}
    assert "make" not in kept["areas"][1]["curves"]
    assert (out / "scale-quick.svg").read_text().startswith("<svg")
    assert list((work / "scale").iterdir()) == [], "what was measured is removed"
    assert main(["scale", "--out", str(tmp_path / "nowhere")]) == 2


def test_what_is_not_measured_again_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it is cut: every area is kept as soon as it is measured."""
    pace = 1e-4

    def made_up(function: str, directory: Path, n: int) -> dict[str, float]:
        if "run:" in function and pace > 2e-4:
            raise KeyboardInterrupt
        return {"seconds": n * 2e-4, "processor": n * pace, "memory": n * 1e4}

    def bench(*words: str) -> int:
        return main(["scale", *words, "--out", str(tmp_path), "--work", str(tmp_path / "work")])

    def times() -> dict[str, float]:
        areas = json.loads((tmp_path / "scale.json").read_text())["areas"]
        return {name: c["processor"][-1] / c["n"][-1] for area in areas for name, c in area["curves"].items()}

    monkeypatch.setattr(process, "measure", made_up)
    monkeypatch.setattr(options, "matmul_peak", lambda *_, **__: 1e9)
    assert bench("--only", "report,store") == 0
    assert bench("--quick") == 0
    assert times().keys() == {"report"} | {m.name for m in STORE.measurements}, "--quick has a file of its own"
    pace = 2e-4
    assert bench("--only", "resume") == 0
    assert times()["report"] == pytest.approx(1e-4)
    assert times()["labelled()"] == pytest.approx(1e-4)
    assert times()["resume"] == pytest.approx(2e-4)
    assert list(times())[:1] == ["add comparisons"], "in the order of the areas"
    pace = 3e-4
    assert bench("--only", "store,report") != 0
    assert times()["labelled()"] == pytest.approx(3e-4)
    assert times()["report"] == pytest.approx(1e-4)
    pace = 1e-4
    (tmp_path / "scale.json").write_text("{}")
    assert bench("--only", "report") == 2
