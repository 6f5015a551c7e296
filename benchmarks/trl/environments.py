"""Environments of the peers' own: made once in the work directory, with the torch that Holdfast itself runs on."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT
from holdfast.errors import HoldfastError

# What a result names of an environment.
NAMED = ("trl", "torch", "transformers", "accelerate", "datasets", "tokenizers", "numpy")
COMPLETE = "holdfast-complete.json"
QUIET = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRL_EXPERIMENTAL_SILENCE": "1"}


def peer_environment(
    requirement: str, work: Path, say: Callable[[str], None], also: Sequence[str] = ()
) -> tuple[Path, dict[str, str]]:
    """The interpreter of an environment with `requirement` (trl==1.2.3) in it, and the versions that it holds.

    `also` are further packages, which make it an environment apart.
    """
    name = "+".join([requirement.replace("==", "-"), *also])
    directory = (work / "environments" / name).absolute()
    python = directory / "bin" / "python"
    marker = directory / COMPLETE
    if marker.is_file() and python.exists():
        return python, json.loads(marker.read_text())
    if directory.exists():
        shutil.rmtree(directory)  # half made: an installation that was cut short
    say(f"making an environment with {requirement} in {directory}")
    _run([sys.executable, "-m", "venv", str(directory)], requirement, directory)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # Torch goes first and exactly, so that both sides multiply with the same code; the peer then takes what is there.
    torch = f"torch=={importlib.metadata.version('torch').split('+')[0]}"
    _run([*pip, torch], requirement, directory)
    constraints = directory / "constraints.txt"
    constraints.write_text(torch + "\n")
    _run([*pip, "--constraint", str(constraints), requirement, *also], requirement, directory)
    listed = _run([str(python), "-m", "pip", "list", "--format", "json"], requirement, directory)
    held = {item["name"].lower(): str(item["version"]) for item in json.loads(listed)}
    versions = {name: held[name] for name in NAMED if name in held}
    marker.write_text(json.dumps(versions))
    return python, versions


def driver_command(python: Path, driver: str, job: Mapping[str, Any], processes: int = 1) -> list[str]:
    """How to start one of the drivers in a peer's environment, from the checkout's root."""
    # `accelerate launch` hands several processes over to the same program.
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    return [str(python), *(several if processes > 1 else []), "-m", f"benchmarks.trl.drivers.{driver}", json.dumps(job)]


def peer_variables() -> dict[str, str]:
    """The variables of a peer's process: this checkout's source beside the peer, and nothing that suits us alone."""
    kept = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    return kept | QUIET | {"PYTHONPATH": str(ROOT / "src")}


def run_driver(python: Path, driver: str, job: Mapping[str, Any], code: int = 0, processes: int = 1) -> None:
    """Run a driver to its end, which has to come with this exit code, on one thread in each process."""
    command, variables = driver_command(python, driver, job, processes), peer_variables() | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=ROOT, check=False)
    # The launcher of several processes has a code of its own for those that failed.
    if done.returncode != (1 if code and processes > 1 else code):
        raise HoldfastError(f"TRL failed: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")


def _run(command: list[str], requirement: str, directory: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    complaints = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    reason = (complaints or lines or [f"exit code {done.returncode}"])[-1]
    raise HoldfastError(
        f"The environment for {requirement} cannot be made ({reason.rstrip('.')}); the benchmark needs a package index "
        f"for it, so check the network and pip's settings, remove {directory} and try again."
    )
