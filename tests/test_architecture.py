"""The lines that hold the house up: who may import whom, names that say one thing, no dead setting."""

from __future__ import annotations

import ast
import inspect
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

import holdfast
import nostalgic
import people_at_work
import small_run
from holdfast.cli.main import main
from holdfast.config import Config, config_toml, load_config
from holdfast.config.schema import JudgeConfig, RewardConfig
from holdfast.control.kl import KLBudget
from holdfast.errors import HoldfastError
from holdfast.people.judge import JudgeLabeller
from holdfast.people.label_weights import LabellerWeights
from holdfast.people.team import TeamLabeller
from holdfast.preferences.comparison import Choice, Comparison, Provenance, Response
from holdfast.preferences.judge_model import JudgeModel
from holdfast.preferences.store import PreferenceStore
from holdfast.reward.scores import Asked
from holdfast.reward.sources.opening import open_source
from holdfast.run.control import controller_of
from holdfast.train.ppo import PPO, NonFiniteStep
from holdfast.worlds.registry import load_world
from vllm_stand_in import StandIn, policy_in, serving

SOURCE = Path(__file__).parents[1] / "src" / "holdfast"
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix("__init__").rstrip("."): path
    for path in sorted(SOURCE.rglob("*.py"))
}

# From the top of the house to its foundations. A room imports from itself and from the lines below its own, never from
# its own line or above: so no two rooms import each other, and imports for types alone count as well.
ORDER = [
    ["__main__"],
    ["cli"],
    ["lab", "serving"],
    ["stages", "interop.trl", "web"],
    ["run"],
    ["report", "worlds"],
    ["train", "guard", "people"],
    ["reward", "data", "probes"],
    ["preferences"],
    ["rollout"],
    ["grammar"],
    ["models", "track", "drawings"],
    ["checkpoint", "config", "parallel", "control", "charts", "interop"],
    ["events", "remote"],
    ["own_code", "statistics"],
    ["", "documents", "errors", "algorithms", "randomness", "text"],
]
ROOT = {"", "__main__", "documents", "errors", "own_code", "randomness", "statistics", "text"}

LINE_OF = {name: line for line, rooms in enumerate(ORDER) for name in rooms}

# Modules are nouns; these end in -ing and are nouns of the field, or the name of a signal or an experiment.
NOUNS_IN_ING = {
    "beginning", "decoding", "encoding", "ending", "labelling", "masking", "opening", "packing", "prompt_copying",
    "serving", "sharding", "spelling", "training", "tuning",
}  # fmt: skip


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


def entry_of(module: str) -> str:
    """The entry of ORDER that a module belongs to: the longest one that it is or lies below."""
    parents = [".".join(module.split(".")[:n]) for n in range(len(module.split(".")), 0, -1)]
    return next((name for name in parents if name in LINE_OF), module)


def imports_of(source: str) -> set[str]:
    """The modules of holdfast that a source imports, at its top or inside a function, without the first name."""
    found: set[str] = set()
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            base = node.module or ""
            # `from holdfast.cli import run` imports a module, `from holdfast.cli.run import work` a name in one.
            deeper = {f"{base}.{alias.name}" for alias in node.names}
            modules = {name for name in deeper if name.removeprefix("holdfast.") in MODULES}
            found |= modules or {base}
    ours = {name for name in found if name.split(".")[0] == "holdfast"}
    return {name.removeprefix("holdfast").removeprefix(".") for name in ours}


def against_the_order(module: str, source: str) -> list[str]:
    """The imports of a module that point sideways or upwards."""
    own = entry_of(module)
    return [
        f"{module} -> {other}"
        for other in sorted(imports_of(source))
        if entry_of(other) != own and LINE_OF[entry_of(other)] <= LINE_OF[own]
    ]


def test_every_module_has_its_place() -> None:
    assert len(MODULES) > 90
    assert [name for name in MODULES if entry_of(name) not in LINE_OF] == []


def test_nothing_stands_at_the_root_but_what_belongs_to_all() -> None:
    assert {name for name, path in MODULES.items() if path.parent == SOURCE} == ROOT


def test_imports_point_downwards() -> None:
    assert [wrong for name, path in MODULES.items() for wrong in against_the_order(name, path.read_text())] == []


UPWARDS = [
    ("run.loop", "from holdfast.cli.main import main"),
    ("run.loop", "def f():\n    import holdfast.lab.observer"),
    ("guard.verdict", "from holdfast.worlds import registry"),
    ("guard.review", "if TYPE_CHECKING:\n    from holdfast.run.loop import OnlineLoop"),
    ("guard.review", "from holdfast.interop.trl import HoldfastCallback"),
    ("preferences.collector", "from holdfast.reward.refresher import Refresher"),
    ("models.codec", "from holdfast.preferences.store import PreferenceStore"),
    ("reward.ensemble", "from holdfast.run.loop import OnlineLoop"),
    ("config.files", "from holdfast.parallel.cores import CORES"),
    ("interop.trl.callback", "from holdfast.lab.observer import gold_of"),
    ("interop.reward_client", "from holdfast.config import Config"),
]


def test_the_order_refuses_what_it_is_for() -> None:
    assert [(module, source) for module, source in UPWARDS if not against_the_order(module, source)] == []


def test_no_two_packages_import_each_other_in_a_circle() -> None:
    """Packages as they lie in the folder; imports inside functions and for types alone count."""
    imports: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        package = module.split(".")[0]
        others = {other.split(".")[0] for other in imports_of(path.read_text())} - {package}
        imports.setdefault(package, set()).update(others)
    list(TopologicalSorter(imports).static_order())  # a CycleError names the circle


# --- names ------------------------------------------------------------------------------------------------------


def test_modules_are_nouns() -> None:
    verbs = {name for name in MODULES if (last := name.split(".")[-1]).endswith("ing") and last not in NOUNS_IN_ING}
    assert verbs == set()
    assert NOUNS_IN_ING - {name.split(".")[-1] for name in MODULES} == set()


def test_two_things_never_share_a_name() -> None:
    packages: dict[str, set[str]] = {}
    for module, node in definitions():
        if isinstance(node, ast.ClassDef):
            packages.setdefault(node.name, set()).add(module.split(".")[0])
    assert {name for name, homes in packages.items() if len(homes) > 1} == set()


def definitions() -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every public class and function that stands at the top of a module, with the module's name."""
    for module, path in MODULES.items():
        for node in parsed(path.read_text()).body:
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    if not name.startswith("_"):
                        yield module, node


def test_what_is_public_says_what_it_is() -> None:
    """Modules, classes, functions that another package imports, and whatever `import holdfast` offers."""
    assert [name for name, path in MODULES.items() if not ast.get_docstring(parsed(path.read_text()))] == []
    silent = {f"{module}.{node.name}": node for module, node in definitions() if not ast.get_docstring(node)}
    assert [name for name, node in silent.items() if isinstance(node, ast.ClassDef)] == []
    assert sorted(silent.keys() & names_that_others_import()) == []
    assert [name for name in getattr(holdfast, "__all__", []) if not inspect.getdoc(getattr(holdfast, name))] == []


def names_that_others_import() -> set[str]:
    """What is imported across packages, as `package.module.name`."""
    return {
        f"{node.module.removeprefix('holdfast.')}.{alias.name}"
        for module, path in MODULES.items()
        for node in ast.walk(parsed(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("holdfast.")
        if node.module.split(".")[1] != module.split(".")[0]
        for alias in node.names
    }


# --- settings ---------------------------------------------------------------------------------------------------

DECLARED = {section: set(values) for section, values in tomllib.loads(config_toml(Config())).items()}


@pytest.fixture
def read_settings(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The settings that the package's code reads from now on by their names; the config package does not count."""
    reads: set[str] = set()

    def watch(section: str, kind: type[Any]) -> None:
        def get(self: object, name: str) -> Any:
            frame = sys._getframe(1)
            while frame.f_back and "asdict" in frame.f_code.co_name:
                frame = frame.f_back  # who takes a whole section reads all of it
            reader = Path(frame.f_code.co_filename)
            if name in DECLARED[section] and SOURCE in reader.parents and SOURCE / "config" not in reader.parents:
                reads.add(f"{section}.{name}")
            return object.__getattribute__(self, name)

        monkeypatch.setattr(kind, "__getattribute__", get)

    for section in DECLARED:
        watch(section, type(getattr(Config(), section)))
    return reads


def test_the_config_package_reading_itself_does_not_count(read_settings: set[str]) -> None:
    config_toml(load_config(None, ["kl.beta=0.1"]))
    assert read_settings == set()


def test_every_setting_is_read_by_something(
    read_settings: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting that nothing reads is a promise that nobody keeps."""
    with monkeypatch.context() as patch:
        patch.setattr(PPO, "moved", bad_once(PPO.moved))
        small_run.run(tmp_path, run__rounds="2", run__steps_per_round="2", preferences__selection="disagreement")
    # Ways that this run does not go: an audit that ends in a rollback, another controller, and a user's own files.
    back = {"world__labeller": nostalgic.SPEC, "audit__pairs": "12", "flaw__name": "verbosity"}
    with monkeypatch.context() as patch:
        small_run.claiming(patch, 0.7)
        small_run.run(tmp_path / "back", run__rounds="3", **back)
    turns = iter(range(10_000))
    choose = lambda lease: "skip" if next(turns) % 5 == 0 else "left"  # noqa: E731
    with people_at_work.answering(f"sqlite:///{tmp_path / 'people.db'}", "small", choose=choose):
        people = {**people_at_work.SETTINGS, "people__timeout_minutes": "1.0", "run__rounds": "1"}
        small_run.run(tmp_path / "people", preferences__url=f"sqlite:///{tmp_path / 'people.db'}", **people)
    TeamLabeller("people+judge", load_config())._time_is_up(8, 8)
    judge = JudgeLabeller(JudgeConfig(url="http://127.0.0.1:1/v1"))
    with pytest.raises(HoldfastError, match="cannot be reached"):
        judge.label([a_comparison()])
    with monkeypatch.context() as patch:
        patch.setattr(JudgeModel, "ask", lambda self, question, read: Choice.A)
        judge.label([a_comparison()])
    with PreferenceStore.open(f"sqlite:///{tmp_path / 'people.db'}") as store:
        LabellerWeights(store, "small", load_config().people.unreliable).update()
    stand_in = StandIn(policy_in(str(tmp_path / small_run.NAME / "reference")))
    with serving(stand_in) as url:
        small_run.run(tmp_path / "served", vllm__url=url, run__rounds="1", run__steps_per_round="1")
    stages = small_run.settings(
        sft__epochs="20", rollout__max_new_tokens="24", dpo__epochs="1", dpo__sft_both="1", probes__every="4",
        run__rounds="1", run__steps_per_round="1",
    )  # fmt: skip
    words = ["--runs", str(tmp_path), "--name", "stages", "--stages", "sft,reward,distil,ppo,dpo"]
    assert main(["pipeline", *words, *stages]) == 0
    controller_of(load_config(None, ["kl.controller=adaptive"]), KLBudget(1.0, 0.0, 1.0))
    read_reward(tmp_path)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a\nb\n")
    load_world(load_config(None, ["world.name=files", f"data.prompts={prompts}"]))
    declared = {f"{section}.{name}" for section, names in DECLARED.items() for name in names}
    assert len(declared) > 80
    assert declared - read_settings == set()


def read_reward(place: Path) -> None:
    """A run with a reward of the user's, and a judge that is not there."""
    (place / "mine.py").write_text("def score(completion):\n    return len(completion)")
    small_run.run(
        place / "given", reward__source=f"{place / 'mine.py'}:score", run__rounds="1", run__steps_per_round="1"
    )
    away = JudgeConfig(url="http://127.0.0.1:1/v1", mode="pairwise", timeout_seconds=0.1)
    judge = open_source(RewardConfig(source="judge"), away)
    assert judge is not None
    assert judge.score(Asked(["p", "p"], ["a", "b"], group=2)).share_unscored == 1.0


def a_comparison() -> Comparison:
    return Comparison("1", "q", *(Response(text, Provenance("v", 0, 0)) for text in "ab"), round=0)


def bad_once(moved: Any) -> Any:
    """The first step of all is dropped, which not every run sees."""
    calls = iter([True])

    def wrapper(*args: Any) -> Any:
        if next(calls, False):
            raise NonFiniteStep("made bad")
        return moved(*args)

    return wrapper
