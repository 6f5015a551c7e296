"""Nobody but the lab and the worlds themselves can reach gold, the known truth of a world.

Two ways are looked at: the source of every module, for a name that leads to gold, and the memory of a live loop, for
an object that does. That nothing depends on gold is seen in whole runs, in `system/test_gold_apart.py`.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import pytest
import torch

import small_run
from holdfast.config import load_config
from holdfast.lab.observer import GoldObserver, gold_of
from holdfast.run.build import assemble
from holdfast.run.directory import RunDirectory
from holdfast.run.inputs import gather
from holdfast.run.loop import OnlineLoop
from holdfast.run.observer import Observer
from holdfast.track.progress import Silent
from holdfast.worlds.registry import load_task, load_world
from test_architecture import MODULES, imports_of, parsed

# --- in the source ----------------------------------------------------------------------------------------------

# What leads to gold: its name, the name it goes by in a pipeline, what a simulated labeller keeps of it, and the lab's
# other file with gold in it. No name and no text of a module may have one of these in it; docstrings and comments may.
LEADS_TO_GOLD = ("gold", "truth", "_judgement", "_utility", "pairs_file", "pairs.jsonl")

SEES_GOLD = (
    "lab",
    "worlds.boat_race",
    "worlds.concierge",
    "worlds.everyday",
    "worlds.forecast",
    "worlds.layout",
    "worlds.stories",
)
# The report draws what the lab has written to gold.jsonl, and may not know a world.
READS_GOLD_ROWS = ("report",)

# Everybody else names it as here or not at all: `gold` is a variable or an argument, `.gold` an attribute, `'gold'` a
# text, `holdfast.x.gold` an import and SENTENCE a text with blanks in it, which is there for people to read.
SENTENCE = "a sentence"
MAY_NAME: dict[str, set[str]] = {
    # Says where the file lies, and does not open it.
    "run.directory": {"gold_file", "'gold.jsonl'"},
    # Hangs the lab's observer on a run or on the stages of a pipeline, whose measurement is given the callable, and
    # shows at the end what the report has read of it.
    "cli.session": {
        "holdfast.lab.observer.gold_of", "holdfast.lab.observer.GoldObserver", "gold_of", "GoldObserver", "gold",
        ".gold_file", "truth",
    },
    # Hands that callable on, unopened, and calls it for a row of the ledger.
    "stages.pipeline": {"holdfast.stages.measurement.Truth", "Truth", "truth", ".truth"},
    "stages.measurement": {"Truth", "truth", "'gold'"},
    # Commands of the lab.
    "cli.lab": {SENTENCE},
    "cli.lab_bestofn": {"holdfast.lab.observer.gold_of", "gold_of", "truth", SENTENCE},
    # The model card repeats a figure of the report.
    "run.card": {"holdfast.report.delivered.GOLD", "gold", "GOLD", "'gold'"},
    # Knows which files a run directory has.
    "run.inspection": {"'gold.jsonl'", "'pairs.jsonl'"},
    # Fits a curve to the numbers it is given, for the lab.
    "algorithms.overoptimisation": {"gold_M"},
    # The person with the truth in mind.
    "worlds.simulated_labeller": {"._judgement", "_utility", "._utility"},
    # The unit of two settings of that person.
    "config.schema": {SENTENCE},
    # An argument that verl passes to every reward function, by its name.
    "interop.verl": {"ground_truth"},
    # A column of the user's own prompts file.
    "reward.sources.service": {"'ground_truth'"},
}  # fmt: skip

# Observers are told what happened, or handed on to who will tell them; nobody asks them anything.
TOLD_BY = {name for name in vars(Observer) if name.startswith(("after_", "mark", "rewind", "close"))}
HANDED_TO = {"assemble", "assemble_dpo", "start_afresh", "Audience", "OfflineDPO"}
HAVE_OBSERVERS = {
    "run.observer", "run.build", "run.run", "stages.work", "stages.dpo_run",
}  # fmt: skip


def gold_in(module: str, source: str) -> list[str]:
    """Where a module reaches for gold: by a name that leads to it, or through the observers, who know it."""
    if lies_in(module, SEES_GOLD):
        return []
    found = observers_asked(module, source)
    if lies_in(module, READS_GOLD_ROWS):
        return found + [f"imports {name}" for name in imports_of(source) if lies_in(name, ("lab", "worlds"))]
    may = MAY_NAME.get(module, set())
    return found + [f"line {line}: {name}" for line, name in gold_names(source) if name not in may]


def lies_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def gold_names(source: str) -> list[tuple[int, str]]:
    """What leads to gold in a source, with its line, written as in MAY_NAME."""
    named = [(line, name) for line, name in names_of(source) if any(word in name.lower() for word in LEADS_TO_GOLD)]
    return [(line, SENTENCE if name.startswith("'") and " " in name else name) for line, name in named]


def names_of(source: str) -> Iterator[tuple[int, str]]:
    """Every name and text of a source but its docstrings."""
    tree = parsed(source)
    explanations = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        line: int = getattr(node, "lineno", 0)
        match node:
            case ast.Constant(value=str() | bytes() as text):
                if node not in explanations:
                    yield line, f"'{text!s}'"
            case ast.Attribute(attr=name):
                yield line, f".{name}"
            case ast.Import(names=modules):
                yield from ((line, module.name) for module in modules)
            case ast.ImportFrom(module=module, names=parts):
                yield from ((line, f"{module}.{part.name}") for part in parts)
            case ast.alias(asname=name):
                yield line, name or ""
            case _:
                fields = [value for _, value in ast.iter_fields(node)]
                together = [part for value in fields for part in (value if isinstance(value, list) else [value])]
                yield from ((line, name) for name in together if isinstance(name, str))


def observers_asked(module: str, source: str) -> list[str]:
    """Where a module does anything with observers but tell them or hand them on, if it has any business with them."""
    tree = parsed(source)
    fine: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.For(target=ast.Name(id=each), iter=observers, body=body) if all(tells(each, do) for do in body):
                fine.add(observers)
            case ast.Call(func=ast.Name(id=name), args=given, keywords=named) if name in HANDED_TO:
                fine.update([*given, *(keyword.value for keyword in named)])
    if module not in HAVE_OBSERVERS:
        fine = set()
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.expr) and is_observers(node) and node not in fine
    ]


def tells(observer: str, statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=told))):
            return name == observer and told in TOLD_BY
    return False


def is_observers(node: ast.expr) -> bool:
    match node:
        case ast.Name(id="observers", ctx=ast.Load()) | ast.Attribute(attr="observers"):
            return True
        case ast.Constant(value="observers"):
            return True
    return False


def test_nobody_but_the_lab_and_the_world_itself_reaches_for_gold() -> None:
    assert {name: found for name, path in MODULES.items() if (found := gold_in(name, path.read_text()))} == {}


def test_no_exception_is_wider_than_its_module_needs() -> None:
    assert {module: {name for _, name in gold_names(MODULES[module].read_text())} for module in MAY_NAME} == MAY_NAME


def test_every_module_that_has_observers_still_does() -> None:
    assert len(TOLD_BY) == 6
    users = {name for name, path in MODULES.items() if any(map(is_observers, expressions_of(path.read_text())))}
    assert {name for name in users if not lies_in(name, SEES_GOLD)} == HAVE_OBSERVERS


def expressions_of(source: str) -> list[ast.expr]:
    return [node for node in ast.walk(parsed(source)) if isinstance(node, ast.expr)]


REACHES = [
    ("run.loop", "score = world.gold(prompt, text)"),
    ("guard.audit", "judge = getattr(world, 'gold')"),
    ("guard.audit", "judge = operator.attrgetter('gold')(world)"),
    ("guard.audit", "judge = vars(world)['gold']"),
    ("guard.review", "from operator import attrgetter as g\ng('gold')(world)"),
    ("run.build", "from holdfast.worlds.concierge.gold import gold_score"),
    ("cli.session", "from holdfast.worlds.concierge import gold"),
    ("cli.session", "import holdfast.worlds.concierge.gold as truth"),
    ("cli.session", "score = world.gold(prompt, text)"),
    ("report.page", "from holdfast.worlds.registry import load_world"),
    ("worlds.registry", "policy.liking = world.gold"),
    # Through what has been written down.
    ("run.host", "RunDirectory(path).gold_file.read_text()"),
    ("guard.review", "RunDirectory(path).gold_file.read_text()"),
    ("run.host", "open(path / 'gold.jsonl')"),
    ("guard.review", "open(path / 'gold.jsonl')"),
    ("guard.review", "open(f'{path}/gold.jsonl')"),
    ("guard.review", "open(b'gold.jsonl')"),
    ("guard.review", "from holdfast.somewhere import GOLD_FILE"),
    ("run.host", "files = 'metrics.jsonl gold.jsonl'.split()"),
    ("run.host", "from holdfast.lab.observer import PAIRS_FILE as F"),
    ("run.host", "open(path / 'pairs.jsonl')"),
    ("stages.work", "best = max(rows, key=lambda row: row['gold']['mean'])"),
    # Through those who know it.
    ("run.host", "loop.audience.observers[0]._gold(prompt, text, True)"),
    ("guard.review", "loop.audience.observers[0]._gold(prompt, text, True)"),
    ("run.host", "rows = loop.audience.observers[0]._rows"),
    ("run.host", "for observer in loop.audience.observers:\n    observer.rewind(step)"),
    ("run.host", "(observer,) = getattr(loop, 'observers')"),
    ("run.observer", "for observer in self.observers:\n    self.scores.append(observer.after_step(1, 1, [], []))"),
    ("run.observer", "for observer in self.observers:\n    observer.answer(prompts)"),
    ("run.observer", "self.first = self.observers[0]"),
    ("run.build", "first, *_ = observers"),
    ("run.host", "loop.collector.labeller._judgement(prompt, text, True)"),
    ("run.host", "loop.collector.labeller._utility(prompt, response)"),
    ("stages.work", "scores = pipeline.truth(prompts, answers)"),
]
DOES_NOT = [
    ("guard.review", 'def verdict() -> None:\n    """Without gold."""  # nor the truth'),
    ("run.observer", "for observer in self.observers:\n    observer.after_round(step, round, self.answer)"),
    ("run.build", "Audience(observers)"),
]


def test_reaching_for_gold_is_found_and_the_rest_is_left_alone() -> None:
    assert [(module, source) for module, source in REACHES if not gold_in(module, source)] == []
    assert [(module, source) for module, source in DOES_NOT if gold_in(module, source)] == []


def test_a_pipeline_hands_what_it_is_given_to_one_place_each() -> None:
    """The callable that knows the truth goes to what measures a finished stage, the observers to the stage's work."""
    assert functions_with("truth") == {"stages.pipeline.measured", "stages.measurement.measure_policy"}
    assert functions_with("observe") == {"stages.pipeline.work"}


def functions_with(name: str) -> set[str]:
    """The functions of the stages that use a name or an attribute."""
    return {
        f"{module}.{function.name}"
        for module, path in MODULES.items()
        if lies_in(module, ("stages",))
        for function in ast.walk(parsed(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Name | ast.Attribute) and name in (getattr(node, "id", ""), getattr(node, "attr", ""))
    }


# --- in memory --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnlineLoop]:
    """A loop put together as the program does it, with the lab watching."""
    config = load_config(None, [word for word in small_run.settings() if word != "--set"])
    world = load_world(config)
    ingredients = gather(config, load_task(config, world))
    run = RunDirectory.create(tmp_path_factory.mktemp("architecture") / "run", config, {})
    gold = gold_of(world)
    assert gold is not None
    observer = GoldObserver(gold, run.gold_file, ingredients.task.heldout_prompts)
    with assemble(ingredients, run, Silent(), [observer]) as loop:
        yield loop


def reached(start: object, but_not: tuple[object, ...]) -> Iterator[tuple[str, object]]:
    """Every object that can be got at from one, through attributes, containers, closures and bound methods."""
    seen, queue = {id(thing) for thing in but_not}, [("", start)]
    while queue:
        path, thing = queue.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType | torch.Tensor | str | bytes | int | float):
            continue
        seen.add(id(thing))
        yield path, thing
        queue += [(f"{path}.{name}", part) for name, part in parts_of(thing)]


def parts_of(thing: object) -> list[tuple[str, object]]:
    if isinstance(thing, dict):
        return [(f"[{key!r}]", value) for key, value in list(thing.items())]
    if isinstance(thing, list | tuple | set | frozenset | deque):
        return [(f"[{n}]", value) for n, value in enumerate(thing)]
    if isinstance(thing, MethodType):
        return [("__self__", thing.__self__), ("__func__", thing.__func__)]
    if isinstance(thing, FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        return [(f"closure[{n}]", cell) for n, cell in enumerate([*cells, *(thing.__defaults__ or ())])]
    if isinstance(thing, BuiltinFunctionType):
        return [("__self__", thing.__self__)]
    # Slots are read past `__getattr__`, which some libraries use to make what is not there yet.
    slots = {name: part for kind in type(thing).__mro__ for name, part in vars(kind).items() if is_slot(part)}
    named = {name: slot.__get__(thing) for name, slot in slots.items() if is_filled(thing, slot)}
    return list((named | getattr(thing, "__dict__", {})).items())


def is_slot(part: object) -> bool:
    return isinstance(part, MemberDescriptorType)


def is_filled(thing: object, slot: Any) -> bool:
    try:
        slot.__get__(thing)
    except AttributeError:
        return False
    return True


def knows_gold(thing: object) -> bool:
    return hasattr(type(thing), "gold") or "gold" in getattr(thing, "__dict__", {})


def test_the_loop_cannot_reach_gold(loop: OnlineLoop) -> None:
    """Through the labeller, a person with the truth in mind, and the observers, who only watch, one can."""
    but_not = (loop.collector.labeller, loop.audience.observers)
    walked = list(reached(loop, but_not))
    assert len(walked) > 500
    assert any(thing is loop.training.store for _, thing in walked)
    assert [path for path, thing in walked if knows_gold(thing)] == []


def test_the_walk_would_find_gold(loop: OnlineLoop) -> None:
    assert any(knows_gold(thing) for _, thing in reached(loop, (loop.audience.observers,)))
    assert any(knows_gold(thing) for _, thing in reached(loop, (loop.collector.labeller,)))
