"""The process guardian: starts one process and kills its group when the worker dies.

    python -I -S process_guardian.py SPEC ARGV…

SPEC is a JSON object with `control_fd`, `pass_fds`, `log`, `limit` and `terminate_timeout`. The
guardian runs no user code, so it can always react: when the control socket closes, for whatever
reason, it kills the whole process group. It imports the standard library only.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

TAIL_BYTES = 8 * 1024
CHUNK_BYTES = 64 * 1024
OUTPUT_TIMEOUT_S = 1.0
"""Seconds to wait for output after the end: a process in another session may hold the pipe."""


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
        threading.Thread(target=self._wait_for_end, daemon=True).start()
        self._serve()
        self._signal(signal.SIGKILL)
        os._exit(1)

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
        """Create the file."""
        self._file = self._path.open("wb", buffering=0)

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


def main() -> None:
    """Guard the process that the command line names."""
    spec = json.loads(sys.argv[1])
    control = socket.socket(fileno=spec["control_fd"])
    control.set_inheritable(False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A handler, since the process would inherit SIG_IGN.
        signal.signal(number, lambda *_: None)
    ProcessGuardian(control, sys.argv[2:], spec).guard()


if __name__ == "__main__":
    main()
