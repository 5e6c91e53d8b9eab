"""Keeps one process: starts it, ends it when told, and never lets it outlive its holder.

    python -I -S keeper.py '{"line": 5, "pass": [], "log": null, "limit": 0, "patience": 2}' ARGV…

A program of its own that runs no user code, so it can always act: when the line to the holder
breaks, whatever broke it, the whole process group is killed. It imports the standard library only.
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

TAIL = 8 * 1024
CHUNK = 64 * 1024
LAST_OUTPUT = 1.0
"""How long to wait for output after the end; one that fled to another session may hold the pipe."""


class ProcessGuardian:
    """One process, and the line to whoever wants it."""

    def __init__(self, line: socket.socket, argv: Sequence[str], spec: dict[str, Any]) -> None:
        self._line = line
        self._argv = argv
        self._passed: list[int] = spec["pass"]
        self._patience: float = spec["patience"]
        self._output = ProcessOutput(spec["log"], spec["limit"]) if spec["log"] else None
        self._lock = threading.Lock()
        self._is_over = False

    def guard(self) -> None:
        try:
            self._process = self._start()
        except OSError as error:
            self._say(error=f"{type(error).__name__}: {error}")
            return
        self._say(pid=self._process.pid)
        threading.Thread(target=self._see_it_end, daemon=True).start()
        self._listen()
        self._signal(signal.SIGKILL)
        os._exit(1)

    def _start(self) -> "subprocess.Popen[bytes]":
        if self._output is not None:
            self._output.open()
        process = subprocess.Popen(  # noqa: S603 - running what it is told is its purpose
            self._argv,
            pass_fds=self._passed,
            stdin=subprocess.DEVNULL,
            stdout=None if self._output is None else subprocess.PIPE,
            stderr=None if self._output is None else subprocess.STDOUT,
            start_new_session=True,
        )
        for passed in self._passed:
            os.close(passed)
        return process

    def _listen(self) -> None:
        """Until the holder is gone."""
        while word := self._heard():
            if word == b"T":
                self._signal(signal.SIGTERM)
                later = threading.Timer(self._patience, self._signal, [signal.SIGKILL])
                later.daemon = True
                later.start()
            else:
                self._signal(signal.SIGKILL)

    def _heard(self) -> bytes:
        try:
            return self._line.recv(1)
        except OSError:
            return b""

    def _see_it_end(self) -> None:
        copying = None
        if self._output is not None:
            copying = threading.Thread(target=self._output.copy, args=[self._process.stdout])
            copying.daemon = True
            copying.start()
        if hasattr(os, "waitid"):  # it ends, but its number stays taken until its group is dead
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self._signal(signal.SIGKILL)
        with self._lock:
            self._is_over = True
        status = self._process.wait()
        if copying is not None:
            copying.join(LAST_OUTPUT)
        self._say(status=status, tail="" if self._output is None else self._output.tail())
        os._exit(0)

    def _signal(self, number: int) -> None:
        with self._lock, suppress(ProcessLookupError, PermissionError):
            if not self._is_over:
                os.killpg(self._process.pid, number)

    def _say(self, **words: Any) -> None:
        with suppress(OSError):
            self._line.sendall(json.dumps(words).encode() + b"\n")


class ProcessOutput:
    """What the process prints, in a file of bounded size, and the last of it at hand."""

    def __init__(self, path: str, limit: int) -> None:
        self._path = Path(path)
        self._room = limit
        self._limit = limit
        self._is_cut = False
        self._last = b""

    def open(self) -> None:
        self._file = self._path.open("wb", buffering=0)

    def copy(self, source: Any) -> None:
        """To its end, also when nothing more is kept: a full pipe would block the process."""
        while chunk := os.read(source.fileno(), CHUNK):
            self._last = (self._last + chunk)[-TAIL:]
            with suppress(OSError):  # the disk is full: the process is not to blame
                self._keep(chunk)

    def tail(self) -> str:
        return self._last.decode("utf-8", "replace")

    def _keep(self, chunk: bytes) -> None:
        if self._is_cut:
            return
        kept = chunk[: self._room]
        self._room -= len(kept)
        self._is_cut = len(kept) < len(chunk)
        self._file.write(kept)
        if self._is_cut:
            self._file.write(f"\n[outlast: only {self._limit:,} bytes are kept]\n".encode())


def main() -> None:
    spec = json.loads(sys.argv[1])
    line = socket.socket(fileno=spec["line"])
    line.set_inheritable(False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # ignoring them would be inherited by the process
    ProcessGuardian(line, sys.argv[2:], spec).guard()


if __name__ == "__main__":
    main()
