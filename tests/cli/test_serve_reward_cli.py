"""`holdfast serve-reward` from the command line: tokens, refusals, and an end that loses nothing."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

import small_run
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.serving.tokens import Tokens, find_token

PATIENCE_SECONDS = 90.0
TOKEN = "0123456789abcdef-token"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return small_run.run(tmp_path_factory.mktemp("rewards"), run__rounds="1", guard__mode="off")


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    return file


def start(run, *more):
    command = [sys.executable, "-m", "holdfast.cli.main", "serve-reward", str(run), "--port", "0", *more]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}, **pipes)
    line = process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    if not found:
        process.kill()
        raise AssertionError(line + process.stderr.read())
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            urllib.request.urlopen(found[0] + "/health", timeout=5)
            return process, found[0], line
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_it_makes_a_token_serves_and_ends_when_told(run, tmp_path):
    file = tmp_path / "made"
    process, address, line = start(run, "--token-file", str(file), "--make-token")
    try:
        assert "serving version 1 of" in line
        assert file.stat().st_mode & 0o777 == 0o600
        made = file.read_text().strip()
        assert len(made) >= 32
        body = b'{"prompt": "do we need to book?", "response": "We are there."}'
        with urllib.request.urlopen(f"{address}/t/{made}/slime", body, timeout=30) as answer:
            assert float(answer.read()) == pytest.approx(0.0, abs=20)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}/t/not-{made}/slime", body, timeout=30)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "The reward service has stopped" in err
    assert made not in line + out + err


REFUSED = {
    "no token": ([], "needs a token: give --token-file FILE"),
    "no such token file": (["--token-file", "gone"], "The token file gone cannot be read"),
    "a short token": (["--token-file", "short"], "holds a token of 5 characters; use at least 16"),
    "a token for no URL": (["--token-file", "odd"], "other characters than letters, digits"),
    "no such version": (["--token-file", "token", "--ensemble-version", "9"], "There is no version 9"),
    "no queue": (["--token-file", "token", "--queue", "0"], "--queue is 0; it has to be at least 1"),
    "no batch": (["--token-file", "token", "--batch", "0"], "--batch is 0; it has to be at least 1"),
    "a wait that is not a number": (["--token-file", "token", "--wait-ms", "nan"], "--wait-ms is nan"),
    "suspicion of everything": (["--token-file", "token", "--suspicion", "1"], "between 0 and 1"),
    "a policy for a run": (["--token-file", "token", "--policy", "x"], "--policy is for a bare ensemble"),
    "a setting for a run": (["--token-file", "token", "--set", "kl.beta=1"], "--set is for a bare ensemble"),
    "not a port": (["--token-file", "token", "--port", "70000"], "is not a port"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_sentence(run, token, monkeypatch, capsys, case):
    arguments, sentence = REFUSED[case]
    monkeypatch.chdir(token.parent)
    monkeypatch.delenv("HOLDFAST_REWARD_TOKEN", raising=False)
    for name, text in (("short", "12345"), ("odd", "spaces and / slashes")):
        (token.parent / name).write_text(text)
        (token.parent / name).chmod(0o600)
    before = small_run.tree_of(run)
    assert main(["serve-reward", str(run), *arguments]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert small_run.tree_of(run, ("run.db", "run.db.lock")) == {
        name: digest for name, digest in before.items() if name not in ("run.db", "run.db.lock")
    }


def test_what_is_no_run_and_no_ensemble_is_refused(token, tmp_path, capsys):
    for path in (tmp_path / "nothing", tmp_path):
        assert main(["serve-reward", str(path), "--token-file", str(token)]) == 2
        assert "There is no reward ensemble in" in capsys.readouterr().err


def test_a_port_that_is_taken_is_said(run, token, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["serve-reward", str(run), "--token-file", str(token), "--port", port]) == 2
    assert "choose another --port" in capsys.readouterr().err


# --- tokens -----------------------------------------------------------------------------------------------------


def test_a_token_comes_from_a_file_or_the_environment(token, monkeypatch):
    warned = []
    assert find_token(token, "SOME_TOKEN", False, warned.append) == TOKEN
    assert warned == []
    token.chmod(0o644)
    assert find_token(token, "SOME_TOKEN", False, warned.append) == TOKEN
    assert "can be read by others" in warned[0]
    assert TOKEN not in warned[0]
    monkeypatch.setenv("SOME_TOKEN", f" {TOKEN} ")
    assert find_token(None, "SOME_TOKEN", False, warned.append) == TOKEN
    monkeypatch.delenv("SOME_TOKEN")
    assert find_token(None, "SOME_TOKEN", False, warned.append) is None


def test_a_token_file_that_is_there_is_never_written_over(token, tmp_path):
    assert find_token(token, "X", True, print) == TOKEN
    made = find_token(tmp_path / "new", "X", True, print)
    assert find_token(tmp_path / "new", "X", True, print) == made
    with pytest.raises(HoldfastError, match="cannot be written"):
        find_token(tmp_path / "gone" / "new", "X", True, print)


def test_the_tokens_tell_who_asks_and_show_nobody(token):
    tokens = Tokens.of(TOKEN, "owner-" + TOKEN)
    assert tokens.role(TOKEN) == "asker"
    assert tokens.role("owner-" + TOKEN) == "owner"
    assert tokens.role("") is None
    assert tokens.role(TOKEN + "\udcff") is None
    assert TOKEN not in repr(tokens)
    assert Tokens.of(TOKEN).role("") is None
