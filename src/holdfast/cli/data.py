"""`holdfast data`: what is wrong with data, line by line, what there is, and data of other formats in our own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.options import add_config_options, add_verb, config_of

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.data.check import SourceSummary
    from holdfast.data.fit import Room
    from holdfast.data.problems import Findings
    from holdfast.data.splits import LengthMeasure, Lengths

SOURCES = """\
FILE is JSON lines, a JSON array, CSV, TSV, Parquet or (prompts) lines of text, also gzip or zstandard; a
directory that datasets.save_to_disk wrote; or hub:owner/name with /config, @revision and :split where needed.
Its rows may be in the format of hh-rlhf, ShareGPT, Alpaca, UltraFeedback, OpenAI chat or OpenAI preferences.
"""
CHECK = f"""\
{SOURCES}
examples:
  holdfast data check prompts.jsonl labels.jsonl
  holdfast data check prompts.jsonl --heldout heldout.jsonl      no prompt may be in both
  holdfast data check prompts.jsonl demonstrations.jsonl labels.parquet --policy DIR
                                                                 what a run of that policy would refuse

exit code: 0 nothing found; 1 warnings only, a run takes the data; 2 errors, a run refuses it."""
CONVERT = f"""\
{SOURCES}
examples:
  holdfast data convert hh-rlhf.jsonl.gz labels.jsonl
  holdfast data convert dump.csv demonstrations.jsonl --format alpaca
  holdfast data convert hh-rlhf.jsonl labels.jsonl --skip-bad 0.02     bad rows go to labels.left-out.jsonl

OUT is a .jsonl or .parquet file that is not there yet; it appears whole or not at all."""


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "data", "check prompts, preferences and demonstrations, and convert them", None)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    check = add_verb(actions, "check", "name what is wrong with which line, and sum up what there is", work, CHECK)
    check.add_argument("files", nargs="+", metavar="FILE", help="data to check; duplicates are found across files too")
    _add_reading(check)
    check.add_argument(
        "--heldout", action="append", default=[], metavar="FILE", help="held-out prompts; none of them may train"
    )
    check.add_argument("--heldout-share", type=float, metavar="X", help="data.heldout_share (0.1)")
    check.add_argument("--tokenizer", type=Path, metavar="DIR", help="count lengths in tokens of this tokenizer")
    for name, what in (("prompt", "a prompt"), ("answer", "an answer")):
        check.add_argument(
            f"--{name}-length", type=int, nargs=2, metavar=("LEAST", "MOST"),
            help=f"characters of {what}, or tokens with --tokenizer; 0 for no limit",
        )  # fmt: skip
    check.add_argument("--limit", type=int, default=10, metavar="N", help="problems of each kind to print (10)")
    check.add_argument("--json", action="store_true", help="print problems and summary as JSON")
    add_config_options(check, "policy")
    convert = add_verb(actions, "convert", "write data of another format as one that a run reads", change, CONVERT)
    convert.add_argument("source", metavar="FILE", help="data of any format that is known")
    convert.add_argument("out", type=Path, metavar="OUT", help="a .jsonl or .parquet file to write")
    _add_reading(convert)
    convert.add_argument("--json", action="store_true", help="print what was done as JSON")


def _add_reading(parser: argparse.ArgumentParser) -> None:
    from holdfast.data.left_out import USUAL_SHARE

    parser.add_argument(
        "--kind", choices=("auto", "prompts", "preferences", "demonstrations"), default="auto",
        help="what the files hold (auto: by the columns of the first row)",
    )  # fmt: skip
    parser.add_argument(
        "--format", metavar="NAME",
        help="hh-rlhf, sharegpt, alpaca, ultrafeedback, openai-chat, openai-preference or holdfast "
        "(without it, the first rows show)",
    )  # fmt: skip
    parser.add_argument(
        "--skip-bad", type=float, nargs="?", const=USUAL_SHARE, metavar="SHARE",
        help=f"leave out rows that cannot be used, if they are at most this share ({USUAL_SHARE})",
    )  # fmt: skip


def work(args: argparse.Namespace) -> int:
    from holdfast.data.check import DataCheck
    from holdfast.data.problems import Findings

    config = config_of(args)
    limits, measure, room = limits_of(args, config)
    share = config.data.heldout_share if args.heldout_share is None else args.heldout_share
    skip = config.data.skip_bad if args.skip_bad is None else skip_share(args)
    findings = Findings(args.limit)
    heldout = 0.0 if args.heldout else share
    check = DataCheck(limits, measure, heldout, findings, room, config.sft.epochs > 0, skip)
    kind = None if args.kind == "auto" else args.kind
    summaries = [check.check(source, "prompts", heldout=True) for source in args.heldout]
    summaries += [check.check(source, kind, format_name=args.format) for source in args.files]
    if args.json:
        print(json.dumps(as_json(summaries, findings, limits)))
    else:
        tell(summaries, findings, limits)
    errors, warnings = findings.number("error"), findings.number("warning")
    return 2 if errors else 1 if warnings or findings.forgiven else 0


def change(args: argparse.Namespace) -> int:
    """Convert a file, and say what it was read as and what came of it."""
    from holdfast.config import Config
    from holdfast.data.check import DataCheck
    from holdfast.data.conversion import convert
    from holdfast.data.problems import Findings
    from holdfast.data.splits import LengthMeasure, Lengths
    from holdfast.text import counted, visible

    kind = None if args.kind == "auto" else args.kind
    done = convert(args.source, args.out, kind, args.format, skip_share(args))
    findings, data = Findings(0), Config().data
    DataCheck(Lengths.of(data), LengthMeasure(), data.heldout_share, findings).check(str(args.out))
    errors, warnings = findings.number("error"), findings.number("warning")
    if args.json:
        left = None if done.left_out_file is None else str(done.left_out_file)
        document = {"read_as": done.read_as, "kind": done.kind, "written": done.written, "left_out": done.left_out}
        counts = {"errors": errors, "warnings": warnings}
        print(json.dumps({"out": str(args.out), **document, "left_out_file": left, **counts}))
        return 0
    print(visible(f"{args.source} is read as {done.read_as}."))
    print(visible(f"{counted(done.written, 'row')} of {done.kind} in {args.out}"))
    if done.left_out_file is not None:
        print(visible(f"{counted(done.left_out, 'row')} left out: see {done.left_out_file}"))
    found = [counted(count, word) for count, word in ((errors, "error"), (warnings, "warning")) if count]
    if found:
        listed = "it" if errors + warnings == 1 else "them"
        print(visible(f"{', '.join(found)}: `holdfast data check {args.out}` lists {listed}"))
    return 0


def skip_share(args: argparse.Namespace) -> float:
    from holdfast.data.left_out import MOST_SHARE
    from holdfast.errors import HoldfastError

    share = 0.0 if args.skip_bad is None else float(args.skip_bad)
    if not 0 <= share <= MOST_SHARE:
        raise HoldfastError(f"--skip-bad is {share:g}; give a share from 0 to {MOST_SHARE:g}.")
    return share


def limits_of(args: argparse.Namespace, config: Config) -> tuple[Lengths, LengthMeasure, Room | None]:
    """What is too short or too long, who counts, and what the policy can take; options come before settings."""
    from holdfast.data.fit import Room
    from holdfast.data.splits import LengthMeasure, Lengths
    from holdfast.errors import HoldfastError

    prompt = config.data.prompt_length if args.prompt_length is None else tuple(args.prompt_length)
    answer = config.data.answer_length if args.answer_length is None else tuple(args.answer_length)
    if min(*prompt, *answer, args.limit) < 0:
        raise HoldfastError("A limit is below 0; give 0 for no limit.")
    if args.heldout_share is not None and not 0 <= args.heldout_share <= 0.5:
        raise HoldfastError(f"--heldout-share is {args.heldout_share:g}; give a share from 0 to 0.5.")
    unit = config.data.length_unit if args.tokenizer is None else "tokens"
    limits = Lengths(unit, prompt, answer)
    if args.tokenizer is None and not config.policy.path:
        if unit == "tokens":
            raise HoldfastError('data.length_unit = "tokens" needs a tokenizer: give --tokenizer or --policy.')
        return limits, LengthMeasure(), None
    from holdfast.models.load import load_codec, load_context
    from holdfast.run.origin import directory_of
    from holdfast.worlds.limits import measure_of

    if not config.policy.path:
        codec = load_codec(args.tokenizer)
        room = Room(codec)
    else:
        policy = directory_of(config.policy.path)
        codec = load_codec(args.tokenizer or policy)
        room = Room(codec, load_context(policy), config.rollout.max_new_tokens)
    return limits, measure_of(limits, codec), room


def as_json(summaries: Sequence[SourceSummary], findings: Findings, limits: Lengths) -> dict[str, Any]:
    from holdfast.data.check import quantiles

    return {
        "sources": [
            {
                "source": s.source, "kind": s.kind, "read_as": s.read_as or None, "heldout": s.heldout_file,
                "rows": s.rows, "usable": s.usable, "left_out": s.left_out,
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

    for s in summaries:
        if s.read_as:
            print(visible(f"{s.source} is read as {s.read_as}."))
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
    taken = warnings or findings.forgiven
    verdict = "a run refuses this data" if errors else "a run takes this data" if taken else "nothing is wrong"
    lost = f", {counted(findings.forgiven, 'bad row')} to be left out" if findings.forgiven else ""
    print(f"\n{counted(errors, 'error')}, {counted(warnings, 'warning')}{lost}: {verdict}.")


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
