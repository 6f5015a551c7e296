"""The one error a user sees: a sentence that says what is wrong and what to do about it."""

import sysconfig
import traceback
from pathlib import Path

# How much of somebody else's failure is told: lines of a terminal of 80 columns.
FRAMES = 3
WIDTH = 80
LONGEST_MESSAGE = 300
OURS = Path(__file__).parent


class HoldfastError(Exception):
    """Bad input or a broken environment; the command line prints it as one sentence and exits with code 2."""


class MetByAll(HoldfastError):
    """The same where every process of the run meets it at once, since it follows from what they have added up."""

    met_by_all = True


class SaidElsewhere(HoldfastError):
    """The same in one of several processes, of which another prints the sentence."""


class HalfDone(HoldfastError):
    """Something failed in the middle: what is in memory no longer belongs together, and must not be saved."""


class OwnCodeError(HoldfastError):
    """The user's own code has failed: a labeller, a flaw, a world. Tells what and where."""

    def __init__(self, what: str, error: BaseException, after: str = "") -> None:
        message = printable(first_line(error)[:LONGEST_MESSAGE])
        kind = type(error).__name__
        first = f"{what}: {message}" if message == f"{kind}." else f"{what}: {kind}: {message}"
        super().__init__("\n".join([first, *last_frames(error), *([after] if after else [])]))
        self.what, self.error = what, error

    def followed_by(self, after: str) -> "OwnCodeError":
        """The same, with a last sentence."""
        return OwnCodeError(self.what, self.error, after)


class Interrupted(Exception):
    """The user asked to stop; everything needed to resume has been written."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, ending in a full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".") + "."


def last_frames(error: BaseException) -> list[str]:
    """Where an error comes from: the last places in the user's files, then where it was raised if that is elsewhere."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    while frames and OURS in Path(frames[0].filename).parents:
        del frames[0]  # how it was called says nothing about it
    libraries = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
    own = [frame for frame in frames if libraries.isdisjoint(Path(frame.filename).parents)]
    shown = (own or frames)[-FRAMES:]
    if frames and frames[-1] not in shown:
        shown.append(frames[-1])
    lines = []
    for before, frame in zip([None, *shown], shown, strict=False):
        if before is not None and (before.filename, before.lineno) == (frame.filename, frame.lineno):
            continue  # a comprehension in the line that was told of
        lines.append(f"  {nearest(frame.filename)}:{frame.lineno} in {printable(frame.name)}")
        if code := printable((frame.line or "").strip()):
            lines.append(f"    {code if len(code) <= WIDTH - 4 else code[: WIDTH - 5] + '…'}")
    if isinstance(error, SyntaxError) and error.filename:
        lines.append(f"  {nearest(error.filename)}:{error.lineno}")
    return lines


def nearest(path: str) -> str:
    """A path as it is written from here, where that is shorter."""
    try:
        return printable(str(Path(path).relative_to(Path.cwd())))
    except (ValueError, OSError):
        return printable(path)


def printable(text: str) -> str:
    """Text without characters that do something to a terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
