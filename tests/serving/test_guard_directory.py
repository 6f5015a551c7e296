"""A training's directory: its page and dashboard, its report, and what other verbs say of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.system.scripted_trainer import SETTINGS, ScriptedTrainer, labeller_in, train
from starlette.testclient import TestClient

from guard_server import serving_guard
from holdfast.cli.main import main
from holdfast.run.directory import RunDirectory
from holdfast.web.app import create_app
from holdfast.web.site import open_site


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's directory with a training that was hacked in its first round."""
    place = tmp_path_factory.mktemp("guarded")
    with serving_guard(place / "guard", labeller_in(place)) as served:
        train(served.client().training("mine", **SETTINGS), ScriptedTrainer(hacked=True, seed=1030), 8)
        served.client().training("new", **SETTINGS)
    return place / "guard"


@pytest.fixture
def page(directory: Path) -> Iterator[TestClient]:
    site = open_site(RunDirectory.open(directory / "mine"))
    if not site.accounts.any():
        site.accounts.create("anna", "a-long-password", "owner")
    with TestClient(create_app(site), base_url="http://127.0.0.1") as client:
        session = client.post("/api/v1/session", json={"name": "anna", "password": "a-long-password"}).json()
        client.headers["Authorization"] = f"Bearer {session['token']}"
        yield client


def test_the_dashboard_and_the_labelling_page_are_those_of_a_run(page: TestClient) -> None:
    shown = page.get("/").text
    assert "1 rollback" in shown
    assert "the component &#39;tone&#39; gained" in shown
    assert "Act on the run" not in shown, "nothing would carry it out"
    assert page.get("/label").status_code == page.get("/live").status_code == page.get("/quality").status_code == 200


def test_an_owner_is_told_to_act_on_the_trainer_itself(page: TestClient) -> None:
    body = {"id": "pause-0001", "action": "pause", "arguments": {}, "reason": ""}
    refused = page.post("/api/v1/requests", json=body)
    assert (refused.status_code, "act on the trainer" in refused.json()["detail"]) == (400, True)
    assert page.get("/api/v1/requests").json() == []


def test_other_verbs_say_what_it_is(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = str(directory / "mine")
    for words in (["resume", mine], ["rollback", mine, "round-0001"]):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert f"is the guard of a trainer over HTTP; `holdfast guard serve {directory}` goes on with it." in said
    assert main(["report", mine, "--out", str(tmp_path / "report.html")]) == 0
    assert "is granted in" in (tmp_path / "report.html").read_text()
    assert main(["export", mine, "--labels", str(tmp_path / "labels.jsonl")]) == 0
    assert main(["doctor", mine]) == 0


def test_the_newest_verdicts_are_printed(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["guard", "verdict", str(directory)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("mine  round 1  hacking: ")
    assert second == "new  no verdict yet"
    assert main(["guard", "verdict", str(directory / "mine"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trainings"]["mine"]["round"] == 1
    assert main(["guard", "verdict", str(directory.parent)]) == 2
    assert "There is no training in" in capsys.readouterr().err


def test_a_verdict_that_is_an_alarm_can_fail_a_script(tmp_path: Path) -> None:
    with serving_guard(tmp_path / "guard", labeller_in(tmp_path)) as served:
        trainer = ScriptedTrainer(hacked=True, seed=1031)
        training = served.client().training("mine", **SETTINGS, mode="advise")
        for _ in range(8):
            training.post(**trainer.batch())
            training.settle(trainer.answer, trainer.score)
    assert main(["guard", "verdict", str(tmp_path / "guard"), "--fail"]) == 1
