"""Ends every process of a server; as a program, once nobody holds its lock any more.

As a program it needs the standard library alone and starts in some milliseconds, so that even a
test process that is killed leaves no server behind.
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
"""Below the server's folder: what its first process has among its words, and nobody else."""

PATIENCE = 240.0
"""A killed process is gone in milliseconds; after these seconds something is wrong."""


def watch(lock: Path, folder: Path) -> None:
    """Start a watcher: when the last holder of `lock` is gone, so are the server and `folder`."""
    program = [sys.executable, "-I", "-S", __file__, str(lock), str(folder)]
    quiet = subprocess.DEVNULL
    subprocess.run(  # noqa: S603 - ourselves
        program, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, check=True
    )


def hold(lock: Path) -> int:
    """Hold it together with others; closing what is answered, or dying, lets it go."""
    held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(held, fcntl.LOCK_SH)
    return held


def end_all(data: Path) -> None:
    """End all that serves that data, at once but so that they can give shared memory back."""
    heads = serving(data)
    for pid in heads:
        _signal(pid, signal.SIGQUIT)
        _signal(pid, signal.SIGTERM)  # Java takes the other one for a question
    with suppress(TimeoutError):
        _wait_gone(heads)
    kill_all(data)


def kill_all(data: Path) -> None:
    """Kill, as a power failure would, all that serves that data; return when they are gone."""
    heads = serving(data)
    for pid in heads:
        _signal(pid, signal.SIGSTOP)  # so that it starts no further ones
    all_of_them = [*heads, *(pid for pid, parent, _ in _processes() if parent in heads)]
    for pid in all_of_them:
        _signal(pid, signal.SIGKILL)
    _wait_gone(all_of_them)


def serving(data: Path) -> list[int]:
    """The first process, told by its words; its children call themselves something else."""
    return [pid for pid, _, command in _processes() if str(data) in command]


def is_alive(pid: int) -> bool:
    """A zombie is dead: whose child it was may never ask for it."""
    if PROC.joinpath("self").exists():
        with suppress(OSError, IndexError):
            return PROC.joinpath(str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
        return False
    return any(pid == other for other, _, command in _processes() if "<defunct>" not in command)


def _processes() -> Iterator[tuple[int, int, list[str]]]:
    """Each process: its id, its parent's, and the words it was started with."""
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
    deadline = time.monotonic() + PATIENCE
    for pid in pids:
        while is_alive(pid):
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {pid} was killed and is still there")
            time.sleep(0.001)


def _signal(pid: int, which: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, which)


def main() -> None:
    """Wait, in a process that nobody waits for, until the lock is free; then clear away."""
    lock, folder = map(Path, sys.argv[1:])
    with lock.open("rb") as held:
        if os.fork():
            os._exit(0)
        fcntl.flock(held, fcntl.LOCK_EX)
        end_all(folder / DATA)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
