"""The process that workers are forked from: it has imported what each of them needs, and nothing of anybody else's.

    a byte, and with it one end of a socket   ->  {"born": process}          (asked for on standard input)
                                                  {"ended": process, "code": exit code, below 0 a signal's}

So a worker begins within milliseconds, and not by the imports of an interpreter. The nursery has one thread and holds
nothing of the user's, which is what makes a fork of it safe. It ends when nobody asks any more.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from contextlib import suppress

from holdfast.reward.sources.worker import main as work


def main() -> None:
    """Fork workers until nobody asks for any more; each of them goes on as one."""
    asked = socket.socket(fileno=os.dup(0))
    signal.signal(signal.SIGCHLD, lambda *_: _tell_who_ended())
    while ends := socket.recv_fds(asked, 1, 1)[1]:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # nobody ends before they are born
        if (process := os.fork()) == 0:
            asked.close()
            _begin_anew(ends[0])
            work()
            return
        os.close(ends[0])
        _lead_a_group(process)  # before anybody knows of it, who might want to kill it
        _tell({"born": process})
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _begin_anew(end: int) -> None:
    """The socket is the worker's standard input and output, and it leads whatever processes it starts."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    for standard in (0, 1):
        os.dup2(end, standard)
    os.close(end)
    _lead_a_group(0)


def _lead_a_group(process: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.setpgid(process, process)


def _tell_who_ended() -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _tell({"ended": ended[0], "code": os.waitstatus_to_exitcode(ended[1])})


def _tell(document: object) -> None:
    try:
        os.write(1, json.dumps(document).encode() + b"\n")
    except BrokenPipeError:
        os._exit(0)  # nobody asks any more
