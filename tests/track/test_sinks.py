"""JSON-lines files that survive interruption, and the trackers outside."""

import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from holdfast.checkpoint import files
from holdfast.errors import HoldfastError
from holdfast.track.sinks import JsonlFile, TensorBoardSink, TrackioSink, WandbSink, mark_logs, read_rows, rewind_logs


def test_rows_can_be_read_at_once_and_have_a_fixed_order(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    file = JsonlFile(path)
    file.append({"b": 1, "round": 2, "a": {"y": 1, "x": 2}, "step": 3})
    file.append({"step": 4, "a": {"x": 2, "y": 1}, "b": 1, "round": 2})
    rest = '"round": 2, "a": {"x": 2, "y": 1}, "b": 1}\n'
    assert path.read_text() == '{"step": 3, ' + rest + '{"step": 4, ' + rest
    assert file.size() == path.stat().st_size


def test_floats_come_back_exactly_and_what_is_not_finite_is_null(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "m.jsonl")
    row = {
        "x": 0.1 + 0.2,
        "tiny": 5e-324,
        "nan": math.nan,
        "list": [math.inf, 1.5],
        "in": {"deep": -math.inf},
    }
    file.append(row)
    (back,) = read_rows(tmp_path / "m.jsonl")
    assert back == {"x": 0.1 + 0.2, "tiny": 5e-324, "nan": None, "list": [None, 1.5], "in": {"deep": None}}


def test_one_row_is_one_line_whatever_its_text(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "s.jsonl")
    text = "a\nb\r\u2028\u0085\x00\ud800é"
    file.append({"text": text})
    assert len((tmp_path / "s.jsonl").read_bytes().splitlines()) == 1
    assert list(read_rows(tmp_path / "s.jsonl")) == [{"text": text}]


def test_a_log_goes_back_to_a_commit_and_refuses_to_go_forward(tmp_path: Path) -> None:
    file = JsonlFile(tmp_path / "m.jsonl")
    file.append({"step": 1})
    places: dict[str, Any] = {}
    mark_logs([file], places)
    file.append({"step": 2})
    rewind_logs([file], places)
    file.append({"step": 3})
    assert [row["step"] for row in read_rows(tmp_path / "m.jsonl")] == [1, 3]
    with pytest.raises(HoldfastError, match="rows are missing"):
        rewind_logs([file], {"m.jsonl": {**places["m.jsonl"], "size": file.size() + 1}})
    assert [row["step"] for row in read_rows(tmp_path / "m.jsonl")] == [1, 3]


@pytest.mark.parametrize("torn", [b'{"step": 2, "x', b"y" * 200_000], ids=["short", "longer than a block"])
@pytest.mark.parametrize("whole", [b'{"step": 1}\n', b""], ids=["after a row", "alone"])
def test_half_a_row_left_by_a_killed_process_does_not_spoil_the_next(tmp_path: Path, torn: bytes, whole: bytes) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(whole + torn)
    # A reader sees the whole rows only.
    assert [row["step"] for row in read_rows(path)] == ([1] if whole else [])
    file = JsonlFile(path)
    file.append({"step": 2})
    assert path.read_bytes() == whole + b'{"step": 2}\n'


def test_a_full_disk_leaves_whole_rows_and_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.jsonl"
    file = JsonlFile(path)
    file.append({"step": 1})
    with monkeypatch.context() as patches:
        room = [3]

        def almost_full(descriptor: int, data: memoryview) -> int:
            if room[0] == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            room[0], taken = 0, room[0]
            return os.write(descriptor, data[:taken])

        patches.setattr(files, "_write", almost_full)
        with pytest.raises(HoldfastError, match=r"m\.jsonl could not be written.*No space left.*resume"):
            file.append({"step": 2})
    file.append({"step": 3})
    assert path.read_bytes() == b'{"step": 1}\n{"step": 3}\n'


def test_a_directory_that_does_not_exist_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="cannot be opened"):
        JsonlFile(tmp_path / "absent" / "m.jsonl")


def test_tensorboard_gets_the_scalars_and_a_resumed_run_hides_the_steps_it_redoes(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    first = TensorBoardSink(tmp_path)
    for step in (1, 2, 3):
        first.log(step, 0, {"objective/kl": 0.5 * step})
    first.close()
    resumed = TensorBoardSink(tmp_path, purge_step=3)
    resumed.log(3, 0, {"objective/kl": 9.0})
    resumed.close()
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("objective/kl")] == [(1, 0.5), (2, 1.0), (3, 9.0)]


class FakeRun:
    """Stands in for a tracker's run and remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self.calls.append((name, args, kwargs))


def fake_module(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[FakeRun, dict[str, Any]]:
    run, settings = FakeRun(), {}

    def init(**kwargs: Any) -> FakeRun:
        settings.update(kwargs)
        return run

    module = SimpleNamespace(init=init)
    monkeypatch.setitem(sys.modules, name, module)
    return run, settings


@pytest.mark.parametrize("project", ["holdfast", "mine"])
def test_wandb_gets_rows_against_our_own_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, project: str) -> None:
    run, settings = fake_module(monkeypatch, "wandb")
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    if project == "mine":
        monkeypatch.setenv("WANDB_PROJECT", "mine")
    sink = WandbSink("name", tmp_path)
    sink.log(7, 2, {"objective/kl": 1.0})
    sink.close()
    assert settings == {
        "project": project,
        "name": "name",
        "dir": str(tmp_path),
        "id": "name",
        "resume": "allow",
    }
    assert run.calls == [
        ("define_metric", ("step",), {}),
        ("define_metric", ("*",), {"step_metric": "step"}),
        ("log", ({"step": 7, "round": 2, "objective/kl": 1.0},), {}),
        ("finish", (), {}),
    ]


def test_trackio_gets_rows_with_the_step_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    run, settings = fake_module(monkeypatch, "trackio")
    sink = TrackioSink("name")
    sink.log(7, 2, {"objective/kl": 1.0})
    sink.close()
    assert settings == {"project": "holdfast", "name": "name", "resume": "allow"}
    assert run.calls == [("log", ({"round": 2, "objective/kl": 1.0},), {"step": 7}), ("finish", (), {})]


@pytest.mark.parametrize("extra", ["tensorboard", "wandb", "trackio"])
def test_a_tracker_that_is_not_installed_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, extra: str
) -> None:
    absent: ModuleType | None = None
    name = {"tensorboard": "torch.utils.tensorboard"}.get(extra, extra)
    monkeypatch.setitem(sys.modules, name, absent)
    make = {
        "tensorboard": lambda: TensorBoardSink(tmp_path),
        "wandb": lambda: WandbSink("n", tmp_path),
        "trackio": lambda: TrackioSink("n"),
    }
    with pytest.raises(HoldfastError, match=rf"pip install 'holdfast-rl\[{extra}\]'"):
        make[extra]()


def test_sinks_import_nothing_until_they_are_made() -> None:
    code = (
        "import sys, holdfast.track.sinks\n"
        "print([name for name in ('tensorboard', 'wandb', 'trackio') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == []
