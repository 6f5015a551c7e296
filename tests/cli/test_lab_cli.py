"""`holdfast lab` from the command line: what it prints, what it keeps, and what it refuses."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from holdfast.cli.lab import tag_of
from holdfast.cli.main import main, parser
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
from holdfast.preferences.comparison import Demonstration
from holdfast.worlds.simulated_labeller import SimulatedLabeller

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
    assert {"name", "question", "scenarios", "arms", "seeds", "trials"} == rows[0].keys()
    # Six scenarios: three arms on five seeds, and the A/A arm on two.
    assert next(row["trials"] for row in rows if row["name"] == "efficacy") == 6 * (3 * 5 + 2)


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
        (
            ["run", "pitfalls", "--forms", "emergent", "--only", "verbosity"],
            "pitfalls has verbosity, planted, and nothing",
        ),
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


@pytest.mark.parametrize("action", ["table", "figures"])
@pytest.mark.parametrize("name", ["gate", "efficacy", "sweep-beta", "overhead", "pitfalls"])
def test_a_result_in_which_something_is_missing_is_named(
    action: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {"experiment": name, "result": {}, "recommendation": "", "failures": []}
    (tmp_path / "lab-edited.json").write_text(json.dumps(document))
    assert main(["lab", action, "edited"]) == 2
    assert capsys.readouterr().err.startswith("holdfast: lab-edited.json is not a result that this version can show")
    assert not (tmp_path / "lab-edited.svg").exists()


@pytest.mark.parametrize("arguments", [["lab"], ["lab", "run"], ["lab", "dance"], ["lab", "sweep"]])
def test_half_a_command_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2
    assert "usage: holdfast lab" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "tag"),
    [
        (["gate"], ""),
        (["gate", "--seeds", "5"], ""),
        (["gate", "--seeds", "2", "--first-seed", "1010"], "-from-1010-2-seeds"),
        (["gate", "--world", "everyday"], "-everyday"),
        (["gate", "--world", "my/place.py:Mine"], "-place"),
        (["gate", "--flaw", "my.py:Mine", "--weight", "0.5"], "-Mine-weight-0.5"),
    ],
)
def test_a_result_of_something_else_has_a_name_of_its_own(arguments: list[str], tag: str) -> None:
    args = parser().parse_args(["lab", "run", *arguments])
    assert tag_of(args, all_experiments()["gate"]) == tag


@pytest.mark.slow
def test_an_experiment_from_start_to_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["lab", "sweep", "schedule", "--quick", "--only", "no flaw", "--set", "run.rounds=1"]
    assert main(command) == 0
    told = capsys.readouterr()
    assert told.err.count("| seed 1000: gold ") == 4
    assert "schedule: how beta is set" in told.out
    assert "how sure that is takes more seeds" in told.out
    # What was set is in the name, as a digest: another setting's result has another file.
    name = f"sweep-schedule-no-flaw-changed-{hashlib.sha256(b'run.rounds=1').hexdigest()[:6]}-quick"
    assert f"kept in lab-{name}.json" in told.out
    assert Path(f"lab-{name}.svg").read_text().startswith("<svg")
    # Everything is on disk now: the same again takes no time, and comes to the same.
    first = json.loads(Path(f"lab-{name}.json").read_text())
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"] == first["result"]
    assert main(["lab", "table", name]) == 0
    assert "how sure that is takes more seeds" in capsys.readouterr().out
    Path(f"lab-{name}.svg").unlink()
    assert main(["lab", "figures", name]) == 0
    assert Path(f"lab-{name}.svg").is_file()


@pytest.mark.slow
def test_a_flaw_and_a_world_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Both in files outside the package; the whole guarded experiment on them."""
    command = ["lab", "run", "efficacy", "--quick", "--flaw", "flaw.py:Shouting", "--world", "world.py:Echo"]
    code = main([*command, "--set", "run.rounds=2", "--forms", "planted"])
    told = capsys.readouterr()
    assert code == 0, told.err
    (kept,) = Path().glob("lab-efficacy-world-Shouting-planted-changed-*-quick.json")
    document = json.loads(kept.read_text())
    assert list(document["scenarios"]) == ["Shouting, planted"]
    assert {row["arm"] for row in document["trials"]} == {"bare", "guarded", "guarded again", "tuned"}
    assert document["failures"] == []
    guarded = next(row for row in document["trials"] if row["arm"] == "guarded")
    assert guarded["labels"]["audit"] > 0
    assert guarded["verdicts"].keys() == {"1", "2"}
