"""Every verb from end to end on a small run, and what `--help` promises."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.text import Text
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import small_run
from holdfast.cli.help import filled
from holdfast.cli.main import VERBS, main
from holdfast.cli.tables import show_table
from holdfast.config import Config, config_from, load_config
from holdfast.reward.ensemble import VersionStore, members_in
from holdfast.reward.standalone import RewardEnsemble
from small_run import events_of, rows_of, settings

OPTIONS = {
    "run": ["--name", "--runs", "--json", "--config", "--set", "--world", "--seed", "--rounds", "--policy", "--prompts",
            "--demonstrations", "--preferences"],
    "resume": ["RUN", "--json"],
    "rollback": ["RUN", "CHECKPOINT", "--reason"],
    "serve-reward": ["REWARD", "--host", "--port", "--token-file", "--owner-token-file", "--make-token", "--policy",
                     "--follow", "--ensemble-version", "--chat-template", "--wait-ms", "--batch", "--queue", "--window",
                     "--suspicion", "--labels"],
    "guard": ["serve", "verdict"],
    "report": ["RUN", "--out"],
    "export": ["RUN", "DIR", "--checkpoint", "--labels", "--conversational"],
    "init": ["FILE", "--config", "--set"],
    "sft": ["DIR", "--config", "--set", "--world", "--seed", "--policy", "--prompts", "--demonstrations"],
    "reward": ["DIR", "--config", "--set", "--world", "--seed", "--policy", "--prompts", "--preferences"],
    "ppo": ["--reward", "--name", "--runs", "--json", "--config", "--set", "--policy", "--world", "--prompts"],
    "dpo": ["--name", "--runs", "--json", "--config", "--set", "--policy", "--world", "--prompts", "--preferences"],
    "bestofn": ["--reward", "--n", "--aggregation", "--limit", "--out", "--distil", "--json", "--policy", "--prompts"],
    "pipeline": ["--stages", "--name", "--runs", "--json", "--config", "--set", "--policy", "--rounds"],
    "data": ["check"],
    "doctor": ["RUN", "--json"],
}  # fmt: skip

# `sft` makes the policy and `ppo` brings the ensemble; here these settings belong to another verb.
WITHOUT_SFT = {"sft__epochs": "0"}


def help_of(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as exit:
        main([*argv, "--help"])
    assert exit.value.code == 0
    return capsys.readouterr().out


# A verb is called like its file, with a dash where that has to have an underscore.
NAMES = [verb.__name__.rpartition(".")[2].replace("_", "-") for verb in VERBS]


@pytest.mark.parametrize("columns", [80, 100])
def test_help_fits_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    actions = [
        ["data", "check"],
        ["data", "convert"],
        ["guard", "serve"],
        ["guard", "verdict"],
        *(["lab", name] for name in ("run", "sweep", "table", "bestofn")),
    ]
    for argv in [[], *([name] for name in NAMES), *actions]:
        wide = [line for line in help_of(argv, capsys).splitlines() if len(line) > columns]
        assert not wide, (argv, wide)


def test_an_example_that_is_too_long_is_broken_where_a_shell_reads_on() -> None:
    text = "examples:\n  holdfast run --policy ./my-model --prompts prompts.jsonl     your own\n  holdfast run    short"
    assert filled(text, 50).splitlines() == [
        "examples:",
        "  holdfast run --policy ./my-model \\",
        "      --prompts prompts.jsonl",
        " " * 25 + "your own",
        "  holdfast run           short",
    ]


def test_a_table_that_is_too_wide_for_a_terminal_is_a_list_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns, rows = ["stage", *(f"a long column {n}" for n in range(8))], [["sft", *(f"{n}.5" for n in range(8))]]
    show_table("", columns, rows)
    assert capsys.readouterr().out.count("\n") == 2, "a file holds it as wide as it is"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    show_table("", columns, rows)
    shown = Text.from_ansi(capsys.readouterr().out).plain.splitlines()
    assert [line.split()[-1] for line in shown] == ["sft", *(f"{n}.5" for n in range(8))]
    assert max(map(len, shown)) <= 80


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of([], capsys)
    for verb in NAMES:
        assert re.search(rf"^    {verb}\s+\S", text, re.MULTILINE)
    assert "first steps:" in text


def test_help_of_a_verb_names_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    texts = {verb: help_of([verb], capsys) for verb in NAMES}
    assert [verb for verb, text in texts.items() if not text.startswith(f"usage: holdfast {verb}")] == []
    missing = {verb: [option for option in OPTIONS.get(verb, []) if option not in texts[verb]] for verb in NAMES}
    assert {verb: options for verb, options in missing.items() if options} == {}


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["--version"])
    assert exit.value.code == 0
    assert re.fullmatch(r"holdfast \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_init_writes_a_file_that_loads_back_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert load_config(Path("holdfast.toml")) == Config()
    assert main(["init", "small.toml", *settings()]) == 0
    words = [word for word in settings() if word != "--set"]
    assert load_config(Path("small.toml")) == load_config(None, words) != Config()
    text = Path("small.toml").read_text()
    assert text.count("\n# ") > 80


def test_the_run_directory_keeps_the_config_that_was_asked_for(small: Path) -> None:
    words = [word for word in settings() if word != "--set"]
    assert load_config(small / "config.toml") == load_config(None, words)
    assert json.loads((small / "manifest.json").read_text())["seed"] == 3


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; only to be read."""
    return small_run.run(tmp_path_factory.mktemp("finished"))


def test_run_as_json_prints_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = {"run__rounds": "1", "run__steps_per_round": "1"}
    assert main(small_run.run_arguments(tmp_path, "--json", **short)) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["run"] == str(tmp_path / small_run.NAME)
    assert Path(document["report"]).is_file()
    assert document["figures"]["gold on held-out prompts"].keys() == {"start", "end", "count"}
    assert document["delivered"]["policy"] in ("the policy of round 1", "the reference")


def test_a_run_without_a_name_takes_the_next_free_one(tmp_path: Path) -> None:
    arguments = ["run", "--runs", str(tmp_path), *settings(run__rounds="1", run__steps_per_round="1")]
    assert main(arguments) == 0
    assert main(arguments) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["concierge-3", "concierge-3-2"]


def test_options_of_the_command_line_stand_above_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.toml"
    assert main(["init", str(file), "--set", "run.seed=5", "--set", "kl.beta=0.5"]) == 0
    assert main(["init", str(tmp_path / "b.toml"), "--config", str(file), "--set", "kl.beta=0.25"]) == 0
    config = load_config(tmp_path / "b.toml")
    assert (config.run.seed, config.kl.beta) == (5, 0.25)
    assert config_from({"run": {"seed": 5}, "kl": {"beta": 0.25}}) == config


def test_sft_reward_and_ppo_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sft", "model", *settings()]) == 0
    assert "model   loss " in capsys.readouterr().out
    AutoModelForCausalLM.from_pretrained("model")
    AutoTokenizer.from_pretrained("model")

    assert main(["reward", "ensemble", "--policy", "model", *settings(**WITHOUT_SFT)]) == 0
    right = r"right on \d+ of \d+ held-out labels \(\d+% to \d+%\)"
    assert re.search(rf"2 members, 24 labels, {right}", capsys.readouterr().out)
    assert members_in(Path("ensemble")) == 2
    assert len(RewardEnsemble.load("ensemble").score(["Is it open?"], ["Yes."])) == 1

    # The verb's own settings stand below --set, so those that it brings are left out here.
    brought = ("reward.members", "preferences.per_round", "refresh.every_rounds")
    words = settings(**WITHOUT_SFT)
    own = [w for pair in zip(words[::2], words[1::2], strict=True) if not pair[1].startswith(brought) for w in pair]
    assert main(["ppo", "--policy", "model", "--reward", "ensemble", "--name", "fast", *own]) == 0
    run = Path("runs/fast")
    assert [row["ensemble/version"] for row in rows_of(run / "metrics.jsonl")] == [1.0] * 6
    assert events_of(run, "refresh") == events_of(run, "labels_collected") == []
    for file in ("v001/member-0.safetensors", "v001/member-1.safetensors"):
        given, used = load_file(Path("ensemble") / file), load_file(run / "rewards" / file)
        assert all(bool((given[name] == used[name]).all()) for name in given)


def test_a_ppo_run_cut_short_before_it_has_its_ensemble_goes_on_with_the_given_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The given ensemble is a run's third version, so it cannot be mistaken for one that was trained afresh."""
    small = small_run.run(tmp_path / "given", guard__mode="off", gate__use="false")
    monkeypatch.chdir(tmp_path)
    arguments = ["ppo", "--policy", str(small / "reference"), "--reward", str(small / "rewards"), "--name", "cut"]
    still = {"preferences__per_round": "0", "refresh__every_rounds": "0"}

    def fail(store: VersionStore, ensemble: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(VersionStore, "save", fail)
        assert main([*arguments, *settings(**WITHOUT_SFT, **still)]) == 2
    assert main(["resume", "runs/cut"]) == 0
    assert {row["ensemble/version"] for row in rows_of(Path("runs/cut/metrics.jsonl"))} == {3.0}


def test_report_in_place_and_elsewhere(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(small, tmp_path / "run"))
    (run / "report.html").unlink()
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text().lower().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("chosen", "name", "holds"),
    [
        # The third round was found hacked, and the run went back to the first.
        ([], "round-0003", "the policy of round 1 (step 2)"),
        (["--checkpoint", "round-0002"], "round-0002", "the policy of round 2 (step 4)"),
    ],
)
def test_export_of_a_policy(
    chosen: list[str], name: str, holds: str, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["export", str(small), str(tmp_path / "out"), *chosen]) == 0
    assert f"   {holds.partition(' (')[0]} (checkpoint {name})\n" in capsys.readouterr().out
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    saved = load_file(small / "checkpoints" / name / "policy.safetensors")
    assert bool((model.get_input_embeddings().weight == saved["lm.model.embed_tokens.weight"]).all())
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| checkpoint | {name}, which holds {holds} |" in card
    assert "gold on held-out prompts" in card


@pytest.mark.parametrize("conversational", [False, True])
def test_export_of_labels_and_back_in(conversational: bool, small: Path, tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    more = ["--conversational"] if conversational else []
    assert main(["export", str(small), "--labels", str(file), *more]) == 0
    rows = rows_of(file)
    assert len(rows) >= 24 - 4  # ties and equal texts stay behind
    assert isinstance(rows[0]["chosen"], list) is conversational
    assert {row["round"] for row in rows} >= {0, 2, 3}
    # They train a reward model of another run, without a labeller being asked at the start.
    changes = {"reward__initial_comparisons": "0", "run__rounds": "1", "run__steps_per_round": "1"}
    run = small_run.run(tmp_path, "--preferences", str(file), **changes)
    (trained,) = events_of(run, "ensemble_trained")
    assert trained["labels"] == len(rows)
    # They are in the run's own store now, so going on with it does not need the file.
    file.unlink()
    assert main(["resume", str(run)]) == 0


def test_doctor_of_a_machine_and_of_a_run(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert "GFLOP/s" in capsys.readouterr().out
    assert main(["doctor", str(small), "--json"]) == 0
    found = {finding["what"]: finding for finding in json.loads(capsys.readouterr().out)}
    for what in ("checkpoint round-0003", "reward version v001", "labels"):
        assert found[what]["state"] == "ok"


def test_doctor_fits_the_terminal_and_nothing_steers_it(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(small, tmp_path / "run"))
    (run / "\x1b[2J of another").touch()
    monkeypatch.setenv("COLUMNS", "80")
    main(["doctor", str(run)])
    whole = capsys.readouterr().out
    assert "\x1b" not in whole
    reference = "ok      reference              6 files, weights and tokenizer, every file matches its checksum\n"
    assert reference in whole, "a file has each finding in one line"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    main(["doctor", str(run)])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80 and not line.startswith(" ")] == []
    assert "ok      reference              6 files, weights and tokenizer, every file" in lines


@pytest.mark.parametrize("damage", [lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: data[:-1]])
def test_doctor_finds_what_is_broken(
    damage: Callable[[bytes], bytes], small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A flipped bit shows only when every byte is read; a shorter file must not go unseen."""
    run = Path(shutil.copytree(small, tmp_path / "run"))
    weights = run / "checkpoints" / "round-0003" / "policy.safetensors"
    weights.write_bytes(damage(weights.read_bytes()))
    assert main(["doctor", str(run), "--json"]) == 2
    found = {finding["what"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert found["checkpoint round-0003"]["state"] == "broken"
    assert found["checkpoint round-0002"]["state"] == "ok"
