"""The one error a user sees: a sentence that says what is wrong and what to do about it."""


class HoldfastError(Exception):
    """Bad input or a broken environment; the command line prints it as one sentence and exits with code 2."""


class Interrupted(Exception):
    """The user asked to stop; everything needed to resume has been written."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, ending in a full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".") + "."
