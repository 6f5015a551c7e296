"""What `holdfast doctor` says of a damaged run directory is what `holdfast resume` makes of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import small_run
import tally
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli import doctor
from holdfast.cli.main import main
from holdfast.cli.session import observe
from holdfast.config import load_config
from holdfast.run.run import Run
from small_run import differences, result_of

PROBED = {"probes__every": "2"}


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes() or b"this file was empty")
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def lengthened(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "flipped": flipped, "truncated": truncated, "emptied": emptied, "missing": Path.unlink, "lengthened": lengthened,
}  # fmt: skip

# Every class of file in a run directory.
FILES = (
    "config.toml", "manifest.json", "run.lock", "reference/model.safetensors", "reference/tokenizer.json",
    "reference/config.json", "reference.json", "checkpoints/round-0001/policy.safetensors",
    "checkpoints/round-0002/policy.safetensors", "checkpoints/round-0002/parts.json",
    "checkpoints/round-0002/manifest.json", "checkpoints/pinned.json", "rewards/v001/member-0.safetensors",
    "rewards/v002/ensemble.json", "rewards/v002/manifest.json", "metrics.jsonl", "events.jsonl", "samples.jsonl",
    "probes.jsonl", "gold.jsonl", "timings.jsonl", "probes.json", "run.db", "run.db.lock",
)  # fmt: skip


# What is in these is read by people alone, if by anybody.
UNREAD = ("timings.jsonl", "run.lock")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return result_of(small_run.run(tmp_path_factory.mktemp("whole"), **PROBED))


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run after two of its three rounds."""
    settings = [word for word in small_run.settings(**PROBED) if word != "--set"]
    run = Run.create(tmp_path_factory.mktemp("cut") / small_run.NAME, load_config(None, settings), observe=observe)
    rounds = run.rounds()
    next(rounds), next(rounds)
    rounds.close()
    return run.path


@pytest.fixture
def run(cut: Path, tmp_path: Path) -> Iterator[Path]:
    yield Path(shutil.copytree(cut, tmp_path / small_run.NAME))
    shutil.rmtree(tmp_path / small_run.NAME)


def stamps(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Size, time of change and inode of all that there is."""
    return {
        str(path): (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        for path in [directory, *directory.rglob("*")]
        for stat in [path.lstat()]
    }


@pytest.fixture(autouse=True)
def _only_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said of the machine, which takes longer to look at."""
    for name in ("distributions", "packages", "machine", "processes"):
        monkeypatch.setattr(doctor, name, list)


Look = Callable[[Path], dict[str, str]]


@pytest.fixture
def look(capsys: pytest.CaptureFixture[str]) -> Look:
    """What doctor says of a run: the state of each thing, by name. It exits with 2 where something is broken."""

    def looked(run: Path) -> dict[str, str]:
        capsys.readouterr()
        code = main(["doctor", str(run), "--json"])
        found = {each["what"]: each["state"] for each in json.loads(capsys.readouterr().out)}
        assert code == (2 if "broken" in found.values() else 0)
        return found

    return looked


def broken(found: dict[str, str]) -> set[str]:
    return {what for what, state in found.items() if state == "broken"}


def test_a_sound_run_is_sound(run: Path, whole: dict[str, object], look: Look) -> None:
    assert set(look(run).values()) == {"ok"}
    assert main(["resume", str(run)]) == 0
    assert differences(result_of(run), whole) == []


@pytest.mark.parametrize("file", FILES)
def test_doctor_agrees_with_resume(
    file: str, cut: Path, whole: dict[str, object], tmp_path: Path, look: Look, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing is broken resume ends bit for bit the same; what is broken is refused or told of."""
    for name, damage in DAMAGES.items():
        run = Path(shutil.copytree(cut, tmp_path / name / small_run.NAME))
        damage(run / file)
        tally.count("damaged files")
        before, held = stamps(run), small_run.tree_of(run)
        found = broken(look(run))
        assert (stamps(run), small_run.tree_of(run)) == (before, held), f"{name}: doctor changed something"
        assert not found or file not in UNREAD
        if (found or file in UNREAD) and name not in ("flipped", "lengthened"):
            continue
        code = main(["resume", str(run)])
        said = capsys.readouterr().err
        if found:
            told = small_run.events_of(run, "checkpoint_skipped") if code == 0 else said
            assert told, f"{name}: doctor says {found}, and resume nothing"
            continue
        assert code == 0, f"{name}: doctor says nothing, and resume {said}"
        assert differences(result_of(run), whole) == [], name


@pytest.mark.parametrize("file", ["timings.jsonl", "metrics.jsonl"])
def test_a_row_that_no_checkpoint_counts_on_may_be_anything(
    file: str, run: Path, whole: dict[str, object], look: Look
) -> None:
    """Rows written after the newest checkpoint are cut off by a resume, and those of timings are for people."""
    with (run / file).open("ab") as log:
        log.write(b'{"step": 9, "rou\n')
    assert look(run)[file] == "note"
    assert main(["resume", str(run)]) == 0
    assert differences(result_of(run), whole) == []


def test_a_lost_file_of_pins_loses_no_last_good_checkpoint(
    run: Path, look: Look, capsys: pytest.CaptureFixture[str]
) -> None:
    """More rounds are saved, and older checkpoints pruned, right when the run goes on."""
    store = CheckpointStore(run / "checkpoints")
    (good,) = store.pinned
    oldest = store.names()[0]
    assert good == oldest != store.names()[-1], "the last good one would be pruned if nothing kept it"
    (run / "checkpoints" / "pinned.json").unlink()
    assert look(run)["pinned.json"] == "note"
    assert main(["doctor", str(run)]) == 0
    assert f"missing; the run's last good checkpoint is {good}" in " ".join(capsys.readouterr().out.split())
    assert main(["resume", str(run), "--rounds", "4"]) == 0
    assert small_run.events_of(run, "checkpoint_skipped") == []
    assert store.pinned <= set(store.names())
    assert look(run)["pinned.json"] == "ok"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE labels SET choice = CASE choice WHEN 'a' THEN 'b' ELSE 'a' END WHERE seq = 5",
        "UPDATE labels SET labeller = 'somebody' WHERE seq = 5",
        "UPDATE comparisons SET a = b, b = a WHERE id = (SELECT comparison_id FROM labels WHERE seq = 5)",
        "UPDATE comparisons SET prompt = '\"other\"' WHERE id = (SELECT comparison_id FROM labels WHERE seq = 5)",
    ],
)
def test_labels_that_were_changed_are_refused(
    change: str, run: Path, look: Look, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(run / "run.db")) as connection, connection:
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        assert connection.execute(change).rowcount == 1
    assert broken(look(run)) == {"labels"}
    metrics = (run / "metrics.jsonl").read_bytes()
    assert main(["resume", str(run)]) == 2
    assert "other labels than the checkpoint was made with" in capsys.readouterr().err
    assert (run / "metrics.jsonl").read_bytes() == metrics


def test_what_a_killed_run_had_made_after_its_newest_checkpoint_is_not_missed(
    run: Path, whole: dict[str, object], look: Look
) -> None:
    event = {"step": 4, "round": 3, "event": "refresh", "version": 3}
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\nhalf a row that was written with\n")
    assert look(run)["events.jsonl"] == "note"
    assert main(["doctor", str(run)]) == 0
    assert main(["resume", str(run)]) == 0
    assert differences(result_of(run), whole) == []


def test_lost_checkpoints_are_missed_and_not_begun_anew(
    run: Path, look: Look, capsys: pytest.CaptureFixture[str]
) -> None:
    """Begun anew, the run would take all its rows back first."""
    shutil.rmtree(run / "checkpoints")
    for stray in (False, True):
        if stray:
            (run / "checkpoints").write_text("a file")
        held = small_run.tree_of(run)
        assert broken(look(run)) == {"checkpoints"}
        assert main(["resume", str(run)]) == 2
        assert "has made steps: bring its checkpoints back" in capsys.readouterr().err
        assert small_run.tree_of(run) == held


def test_what_somebody_else_put_beside_the_versions_is_no_damage(run: Path, look: Look) -> None:
    (run / "rewards" / "mine").mkdir()
    assert look(run)["reward version mine"] == "note"
    assert broken(look(run)) == set()
    assert main(["resume", str(run)]) == 0


def test_a_directory_in_place_of_the_report_is_broken(run: Path, look: Look) -> None:
    (run / "report.html").mkdir()
    assert broken(look(run)) == {"report.html"}
    assert main(["resume", str(run)]) == 2


def test_a_log_that_is_a_link_is_not_followed(run: Path, tmp_path: Path, look: Look) -> None:
    """Whoever made the directory would have a file of its reader's cut back, or emptied."""
    elsewhere = tmp_path / "elsewhere.txt"
    elsewhere.write_text("a line that does not end")
    for name in ("gold.jsonl", "timings.jsonl"):
        kept = (run / name).rename(tmp_path / name)
        (run / name).symlink_to(elsewhere)
        assert broken(look(run)) == {name}
        assert main(["resume", str(run)]) == 2
        assert elsewhere.read_text() == "a line that does not end"
        kept.replace(run / name)


@pytest.mark.parametrize("name", ["manifest.json", "events.jsonl", "checkpoints/round-0001/parts.json"])
def test_a_pipe_is_told_of_and_not_read(name: str, run: Path, look: Look) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    assert look(run) == {name: "broken"}
    for verb in ("resume", "report"):
        assert main([verb, str(run)]) == 2


@pytest.mark.parametrize("name", ["reference.json", "run.db-shm"])
def test_what_is_not_a_file_where_resume_writes_one_is_broken(name: str, run: Path, look: Look) -> None:
    (run / name).unlink(missing_ok=True)
    (run / name).mkdir()
    assert broken(look(run))


def test_an_empty_log_that_is_missing_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run.run(tmp_path, run__rounds="1", run__steps_per_round="1")
    assert (run / "probes.jsonl").stat().st_size == 0
    (run / "probes.jsonl").unlink()
    capsys.readouterr()
    assert main(["doctor", str(run)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "probes.jsonl" in line]
    assert line.split(maxsplit=2) == ["note", "probes.jsonl", "missing; it was empty"]


@pytest.mark.parametrize("content", [b"[1, 2]\n", b'{"event": "refresh"}\n', b'{"event": "refresh", "version": "x"}\n'])
def test_a_finding_names_no_exception(content: bytes, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "events.jsonl").write_bytes(content)
    assert main(["doctor", str(run)]) == 2
    assert not re.findall(r"\w+Error", capsys.readouterr().out)


def test_damage_is_told_once_and_where_it_is(run: Path, look: Look, capsys: pytest.CaptureFixture[str]) -> None:
    truncated(run / "manifest.json")
    flipped(run / "checkpoints" / "pinned.json")
    found = look(run)
    assert broken(found) == {"manifest.json", "pinned.json"}
    assert found["config.toml"] == found["labels"] == "note"
    main(["doctor", str(run)])
    assert capsys.readouterr().out.count("not checked: manifest.json is damaged") == 5


def test_every_line_is_printed_whatever_one_of_them_meets(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "checkpoints" / "pinned.json").write_text("[" * 100_000)
    (run / "events.jsonl").write_bytes(b"\xff\xfe\n")
    before = stamps(run)
    assert main(["doctor", str(run)]) == 2
    lines = {line[8:30].strip(): line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert lines["pinned.json"] == lines["events.jsonl"] == "broken"
    assert lines["labels"] == lines["metrics.jsonl"] == lines["reference"] == "ok"
    assert stamps(run) == before


def test_a_database_that_a_foreign_config_names_is_neither_made_nor_written(
    run: Path, tmp_path: Path, look: Look
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    settings = (run / "config.toml").read_text()
    (elsewhere / "theirs.db").write_bytes((run / "run.db").read_bytes())
    for name, state in (("theirs.db", "ok"), ("none.db", "broken")):
        head, section, rest = settings.partition("[preferences]")
        (run / "config.toml").write_text(
            head + section + rest.replace('url = ""', f'url = "sqlite:///{elsewhere / name}"', 1)
        )
        before = stamps(elsewhere)
        assert look(run)["labels"] == state
        assert stamps(elsewhere) == before


def test_runs_of_every_kind_are_known(cut: Path, tmp_path: Path, look: Look) -> None:
    """DPO and a pipeline of all stages: nothing is broken, no file is unknown, and what a stage left is checked."""
    policy = ["--policy", str(cut / "reference"), *small_run.settings(dpo__epochs="1")]
    assert main(["dpo", "--runs", str(tmp_path), "--name", "dpo", *policy]) == 0
    assert set(look(tmp_path / "dpo").values()) == {"ok"}
    flipped(tmp_path / "dpo" / "kept" / "reference-logprobs" / "logprobs.safetensors")
    assert broken(look(tmp_path / "dpo")) == {"kept reference-logprobs"}
    few = {"run__rounds": "1", "run__steps_per_round": "1", "dpo__epochs": "1"}
    options = ["--runs", str(tmp_path), "--name", "all", "--stages", "sft,reward,ppo", *small_run.settings(**few)]
    assert main(["pipeline", *options]) == 0
    run = tmp_path / "all"
    assert broken(look(run)) == set()
    flipped(run / "stages" / "3-ppo" / "model" / "model.safetensors")
    flipped(run / "stages" / "1-sft" / "stage.json")
    assert broken(look(run)) == {"1-sft: stage", "3-ppo: stage"}
    assert main(["resume", str(run)]) == 2


def test_a_pipeline_goes_on_with_its_own_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = small_run.settings(sft__epochs="1")
    assert main(["pipeline", "--runs", str(tmp_path), "--name", "all", "--stages", "sft", *few]) == 0
    file = tmp_path / "all" / "config.toml"
    file.write_text(file.read_text().replace("critic_lr_factor = 1.0", "critic_lr_factor = 2.0"))
    assert main(["resume", str(tmp_path / "all")]) == 2
    assert "ppo.critic_lr_factor is 2.0 and was 1.0" in capsys.readouterr().err
    assert main(["resume", str(tmp_path / "all"), "--changed"]) == 0
