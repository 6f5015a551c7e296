"""`holdfast lab` from the command line: what it prints, what it keeps, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.cli.main import main
from holdfast.lab.experiments import all_experiments

FLAW = """
class Shouting:
    name = "shouting"
    def __init__(self, seed):
        pass
    def bonus(self, prompt, response):
        return response.count("!") + 0.1 * len(response.split())
"""

WORLD = '''
from holdfast.preferences.types import Demonstration
from holdfast.worlds.labeller import SimulatedLabeller

class Echo:
    """Say the word again."""
    name = "echo"
    words = ["red", "green", "blue", "black"]
    def __init__(self, seed):
        self.all = [f"{a} {b}" for a in self.words for b in self.words]
    def prompts(self):
        return self.all[:12]
    def heldout_prompts(self):
        return self.all[12:]
    def demonstrations(self):
        return [Demonstration(p, p.split()[0]) for p in self.all] * 4
    def labeller(self, settings):
        return SimulatedLabeller("echo", self.gold, settings)
    def gold(self, prompt, response, finished=True):
        return float(str(prompt).split()[0] in response) - 0.1 * len(response.split())
'''


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flaw.py").write_text(FLAW)
    Path("world.py").write_text(WORLD)
    Path("file").touch()


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "list"]) == 0
    told = capsys.readouterr().out
    assert [line.split()[0] for line in told.splitlines()] == list(all_experiments())
    assert main(["lab", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"name", "question", "scenarios", "arms", "seeds"} == rows[0].keys()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "efficasy"], "There is no experiment 'efficasy'; did you mean efficacy?"),
        (["run", "magic"], "There is no experiment 'magic'; `holdfast lab list` names them all."),
        (["sweep", "luck"], "There is no knob 'luck' to sweep; there are beta, refresh, "),
        (["run", "gate", "--seeds", "0"], "--seeds is 0; run at least 1 seed, 5 for a result to be trusted."),
        (["run", "gate", "--first-seed", "-1"], "--first-seed is -1; seeds begin at 0."),
        (["run", "gate", "--workers", "0"], "--workers is 0; at least 1 has to work."),
        (["run", "gate", "--out", "nowhere"], "--out nowhere is not a directory; make it first or name another."),
        (["run", "gate", "--runs", "file"], "--runs file is a file; name a directory, which may be new."),
        (["run", "gate", "--set", "kl.betta=1"], "There is no setting kl.betta; did you mean beta?"),
        (["run", "gate", "--world", "gone.py:World"], "world.name names the file gone.py, which does not exist."),
        (["run", "gate", "--world", "files"], 'world.name = "files" needs prompts'),
        (
            ["run", "gate", "--set", "vllm.url=http://127.0.0.1:8000"],
            "Trials run side by side, and one vLLM server has",
        ),
        (["run", "gate", "--weight", "1"], "--weight is the weight of --flaw; name a flaw with it."),
        (["run", "efficacy", "--only", "gambling"], "efficacy has no scenario 'gambling'; it has verbosity, "),
        (["run", "efficacy", "--flaw", "gambling"], "flaw.name is 'gambling'; it has to be one of verbosity, "),
        (["run", "efficacy", "--flaw", "gone.py:Flaw"], "flaw.name names the file gone.py, which does not exist."),
        (["run", "efficacy", "--flaw", "flaw.py:Gone"], "The file flaw.py has no class Gone."),
        (["table", "gate"], "There is no result lab-gate.json; `holdfast lab run` makes one"),
        (["figures", "gate"], "There is no result lab-gate.json; `holdfast lab run` makes one"),
    ],
)
def test_bad_input_gets_a_sentence_and_writes_nothing(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(p.name for p in tmp_path.iterdir())
    assert main(["lab", *arguments]) == 2
    told = capsys.readouterr()
    assert told.err.startswith(f"holdfast: {sentence}"), told.err
    assert told.err.count("\n") == 1
    assert told.out == ""
    assert [name for name in sorted(p.name for p in tmp_path.iterdir()) if name != "__pycache__"] == before


@pytest.mark.parametrize("arguments", [["lab"], ["lab", "run"], ["lab", "dance"], ["lab", "sweep"]])
def test_half_a_command_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2
    assert "usage: holdfast lab" in capsys.readouterr().err


@pytest.mark.slow
def test_an_experiment_from_start_to_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["lab", "sweep", "schedule", "--quick", "--only", "no flaw", "--set", "run.rounds=1"]
    assert main(command) == 0
    told = capsys.readouterr()
    assert told.err.count("| seed 1000: gold ") == 4
    assert "schedule: how beta is set" in told.out
    assert "Take schedule = " in told.out
    assert "kept in lab-sweep-schedule-no-flaw-changed-quick.json" in told.out
    assert Path("lab-sweep-schedule-no-flaw-changed-quick.svg").read_text().startswith("<svg")
    # Everything is on disk now: the same again takes no time, and comes to the same.
    first = json.loads(Path("lab-sweep-schedule-no-flaw-changed-quick.json").read_text())
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"] == first["result"]
    assert main(["lab", "table", "sweep-schedule-no-flaw-changed-quick"]) == 0
    assert "Take schedule = " in capsys.readouterr().out
    Path("lab-sweep-schedule-no-flaw-changed-quick.svg").unlink()
    assert main(["lab", "figures", "sweep-schedule-no-flaw-changed-quick"]) == 0
    assert Path("lab-sweep-schedule-no-flaw-changed-quick.svg").is_file()


@pytest.mark.slow
def test_a_flaw_and_a_world_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Both in files outside the package; the whole guarded experiment on them."""
    command = ["lab", "run", "efficacy", "--quick", "--flaw", "flaw.py:Shouting", "--world", "world.py:Echo"]
    code = main([*command, "--set", "run.rounds=2", "--forms", "planted"])
    told = capsys.readouterr()
    assert code == 0, told.err
    document = json.loads(Path("lab-efficacy-world-Shouting-planted-changed-quick.json").read_text())
    assert list(document["scenarios"]) == ["Shouting, planted"]
    assert {row["arm"] for row in document["trials"]} == {"bare", "guarded", "guarded again", "tuned"}
    assert document["failures"] == []
    guarded = next(row for row in document["trials"] if row["arm"] == "guarded")
    assert guarded["labels"]["audit"] > 0
    assert guarded["verdicts"].keys() == {"1", "2"}
