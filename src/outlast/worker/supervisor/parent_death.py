"""The death of the supervisor: the kernel kills a child process with it, where it can."""

import ctypes
import os
import select
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1
"""Option of prctl(2): the signal this process gets when the thread that started it ends."""


def die_with_supervisor(lifeline: int) -> bool:
    """Let the kernel kill this process when its supervisor dies; return False if it cannot.

    The signal reaches a process whose interpreter is blocked, which no thread of it can end. The
    supervisor starts children in its main thread, so the signal means the end of the process. macOS
    has no such signal: there the lifeline thread ends the process.
    """
    is_set = sys.platform == "linux" and _set_parent_death_signal(signal.SIGKILL)
    if is_supervisor_gone(lifeline):  # it died before the signal was set
        os._exit(1)
    return is_set


def is_supervisor_gone(lifeline: int) -> bool:
    """Return whether the other end of the pipe is closed; only the supervisor holds it."""
    readable, _, _ = select.select([lifeline], [], [], 0)
    return bool(readable)


def _set_parent_death_signal(number: int) -> bool:
    zero = ctypes.c_ulong(0)
    option = ctypes.c_ulong(number)
    return bool(ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, option, zero, zero, zero) == 0)
