"""`holdfast doctor`: what this machine can do, and whether a run directory is sound."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import holdfast
from holdfast.cli.options import add_verb
from holdfast.run.findings import Finding
from holdfast.text import counted, visible

# The column in which a finding's detail begins.
DETAIL = 31

REQUIRED = (
    "torch", "transformers", "tokenizers", "safetensors", "sqlalchemy", "numpy", "jinja2", "rich", "fastapi", "uvicorn",
    "argon2-cffi", "python-multipart", "httpx", "huggingface_hub", "accelerate", "peft", "pydantic",
)  # fmt: skip
OPTIONAL = {
    "pyarrow": "parquet",
    "datasets": "datasets",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "trackio": "trackio",
    "psycopg": "postgres",
    "llguidance": "structured",
    "jsonschema": "structured",
}


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "doctor", "check this machine and, if given, a run directory", work)
    parser.add_argument("run", type=Path, metavar="RUN", nargs="?", help="a run directory to verify file by file")
    parser.add_argument("--json", action="store_true", help="print findings as JSON")


def work(args: argparse.Namespace) -> int:
    findings = [*distributions(), *packages(), *machine(), *processes()]
    if args.run is not None:
        from holdfast.run.inspection import inspect_run

        findings += inspect_run(args.run)
    if args.json:
        print(json.dumps([asdict(f) for f in findings]))
    else:
        for f in findings:
            print(shown(f))
    return 2 if any(f.state == "broken" for f in findings) else 0


def shown(found: Finding) -> str:
    """A finding in one line; in a terminal what does not fit goes on below its own beginning."""
    line = visible(f"{found.state:<7} {found.what:<22} {found.detail}")
    if not sys.stdout.isatty():
        return line
    # Without rich, which may be what is missing here.
    width, below = shutil.get_terminal_size().columns, " " * DETAIL
    return fill(line, width, subsequent_indent=below, break_long_words=False, break_on_hyphens=False)


def distributions() -> list[Finding]:
    """Whether what is imported as holdfast is holdfast-rl: on PyPI there is another package with that import name."""
    imported = Path(holdfast.__file__).resolve().parent
    ours, foreign = _distribution("holdfast-rl"), _distribution("holdfast")
    if ours is None:
        findings = [Finding("note", "holdfast-rl", f"not installed; holdfast is imported from {imported}")]
    elif imported in _homes(ours):
        findings = [Finding("ok", "holdfast-rl", ours.version)]
    else:
        detail = (
            f"{ours.version} is installed, but holdfast is imported from {imported}; unset PYTHONPATH to change that"
        )
        findings = [Finding("note", "holdfast-rl", detail)]
    if foreign is not None:
        mixed = imported == Path(str(foreign.locate_file("holdfast"))).resolve()
        detail = (
            f"version {foreign.version} of another project {'has written over' if mixed else 'is installed beside'} "
            "holdfast-rl; run `pip uninstall holdfast`, then `pip install --force-reinstall --no-deps holdfast-rl`"
        )
        findings.append(Finding("broken" if mixed else "note", "holdfast", detail))
    return findings


def _distribution(name: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _homes(distribution: importlib.metadata.Distribution) -> list[Path]:
    """Where a distribution's `holdfast` lies: where it was installed, or the checkout of an editable installation."""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    homes = [Path(str(distribution.locate_file("holdfast")))]
    if origin.get("dir_info", {}).get("editable"):
        homes.append(Path(url2pathname(urlsplit(origin["url"]).path)) / "src" / "holdfast")
    return [home.resolve() for home in homes]


def packages() -> list[Finding]:
    findings = [Finding("ok", "python", platform.python_version())]
    for name in REQUIRED:
        try:
            findings.append(Finding("ok", name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            findings.append(Finding("broken", name, f"not installed; run `pip install {name}`"))
    for name, extra in OPTIONAL.items():
        try:
            findings.append(Finding("ok", name, f"{importlib.metadata.version(name)} (optional)"))
        except importlib.metadata.PackageNotFoundError:
            findings.append(
                Finding("note", name, f"not installed; `pip install 'holdfast-rl[{extra}]'` if you want it")
            )
    return findings


def machine() -> list[Finding]:
    import torch

    size = 1024
    a = torch.randn(size, size)
    a @ a
    start = time.perf_counter()
    for _ in range(4):
        a @ a
    rate = 4 * 2 * size**3 / (time.perf_counter() - start) / 1e9
    devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [
        Finding("ok", "cores", f"{cores}, torch uses {counted(torch.get_num_threads(), 'thread')}"),
        Finding("ok", "matrix product", f"{rate:.0f} GFLOP/s in float32"),
        Finding("ok" if devices else "note", "accelerators", ", ".join(devices) or "none; the CPU does the work"),
        Finding("ok" if free > 1 else "broken", "disk", f"{free:.1f} GiB free here"),
    ]


def processes() -> list[Finding]:
    """Whether several processes can work on one run here, and by which engine."""
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        return [Finding("note", "processes", "one: this torch was built without torch.distributed")]
    engines = [name for name in ("nccl", "gloo") if getattr(dist, f"is_{name}_available")()]
    fits = torch.cuda.device_count() or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else "1")
    how = f"torchrun --nproc-per-node {fits} -m holdfast run" if fits > 1 else "one accelerator or core: one is enough"
    fsdp2 = "data, fsdp2" if importlib.util.find_spec("torch.distributed.fsdp._fully_shard") else "data"
    return [Finding("ok", "processes", f"{how} ({' and '.join(engines)}; processes.strategy {fsdp2})")]
