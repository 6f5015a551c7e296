"""The algorithms stand on torch and the standard library alone."""

import ast
import sys
from pathlib import Path

import holdfast.algorithms

FILES = sorted(Path(holdfast.algorithms.__file__).parent.glob("**/*.py"))


def _imports(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append("." * node.level + (node.module or ""))
    return found


def _allowed(module: str) -> bool:
    own = module == "holdfast.algorithms" or module.startswith("holdfast.algorithms.")
    return own or module.split(".")[0] in {"torch", *sys.stdlib_module_names}


def test_algorithms_import_nothing_but_torch_and_the_standard_library() -> None:
    assert len(FILES) > 10
    offenders = {file.name: [m for m in _imports(file.read_text()) if not _allowed(m)] for file in FILES}
    assert {name: modules for name, modules in offenders.items() if modules} == {}


def test_the_check_itself_sees_what_it_must_refuse() -> None:
    source = "import numpy\nfrom holdfast.control import kl\ndef f():\n    from transformers import x\n"
    assert [m for m in _imports(source) if not _allowed(m)] == ["numpy", "holdfast.control", "transformers"]
