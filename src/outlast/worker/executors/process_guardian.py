"""The process guardian: starts one process and ends it with all that it started.

    python -I -S process_guardian.py SPEC ARGV…

SPEC is a JSON object with `control_fd`, `pass_fds`, `log`, `limit` and `terminate_timeout`. The
guardian runs no user code, so it can always react: when the process ends or the control socket
closes, for whatever reason, it kills the whole process group. On Linux it is a subreaper: processes
that left the group, such as daemons, become its children when their parents die, and it kills them
too. It imports the standard library only.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

TAIL_BYTES = 8 * 1024
CHUNK_BYTES = 64 * 1024
OUTPUT_TIMEOUT_S = 1.0
"""Seconds to wait for output after the end: a process that cannot be killed may hold the pipe."""

PR_SET_CHILD_SUBREAPER = 36
"""Option of prctl(2): orphaned descendants become children of this process."""

DESCENDANTS_TIMEOUT_S = 4.0
"""Seconds to wait for the end of killed descendants; one in the kernel may take longer."""

DESCENDANTS_INTERVAL_S = 0.002


class ProcessGuardian:
    """One process and the control socket to its worker."""

    def __init__(self, control: socket.socket, argv: Sequence[str], spec: dict[str, Any]) -> None:
        self._control = control
        self._argv = argv
        self._pass_fds: list[int] = spec["pass_fds"]
        self._terminate_timeout: float = spec["terminate_timeout"]
        self._output = ProcessOutput(spec["log"], spec["limit"]) if spec["log"] else None
        self._lock = threading.Lock()
        self._has_ended = False

    def guard(self) -> None:
        """Start the process, obey the worker, and kill the group when the worker is gone."""
        try:
            self._process = self._start()
        except OSError as error:
            self._send(error=f"{type(error).__name__}: {error}")
            return
        self._send(pid=self._process.pid)
        waiter = threading.Thread(target=self._wait_for_end, daemon=True)
        waiter.start()
        self._serve()
        self._signal(signal.SIGKILL)
        waiter.join()  # it ends this process when all others have ended

    def _start(self) -> "subprocess.Popen[bytes]":
        if self._output is not None:
            self._output.open()
        process = subprocess.Popen(  # noqa: S603 - running the given command is its purpose
            self._argv,
            pass_fds=self._pass_fds,
            stdin=subprocess.DEVNULL,
            stdout=None if self._output is None else subprocess.PIPE,
            stderr=None if self._output is None else subprocess.STDOUT,
            start_new_session=True,
        )
        for fd in self._pass_fds:
            os.close(fd)
        return process

    def _serve(self) -> None:
        """Execute commands until the worker closes the socket or dies."""
        while command := self._receive():
            if command == b"T":
                self._signal(signal.SIGTERM)
                timer = threading.Timer(self._terminate_timeout, self._signal, [signal.SIGKILL])
                timer.daemon = True
                timer.start()
            else:
                self._signal(signal.SIGKILL)

    def _receive(self) -> bytes:
        try:
            return self._control.recv(1)
        except OSError:
            return b""

    def _wait_for_end(self) -> None:
        copier = None
        if self._output is not None:
            copier = threading.Thread(target=self._output.copy, args=[self._process.stdout])
            copier.daemon = True
            copier.start()
        if hasattr(os, "waitid"):  # WNOWAIT keeps the pid reserved until the group is dead
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self._signal(signal.SIGKILL)
        with self._lock:
            self._has_ended = True
        status = self._process.wait()
        kill_descendants()
        if copier is not None:
            copier.join(OUTPUT_TIMEOUT_S)
        self._send(status=status, tail="" if self._output is None else self._output.tail())
        os._exit(0)

    def _signal(self, number: int) -> None:
        with self._lock, suppress(ProcessLookupError, PermissionError):
            if not self._has_ended:
                os.killpg(self._process.pid, number)

    def _send(self, **report: Any) -> None:
        with suppress(OSError):
            self._control.sendall(json.dumps(report).encode() + b"\n")


class ProcessOutput:
    """The output of the process, in a file of bounded size, with its tail in memory."""

    def __init__(self, path: str, limit: int) -> None:
        self._path = Path(path)
        self._remaining = limit
        self._limit = limit
        self._is_truncated = False
        self._tail = b""

    def open(self) -> None:
        """Create the file, for this user alone."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._file = os.fdopen(os.open(self._path, flags, 0o600), "wb", buffering=0)

    def copy(self, source: Any) -> None:
        """Read the pipe to its end, also beyond the limit: a full pipe would block the process."""
        while chunk := os.read(source.fileno(), CHUNK_BYTES):
            self._tail = (self._tail + chunk)[-TAIL_BYTES:]
            with suppress(OSError):  # a full disk must not fail the process
                self._write(chunk)

    def tail(self) -> str:
        """Return the last output."""
        return self._tail.decode("utf-8", "replace")

    def _write(self, chunk: bytes) -> None:
        if self._is_truncated:
            return
        kept = chunk[: self._remaining]
        self._remaining -= len(kept)
        self._is_truncated = len(kept) < len(chunk)
        self._file.write(kept)
        if self._is_truncated:
            self._file.write(f"\n[outlast: only {self._limit:,} bytes are kept]\n".encode())


def become_subreaper() -> None:
    """Let orphaned descendants become children of this process, where the system can."""
    if sys.platform == "linux":
        on, zero = ctypes.c_ulong(1), ctypes.c_ulong(0)
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, on, zero, zero, zero)


def kill_descendants() -> None:
    """Kill the children, then their children, which are ours by then, until none is left.

    Processes of another user, which this one may not kill, are left alone.
    """
    end = time.monotonic() + DESCENDANTS_TIMEOUT_S
    while _has_children() and time.monotonic() < end:
        answers = [_kill(pid) for pid in living_children()]
        if answers and not any(answers):
            return
        time.sleep(DESCENDANTS_INTERVAL_S)


def living_children() -> list[int]:
    """Return the children of this process that have not ended, from /proc."""
    me = str(os.getpid())
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _is_living_child(entry, me)
    ]


def _is_living_child(entry: Path, parent: str) -> bool:
    try:
        fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # it has ended
        return False
    return fields[1] == parent and fields[0] not in "ZX"


def _kill(pid: int) -> bool:
    """Kill a child; its number is not reused before it is reaped here."""
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        return False
    return True


def _has_children() -> bool:
    """Reap children that have ended; return whether any is left."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def main() -> None:
    """Guard the process that the command line names."""
    spec = json.loads(sys.argv[1])
    control = socket.socket(fileno=spec["control_fd"])
    control.set_inheritable(False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A handler, since the process would inherit SIG_IGN.
        signal.signal(number, lambda *_: None)
    become_subreaper()
    ProcessGuardian(control, sys.argv[2:], spec).guard()


if __name__ == "__main__":
    main()
