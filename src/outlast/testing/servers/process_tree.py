"""End every process of a server; as a program, when its lock has no holder.

The program needs only the standard library and starts in milliseconds, so even a killed test
process leaves no server behind.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
DATA = "data"
"""Data folder below the server's folder; only the first process has it in its command line."""

EXIT_TIMEOUT_S = 240.0
"""Seconds after which a killed process that is still there is an error."""


def watch(lock: Path, folder: Path) -> None:
    """Start a watcher that ends the server and deletes `folder` when `lock` has no holder."""
    program = [sys.executable, "-I", "-S", __file__, str(lock), str(folder)]
    quiet = subprocess.DEVNULL
    subprocess.run(  # noqa: S603 - ourselves
        program, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, check=True
    )


def hold(lock: Path) -> int:
    """Take the lock in shared mode; closing the returned descriptor, or exiting, releases it."""
    held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(held, fcntl.LOCK_SH)
    return held


def end_all(data: Path) -> None:
    """End the server of that data folder, giving it time to free shared memory."""
    heads = serving(data)
    for pid in heads:
        _signal(pid, signal.SIGQUIT)
        _signal(pid, signal.SIGTERM)  # Java prints a thread dump on SIGQUIT
    with suppress(TimeoutError):
        _wait_gone(heads)
    kill_all(data)


def kill_all(data: Path) -> None:
    """Kill the server of that data folder with SIGKILL and wait until it is gone."""
    heads = serving(data)
    for pid in heads:
        _signal(pid, signal.SIGSTOP)  # so it starts no further process
    all_of_them = [*heads, *(pid for pid, parent, _ in _processes() if parent in heads)]
    for pid in all_of_them:
        _signal(pid, signal.SIGKILL)
    _wait_gone(all_of_them)


def serving(data: Path) -> list[int]:
    """Return the ids of the first processes, found by their command line."""
    return [pid for pid, _, command in _processes() if str(data) in command]


def is_alive(pid: int) -> bool:
    """Whether the process is alive; a zombie is not."""
    if PROC.joinpath("self").exists():
        with suppress(OSError, IndexError):
            return PROC.joinpath(str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
        return False
    return any(pid == other for other, _, command in _processes() if "<defunct>" not in command)


def _processes() -> Iterator[tuple[int, int, list[str]]]:
    """Yield each process: its id, its parent's id and its command line."""
    if PROC.joinpath("self").exists():
        for entry in PROC.iterdir():
            if entry.name.isdigit():
                with suppress(OSError, IndexError):
                    yield _read(entry)
        return
    told = subprocess.run(
        ["/bin/ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    for line in told.stdout.splitlines():
        pid, parent, *command = line.split()
        yield int(pid), int(parent), command


def _read(entry: Path) -> tuple[int, int, list[str]]:
    fields = entry.joinpath("stat").read_text().rpartition(")")[2].split()
    words = entry.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")
    return int(entry.name), int(fields[1]), words


def _wait_gone(pids: Iterable[int]) -> None:
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    for pid in pids:
        while is_alive(pid):
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {pid} was killed and is still there")
            time.sleep(0.001)


def _signal(pid: int, which: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, which)


def main() -> None:
    """Wait in a detached process until the lock is free, then remove the server."""
    lock, folder = map(Path, sys.argv[1:])
    with lock.open("rb") as held:
        if os.fork():
            os._exit(0)
        fcntl.flock(held, fcntl.LOCK_EX)
        end_all(folder / DATA)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
