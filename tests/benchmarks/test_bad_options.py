"""One clear sentence, exit code 2, and nothing written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.__main__ import ROOMS, main
from benchmarks.record import ROOT
from benchmarks.speed.options import allowed_cores, on_cores
from benchmarks.trl import environments
from benchmarks.trl.environments import peer_environment

from holdfast.cli.main import main as holdfast
from holdfast.errors import HoldfastError

TOO_MANY = len(allowed_cores()) + 1


@pytest.mark.parametrize("kind", ["sampler", "update", "iteration", "peers"])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--turns", "0"], "--turns is 0; measure at least 1 turn, 5 for a result to be trusted."),
        (["--cores", str(TOO_MANY)], f"--cores is {TOO_MANY}, but this process may use {TOO_MANY - 1}; give a number"),
        (["--cores", "0"], "--cores is 0, but"),
        (["--out", "nowhere"], "--out nowhere is not a directory; make it first or name another."),
        (["--work", "file"], "--work file is a file; name a directory, which may be new."),
    ],
)
def test_a_bad_option_writes_nothing(
    kind: str, options: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main([kind, *options]) == 2
    told = capsys.readouterr()
    assert told.err.startswith(f"benchmarks: {sentence}")
    assert told.out == ""
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_case_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["peers", "--only", "dpo-fixed"]) == 2
    assert "There is no case 'dpo-fixed'; --only takes ppo-natural-1m, " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_no_kind_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main([])
    assert exit.value.code == 2
    assert "KIND" in capsys.readouterr().err


def test_the_readme_has_every_kind_by_its_command() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "benchmarks" / "README.md").read_text(), flags=re.MULTILINE)
    assert listed == [kind for kinds in ROOMS.values() for kind in kinds]


@pytest.mark.parametrize("kind", [kind for kinds in ROOMS.values() for kind in kinds])
def test_every_kind_says_what_it_does(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main([kind, "--help"])
    assert exit.value.code == 0
    assert f"python -m benchmarks {kind}" in capsys.readouterr().out


def test_the_program_says_where_benchmarks_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert holdfast(["bench", "peers"]) == 2
    assert capsys.readouterr().err == (
        "holdfast: benchmarks are in the source checkout; run `python -m benchmarks` there.\n"
    )


def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> list[list[str]]:
    """Stand in for every command of an installation."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if command[1:3] == ["-m", "venv"]:
            (Path(command[3]) / "bin").mkdir(parents=True)
            (Path(command[3]) / "bin" / "python").symlink_to(sys.executable)
        if "list" in command:
            return subprocess.CompletedProcess(command, 0, json.dumps([{"name": "TRL", "version": "9.9"}]), "")
        told = "WARNING: slow\nERROR: Could not find a version that satisfies trl\n" if fails else ""
        return subprocess.CompletedProcess(command, int(fails and "install" in command), "", told)

    monkeypatch.setattr(environments.subprocess, "run", run)
    return commands


def test_no_package_index_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip(tmp_path, monkeypatch, fails=True)
    with pytest.raises(
        HoldfastError, match=r"for trl==9.9 cannot be made \(Could not find .* trl\);.* check the network"
    ):
        peer_environment("trl==9.9", tmp_path, lambda _: None)


def test_an_environment_is_made_once_and_anew_when_it_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = pip(tmp_path, monkeypatch, fails=False)
    half = tmp_path / "environments" / "trl-9.9" / "half"
    half.mkdir(parents=True)
    told: list[str] = []
    python, versions = peer_environment("trl==9.9", tmp_path, told.append)
    assert not half.exists()
    assert versions == {"trl": "9.9"}
    assert python == tmp_path / "environments" / "trl-9.9" / "bin" / "python"
    installed = [command[-1] for command in commands if "install" in command]
    assert installed[0].startswith("torch==")
    assert "+" not in installed[0]
    assert installed[1] == "trl==9.9"
    count = len(commands)
    assert peer_environment("trl==9.9", tmp_path, told.append) == (python, versions)
    assert len(commands) == count
    assert len(told) == 1


def test_cores_are_given_back() -> None:
    before = allowed_cores()
    with on_cores(1):
        assert len(allowed_cores()) == 1
        inner = subprocess.run(
            [sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert inner.stdout.strip() == "1"
    assert allowed_cores() == before
