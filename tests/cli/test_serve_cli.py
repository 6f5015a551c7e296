"""`holdfast serve` from the command line: owners, refusals, and one clear sentence for each."""

import socket

import pytest

import served
import web_site
from holdfast.cli.main import main
from holdfast.people.accounts import AccountStore
from holdfast.preferences.database import Database


@pytest.fixture
def run(tmp_path):
    return web_site.make_run(tmp_path / "run").path


def test_an_owner_is_made_from_the_command_line(run, monkeypatch, capsys):
    monkeypatch.setenv("HOLDFAST_PASSWORD", web_site.PASSWORD)
    assert main(["serve", str(run), "--add-owner", "anna"]) == 0
    assert "anna is an owner" in capsys.readouterr().out
    store = AccountStore(Database(f"sqlite:///{run / 'run.db'}"))
    assert store.check_password("anna", web_site.PASSWORD).role == "owner"
    assert main(["serve", str(run), "--add-owner", "anna"]) == 2
    assert "is taken" in capsys.readouterr().err


def test_other_hosts_need_an_account_first(run, capsys):
    assert main(["serve", str(run), "--host", "0.0.0.0"]) == 2
    said = capsys.readouterr().err
    assert "needs an account first" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "70000"], "is not a port"),
        (["--add-owner", "two words"], "no spaces"),
        (["--host", "no.such.host.invalid"], "account first"),
    ],
)
def test_bad_input_is_one_sentence(run, monkeypatch, capsys, arguments, sentence):
    monkeypatch.setenv("HOLDFAST_PASSWORD", web_site.PASSWORD)
    assert main(["serve", str(run), *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_short_password_is_refused(run, monkeypatch, capsys):
    monkeypatch.setenv("HOLDFAST_PASSWORD", "short")
    assert main(["serve", str(run), "--add-owner", "anna"]) == 2
    assert "at least 10 characters" in capsys.readouterr().err


def test_a_port_that_is_taken_is_said(run, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", str(run), "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another --port" in capsys.readouterr().err


def test_ctrl_c_says_that_the_server_has_stopped(run):
    with served.serving(run) as server:
        assert server.interrupt() == 130
    assert "The server has stopped" in server.printed
    assert "checkpoint" not in server.printed


def test_the_help_says_that_the_run_comes_first(tmp_path, capsys):
    assert main(["serve", str(tmp_path / "later")]) == 2
    assert "There is no run directory" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    assert "Start the run first" in capsys.readouterr().out


def test_a_directory_that_is_no_run_is_refused(tmp_path, capsys):
    assert main(["serve", str(tmp_path)]) == 2
    assert "is not a run directory" in capsys.readouterr().err
