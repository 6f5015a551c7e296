"""`holdfast bench`: how fast this machine samples and learns, and how that compares."""

from __future__ import annotations

from typing import Any

from holdfast.bench import iteration, peers, sampler, scale, update
from holdfast.cli.options import add_verb

KINDS = (sampler, update, iteration, peers, scale)

DETAILS = """\
Every kind warms up, measures in turns, prints medians with their quartiles, and writes its result as JSON.

examples:
  holdfast bench iteration                 where the time of one of our steps goes
  holdfast bench peers --cores 1           against TRL, in an environment that is made for it
  holdfast bench peers --only ppo-fixed-1m

`holdfast bench KIND --help` explains each kind."""


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "bench", "measure speed and memory, alone and against others", DETAILS)
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", title="kinds", required=True)
    for kind in KINDS:
        kind.add(kinds)
