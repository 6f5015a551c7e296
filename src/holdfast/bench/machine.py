"""What a result was made on and with."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

from holdfast import __version__
from holdfast.bench.measure import matmul_peak
from holdfast.bench.options import Settings

PACKAGES = ("torch", "transformers", "numpy")


def peak(settings: Settings) -> float:
    """The matrix-product peak of the cores in use, in FLOP/s; roughly, where only a quick look is wanted."""
    return matmul_peak(settings.cores, size=128) if settings.quick else matmul_peak(settings.cores)


def made_by(settings: Settings) -> dict[str, Any]:
    """The command, the versions, the machine and its matrix-product peak on the cores in use."""
    return {
        "command": command(sys.argv[1:] if Path(sys.argv[0]).name == "holdfast" else ["bench", settings.kind]),
        "holdfast": __version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "cpu": cpu_name(),
        "cores": settings.cores,
        "turns": settings.turns,
        "peak_gflops": round(peak(settings) / 1e9, 1),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", ""),
    }


def command(arguments: list[str]) -> str:
    """The command line without directories: where things lie on somebody's disk says nothing about the result."""
    words = list(arguments)
    for option in ("--out", "--work"):
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    return " ".join(["holdfast", *words])


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.is_file()
        else []
    )
    return names[0] if names else platform.processor() or platform.machine()
