"""A guarded process: a subprocess that ends when asked and never outlives its worker."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

GUARDIAN: Final = Path(__file__).with_name("process_guardian.py")
"""The guardian program, which starts the process and kills it when the worker dies."""

TERMINATE_TIMEOUT_S: Final = 2.0
"""Seconds between SIGTERM and SIGKILL for a process that was asked to end."""

_REAP_INTERVAL_S: Final = 0.005
_KILL_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a process ended: its status (-9 for SIGKILL) and the tail of its output.

    `error` is set if the process could not be started. Neither status nor error is set if its
    guardian was killed first.
    """

    status: int | None = None
    tail: str = ""
    error: str | None = None

    def __str__(self) -> str:
        match self.status:
            case None:
                return "ended with unknown status"
            case status if status < 0:
                return f"was killed by {signal_name(-status)}"
            case status:
                return f"ended with exit status {status}"


class GuardedProcess:
    """Starts a process in its own session; `ended` is done when its whole group is gone.

    Raises OSError if the guardian cannot be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        log: Path | None = None,
        limit: int = 0,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[ProcessExit] = self._loop.create_future()
        self._received = bytearray()
        self._control_socket, theirs = socket.socketpair()
        spec = {
            "control_fd": theirs.fileno(),
            "pass_fds": list(pass_fds),
            "log": None if log is None else str(log),
            "limit": limit,
            "terminate_timeout": TERMINATE_TIMEOUT_S,
        }
        try:
            self._guardian = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", str(GUARDIAN), json.dumps(spec), *argv],
                cwd=cwd,
                env=env,
                pass_fds=[theirs.fileno(), *pass_fds],
                start_new_session=True,  # Ctrl+C in the terminal must reach the worker only
            )
        except BaseException:
            self._control_socket.close()
            raise
        finally:
            theirs.close()
        self._control_socket.setblocking(False)
        self._loop.add_reader(self._control_socket, self._on_readable)

    def terminate(self) -> None:
        """Send SIGTERM to the process group, and SIGKILL after TERMINATE_TIMEOUT_S."""
        self._send(b"T")

    def kill(self) -> None:
        """Send SIGKILL to the process group."""
        self._send(b"K")

    def kill_and_wait(self) -> None:
        """Kill the process and wait, without an event loop. No-op if it has ended."""
        if self.ended.done():
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._control_socket)
        self._control_socket.close()  # the guardian kills the group when the socket closes
        with suppress(subprocess.TimeoutExpired):
            self._guardian.wait(_KILL_TIMEOUT_S)

    def _send(self, command: bytes) -> None:
        with suppress(OSError):  # the process has ended
            self._control_socket.send(command)

    def _on_readable(self) -> None:
        try:
            received = self._control_socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        self._received += received
        if not received:
            self._loop.remove_reader(self._control_socket)
            self._control_socket.close()
            self._reap()

    def _reap(self) -> None:
        if self._guardian.poll() is None:
            self._loop.call_later(_REAP_INTERVAL_S, self._reap)
        elif not self.ended.done():
            self.ended.set_result(self._process_exit())

    def _process_exit(self) -> ProcessExit:
        report: dict[str, Any] = {}
        for line in self._received.splitlines():
            with suppress(ValueError):  # truncated: the guardian was killed while it wrote
                report |= json.loads(line)
        if report.keys() & {"status", "error"}:
            return ProcessExit(report.get("status"), report.get("tail", ""), report.get("error"))
        if "pid" in report:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(report["pid"], signal.SIGKILL)
        return ProcessExit()


async def kill_all(processes: Collection[GuardedProcess]) -> None:
    """Kill processes and wait for their end, for _KILL_TIMEOUT_S at most."""
    for process in processes:
        process.kill()
    if processes:
        await asyncio.wait([process.ended for process in processes], timeout=_KILL_TIMEOUT_S)


def signal_name(number: int) -> str:
    """Return the name of a signal, such as `SIGKILL (9)`."""
    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:
        return f"signal {number}"
