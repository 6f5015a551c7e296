"""Every Python and shell block of the pages is read as the program reads it, and run where it can be."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.util
import inspect
import io
import itertools
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import PAGES, ROOT, Block, Command, blocks_of, commands_in, commands_in_text

import small_run
from holdfast.cli.main import main, parser
from holdfast.config import config_toml, load_config
from holdfast.errors import HoldfastError

BLOCKS = [block for path in PAGES for block in blocks_of(path)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
COMMANDS = [command for block in BLOCKS for command in commands_in(block)]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_there_is_code_to_check() -> None:
    assert len(PYTHON) >= 8
    assert len(COMMANDS) >= 60
    assert {command.words[0] for command in COMMANDS} >= {"holdfast", "make", "pip", "torchrun"}


# --- shell --------------------------------------------------------------------------------------------------------


def test_every_command_is_one() -> None:
    wrong = [(command.place, command.line, problem) for command in COMMANDS for problem in problems_of(command)]
    assert wrong == []


def test_every_command_in_the_text_has_a_verb_and_options_that_are_there() -> None:
    commands = [command for path in PAGES for command in commands_in_text(path)]
    assert len(commands) > 50
    wrong = [(c.place, c.line, problem) for c in commands for problem in problems_of(c, whole=False)]
    assert wrong == []


def problems_of(command: Command, whole: bool = True) -> list[str]:
    """What is wrong with a command; one that is not whole may leave out what the verb needs."""
    program, *words = command.words
    if "holdfast" in words and words[words.index("holdfast") - 1] == "-m":  # torchrun, accelerate launch, python
        words = words[words.index("holdfast") + 1 :]
        program = "holdfast"
    match Path(program).name:
        case "holdfast":
            synopsis = not whole or any(word.startswith("[") or word.endswith("...") for word in words)
            return problems_of_synopsis(words) if synopsis else problems_of_call(words, command.prints)
        case "make":
            return [] if words[0] in TARGETS else [f"the Makefile has no {words[0]}"]
        case "python":
            return problems_of_python(words)
        case "pip":
            return [problem for word in words for problem in problems_of_package(word)]
    return []


def problems_of_call(words: list[str], prints: str) -> list[str]:
    """What the real parser, and the config for its settings, have against a command line."""
    words = words[: words.index("2>")] if "2>" in words else words
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint), contextlib.redirect_stdout(io.StringIO()):
            parser().parse_args(words)
    except SystemExit as end:
        if end.code:
            return [complaint.getvalue().strip().splitlines()[-1]]
    settings = [value for option, value in itertools.pairwise(words) if option == "--set"]
    try:
        load_config(None, settings)
    except HoldfastError as error:
        # A page may show what is said of a mistake.
        return [] if prints == f"holdfast: {error}" else [str(error)]
    return []


def problems_of_synopsis(words: list[str]) -> list[str]:
    """The verb and the options that there are not, of a command with brackets and words in capitals."""
    at, verbs = parser(), []
    for word in words:
        choices = next((a.choices for a in at._actions if isinstance(a, argparse._SubParsersAction)), None)
        if choices is None:
            break
        if word.isupper() or word.startswith("-"):
            return []
        if word not in choices:
            return [f"there is no verb {' '.join([*verbs, word])}"]
        at, verbs = choices[word], [*verbs, word]
    options = re.findall(r"--[\w-]+", " ".join(words))
    return [f"{' '.join(verbs)} has no {option}" for option in options if option not in at._option_string_actions]


def problems_of_python(words: list[str]) -> list[str]:
    match words:
        case ["-c", code, *_]:
            return problems_of_code(code)
        case ["-m", module, *_]:
            return [] if in_checkout(module) else [f"there is no module {module}"]
        case [script, *_] if script.endswith(".py"):
            return [] if (ROOT / script).is_file() else [f"there is no {script}"]
    return []


def in_checkout(module: str) -> bool:
    """Whether a module can be started from the checkout: installed, or a package that lies there."""
    path = ROOT / module.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file() or is_there(module)


def is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def problems_of_package(word: str) -> list[str]:
    """Ours is installed by its own name, with extras that it has."""
    named = re.fullmatch(r"(holdfast[\w-]*)(?:\[([\w,]+)\])?", word)
    if named is None:
        return []
    wrong = [] if named[1] == PROJECT["name"] else [f"the package is called {PROJECT['name']}"]
    extras = (named[2] or "").split(",") if named[2] else []
    return wrong + [f"there is no extra {x}" for x in extras if x not in PROJECT["optional-dependencies"]]


def test_the_check_finds_what_it_is_for() -> None:
    bad = [
        "holdfast rnu", "holdfast run --nmae x", "holdfast run --set kl.bta=1", "holdfast resume", "make everything",
        "python benchmarks/nothing.py", "python -m holdfast.nothing", "python -c 'from holdfast.config import nothing'",
        "pip install holdfast[nothing]", "torchrun --nproc-per-node 2 -m holdfast rnu", "holdfast serve [--prot PORT]",
    ]  # fmt: skip
    assert [line for line in bad if not problems_of(Command("", tuple(shlex.split(line))))] == []
    good = ["holdfast resume runs/x", "make test", "torchrun -m holdfast run", "holdfast run [--name NAME] [settings]"]
    assert [line for line in good if problems_of(Command("", tuple(shlex.split(line))))] == []


# --- settings -----------------------------------------------------------------------------------------------------


def test_every_piece_of_a_config_is_one(tmp_path: Path) -> None:
    wrong = {}
    for block in (block for block in BLOCKS if block.language == "toml"):
        file = tmp_path / "piece.toml"
        file.write_text(block.code, encoding="utf-8")
        try:
            load_config(file)
        except HoldfastError as error:
            wrong[block.place] = str(error)
    assert wrong == {}


# --- Python -------------------------------------------------------------------------------------------------------


def test_every_name_of_ours_is_there() -> None:
    assert {block.place: wrong for block in PYTHON if (wrong := problems_of_code(block.code))} == {}


def problems_of_code(code: str) -> list[str]:
    """Names of holdfast that are not there, and arguments that what they name does not take."""
    tree, ours, wrong = ast.parse(code), {}, []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    if alias.name.split(".")[0] == "holdfast":
                        ours[alias.asname or "holdfast"] = importlib.import_module(alias.name)
            case ast.ImportFrom(module=str(module), names=aliases) if module.split(".")[0] == "holdfast":
                for alias in aliases:
                    try:
                        ours[alias.asname or alias.name] = member(module, alias.name)
                    except (ImportError, AttributeError):
                        wrong.append(f"from {module} import {alias.name}")
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if isinstance(ours.get(name), types.ModuleType):
                if not hasattr(ours[name], attribute):
                    wrong.append(f"{name}.{attribute}")
            case ast.Call(func=function, keywords=keywords):
                thing = named(function, ours)
                wrong += [f"{ast.unparse(function)}({k.arg}=)" for k in keywords if not takes(thing, k.arg)]
    return wrong


def member(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        return importlib.import_module(f"{module}.{name}")


def named(function: ast.expr, ours: dict[str, Any]) -> Any:
    """The thing of ours that is called, if it is one."""
    match function:
        case ast.Name(id=name):
            return ours.get(name)
        case ast.Attribute(value=inner, attr=attribute):
            return getattr(named(inner, ours), attribute, None)
    return None


def takes(thing: Any, keyword: str | None) -> bool:
    if thing is None or keyword is None:
        return True
    parameters = inspect.signature(thing).parameters
    return keyword in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages speak of: a config to edit, a run that has ended, its models, its labels."""
    place = tmp_path_factory.mktemp("prepared")
    small = [word for word in small_run.settings() if word != "--set"]
    (place / "my-run.toml").write_text(config_toml(load_config(None, small)), encoding="utf-8")
    run = str(small_run.run(place / "runs").rename(place / "runs" / "first"))
    assert main(["export", run, str(place / "my-model")]) == 0
    shutil.copytree(place / "runs" / "first" / "reference", place / "my-sft")
    assert main(["export", run, "--labels", str(place / "labels.jsonl")]) == 0
    return place


@pytest.mark.parametrize("page", sorted({block.page for block in PYTHON}))
def test_what_can_be_run_runs(page: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page one after the other, like the cells of a notebook, in a directory of their own."""
    place = tmp_path / "place"
    shutil.copytree(prepared, place)
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    mine = [block for block in BLOCKS if block.page == page and not block.not_run]
    for block in mine:
        if block.file and block.language in ("python", "toml"):
            (place / block.file).write_text(block.code, encoding="utf-8")
    with fresh_module("snippet") as module:
        for block in itertools.takewhile(is_installed, [block for block in mine if block.language == "python"]):
            if block.file and block.file.startswith("test_"):
                argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", block.file]
                ended = subprocess.run(argv, capture_output=True, text=True, timeout=240)
                assert ended.returncode == 0, ended.stdout
            else:
                exec(compile(block.code, block.place, "exec"), vars(module))


def is_installed(block: Block) -> bool:
    """Whether every package that it imports is there; without one, the rest of the page cannot be run either."""
    tree = ast.parse(block.code)
    imported = [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
    imported += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return all(is_there(name.split(".")[0]) for name in imported)


@contextlib.contextmanager
def fresh_module(name: str) -> Iterator[types.ModuleType]:
    """A module for the blocks to live in: dataclasses look for theirs by name."""
    sys.modules[name] = module = types.ModuleType(name)
    try:
        yield module
    finally:
        del sys.modules[name]
