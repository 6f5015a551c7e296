"""`holdfast guard serve` from the command line: the token, refusals, and one server for a directory."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from benchmarks.system.scripted_trainer import SETTINGS, labeller_in

from holdfast.cli.main import main
from holdfast.interop.guard_client import GuardClient

TOKEN = "guards-0123456789abcdef"


def test_it_makes_a_token_serves_and_ends(tmp_path: Path) -> None:
    token, directory, who = tmp_path / "token", tmp_path / "guard", labeller_in(tmp_path)
    command = [
        sys.executable, "-m", "holdfast.cli.main", "guard", "serve", str(directory), "--labeller", who,
        "--token-file", str(token), "--make-token", "--port", "0", "--json",
    ]  # fmt: skip
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        assert (told["directory"], told["trainings"]) == (str(directory), [])
        assert oct(token.stat().st_mode)[-3:] == "600"
        client = GuardClient.of(told["address"], token.read_text())
        assert client.training("mine", **SETTINGS).look(20)["state"] == "answers"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(told["address"] + "/trainings/mine", timeout=20)
        second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert second.returncode == 2
        assert f"The run directory {directory} is in use by process {server.pid}" in second.stderr
        server.send_signal(signal.SIGTERM)
        _, said = server.communicate(timeout=60)
    finally:
        server.kill()
    assert server.returncode == 130
    assert "all that it had acknowledged is stored" in said
    assert token.read_text().strip() not in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "The guard needs a token: give --token-file FILE"),
        (["--token-file", "nothing"], "--make-token writes a new one"),
        (["--labeller", "nobody"], "--labeller is 'nobody'; it has to be one of people, judge"),
        (["--labeller", "gone.py:ask"], "names the file gone.py, which does not exist"),
        (["--labeller", "judge", "--set", "judge.share=2"], "judge.share"),
        (["--policy-url", "http://127.0.0.1:1/v1"], "--policy-url and --policy-model belong together"),
        (["--policy-url", "elsewhere", "--policy-model", "m"], "write it like http://127.0.0.1:8000/v1"),
        (["--port", "70000"], "--port 70000 is not a port"),
    ],
)
def test_bad_options_get_a_sentence(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if words:
        monkeypatch.setenv("HOLDFAST_GUARD_TOKEN", TOKEN)
    assert main(["guard", "serve", str(tmp_path / "guard"), *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_run_is_no_place_for_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_GUARD_TOKEN", TOKEN)
    (tmp_path / "manifest.json").write_text("{}")
    assert main(["guard", "serve", str(tmp_path)]) == 2
    assert "is a run; give the guard's server a directory of its own" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
