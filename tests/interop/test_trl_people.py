"""People who answer a trainer's audits on our labelling page, in a real browser, with the dashboard beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import sync_playwright

import served
import servers
from holdfast.cli.main import main
from holdfast.preferences.store import PreferenceStore
from holdfast.web.security import cookie_name

TRAINING = """
import json, sys
from pathlib import Path
from group_trainer import trainer_of
from holdfast.config.schema import AuditConfig
from holdfast.interop.trl import HoldfastCallback

def words(completions, **more):
    return [float(len(each[0]["content"].split())) for each in completions]

run, out, prompts = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
trainer = trainer_of(run / "reference", words, out, prompts, steps=2, beta=0.0)
HoldfastCallback("people", every=2, audit=AuditConfig(pairs=4, more_pairs=4)).attach(trainer)
trainer.train()
"""


@pytest.mark.slow
def test_audits_are_answered_in_a_browser(prepared: Path, prompts: list[Any], tmp_path: Path) -> None:
    chromium, output, said = servers.chromium(), tmp_path / "out", tmp_path / "said.txt"
    guard = output / "holdfast"
    tests = Path(__file__).parents[1]
    paths = [str(tests / "interop"), str(tests), str(tests.parent / "src")]
    words = [sys.executable, "-c", TRAINING, str(prepared), str(output), json.dumps(prompts[:8])]
    with said.open("w") as file:
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
        training = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, env=variables)
    try:
        wait_for(lambda: "waiting for people" in said.read_text(), training, said)
        assert f"`holdfast serve {output}` shows them" in said.read_text()
        token = served.sessions(f"sqlite:///{guard / 'run.db'}", anna="owner")["anna"]
        with served.serving(output) as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            context, errors = browser.new_context(), list[str]()
            context.add_cookies(
                [{"name": cookie_name(urlsplit(server.address).port or 0), "value": token, "url": server.address}]
            )
            page = context.new_page()
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(server.address + "/")
            page.wait_for_selector("#aside:has-text('answered')")
            page.goto(server.address + "/label")
            end = time.monotonic() + 90
            while training.poll() is None and time.monotonic() < end:
                if page.locator("#answer").count():
                    page.keyboard.press("1")
                page.wait_for_timeout(60)
            assert training.poll() == 0, said.read_text()
            page.goto(server.address + "/")
            page.wait_for_selector("text=/by people|people/ >> visible=true")
            assert errors == []
            browser.close()
    finally:
        training.kill()
        training.wait()
    rows = [json.loads(row) for row in (guard / "events.jsonl").read_text().splitlines()]
    (audit,) = [row for row in rows if row["event"] == "audit"]
    assert audit["answered_by"] == "people"
    with PreferenceStore.open(f"sqlite:///{guard / 'run.db'}") as store:
        # By how the answers fall the last round asks further before it goes back.
        choices = sum(row["labels"] for row in rows if row["event"] == "choice")
        assert audit["labels"] + choices == store.counts().labels > 8
    assert all(row["answered"] == row["comparisons"] for row in rows if row["event"] == "waited")


def wait_for(there: Any, process: subprocess.Popen[bytes], said: Path) -> None:
    end = time.monotonic() + 90
    while not there():
        assert process.poll() is None, said.read_text()
        assert time.monotonic() < end, said.read_text()
        time.sleep(0.1)


def test_only_its_trainer_goes_on_with_a_guard(
    prepared: Path, prompts: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from group_trainer import trainer_of

    from holdfast.interop.trl import HoldfastCallback

    def flat(completions: Any, **more: Any) -> list[float]:
        return [float(n) for n in range(len(completions))]

    trainer = trainer_of(prepared / "reference", flat, tmp_path, prompts, steps=1, beta=0.0)
    HoldfastCallback(lambda *texts: "a", say=lambda line: None).attach(trainer)
    trainer.train()
    for words in (["resume"], ["rollback"]):
        assert main([*words, str(tmp_path / "holdfast")]) == 2
        assert "is the guard of a GroupTrainer; go on with that" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "holdfast")]) == 0
    assert "verdict" in (tmp_path / "holdfast" / "report.html").read_text()
