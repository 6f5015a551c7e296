"""A run directory of somebody else may name Python files in its settings; who only looks at it runs none of them."""

from __future__ import annotations

import builtins
import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import small_run
import tally
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.run.directory import RunDirectory
from holdfast.serving.versions import open_run
from holdfast.web.app import create_app
from holdfast.web.site import open_site

CODE = """
from pathlib import Path
Path("CANARY").write_text("sung")
class Thing:
    name = "thing"
    def __init__(self, *args, **kwargs): pass
"""


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run whose settings and model name code that sings when it is run, for a user who always says yes."""
    monkeypatch.setattr(builtins, "input", lambda *_: "y")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    run = small_run.run(tmp_path / "runs", run__rounds="1")
    code = run / "evil.py"
    code.write_text(CODE.replace("CANARY", str(tmp_path / "canary")))
    (run / "reference" / "code.py").write_text(code.read_text())
    config = run / "config.toml"
    text = config.read_text()
    for name in ("name", "labeller"):
        text = re.sub(rf'(?ms)(^\[world\].*?^{name} = )"[^"]*"', rf'\g<1>"{code}:Thing"', text, count=1)
    text = re.sub(r'(?ms)(^\[flaw\].*?^name = )"[^"]*"', rf'\g<1>"{code}:Thing"', text, count=1)
    config.write_text(text)
    assert text.count("evil.py:Thing") == 3
    for file, auto_map in (
        ("config.json", {"AutoConfig": "code.Thing", "AutoModelForCausalLM": "code.Thing"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["code.Thing", None]}),
    ):
        path = run / "reference" / file
        path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": auto_map}))
    return run


def _serve(run: Path) -> None:
    site = open_site(RunDirectory.open(run))
    with TestClient(create_app(site)) as client:
        for page in ("/", "/live", "/samples", "/compare"):
            client.get(page)


def _serve_reward(run: Path) -> None:
    source = open_run(run)
    source.load(source.in_use())


LOOKING: dict[str, Callable[[Path], Any]] = {
    "report": lambda run: main(["report", str(run), "--out", str(run.parent / "report.html")]),
    "doctor": lambda run: main(["doctor", str(run)]),
    "export": lambda run: main(["export", str(run), str(run.parent / "model")]),
    "export of labels": lambda run: main(["export", str(run), "--labels", str(run.parent / "labels.jsonl")]),
    "rollback": lambda run: main(["rollback", str(run)]),
    "serve": _serve,
    "serve-reward": _serve_reward,
}


def test_nothing_of_it_is_run_by_looking(foreign: Path, tmp_path: Path) -> None:
    for verb, look in LOOKING.items():
        with contextlib.suppress(HoldfastError):  # refusing it is as good as reading over it
            look(foreign)
        tally.count("directories with code opened")
        assert not (tmp_path / "canary").exists(), verb
