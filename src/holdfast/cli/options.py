"""Options that several verbs share, and how they become a config."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.cli.help import HelpText
from holdfast.config import Config, load_config

Work = Callable[[argparse.Namespace], int]

# option -> the setting it stands for
SHORTHANDS = {
    "world": "world.name",
    "seed": "run.seed",
    "rounds": "run.rounds",
    "policy": "policy.path",
    "prompts": "data.prompts",
    "demonstrations": "data.demonstrations",
    "preferences": "data.preferences",
}


def add_verb(verbs: Any, name: str, summary: str, work: Work | None, details: str = "") -> argparse.ArgumentParser:
    """A verb whose help opens with what it does; one without `work` has actions below it."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=details or None,
        formatter_class=HelpText,
    )
    if work is not None:
        parser.set_defaults(work=work)
    return parser


def add_run_options(parser: argparse.ArgumentParser, result: str = "result") -> None:
    """Where a new run directory is made, and how what comes of it is printed."""
    parser.add_argument("--name", help="name of the run directory below --runs; chosen for you if left out")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where runs are kept (runs)")
    parser.add_argument("--json", action="store_true", help=f"print the {result} as JSON")


def add_config_options(parser: argparse.ArgumentParser, *shorthands: str) -> None:
    """--config, --set, and short names for the settings people change most."""
    group = parser.add_argument_group("settings")
    group.add_argument("--config", type=Path, metavar="FILE", help="a TOML file; `holdfast init FILE` writes one")
    group.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="A.B=C",
        help="change one setting, for example --set kl.beta=0.1; may be repeated",
    )
    helps = {
        "world": ("NAME", "concierge, everyday, stories, boat_race, layout, forecast, files, or path/to/file.py:Class"),
        "seed": ("N", "every random draw follows from it"),
        "rounds": ("N", "how many rounds"),
        "policy": ("DIR", "a Hugging Face causal-LM directory with its tokenizer"),
        "prompts": ("FILE", "your prompts (JSON, CSV, Parquet or .txt); sets --world files"),
        "demonstrations": ("FILE", "your demonstrations for supervised fine-tuning"),
        "preferences": ("FILE", "your prompt / chosen / rejected rows"),
    }
    for name in shorthands:
        metavar, text = helps[name]
        group.add_argument(f"--{name}", metavar=metavar, help=text)


def add_reward_option(parser: argparse.ArgumentParser) -> None:
    """--reward: an ensemble of `holdfast reward`, or whatever reward.source may be."""
    parser.add_argument(
        "--reward", metavar="REWARD",
        help="a directory from `holdfast reward`; or what reward.source may be: my_reward.py:score, model:DIR, judge, "
        "a rubric's file, an address",
    )  # fmt: skip


def reward_of(args: argparse.Namespace) -> tuple[Path | None, tuple[str, ...]]:
    """The directory of an ensemble that --reward names, or else the settings for a reward that is given."""
    from holdfast.errors import HoldfastError

    named: str | None = args.reward
    if named is None:
        if not config_of(args).reward.given:
            raise HoldfastError(
                "There is no reward: give --reward DIR, a directory of `holdfast reward`, or --reward with what "
                "reward.source may be, such as my_reward.py:score."
            )
        return None, ()
    return source_of(named)


def source_of(named: str) -> tuple[Path | None, tuple[str, ...]]:
    """The same of what is named: a directory, or whatever reward.source may be."""
    from holdfast.config.reward_source import kind_of
    from holdfast.errors import HoldfastError

    try:
        is_source = not Path(named).is_dir() and bool(kind_of(named, "--reward"))
    except HoldfastError:
        is_source = False  # whoever opens the directory says what is wrong with it
    return (None, (f"reward.source={json.dumps(named)}",)) if is_source else (Path(named), ())


def config_of(args: argparse.Namespace, *more: str) -> Config:
    """The config that the options describe; `more` are overrides of the verb's own, which come first."""
    overrides = list(more)
    for option, setting in SHORTHANDS.items():
        value = getattr(args, option, None)
        if value is not None:
            is_number = option in ("seed", "rounds")
            overrides.append(f"{setting}={value if is_number else json.dumps(value, ensure_ascii=False)}")
    if getattr(args, "prompts", None) is not None and getattr(args, "world", None) is None:
        overrides.append("world.name=files")
    return load_config(args.config, [*overrides, *args.overrides])
