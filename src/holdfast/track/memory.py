"""How much memory this process holds, and has held, and what to say where there is none left; plain Python."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

# What torch and the libraries below it say where an allocation fails; the GPU's own error says so by its name.
SIGNS = ("can't allocate memory", "out of memory", "not enough memory", "alloc_failed", "size calculation overflowed")

_PASS = "policy.micro_batch_tokens"
# By the package that was at work, the innermost first: what it was doing, and what makes it need less.
PHASES = (
    ("holdfast.rollout", "answers were sampled", "rollout.max_batch or rollout.max_new_tokens"),
    ("holdfast.reward.training", "the reward ensemble was trained", f"{_PASS} or reward.members"),
    ("holdfast.reward", "answers were scored", f"{_PASS} or reward.members"),
    ("holdfast.train", "the policy learned", f"{_PASS}, or set policy.gradient_checkpointing = true"),
    ("holdfast.probes", "the policy was probed", _PASS),
    ("holdfast.models.tiny", "the model was built", "policy.hidden, policy.feed_forward or policy.layers"),
    ("holdfast.models.load", "the model was loaded", "the size of the model, or set policy.dtype = bfloat16"),
)
OTHERWISE = ("the run went on", f"{_PASS}, rollout.max_batch or reward.members")


def peak_memory() -> int:
    """The most memory this process has held so far, in bytes."""
    # Linux hands ru_maxrss on from the process that started this one, so the kernel's own mark comes first.
    marked = _status("VmHWM")
    if marked is not None:
        return marked
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def memory() -> int:
    """What this process holds now, in bytes; its peak where the system does not say."""
    now = _status("VmRSS")
    return peak_memory() if now is None else now


def available() -> int | None:
    """What this machine could still give to programs, in bytes; None where the system does not say."""
    return _status("MemAvailable", Path("/proc/meminfo"))


def _status(name: str, file: Path = Path("/proc/self/status")) -> int | None:
    if not file.is_file():
        return None
    for line in file.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def ran_out(error: BaseException) -> bool:
    """Whether an error says that there was no memory left, on the CPU or on an accelerator."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in SIGNS)


def memory_sentence(error: BaseException, run: Path | None = None) -> str:
    """What was being done when memory ran out, and which settings to lower."""
    doing, settings = next(_phases(error.__traceback__), OTHERWISE)
    where = "with --set" if run is None else f"in {run / 'config.toml'}"
    then = "" if run is None else f", and `holdfast resume {run} --changed` goes on from the newest checkpoint"
    return f"Memory ran out while {doing}: lower {settings} {where}{then}."


def _phases(traceback: TracebackType | None) -> Iterator[tuple[str, str]]:
    """The phases that a traceback leads through, the innermost first."""
    modules = []
    while traceback is not None:
        modules.append(str(traceback.tb_frame.f_globals.get("__name__", "")))
        traceback = traceback.tb_next
    for module in reversed(modules):
        yield from ((doing, settings) for room, doing, settings in PHASES if f"{module}.".startswith(f"{room}."))
