"""Finding worlds and labellers by name or as `path/to/file.py:Class`; a sentence for all that goes wrong."""

from pathlib import Path

import pytest

from holdfast.config import load_config
from holdfast.errors import HoldfastError
from holdfast.own_code import load_own
from holdfast.preferences.comparison import Demonstration
from holdfast.worlds.concierge import Concierge
from holdfast.worlds.files import Files
from holdfast.worlds.registry import load_task, load_world

WORLD = """
from holdfast.errors import HoldfastError
from holdfast.preferences.comparison import Choice, Demonstration, Label

class Mine:
    name = "mine"
    def __init__(self, seed, greeting="hello"):
        if greeting == "bad":
            raise HoldfastError("greeting may not be bad.")
        if greeting == "worse":
            raise RuntimeError("first line\\nsecond line")
        self.seed, self.greeting = seed, greeting
    def prompts(self):
        if self.greeting == "late":
            raise RuntimeError("no prompts today")
        return [] if self.greeting == "none" else [self.greeting]
    def heldout_prompts(self):
        return []
    def demonstrations(self):
        return [Demonstration("hello", "you")]
    def labeller(self, settings):
        self.settings = settings
        return None

class WithPolicy(Mine):
    def policy_directory(self):
        return "/models/mine"

class NoWorld:
    def __init__(self, seed):
        self.name = "x"

class Judge:
    def __init__(self, seed):
        self.name = f"judge {seed}"
    def label(self, comparisons):
        return [Label(c.id, self.name, Choice.TIE) for c in comparisons]

class NoJudge:
    def __init__(self, seed):
        pass
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(WORLD)
    return path


def _config(*overrides: str):  # type: ignore[no-untyped-def]
    return load_config(overrides=list(overrides))


def test_the_built_in_world_gets_seed_and_options() -> None:
    config = _config("run.seed=9", "world.options={prompts = 20, demonstrations = 10, heldout = 5}")
    world = load_world(config)
    assert isinstance(world, Concierge)
    assert world.prompts() == Concierge(9, 20, 10, 5).prompts()


def test_a_class_in_a_file(file: Path) -> None:
    config = _config(f"world.name={file}:Mine", "run.seed=4", "world.options.greeting=hi", "world.label_noise=0.25")
    world = load_world(config)
    assert (world.name, world.seed, world.prompts()) == ("mine", 4, ["hi"])  # type: ignore[attr-defined]
    task = load_task(config, world)
    assert task.prompts == ["hi"]
    assert task.demonstrations == [Demonstration("hello", "you")]
    assert task.labeller is None
    assert task.policy_directory is None
    settings = world.settings  # type: ignore[attr-defined]
    assert (settings.noise, settings.seed) == (0.25, 4)


def test_a_world_may_bring_its_policy(file: Path) -> None:
    config = _config(f"world.name={file}:WithPolicy")
    assert load_task(config, load_world(config)).policy_directory == Path("/models/mine")


def test_a_labeller_of_one_s_own_replaces_the_world_s(file: Path) -> None:
    config = _config("world.options={prompts = 9, demonstrations = 4, heldout = 2}", f"world.labeller={file}:Judge")
    world = load_world(config)
    task = load_task(config, world)
    assert task.labeller is not None
    assert task.labeller.name == f"judge {config.run.seed}"
    assert task.prompts == list(world.prompts())
    assert task.heldout_prompts == list(world.heldout_prompts())
    assert task.demonstrations == list(world.demonstrations())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "conciergerie",
            "one of concierge, everyday, stories, boat_race, layout, forecast, files or path/to/file.py:Class",
        ),
        ("{file}", "one of concierge, everyday, stories, boat_race, layout, forecast, files or path/to/file.py:Class"),
        ("{file}:Absent", "has no class Absent"),
        ("{folder}/none.py:Mine", "none.py, which does not exist"),
        ("{file}:NoWorld", "is not a world: it has no prompts, heldout_prompts, demonstrations, labeller"),
    ],
)
def test_names_that_lead_nowhere(file: Path, name: str, sentence: str) -> None:
    with pytest.raises(HoldfastError, match=sentence):
        load_world(_config(f"world.name={name.format(file=file, folder=file.parent)}"))


@pytest.mark.parametrize(
    ("greeting", "sentence"),
    [
        ("bad", "^greeting may not be bad.$"),  # its own sentence, unchanged
        ("worse", r"cannot be made with seed 0 and options .*: RuntimeError: first line\.\n  .*:11 in __init__"),
    ],
)
def test_a_world_that_fails_to_start(file: Path, greeting: str, sentence: str) -> None:
    with pytest.raises(HoldfastError, match=sentence):
        load_world(_config(f"world.name={file}:Mine", "run.seed=0", f"world.options.greeting={greeting}"))


def test_options_that_the_class_does_not_take() -> None:
    with pytest.raises(HoldfastError, match=r"concierge cannot be made .*unexpected keyword argument 'nope'"):
        load_world(_config("world.options.nope=1"))


@pytest.mark.parametrize(
    ("greeting", "sentence"), [("late", "failed: RuntimeError: no prompts today"), ("none", "no prompts")]
)
def test_a_world_that_fails_later(file: Path, greeting: str, sentence: str) -> None:
    config = _config(f"world.name={file}:Mine", f"world.options.greeting={greeting}")
    with pytest.raises(HoldfastError, match=sentence):
        load_task(config, load_world(config))


def test_a_labeller_without_a_name(tmp_path: Path) -> None:
    code = "class Nameless:\n    def __init__(self, seed): self.name = None\n    def label(self, asked): return []\n"
    (tmp_path / "nameless.py").write_text(code)
    config = _config(f"world.labeller={tmp_path}/nameless.py:Nameless")
    with pytest.raises(HoldfastError, match="it needs a name, which is a text"):
        load_task(config, load_world(config))


def test_a_labeller_that_is_none(file: Path) -> None:
    config = _config(f"world.name={file}:Mine", f"world.labeller={file}:NoJudge")
    with pytest.raises(HoldfastError, match="is not a labeller"):
        load_task(config, load_world(config))
    with pytest.raises(HoldfastError, match=r"world\.labeller is 'concierge'; it has to be path/to/file\.py:Class"):
        load_own("concierge", "world.labeller")


def test_a_file_that_cannot_be_imported(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def oops(:\n")
    with pytest.raises(HoldfastError, match="cannot be imported: SyntaxError"):
        load_own(f"{broken}:Mine", "world.name")


def test_dataclasses_in_a_user_s_file_work(tmp_path: Path) -> None:
    # Dataclasses with string annotations look their module up in sys.modules.
    path = tmp_path / "annotated.py"
    path.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass W:\n    seed: int\n"
    )
    assert load_own(f"{path}:W", "world.name")(3).seed == 3


def test_a_world_of_files(tmp_path: Path) -> None:
    prompts = tmp_path / "p.txt"
    prompts.write_text("".join(f"prompt {i}\n" for i in range(30)) + "prompt 3\n")
    demos = tmp_path / "d.jsonl"
    demos.write_text('{"prompt": "a", "completion": "b"}\n')
    config = _config("world.name=files", f"data.prompts={prompts}", f"data.demonstrations={demos}")
    world = load_world(config)
    assert isinstance(world, Files)
    # 30 different prompts, of which the hash of each holds out about a tenth; none is in both.
    assert 1 <= len(world.heldout_prompts()) <= 8
    assert {*world.prompts(), *world.heldout_prompts()} == {f"prompt {i}" for i in range(30)}
    assert len(world.prompts()) + len(world.heldout_prompts()) == 30
    assert world.demonstrations() == [Demonstration("a", "b")]
    again = load_world(config)
    assert again.heldout_prompts() == world.heldout_prompts()


def test_given_heldout_prompts_are_taken_out_of_training(tmp_path: Path) -> None:
    prompts, heldout = tmp_path / "p.txt", tmp_path / "h.txt"
    prompts.write_text("one\ntwo\nthree\n")
    heldout.write_text("two\nother\n")
    config = _config("world.name=files", f"data.prompts={prompts}", f"data.heldout_prompts={heldout}")
    world = load_world(config)
    assert world.prompts() == ["one", "three"]
    assert world.heldout_prompts() == ["two", "other"]
    assert load_task(config, world).notes == ("1 of 3 prompts is held out and does not train.",)


def test_files_need_prompts_and_other_worlds_refuse_them(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match=r"set data[.]prompts"):
        load_world(_config("world.name=files"))
    with pytest.raises(HoldfastError, match=r'data\.prompts is only read with world\.name = "files"'):
        load_world(_config("data.prompts=p.txt"))
