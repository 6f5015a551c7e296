"""A run goes on as what it was saved as: other settings, another key or another reference are named and refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import small_run
import tally
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.run.loop import OnlineLoop
from holdfast.run.run import Run
from small_run import differences, events_of, result_of, tree_of


@pytest.fixture
def run(unbroken: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unbroken, tmp_path / small_run.NAME))


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def half_of_the_settings(run: Path) -> None:
    file = run / "config.toml"
    file.write_text(file.read_text().partition("[refresh]")[0])


def another_rate(run: Path) -> None:
    edit(run / "config.toml", "critic_lr_factor = 1.0", "critic_lr_factor = 2.0")


def another_key(run: Path) -> None:
    # One bit of the 3 in "concierge-3".
    edit(run / "manifest.json", '"key": "concierge-3"', '"key": "concierge-2"')


def another_weight(run: Path) -> None:
    (run / "reference.json").unlink()
    weights = run / "reference" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)


def no_reference(run: Path) -> None:
    shutil.rmtree(run / "reference")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (half_of_the_settings, ["refresh.lr is 0.0 and was 0.001", "more differ", "--changed"]),
        (another_rate, ["ppo.critic_lr_factor is 2.0 and was 1.0", "--changed"]),
        (
            another_key,
            ["its key is 'concierge-2', but round-0003 was saved with 'concierge-3'", "remove manifest.json"],
        ),
        (another_weight, ["model.safetensors is missing or not as it was written"]),
        (no_reference, ["is missing or not as it was written"]),
    ],
)
def test_what_is_not_the_runs_own_is_named_and_refused(
    change: Callable[[Path], None], words: list[str], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(run)
    tally.count("changed runs")
    before = tree_of(run)
    assert main(["resume", str(run)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert [word for word in words if word not in said] == []
    assert tree_of(run) == before


def test_changed_settings_are_taken_with_an_event_when_that_is_meant(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    another_rate(run)
    assert main(["resume", str(run), "--changed"]) == 0
    (event,) = events_of(run, "setting_changed")
    assert (event["name"], event["before"], event["after"]) == ("ppo.critic_lr_factor", "1.0", "2.0")
    assert main(["resume", str(run)]) == 0, "from now on they are the run's own"
    assert len(events_of(run, "setting_changed")) == 1
    edit(run / "config.toml", "critic_lr_factor = 2.0", "critic_lr_factor = 1.0")
    assert main(["resume", str(run)]) == 2
    assert "ppo.critic_lr_factor is 1.0 and was 2.0" in capsys.readouterr().err


def test_settings_of_other_stages_are_told_in_one_line_and_others_of_a_finished_run_are_for_rounds_to_come(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    another_rate(run)
    edit(run / "config.toml", "sft_both = 0", "sft_both = 1")
    edit(run / "config.toml", "audit_pairs = 6", "audit_pairs = 8")
    assert main(["resume", str(run), "--changed"]) == 0
    said = "".join(capsys.readouterr())
    assert "ppo.critic_lr_factor is 2.0 for rounds to come, and was 1.0" in said
    assert "round 4" not in said
    (event,) = events_of(run, "setting_changed")
    assert event["name"] == "ppo.critic_lr_factor"
    (unused,) = events_of(run, "settings_unused")
    assert unused["words"] == "dpo.sft_both is 1 and was 0; pipeline.audit_pairs is 8 and was 6"


def test_the_same_from_python(run: Path) -> None:
    another_rate(run)
    with pytest.raises(HoldfastError, match=r"ppo\.critic_lr_factor is 2\.0 and was 1\.0"):
        Run.open(run).train()
    assert Run.open(run, changed=True, rounds=4).train()
    assert [event["name"] for event in events_of(run, "setting_changed")] == ["run.rounds", "ppo.critic_lr_factor"]
    assert (run / "checkpoints" / "round-0004").is_dir()


def test_settings_that_no_checkpoint_fits_do_not_become_the_runs_own(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(run / "config.toml", "members = 2", "members = 3")
    assert main(["resume", str(run), "--changed"]) == 2
    assert "Reward version 1 has 2 members" in capsys.readouterr().err
    edit(run / "config.toml", "members = 3", "members = 2")
    assert main(["resume", str(run)]) == 0


def test_settings_that_no_result_depends_on_may_change(
    run: Path, unbroken_result: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    edit(run / "config.toml", "\nkeep = 2", "\nkeep = 4")
    assert main(["resume", str(run)]) == 0
    assert differences(result_of(run), unbroken_result) == []
    assert events_of(run, "setting_changed") == []


@pytest.mark.parametrize("name", ["config.toml", "manifest.json", "reference.json"])
def test_a_lost_file_is_written_again_as_the_checkpoint_has_it(
    name: str, run: Path, unbroken: Path, unbroken_result: dict[str, object]
) -> None:
    (run / name).unlink()
    assert main(["resume", str(run)]) == 0
    assert differences(result_of(run), unbroken_result) == []
    if name == "manifest.json":
        old, new = (json.loads((path / name).read_text()) for path in (unbroken, run))
        assert {**old, **{key: new[key] for key in ("seconds", "peak_memory", "seal")}} == new
    else:
        assert (run / name).read_bytes() == (unbroken / name).read_bytes()


def test_a_change_that_was_agreed_to_is_told_of_also_when_the_run_is_cut_right_then(run: Path) -> None:
    """The settings are the run's own already, and no checkpoint knows of them yet."""

    def killed(loop: OnlineLoop) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OnlineLoop, "replan", killed)
        assert main(["resume", str(run), "--rounds", "4"]) == 130
    assert main(["resume", str(run)]) == 0
    (event,) = events_of(run, "setting_changed")
    assert (event["name"], event["before"], event["after"]) == ("run.rounds", "3", "4")
    assert (run / "checkpoints" / "round-0004").is_dir()


def test_export_takes_a_sound_reference_and_says_what_it_passed_over(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "checkpoints" / "round-0003" / "policy.safetensors").write_bytes(b"")
    assert main(["export", str(run), str(tmp_path / "older")]) == 0
    printed = capsys.readouterr()
    assert "(checkpoint round-0002)" in printed.out
    assert "Checkpoint round-0003 was passed over" in printed.err
    tokenizer = run / "reference" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("a", "e"))
    assert main(["export", str(run), str(tmp_path / "none")]) == 2
    assert "tokenizer.json is missing or not as it was written" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
