"""A verb as a user meets it, in this process: it works, or it says what is wrong in one sentence."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.cli.main import main
from holdfast.errors import HoldfastError


class Wrong(AssertionError):
    """Nothing was raised, and yet it is not right."""


@dataclass(frozen=True)
class Said:
    """How a verb ended, and what it printed."""

    code: int
    out: str
    err: str


def refused(refusal: HoldfastError) -> str:
    """What a refusal counts as; it has to say something."""
    if not str(refusal).strip():
        raise Wrong("refused without a word")
    return "refused"


def told(argv: Sequence[str], allowed: Sequence[int] = (0, 2)) -> Said:
    """Run a verb; an exception, another exit code, or a failure without a sentence is wrong."""
    out, err = io.StringIO(), io.StringIO()
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(list(argv))
            except SystemExit as stop:  # argparse, on a command line that is none
                code = stop.code if isinstance(stop.code, int) else 1
    finally:
        logging.disable(logging.NOTSET)
    said = Said(code, out.getvalue(), err.getvalue())
    if code not in allowed:
        raise Wrong(f"`holdfast {argv[0]}` ended with {code}")
    if "Traceback" in said.err + said.out:
        raise Wrong(f"`holdfast {argv[0]}` printed a traceback")
    listed = argv[0] in ("doctor", "data") and said.out.strip()  # these print their findings
    if code == 2 and not listed and "holdfast: " not in said.err and not said.err.startswith("usage: "):
        raise Wrong(f"`holdfast {argv[0]}` failed without a sentence")
    return said
