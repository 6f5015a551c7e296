"""Tests of a checkout, run by pytest in a process of its own, and what they report."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import HoldfastError


def run_tests(tests: Iterable[str], root: Path, *options: str) -> list[ET.Element]:
    """The test cases that pytest reports, each with what it counted."""
    with tempfile.TemporaryDirectory(prefix="holdfast-faults-") as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *options]
        own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        ended = subprocess.run(
            [*command, *tests], cwd=root, env={**os.environ, **own}, capture_output=True, text=True, check=False
        )
        if ended.returncode not in (0, 1) or not report.is_file():
            raise HoldfastError(f"The tests could not be run: {(ended.stdout + ended.stderr).strip()[-600:]}")
        return list(ET.parse(report).getroot().iter("testcase"))


def name_of(case: ET.Element) -> str:
    """A test case as it is written on pytest's command line, without its parameters."""
    file = case.get("classname", "").replace(".", "/") + ".py"
    return f"{file}::{case.get('name', '').partition('[')[0]}"


def has_failed(case: ET.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None
