"""Whatever a user gets wrong: exit code 2, one sentence that says what to do, no traceback, nothing written."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import bad_files
import pytest

import small_run
from holdfast.checkpoint.lock import RunLock
from holdfast.cli.main import main
from model_directories import llama
from small_run import settings, tree_of

# What is wrong -> the arguments after `holdfast run` with the small settings, and a piece of the sentence.
SETTINGS = {
    "no memory is as large": ("policy.feed_forward=4000000000000000000", "Memory ran out while the model was built"),
    "unknown section": ("klo.beta=1", "no section [klo] in the config; did you mean kl?"),
    "unknown key": ("kl.betta=1", "no setting kl.betta; did you mean beta?"),
    "unknown key, nothing like it": ("kl.xyz=1", "`holdfast init` writes a file with all of them"),
    "no equals sign": ("kl.beta", "not of the form section.key=value"),
    "no section": ("beta=1", "not of the form section.key=value"),
    "below a value": ("kl.beta.more=1", "kl.beta"),
    "a text for a number": ("kl.beta=strong", "kl.beta is 'strong'"),
    "a fraction for a count": ("run.rounds=1.5", "run.rounds is 1.5, but it has to be a whole number"),
    "a number for yes or no": ("policy.fast=1", "true or false"),
    "not one of the choices": ("kl.controller=magic", "one of fixed, adaptive, budget"),
    "negative beta": ("kl.beta=-0.1", "kl.beta is -0.1, but it has to be at least 0"),
    "no target": ("kl.target=0", "kl.target is 0.0, but it has to be greater than 0"),
    "not a number": ("ppo.lr=nan", "ppo.lr is nan, but it has to be a finite number"),
    "infinite": ("ppo.lr=inf", "ppo.lr is inf, but it has to be a finite number"),
    "negative seed": ("run.seed=-1", "run.seed is -1, but it has to be at least 0"),
    "temperature 0": ("rollout.temperature=0", "rollout.temperature is 0.0"),
    "top_p above 1": ("rollout.top_p=2", "rollout.top_p is 2.0, but it may be at most 1"),
    "adaptive from nothing": ("kl.controller=adaptive --set kl.beta=0", "kl.beta is 0"),
    "rloo with one answer": ("ppo.advantage=rloo", "set ppo.samples_per_prompt to 2 or more"),
    "too many minibatches": ("ppo.minibatches=9", "ppo.minibatches is 9, more than the 8 answers"),
    "heads that do not divide": ("policy.heads=3", "does not divide by policy.heads = 3"),
    "freeze backwards": ("refresh.freeze=[[5, 2]]", "refresh.freeze has a span that ends before it begins"),
    "freeze of three": ("refresh.freeze=[[1, 2, 3]]", "refresh.freeze"),
    "unknown sink": ('track.sinks=["neptune"]', "the sinks are tensorboard, wandb and trackio"),
    "one checkpoint kept": ("checkpoint.keep=1", "checkpoint.keep is 1, but it has to be at least 2"),
    "unknown device": ("run.device=abacus", "run.device is 'abacus', which torch cannot use here"),
    "answers longer than the context": ("rollout.max_new_tokens=96", "context is only 96 tokens"),
    "prompts longer than what is left": ("rollout.max_new_tokens=90", "leaves 6. Shorten it or drop it"),
    "one label only": ("reward.initial_comparisons=1", "at least 2 labelled comparisons"),
    "no labels": ("reward.initial_comparisons=0", "at least 2 labelled comparisons"),
    "nothing learned": ("sft.epochs=0", "the built-in policy knows nothing yet"),
    "unknown world": (
        "world.name=casino",
        "one of concierge, everyday, stories, boat_race, layout, forecast, files or path/to/file.py",
    ),
    "unknown option of the world": ("world.options={guests = 3}", "concierge cannot be made with"),
    "no database URL": ("preferences.url=labels", "needs a database URL such as"),
    "unknown database": ("preferences.url=oracle9://host/db", "install its driver"),
    "database in no directory": ("preferences.url=sqlite:///nowhere/run.db", "no place for a database at"),
    "labeller not a file": ("world.labeller=nobody", "world.labeller is 'nobody'"),
    "labeller not a labeller": ("world.labeller=worlds.py:Bare", "it needs a name, which is a text, and label()"),
    "prompts without files": ("data.prompts=prompts.jsonl", 'only read with world.name = "files"'),
}

OWN = ["--policy", "model", "--prompts"]
OWN_GPT2 = ["--policy", "gpt2", "--prompts"]
LABELS = ["--preferences", "labels.jsonl"]

RUN = {
    "config missing": (["--config", "nothing.toml"], "no config file nothing.toml; `holdfast init"),
    "config a directory": (["--config", "empty"], "The config file empty cannot be read"),
    "config not TOML": (["--config", "not.toml"], "not.toml is not valid TOML"),
    "config not text": (["--config", "bytes.toml"], "bytes.toml cannot be read"),
    "config with a typing error": (["--config", "keys.toml"], "did you mean beta?"),
    "seed not a number": (["--seed", "x"], "run.seed is 'x'"),
    "name upwards": (["--name", "../x"], "is not a plain name"),
    "name with a slash": (["--name", "a/b"], "is not a plain name"),
    "name empty": (["--name", ""], "is not a plain name"),
    "name taken": (["--name", "taken"], "runs/taken holds a run already; `holdfast resume runs/taken`"),
    "name of something else": (["--name", "other"], "runs/other is not empty; choose another --name"),
    "name of a file": (["--name", "file"], "runs/file is not empty; choose another --name"),
    "world file missing": (["--world", "gone.py:Good"], "names the file gone.py, which does not exist"),
    "world file not Python": (["--world", "syntax.py:Good"], "syntax.py cannot be imported: SyntaxError"),
    "world class missing": (["--world", "worlds.py:Gone"], "worlds.py has no class Gone"),
    "world without methods": (["--world", "worlds.py:Bare"], "is not a world: it has no name"),
    "world without prompts": (["--world", "worlds.py:NoPrompts"], "has no prompts to train on"),
    "world that raises": (["--world", "worlds.py:Raising"], "failed: RuntimeError: the server is down.\n  worlds.py:"),
    "world of another shape": (["--world", "worlds.py:NoArguments"], "cannot be made with seed 3"),
    "world with prompts of numbers": (["--world", "worlds.py:Numbers"], "gives 1 as a prompt"),
    "world with loose demonstrations": (["--world", "worlds.py:Tuples"], "as a demonstration"),
    "world whose labeller raises": (["--world", "worlds.py:RaisingLabeller"], "failed: ValueError: nobody is there."),
    "prompts missing": ([*OWN, "gone.jsonl"], "Cannot read gone.jsonl"),
    "prompts empty": ([*OWN, "empty.jsonl"], "empty.jsonl is empty"),
    "prompts not JSON": ([*OWN, "broken.jsonl"], "broken.jsonl, line 2: is not JSON"),
    "prompts without the column": ([*OWN, "columns.jsonl"], "is in no format that is known"),
    "prompts in another format": ([*OWN, "prompts.dat"], "begins neither as JSON nor as CSV"),
    "prompt longer than the context": ([*OWN, "long.jsonl", *LABELS], "Shorten it or drop it"),
    "prompts and nobody to compare": ([*OWN, "prompts.jsonl"], "or give a labeller"),
    "chosen and rejected the same": (["--preferences", "same.jsonl"], "'chosen' and 'rejected' are the same"),
    "one imported label": ([*OWN, "prompts.jsonl", "--preferences", "one.jsonl"], "at least 2 labelled"),
    "labelled answers too long": (
        [*OWN_GPT2, "prompts.jsonl", "--preferences", "long_labels.jsonl"],
        "A labelled answer to the prompt 'a' has",
    ),
    "demonstrations too long": (
        [*OWN_GPT2, "prompts.jsonl", "--demonstrations", "long_demonstrations.jsonl", *LABELS],
        "A demonstration to the prompt 'a' has",
    ),
    "policy missing": (["--policy", "gone"], "no model directory gone"),
    "policy a file": (["--policy", "prompts.jsonl"], "no model directory prompts.jsonl"),
    "policy empty": (["--policy", "empty"], "empty has no config.json"),
    "policy without weights": (["--policy", "without-weights"], "has no .safetensors weights"),
    "policy corrupt": (["--policy", "corrupt"], "The model in corrupt cannot be loaded"),
    "policy a layer short": (["--policy", "a-layer-short"], "lack 1 tensors of the model"),
    "policy with a bad config": (["--policy", "bad-config"], "The model in bad-config cannot be loaded"),
    "policy of no known kind": (["--policy", "unknown-architecture"], "cannot be loaded"),
    "policy without tokenizer": (["--policy", "without-tokenizer"], "tokenizer in without-tokenizer"),
    "policy without an end": (["--policy", "without-eos"], "has no end-of-sequence token"),
    "policy with too many tokens": (["--policy", "too-many-tokens"], "tokens but the model embeds only"),
}  # fmt: skip

OTHER = {
    "ppo without a reward": (["ppo"], "There is no reward: give --reward DIR"),
    "resume nothing": (["resume", "runs/gone"], "no run directory runs/gone"),
    "resume another directory": (["resume", "empty"], "empty is not a run directory: it has no manifest.json"),
    "resume a model": (["resume", "model"], "model is not a run directory"),
    "report of nothing": (["report", "runs/gone"], "no run directory runs/gone"),
    "report of another directory": (["report", "model"], "model is not a run directory"),
    "report to nowhere": (["report", "runs/taken", "--out", "nowhere/page.html"], "nowhere/page.html could not be"),
    "export to an existing directory": (["export", "runs/taken", "model"], "model exists already"),
    "export of nothing in particular": (["export", "runs/taken"], "a DIR for the model, or --labels FILE"),
    "export of both": (["export", "runs/taken", "new", "--labels", "l.jsonl"], "a DIR for the model, or --labels"),
    "export of no run": (["export", "model", "new"], "model is not a run directory"),
    "export of an unknown checkpoint": (
        ["export", "runs/taken", "new", "--checkpoint", "round-0099"],
        "no checkpoint round-0099 in runs/taken/checkpoints; it has round-0001, round-0002, round-0003",
    ),
    "labels in another format": (["export", "runs/taken", "--labels", "labels.csv"], "use .jsonl or .parquet"),
    "labels over a file": (["export", "runs/taken", "--labels", "same.jsonl"], "same.jsonl exists already"),
    "init over a file": (["init", "not.toml"], "not.toml exists already"),
    "init in no directory": (["init", "nowhere/a.toml"], "There is no directory nowhere"),
    "init with a bad setting": (["init", "new.toml", "--set", "kl.beta=-1"], "kl.beta is -1"),
    "doctor of no run": (["doctor", "model"], "model is not a run directory"),
    "sft over a directory": (["sft", "model"], "model exists already"),
    "sft with nothing to imitate": (["sft", "new", *OWN, "prompts.jsonl"], "nothing to imitate"),
    "reward without a policy": (["reward", "new"], "Reward models start from a trained policy"),
    "reward over a directory": (["reward", "model", "--policy", "model"], "model exists already"),
    "ppo without an ensemble": (["ppo", "--policy", "model", "--reward", "gone"], "no reward ensemble in gone"),
    "ppo against no ensemble": (["ppo", "--policy", "model", "--reward", "empty"], "no reward ensemble in empty"),
    "ppo without a policy": (["ppo", "--reward", "runs/taken/rewards"], "with --policy DIR"),
    "ppo against another model's": (
        ["ppo", "--policy", "model", "--reward", "runs/taken/rewards", "--name", "new"], "trained on another model"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with a finished run, models and files, sound and broken. Nothing may change it."""
    directory = tmp_path_factory.mktemp("place")
    good = llama(tmp_path_factory.mktemp("good") / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        bad_files.write_worlds()
        bad_files.write_data()
        bad_files.write_models(good)
        bad_files.save_small_gpt2(Path("gpt2"))
        run = small_run.run(Path("runs"))
        shutil.move(run, "runs/taken")
        assert main(["export", "runs/taken", "--labels", "labels.jsonl"]) == 0
        Path("runs/other").mkdir()
        Path("runs/other/notes.txt").write_text("mine")
        Path("runs/file").write_text("mine")
        yield directory


def refused(argv: list[str], place: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the command; check that it was refused as it should be; returns its one line."""
    before = tree_of(place)
    capsys.readouterr()
    code = main(argv)
    printed = capsys.readouterr()
    assert code == 2, printed
    assert printed.out == ""
    assert printed.err.startswith("holdfast: ")
    first, *where = printed.err.splitlines()
    assert first.endswith((".", "?")), printed.err
    assert all(line.startswith("  ") for line in where), printed.err  # in the user's own file
    assert tree_of(place) == before
    return printed.err


@pytest.mark.parametrize(("setting", "sentence"), SETTINGS.values(), ids=SETTINGS.keys())
def test_a_bad_setting(setting: str, sentence: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = [word for part in setting.split(" --set ") for word in ("--set", part)]
    assert sentence in refused(["run", "--name", "new", *settings(), *changes], place, capsys)


@pytest.mark.parametrize(("arguments", "sentence"), RUN.values(), ids=RUN.keys())
def test_a_run_that_cannot_start(
    arguments: list[str], sentence: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refused(["run", *given_beside(arguments), *arguments], place, capsys)


def given_beside(arguments: list[str]) -> list[str]:
    """The small settings without those that the arguments stand for: --set would override them."""
    replaced = {"--seed": ["run.seed"], "--world": ["world.name", "world.options"], "--prompts": ["world.name"]}
    names = [name for option in replaced if option in arguments for name in replaced[option]]
    words = settings()
    pairs = zip(words[::2], words[1::2], strict=True)
    return [word for pair in pairs if pair[1].partition("=")[0] not in names for word in pair]


@pytest.mark.parametrize(("argv", "sentence"), OTHER.values(), ids=OTHER.keys())
def test_another_verb(argv: list[str], sentence: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sentence in refused(argv, place, capsys)


def test_a_sink_that_is_not_installed(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    told = refused(["run", "--name", "new", *settings(track__sinks='["wandb"]')], place, capsys)
    assert "wandb is not installed; run `pip install 'holdfast-rl[wandb]'`" in told


def test_a_run_that_another_process_works_on(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunLock(place / "runs" / "taken"):
        before = tree_of(place)
        assert main(["resume", "runs/taken"]) == 2
        assert tree_of(place) == before
    told = capsys.readouterr().err
    assert told.startswith("holdfast: The run directory runs/taken is in use by process ")
    assert told.count("\n") == 1


@pytest.mark.parametrize("argv", [[], ["dance"], ["run", "--sed", "3"], ["resume"], ["sft"]])
def test_a_command_line_that_is_not_one(argv: list[str], place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree_of(place)
    with pytest.raises(SystemExit) as exit:
        main(argv)
    assert exit.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("usage: holdfast")
    assert "Traceback" not in told
    assert tree_of(place) == before
