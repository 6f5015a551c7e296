"""What `import holdfast` offers: the same for Python, for type checkers and on the page, and cheap to ask for."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

PACKAGE = Path(holdfast.__file__).parent
PAGE = PACKAGE.parents[1] / "docs" / "from-python.md"
NAMES = {name for name in holdfast.__all__ if name != "__version__"}


def test_type_checkers_see_each_name_from_the_module_that_it_is_loaded_from():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.asname: node.module for node in imports for alias in node.names}
    assert homes == holdfast._HOMES


def test_each_name_can_be_loaded_and_no_other():
    assert all(getattr(holdfast, name) is not None for name in NAMES)
    with pytest.raises(AttributeError, match="'holdfast' has no attribute 'Nothing'"):
        holdfast.Nothing  # noqa: B018


def test_the_page_tells_of_each_name():
    page = PAGE.read_text()
    assert [name for name in sorted(NAMES) if f"hf.{name}" not in page] == []


@pytest.mark.parametrize("name", ["__version__", "SequentialTest", "HoldfastError"])
def test_a_name_that_needs_no_torch_does_not_load_it(name):
    script = f"from holdfast import {name}; import sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
