"""The one error a user sees: a sentence that says what is wrong and what to do about it."""


class HoldfastError(Exception):
    """Bad input or a broken environment; the command line prints it as one sentence and exits with code 2."""


class MetByAll(HoldfastError):
    """The same where every process of the run meets it at once, since it follows from what they have added up."""

    met_by_all = True


class SaidElsewhere(HoldfastError):
    """The same in one of several processes, of which another prints the sentence."""


class HalfDone(HoldfastError):
    """Something failed in the middle: what is in memory no longer belongs together, and must not be saved."""


class Interrupted(Exception):
    """The user asked to stop; everything needed to resume has been written."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, ending in a full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".") + "."
