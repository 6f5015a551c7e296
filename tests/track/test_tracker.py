"""What a run writes down, and taking it back when it resumes."""

import hashlib
import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import pytest
import torch

from holdfast.checkpoint import files
from holdfast.errors import HoldfastError
from holdfast.track.sinks import read_rows
from holdfast.track.tracker import Tracker


class Recorder:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, dict[str, float]]] = []
        self.closed = False

    def log(self, step: int, round: int, values: Mapping[str, float]) -> None:
        self.rows.append((step, round, dict(values)))

    def close(self) -> None:
        self.closed = True


def write_steps(tracker: Tracker, steps: range) -> None:
    for step in steps:
        tracker.metrics(step, 0, {"objective/kl": step / 3, "control/beta": 0.1})
        tracker.event(step, 0, "lr_decayed", lr=step)
        tracker.sample(step, 0, prompt="p", response=f"r{step}")
        tracker.timing(step, 0, rollout=0.5)
        tracker.probe({"stage": "sft", "step": step})


def test_rows_land_in_the_four_files(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    write_steps(tracker, range(1, 2))
    tracker.close()
    assert (tmp_path / "metrics.jsonl").read_text() == (
        '{"step": 1, "round": 0, "control/beta": 0.1, "objective/kl": 0.3333333333333333}\n'
    )
    (event,) = read_rows(tmp_path / "events.jsonl")
    assert list(event) == ["step", "round", "event", "time", "lr"]
    assert (event["event"], event["lr"]) == ("lr_decayed", 1)
    assert datetime.fromisoformat(event["time"]).tzinfo is not None
    (sample,) = read_rows(tmp_path / "samples.jsonl")
    assert sample == {"step": 1, "round": 0, "prompt": "p", "response": "r1"}
    (timing,) = read_rows(tmp_path / "timings.jsonl")
    assert timing["rollout"] == 0.5
    assert "time" in timing


def test_equal_runs_give_equal_bytes_whatever_the_order_and_the_clock(tmp_path: Path) -> None:
    for name, reverse in (("one", False), ("two", True)):
        (tmp_path / name).mkdir()
        tracker = Tracker(tmp_path / name)
        values = {"objective/kl": 0.1 + 0.2, "control/beta": 0.05, "ensemble/version": 3}
        tracker.metrics(1, 0, dict(sorted(values.items(), reverse=reverse)))
        tracker.sample(1, 0, **dict(sorted({"prompt": "p", "response": "r"}.items(), reverse=reverse)))
        tracker.close()
    for file in ("metrics.jsonl", "samples.jsonl"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_unknown_metrics_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    sink = Recorder()
    tracker = Tracker(tmp_path, [sink])
    with pytest.raises(HoldfastError, match="no metric 'objective/klx'"):
        tracker.metrics(1, 0, {"objective/kl": 1.0, "objective/klx": 1.0})
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""
    assert sink.rows == []


def test_a_value_that_is_not_finite_is_null_in_the_file_and_a_gap_in_the_sinks(tmp_path: Path) -> None:
    sink = Recorder()
    tracker = Tracker(tmp_path, [sink])
    tracker.metrics(1, 2, {"objective/kl": math.nan, "val/ratio": math.inf, "control/lr": 1e-3})
    (row,) = read_rows(tmp_path / "metrics.jsonl")
    assert row == {"step": 1, "round": 2, "objective/kl": None, "val/ratio": None, "control/lr": 1e-3}
    assert sink.rows == [(1, 2, {"control/lr": 1e-3})]
    tracker.close()
    assert sink.closed


def test_a_tensor_is_written_as_the_number_it_holds(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    tracker.metrics(1, 0, {"objective/kl": torch.tensor(0.1)})  # type: ignore[dict-item]
    (row,) = read_rows(tmp_path / "metrics.jsonl")
    # float32 0.1 is 13421773 / 2^27, exactly a double.
    assert row["objective/kl"] == 13421773 / 2**27


def test_a_resumed_run_writes_the_same_bytes_as_an_unbroken_one(tmp_path: Path) -> None:
    for name in ("unbroken", "broken"):
        (tmp_path / name).mkdir()
    tracker = Tracker(tmp_path / "unbroken")
    write_steps(tracker, range(1, 6))
    tracker.close()

    tracker = Tracker(tmp_path / "broken")
    write_steps(tracker, range(1, 4))
    offsets = tracker.state()
    write_steps(tracker, range(4, 5))
    tracker.close()
    with (tmp_path / "broken" / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 5, "rou')
    resumed = Tracker(tmp_path / "broken")
    resumed.restore(offsets)
    write_steps(resumed, range(4, 6))
    resumed.close()
    for file_name in ("metrics.jsonl", "samples.jsonl"):
        assert (tmp_path / "broken" / file_name).read_bytes() == (tmp_path / "unbroken" / file_name).read_bytes()
    assert [row["step"] for row in read_rows(tmp_path / "broken" / "events.jsonl")] == [1, 2, 3, 4, 5]
    # Time spent twice on step 4 was spent twice.
    assert [row["step"] for row in read_rows(tmp_path / "broken" / "timings.jsonl")] == [1, 2, 3, 4, 4, 5]


def test_rewind_takes_back_all_files_or_none(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    write_steps(tracker, range(1, 3))
    offsets = tracker.state()
    assert offsets.keys() == {"metrics.jsonl", "events.jsonl", "samples.jsonl", "probes.jsonl"}
    write_steps(tracker, range(3, 4))
    with pytest.raises(HoldfastError, match=r"samples\.jsonl has .* rows are missing"):
        tracker.restore({**offsets, "samples.jsonl": {"size": 10**6, "sha256": ""}})
    with pytest.raises(HoldfastError, match="resume from another checkpoint"):
        tracker.restore({"metrics.jsonl": offsets["metrics.jsonl"]})
    for name in ("metrics", "events", "samples", "probes"):
        assert [row["step"] for row in read_rows(tmp_path / f"{name}.jsonl")] == [1, 2, 3]


@pytest.mark.parametrize("name", ["metrics", "events", "samples", "probes"])
def test_a_byte_changed_before_the_last_commit_is_refused_and_after_it_is_cut(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.jsonl"
    tracker = Tracker(tmp_path)
    write_steps(tracker, range(1, 3))
    places = tracker.state()
    committed = path.stat().st_size
    write_steps(tracker, range(3, 4))
    tracker.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:committed] + whole[committed:].replace(b"3", b"7"))
    resumed = Tracker(tmp_path)
    resumed.restore(places)
    write_steps(resumed, range(3, 4))
    # The checksum that is carried along is that of the bytes that are there.
    assert resumed.state()[path.name]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    resumed.close()
    path.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    damaged = Tracker(tmp_path)
    with pytest.raises(HoldfastError, match=rf"{path} was changed: .* bring the file back"):
        damaged.restore(places)
    damaged.close()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_offsets_are_given_only_for_rows_that_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Tracker(tmp_path)
    write_steps(tracker, range(1, 2))
    synced: list[int] = []
    real = files._fsync

    def spy(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").stat().st_ino)
        real(descriptor)

    monkeypatch.setattr(files, "_fsync", spy)
    tracker.state()
    names = ("metrics", "events", "samples", "probes")
    assert set(synced) == {(tmp_path / f"{name}.jsonl").stat().st_ino for name in names}


def test_a_field_cannot_overwrite_what_the_row_says_of_itself(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path)
    for name in ("event", "time"):
        with pytest.raises(HoldfastError, match=f"has no field '{name}'"):
            tracker.event(1, 0, "stopped", reason="why", **{name: "x"})
    with pytest.raises(HoldfastError, match="no event 'stoped'"):
        tracker.event(1, 0, "stoped", reason="why")
    with pytest.raises(ValueError, match="'time' is taken"):
        tracker.timing(1, 0, time=1.0)
    assert (tmp_path / "events.jsonl").read_bytes() == b""
