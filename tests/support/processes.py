"""Processes that a test starts: at a terminal of 80 columns, and found again by a mark."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

MARK = "OUTLAST_TEST_MARK"
"""Environment variable that a process passes on to all that it starts."""

COLUMNS = 80
DEADLINE_S = 240
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def output_at_terminal(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str]
) -> tuple[int, str]:
    """Return the exit code and what a terminal of 80 columns shows, without its colours."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    at_terminal = {key: env[key] for key in env if key not in {"NO_COLOR", "COLUMNS"}}
    with open(master, "rb", buffering=0) as screen:  # noqa: PTH123 - a file descriptor
        with closing(os.fdopen(slave, "wb", buffering=0)) as terminal:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**at_terminal, "TERM": "xterm"},
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
            )
        shown = b""
        try:
            while chunk := screen.read(65536):
                shown += chunk
        except OSError:  # Linux reports a closed terminal so
            pass
    return process.wait(timeout=DEADLINE_S), ESCAPE.sub("", shown.decode()).replace("\r\n", "\n")


def marked_processes(mark: str) -> list[int]:
    """Return the living processes whose environment has the mark."""
    found = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in found if pid != os.getpid() and _has_mark(pid, mark)]


def none_left(mark: str) -> bool:
    """Wait until no marked process is alive; False after the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while marked_processes(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _has_mark(pid: int, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
