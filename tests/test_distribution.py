"""The distribution: called holdfast-rl everywhere, built whole, and working where the checkout is not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import small_run
from holdfast import __version__
from holdfast.cli import doctor

ROOT = Path(__file__).parents[1]
TEXTS = [
    path
    for pattern in ("*.md", "Makefile", "docs/**/*.md", "src/**/*.py", "examples/**/*", "benchmarks/*.md")
    for path in sorted(ROOT.glob(pattern))
    if path.is_file() and path.suffix not in (".pyc", ".png", ".svg")
]
# What is installed, after any options and quotes; `holdfast` alone is a stranger's package.
INSTALLS = re.compile(r"""pip3? install\s+(?:-\S+\s+)*['"]?(holdfast[\w.-]*)""")


def test_nobody_is_told_to_install_a_strangers_package() -> None:
    told = {
        (str(path.relative_to(ROOT)), name.rstrip(".")) for path in TEXTS for name in INSTALLS.findall(path.read_text())
    }
    assert {place for place in told if place[1] != "holdfast-rl"} == set()
    assert len(told) >= 10


@pytest.mark.parametrize(
    "words",
    [
        "pip install holdfast",
        "pip install 'holdfast[ray]'",
        'pip install --no-deps "holdfast"',
        "pip install\nholdfast.",
    ],
)
def test_the_search_sees_it_however_it_is_written(words: str) -> None:
    assert [name.rstrip(".") for name in INSTALLS.findall(words)] == ["holdfast"]


def test_doctor_looks_for_everything_that_the_package_requires() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(doctor.REQUIRED) == {re.split(r"[>=\[]", line)[0] for line in project["dependencies"]}
    assert set(doctor.OPTIONAL.values()) <= project["optional-dependencies"].keys()


def installed(site: Path, name: str, version: str) -> None:
    """A distribution as pip leaves it behind."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.mark.parametrize(
    ("beside", "state", "verb"), [(True, "note", "is installed beside"), (False, "broken", "has written over")]
)
def test_doctor_tells_of_the_other_holdfast(
    beside: bool, state: str, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's distribution whose `holdfast` is another directory than ours, or the very same."""
    installed(tmp_path, "holdfast", "0.5.1")
    installed(tmp_path, "holdfast-rl", __version__)
    imported = tmp_path / ("elsewhere" if beside else "") / "holdfast" / "__init__.py"
    monkeypatch.setattr(doctor.holdfast, "__file__", str(imported))
    monkeypatch.syspath_prepend(str(tmp_path))
    ours, other = doctor.distributions()
    assert ours.state == ("note" if beside else "ok")
    assert (other.state, other.what) == (state, "holdfast")
    assert other.detail == (
        f"version 0.5.1 of another project {verb} holdfast-rl; run `pip uninstall holdfast`, then "
        "`pip install --force-reinstall --no-deps holdfast-rl`"
    )


def test_doctor_tells_what_shadows_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "holdfast-rl", "0.0.7")
    monkeypatch.syspath_prepend(str(tmp_path))
    ours = doctor.distributions()[0]
    source = Path(doctor.__file__).parents[1]
    assert ours.state == "note"
    assert ours.detail == f"0.0.7 is installed, but holdfast is imported from {source}; unset PYTHONPATH to change that"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist, and with the wheel that `python -m build` makes out of that sdist."""
    checkout, out = tmp_path_factory.mktemp("checkout") / "holdfast", tmp_path_factory.mktemp("dist")
    left = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "results", "build", "dist", "runs", "site")
    shutil.copytree(ROOT, checkout, ignore=left)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(checkout)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_the_sdist_has_the_source_and_no_more(built: Path) -> None:
    with tarfile.open(built / f"holdfast_rl-{__version__}.tar.gz") as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    assert {name.split("/")[0] for name in names} == {
        "CHANGELOG.md", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg", "src",
    }  # fmt: skip


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(built / f"holdfast_rl-{__version__}-py3-none-any.whl") as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        information = wheel.read(f"holdfast_rl-{__version__}.dist-info/METADATA").decode()
        assert f"holdfast_rl-{__version__}.dist-info/licenses/LICENSE" in wheel.namelist()
    source = ROOT / "src"
    files = [path for path in (source / "holdfast").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert names == {str(path.relative_to(source)) for path in files}
    assert {"holdfast/py.typed", "holdfast/report/report.css", "holdfast/worlds/everyday/requests.jsonl"} <= names
    assert {
        "Name: holdfast-rl", f"Version: {__version__}", "License-Expression: Apache-2.0", "Author: Holdfast developers",
    } <= set(information.splitlines())  # fmt: skip


@pytest.fixture(scope="module")
def elsewhere(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it, which sees this one's other packages but not its holdfast."""
    home = tmp_path_factory.mktemp("elsewhere")
    venv.create(home / "venv", with_pip=False)
    python = home / "venv" / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    (site,) = (home / "venv" / "lib").glob("python*/site-packages")
    # A path file names directories; path files inside those, such as that of an editable holdfast, are not followed.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def holdfast(elsewhere: Path, *words: str) -> str:
    """What the installed command says, away from the checkout."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(elsewhere / "venv" / "bin" / "holdfast"), *words]
    done = subprocess.run(command, cwd=elsewhere, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_works_without_the_checkout(elsewhere: Path) -> None:
    assert "usage: holdfast run" in holdfast(elsewhere, "run", "--help")
    holdfast(elsewhere, *small_run.run_arguments(Path("runs")))
    run = elsewhere / "runs" / small_run.NAME
    assert len((run / "metrics.jsonl").read_text().splitlines()) == small_run.ROUNDS * small_run.STEPS
    (run / "report.html").unlink(missing_ok=True)
    holdfast(elsewhere, "report", str(run))
    assert "<svg" in (run / "report.html").read_text()
    findings = holdfast(elsewhere, "doctor").splitlines()
    assert findings[0].split() == ["ok", "holdfast-rl", __version__]
