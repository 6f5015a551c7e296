"""`holdfast init`: a config file with every setting, its meaning and its default."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from holdfast.cli.options import add_config_options, add_verb, config_of


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "init", "write a commented config file to edit", work)
    parser.add_argument(
        "file", type=Path, metavar="FILE", nargs="?", default=Path("holdfast.toml"), help="(holdfast.toml)"
    )
    add_config_options(parser)


def work(args: argparse.Namespace) -> int:
    from holdfast.checkpoint.files import write_atomic
    from holdfast.config import config_toml
    from holdfast.errors import HoldfastError

    text = config_toml(config_of(args))
    if args.file.exists():
        raise HoldfastError(f"{args.file} exists already; choose another name or remove it.")
    if not args.file.parent.is_dir():
        raise HoldfastError(f"There is no directory {args.file.parent}; make it first.")
    write_atomic(args.file, text.encode())
    print(f"{args.file}   (use it with `holdfast run --config {args.file}`)")
    return 0
