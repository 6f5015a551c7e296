"""Nothing in the source can unpickle: no pickle module of any name, no torch.load, no pickled file names."""

import ast
from pathlib import Path

import tally

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for folder in ("src", "benchmarks") for path in (ROOT / folder).rglob("*.py"))

PICKLING_MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
PICKLING_CALLS = {"torch.load", "torch.save", "torch.jit.load", "torch.hub.load", "pandas.read_pickle"}
PICKLED_SUFFIXES = (".pt", ".pth", ".pkl", ".pickle", ".joblib")


def pickling_in(source: str) -> list[str]:
    """Each place where the source imports, calls or names something that pickles."""
    tree = ast.parse(source)
    aliases = {
        alias.asname: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.asname
    }
    return [
        f"line {getattr(node, 'lineno', 0)}: {name}"
        for node in ast.walk(tree)
        for name in names_used(node, aliases)
        if name.split(".")[0] in PICKLING_MODULES or name in PICKLING_CALLS
    ]


def names_used(node: ast.AST, aliases: dict[str, str]) -> list[str]:
    """The dotted names a node brings in; what pickles without naming the module counts as naming it."""
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            return [f"{node.module}.{alias.name}" for alias in node.names]
        case ast.Attribute():
            root, _, rest = ast.unparse(node).partition(".")
            return [f"{aliases.get(root, root)}.{rest}"]
        case ast.Constant(value=str(text)) if text.endswith(PICKLED_SUFFIXES):
            return [f"pickle.{text}"]
        case ast.Constant(value=str(text)) if text in PICKLING_MODULES:
            return [text]
        case ast.keyword(arg="allow_pickle") if ast.unparse(node.value) != "False":
            return ["pickle"]
    return []


def test_there_is_source_to_check() -> None:
    assert ROOT / "src" / "holdfast" / "checkpoint" / "store.py" in SOURCES


def test_the_source_never_pickles() -> None:
    tally.count("files searched", len(SOURCES))
    places = {str(path.relative_to(ROOT)): pickling_in(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {path: lines for path, lines in places.items() if lines} == {}


PICKLES = [
    "import pickle",
    "import os, pickle as p",
    "from pickle import loads",
    "import cloudpickle",
    "from joblib import load",
    "import torch\nstate = torch.load('a', weights_only=True)",
    "import torch\nread = torch.load",
    "import torch as t\nt.load('a')",
    "from torch import load",
    "from torch import load as read",
    "torch.save({}, path)",
    "path = directory / 'model.pt'",
    "path = f'{name}.pt'",
    "import importlib\nimportlib.import_module('pickle')",
    "__import__('pickle')",
    "import numpy\nnumpy.load('x.npy', allow_pickle=True)",
    "numpy.load('x.npy', allow_pickle=flag)",
]
DOES_NOT = [
    '"""Why there is no pickle here."""',
    "load = json.loads",
    "from safetensors.torch import load_file",
    "numpy.load('x.npy', allow_pickle=False)",
    "name = 'script'",
]


def test_the_check_finds_what_it_is_for_and_lets_the_rest_pass() -> None:
    assert [source for source in PICKLES if not pickling_in(source)] == []
    assert [source for source in DOES_NOT if pickling_in(source)] == []
