"""JSON and TOML that nobody meant: nested until reading it runs out of stack. A sentence, never a traceback."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.checkpoint.lock import RunLock
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli.main import main
from holdfast.documents import DEEPEST, json_of, toml_of
from holdfast.errors import HoldfastError
from holdfast.preferences.comparison import Comparison, Provenance, Response
from holdfast.preferences.store import PreferenceStore
from holdfast.run.directory import RunDirectory
from holdfast.track.sinks import read_rows

MANY = 100_000


def test_as_deep_as_is_allowed_and_one_deeper() -> None:
    for n in (1, DEEPEST):
        assert json_of("[" * n + "]" * n) == json.loads("[" * n + "]" * n)
        assert toml_of(f"a = {'[' * (n - 1)}{']' * (n - 1)}") if n > 1 else True
    for text in ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), '{"a":' * MANY + "1" + "}" * MANY, "[" * MANY):
        for given in (text, text.encode()):
            with pytest.raises(ValueError, match="nested"):
                json_of(given)
    # Brackets in a text are no nesting, nor are those beside each other.
    assert json_of(json.dumps(["[" * MANY, [[]] * MANY]))[0] == "[" * MANY


@pytest.mark.parametrize(
    "text",
    [
        f"a = {'[' * MANY}{']' * MANY}",
        f"a = {'{b = ' * MANY}1{'}' * MANY}",
        f"[{'.'.join('a' * MANY)}]",
        f"{'.'.join('a' * MANY)} = 1",
        "a = {" + ".".join(['"a.b"'] * MANY) + " = 1}",
    ],
    ids=["lists", "tables", "a header", "a key", "a key in quotation marks"],
)
def test_toml_in_every_way_that_nests(text: str) -> None:
    with pytest.raises(ValueError, match="nested"):
        toml_of(text)


def _config(place: Path) -> list[str]:
    (place / "deep.toml").write_text(f"[world]\noptions = {'{a = ' * MANY}1{'}' * MANY}\n")
    return ["run", "--config", str(place / "deep.toml")]


def _setting(place: Path) -> list[str]:
    return ["run", "--set", f"world.options={'{a = ' * 20_000}1{'}' * 20_000}"]


def _name(place: Path) -> list[str]:
    return ["run", "--set", f"world.options.{'.'.join('a' * 20_000)}=1"]


def _run(place: Path, name: str, text: str) -> list[str]:
    run = place / "run"
    run.mkdir()
    (run / "config.toml").write_text("")
    (run / "manifest.json").write_text('{"holdfast_run": 1}')
    (run / name).write_text(text)
    return ["resume", str(run)]


def _manifest(place: Path) -> list[str]:
    return _run(place, "manifest.json", "[" * MANY + "]" * MANY)


def _config_of_a_run(place: Path) -> list[str]:
    return _run(place, "config.toml", f"[{'.'.join('a' * MANY)}]\n")


def _policy(place: Path) -> list[str]:
    (place / "config.json").write_text('{"a":' * MANY + "1" + "}" * MANY)
    (place / "model.safetensors").write_bytes(b"")
    return ["run", "--policy", str(place)]


def _result_of_a_lab(place: Path) -> list[str]:
    (place / "lab-gate.json").write_text("[" * MANY)
    return ["lab", "table", "gate", "--out", str(place)]


@pytest.mark.parametrize(
    "given",
    [_config, _setting, _name, _manifest, _config_of_a_run, _policy, _result_of_a_lab],
    ids=lambda f: f.__name__,
)
def test_a_command_that_is_given_one_ends_in_a_sentence(
    given: Callable[[Path], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*given(tmp_path)]) == 2
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    assert printed.startswith("holdfast: ")
    assert len(printed) < 1000


def test_a_lock_a_log_a_checkpoint_and_a_database(tmp_path: Path) -> None:
    deep = "[" * MANY + "]" * MANY
    with RunLock(tmp_path):
        (tmp_path / "run.lock").write_text(deep)
        with pytest.raises(HoldfastError, match="another process"), RunLock(tmp_path):
            pass
    (tmp_path / "ledger.jsonl").write_text('{"step": 1}\n' + deep + "\n")
    with pytest.raises(HoldfastError, match=r"ledger\.jsonl is damaged: line 2 is not JSON"):
        list(read_rows(tmp_path / "ledger.jsonl"))
    checkpoint = tmp_path / "checkpoints" / "round-0001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text(deep)
    assert "not valid JSON" in CheckpointStore(checkpoint.parent).faults()["round-0001"]
    (tmp_path / "manifest.json").write_text(deep)
    with pytest.raises(HoldfastError, match="not valid JSON"):
        RunDirectory.open(tmp_path)
    with PreferenceStore.open(f"sqlite:///{tmp_path / 'run.db'}") as store:
        sides = [Response(text, Provenance("v", 0, 0)) for text in ("yes", "no")]
        store.add_comparisons([Comparison("1", "why", *sides, round=0)])
    with sqlite3.connect(tmp_path / "run.db") as database:
        database.execute("DROP TRIGGER comparisons_no_update")
        database.execute("UPDATE comparisons SET prompt = ?", (deep,))
    with (
        PreferenceStore.open(f"sqlite:///{tmp_path / 'run.db'}") as store,
        pytest.raises(HoldfastError, match="database is damaged"),
    ):
        store.unlabelled()
