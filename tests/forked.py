"""`holdfast ARGV` in processes of their own, forked from one that has imported everything already.

pytest -> fork server (everything imported once) -> a process per command -> holdfast.cli.main.main(argv)
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

PRELOAD = [
    "holdfast.cli.session", "accelerate", "transformers.models.llama.modeling_llama", "small_run",
    "holdfast.web.app", "holdfast.web.site", "uvicorn",
]  # fmt: skip


def start(
    argv: Sequence[str],
    output: Path,
    before: Sequence[Callable[[], None]] = (),
    environment: Mapping[str, str] | None = None,
) -> BaseProcess:
    """Begin a command that prints to a file; `before` is done in its process first."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    process = context.Process(target=_child, args=(list(argv), str(output), tuple(before), dict(environment or {})))
    process.start()
    return process


def _child(argv: list[str], output: str, before: tuple[Callable[[], None], ...], environment: dict[str, str]) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Tests that are run in the background ignore Ctrl-C, and would hand that down.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    from holdfast.cli.main import main

    for change in before:
        change()
    sys.exit(main(argv))
