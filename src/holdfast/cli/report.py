"""`holdfast report`: the run as one HTML file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from holdfast.cli.options import add_verb


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "report", "write a run's report.html, one file that opens offline", work)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory; it may still be running")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write it (RUN/report.html)")


def work(args: argparse.Namespace) -> int:
    from holdfast.report.page import write_report
    from holdfast.report.pipeline_page import write_pipeline_report
    from holdfast.run.directory import RunDirectory

    run = RunDirectory.open(args.run)
    if run.manifest().get("stage") == "pipeline":
        print(write_pipeline_report(run.path, args.out))
    else:
        print(write_report(run.path, args.out, run.notes(), run.reasons()))
    return 0
