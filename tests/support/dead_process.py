"""Names of processes that have ended, and of processes that stand still."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from outlast.process_identity import process_scope

_STOPS: Final = """
import os, signal, sys
from outlast.process_identity import process_name
print(process_name(sys.argv[1], "stopped"), flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def dead_process_name(prefix: str) -> str:
    """Return a name of this machine whose process has ended."""
    ended = subprocess.Popen(["true"])  # noqa: S607 - found on every path
    ended.wait()
    return f"{prefix}{process_scope()}.{ended.pid}.1.{uuid.uuid4()}"


@contextmanager
def stopped_process_name(prefix: str) -> Iterator[str]:
    """Yield the name of a process that has stopped itself; it is ended afterwards."""
    command = [sys.executable, "-c", _STOPS, prefix]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stopped:
        assert stopped.stdout is not None
        try:
            yield stopped.stdout.readline().strip()
        finally:
            stopped.kill()
