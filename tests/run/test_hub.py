"""Pushing an export to a hub: a stand-in over HTTP that keeps what it is given; and what goes wrong, in sentences."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

import small_run
from holdfast.cli.main import main

TOKEN = "hf_" + "x" * 34


@dataclass
class StandInHub:
    """What a hub would have after the requests: repositories with whether they are private, and their files."""

    url: str = ""
    private: dict[str, bool] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    fails_on: str = ""

    def answer(self, method: str, path: str, token: str, body: bytes) -> tuple[int, Any]:
        self.requests.append(f"{method} {path}")
        if token != f"Bearer {TOKEN}":
            return 401, {"error": "Invalid username or password."}
        if self.fails_on and self.fails_on in path:
            return 403, {"error": "You have no right to write here."}
        if path.endswith("/whoami-v2"):
            return 200, {"name": "me", "type": "user", "orgs": []}
        if path.endswith("/api/repos/create"):
            wanted = json.loads(body)
            name = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
            self.private.setdefault(name, bool(wanted.get("private") or wanted.get("visibility") == "private"))
            return 200, {"url": f"{self.url}/{name}", "name": name}
        if "/preupload/" in path:
            listed = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(body)["files"]]
            return 200, {"files": [{**file, "shouldIgnore": False, "oid": None} for file in listed]}
        if "/commit/" in path:
            for line in body.decode().splitlines():
                row = json.loads(line)
                if row["key"] == "file":
                    self.files[row["value"]["path"]] = base64.b64decode(row["value"]["content"])
            return 200, {
                "commitUrl": f"{self.url}/me/better/commit/{'1' * 40}",
                "commitOid": "1" * 40,
                "pullRequestUrl": None,
            }
        if path.endswith("/api/validate-yaml"):
            return 200, {"errors": [], "warnings": []}
        return 200, {"sha": "1" * 40, "id": "me/better", "siblings": []}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandInHub]:
    stand_in = StandInHub()

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            token = self.headers.get("Authorization", "")
            status, document = stand_in.answer(self.command, self.path, token, body)
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if status >= 400:
                self.send_header("X-Error-Message", document["error"])
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = respond

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stand_in.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    # What HF_ENDPOINT sets when the library is imported.
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", stand_in.url)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield stand_in
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run.run(tmp_path_factory.mktemp("hub"), run__rounds="1", run__steps_per_round="1", guard__mode="off")


def test_all_files_arrive_in_a_private_repository(
    hub: StandInHub, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run), str(tmp_path / "out"), "--hub", "me/better"]) == 0
    assert hub.private == {"me/better": True}
    assert hub.files == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert b"place = 'me/better'" in hub.files["README.md"]
    assert f"{hub.url}/me/better   pushed" in capsys.readouterr().out


def test_nothing_goes_out_unless_it_is_asked_for(hub: StandInHub, run: Path, tmp_path: Path) -> None:
    assert main(["export", str(run), str(tmp_path / "out")]) == 0
    assert hub.requests == []


@pytest.mark.parametrize("trouble", ["no token", "wrong token", "bad name", "no network", "offline", "no right"])
def test_what_goes_wrong_is_a_sentence_and_nothing_is_left_behind(
    trouble: str, hub: StandInHub, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    name, words = "me/better", ""
    match trouble:
        case "no token":
            monkeypatch.delenv("HF_TOKEN")
            words = "There is no token for the hub; set HF_TOKEN"
        case "wrong token":
            monkeypatch.setenv("HF_TOKEN", "hf_" + "y" * 34)
            words = "says 401"
        case "bad name":
            name, words = "not a name!", "is not a repository's name; use OWNER/NAME"
        case "no network":
            monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
            words = "http://127.0.0.1:9 cannot be reached"
        case "offline":
            monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
            words = "HF_HUB_OFFLINE forbids going to the hub"
        case "no right":
            hub.fails_on = "/commit/"
            words = "The upload failed"
    before = sorted(tmp_path.iterdir())
    assert main(["export", str(run), str(tmp_path / "out"), "--hub", name]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.strip().splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before
    assert hub.files == {}


def test_labels_are_not_pushed(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "--labels", str(tmp_path / "l.jsonl"), "--hub", "me/better"]) == 2
    assert "--hub pushes a model" in capsys.readouterr().err
