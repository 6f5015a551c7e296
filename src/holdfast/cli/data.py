"""`holdfast data check`: what is wrong with data, line by line, and what there is."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.options import add_verb

if TYPE_CHECKING:
    from holdfast.data.check import SourceSummary
    from holdfast.data.problems import Findings
    from holdfast.data.splits import LengthMeasure, Lengths

DETAILS = """\
FILE is a .jsonl, .parquet or (prompts) .txt file, a directory that datasets.save_to_disk wrote, or
hub:owner/name with /config, @revision and :split where needed.

examples:
  holdfast data check prompts.jsonl labels.jsonl
  holdfast data check prompts.jsonl --heldout heldout.jsonl      no prompt may be in both
  holdfast data check labels.parquet --tokenizer DIR --prompt-length 0 512 --answer-length 1 256

exit code: 0 nothing found; 1 warnings only, a run takes the data; 2 errors, a run refuses it."""


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "data", "check prompts, preferences and demonstrations before a run does", None)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    check = add_verb(actions, "check", "name what is wrong with which line, and sum up what there is", work, DETAILS)
    check.add_argument("files", nargs="+", metavar="FILE", help="data to check; duplicates are found across files too")
    check.add_argument(
        "--kind", choices=("auto", "prompts", "preferences", "demonstrations"), default="auto",
        help="what the files hold (auto: by the columns of the first row)",
    )  # fmt: skip
    check.add_argument(
        "--heldout", action="append", default=[], metavar="FILE", help="held-out prompts; none of them may train"
    )
    check.add_argument("--heldout-share", type=float, default=0.1, metavar="X", help="data.heldout_share (0.1)")
    check.add_argument("--tokenizer", type=Path, metavar="DIR", help="count lengths in tokens of this tokenizer")
    for name, what in (("prompt", "a prompt"), ("answer", "an answer")):
        check.add_argument(
            f"--{name}-length", type=int, nargs=2, default=(0, 0), metavar=("LEAST", "MOST"),
            help=f"characters of {what}, or tokens with --tokenizer; 0 for no limit",
        )  # fmt: skip
    check.add_argument("--limit", type=int, default=10, metavar="N", help="problems of each kind to print (10)")
    check.add_argument("--json", action="store_true", help="print problems and summary as JSON")


def work(args: argparse.Namespace) -> int:
    from holdfast.data.check import DataCheck
    from holdfast.data.problems import Findings

    limits, measure = limits_of(args)
    findings = Findings(args.limit)
    check = DataCheck(limits, measure, 0.0 if args.heldout else args.heldout_share, findings)
    kind = None if args.kind == "auto" else args.kind
    summaries = [check.check(source, "prompts", heldout=True) for source in args.heldout]
    summaries += [check.check(source, kind) for source in args.files]
    if args.json:
        print(json.dumps(as_json(summaries, findings, limits)))
    else:
        tell(summaries, findings, limits)
    errors, warnings = findings.number("error"), findings.number("warning")
    return 2 if errors else 1 if warnings else 0


def limits_of(args: argparse.Namespace) -> tuple[Lengths, LengthMeasure]:
    from holdfast.data.splits import LengthMeasure, Lengths
    from holdfast.errors import HoldfastError

    prompt, answer = tuple(args.prompt_length), tuple(args.answer_length)
    if min(*prompt, *answer, args.limit) < 0:
        raise HoldfastError("A limit is below 0; give 0 for no limit.")
    if not 0 <= args.heldout_share <= 0.5:
        raise HoldfastError(f"--heldout-share is {args.heldout_share:g}; give a share from 0 to 0.5.")
    if args.tokenizer is None:
        return Lengths("characters", prompt, answer), LengthMeasure()
    from holdfast.models.load import load_codec
    from holdfast.worlds.limits import measure_of

    limits = Lengths("tokens", prompt, answer)
    return limits, measure_of(limits, load_codec(args.tokenizer))


def as_json(summaries: Sequence[SourceSummary], findings: Findings, limits: Lengths) -> dict[str, Any]:
    from holdfast.data.check import quantiles

    return {
        "sources": [
            {
                "source": s.source, "kind": s.kind, "heldout": s.heldout_file, "rows": s.rows, "usable": s.usable,
                "beyond_limits": s.beyond_limits, "duplicates": s.duplicates, "prompts": s.prompts,
                "heldout_prompts": s.heldout_prompts, "forms": dict(s.forms),
                "lengths": {name: quantiles(sizes) for name, sizes in s.lengths.items()},
            }
            for s in summaries
        ],
        "length_unit": limits.unit,
        "errors": findings.number("error"),
        "warnings": findings.number("warning"),
        "counts": dict(findings.counts),
        "problems": [
            {"source": p.source, "line": p.line, "kind": p.kind, "severity": p.severity, "text": p.text}
            for p in findings.kept
        ],
    }  # fmt: skip


def tell(summaries: Sequence[SourceSummary], findings: Findings, limits: Lengths) -> None:
    from holdfast.cli.tables import show_table
    from holdfast.text import counted, visible

    for problem in findings.kept:
        print(visible(problem.shown()).replace("\n", " "))
    kept = [problem.kind for problem in findings.kept]
    for kind, count in findings.counts.items():
        if count > kept.count(kind):
            print(f"... and {count - kept.count(kind):,} more [{kind}]")
    if findings.counts:
        print()
    header, *rows = summary_rows(summaries)
    show_table("", header, rows, left=2)
    if any(s.lengths for s in summaries):
        print()
        header, *rows = length_rows(summaries, limits.unit)
        show_table("", header, rows, left=2)
    errors, warnings = findings.number("error"), findings.number("warning")
    verdict = "a run refuses this data" if errors else "a run takes this data" if warnings else "nothing is wrong"
    print(f"\n{counted(errors, 'error')}, {counted(warnings, 'warning')}: {verdict}.")


def summary_rows(summaries: Sequence[SourceSummary]) -> list[list[str]]:
    rows = [["", "kind", "rows", "usable", "duplicates", "beyond limits", "prompts to train on", "held out"]]
    for s in summaries:
        held = s.prompts if s.heldout_file else s.heldout_prompts
        numbers = (s.rows, s.usable, s.duplicates, s.beyond_limits, s.prompts - held, held)
        rows.append([s.source, s.kind, *(f"{n:,}" for n in numbers)])
    return rows


def length_rows(summaries: Sequence[SourceSummary], unit: str) -> list[list[str]]:
    from holdfast.data.check import quantiles

    rows = [[f"lengths in {unit}", "of", "min", "median", "90%", "99%", "max"]]
    for s in summaries:
        for name, sizes in s.lengths.items():
            rows.append([s.source, name, *(f"{n:,}" for n in quantiles(sizes).values())])
    return rows
