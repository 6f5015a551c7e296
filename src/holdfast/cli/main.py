"""The `holdfast` command: one verb per file, one clear sentence on failure."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from holdfast import __version__
from holdfast.cli import (
    bestofn,
    data,
    doctor,
    dpo,
    export,
    guard,
    init,
    lab,
    pipeline,
    ppo,
    report,
    resume,
    reward,
    rollback,
    run,
    serve,
    serve_reward,
    sft,
)
from holdfast.cli.help import HelpText
from holdfast.errors import HoldfastError, Interrupted, SaidElsewhere

VERBS = (
    run, pipeline, resume, rollback, serve, serve_reward, guard, report, export, init, sft, reward, ppo, dpo, bestofn,
    lab, data, doctor,
)  # fmt: skip

# What torchrun and accelerate launch may start.
IN_SEVERAL_PROCESSES = ("run", "resume", "ppo")

DESCRIPTION = """\
Online RLHF that does not collapse and does not hack its reward.

A policy and its reward model both move: collect comparisons with the current policy, update the reward
ensemble on them, optimise the policy against it with PPO under KL control, repeat."""

EPILOG = """\
first steps:
  holdfast run                       the built-in world, from nothing, in a few minutes
  holdfast run --policy DIR          the same loop on your own Hugging Face model
  holdfast serve runs/NAME           its live dashboard, and the page on which people label
  holdfast init my-run.toml          every setting with its meaning, to edit
  holdfast data check FILE           what is wrong with your data, line by line
  holdfast data convert FILE OUT     hh-rlhf, ShareGPT, Alpaca, ... as data that a run reads
  holdfast doctor                    what this machine can do

`holdfast VERB --help` explains each verb."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="holdfast",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpText,
    )
    top.add_argument("--version", action="version", version=f"holdfast {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", title="verbs", required=True)
    for verb in VERBS:
        verb.add(verbs)
    return top


def refuse_several(verb: str) -> None:
    """Refuse processes started together where each would do all of the work, over the others' files."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and verb not in IN_SEVERAL_PROCESSES:
        raise HoldfastError(f"`holdfast {verb}` works in one process; start it without torchrun or accelerate launch.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; 0 when it worked, 2 for bad input, 130 when interrupted at a resumable point."""
    # Threads that spin while they wait make a shared machine many times slower; waiting quietly costs little.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["bench"]:
        print("holdfast: benchmarks are in the source checkout; run `python -m benchmarks` there.", file=sys.stderr)
        return 2
    args = parser().parse_args(words)
    try:
        refuse_several(args.verb)
        return int(args.work(args) or 0)
    except SaidElsewhere:
        return 2
    except HoldfastError as error:
        rank = os.environ.get("RANK", "0")
        who = "holdfast" if rank == "0" else f"holdfast (process {rank})"
        print(f"{who}: {error}", file=sys.stderr)
        return 2
    except Interrupted as stop:
        print(f"\nStopped. {stop}".rstrip(), file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        print(
            "\nStopped at once; a run goes on from its newest checkpoint with `holdfast resume`.",
            file=sys.stderr,
        )
        return 130
    except (MemoryError, RuntimeError) as error:
        from holdfast.track.memory import memory_sentence, ran_out

        if not ran_out(error):
            raise
        print(f"holdfast: {memory_sentence(error)}", file=sys.stderr)
        return 2
    except OSError as error:
        # Disk full, read-only, permission: the checkpoint before is intact, and the user can mend the cause.
        where = f" ({error.filename})" if error.filename else ""
        print(f"holdfast: the system refused: {error.strerror or error}{where}.", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
