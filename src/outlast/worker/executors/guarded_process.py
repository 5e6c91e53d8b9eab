"""A process on a leash: it ends when told to, and never outlives the worker that holds it."""

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
TERMINATE_TIMEOUT_S: Final = 2.0
"""How long a process that was asked to end may clean up, in seconds, before it is killed."""

_REAPED: Final = 0.005
_STUCK: Final = 5.0


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a process ended: its status (-9 for SIGKILL), and the last it printed.

    `error`: it could not be started. No status and no error: its keeper was killed, and nobody
    saw it end.
    """

    status: int | None = None
    tail: str = ""
    error: str | None = None

    def __str__(self) -> str:
        match self.status:
            case None:
                return "ended unseen"
            case status if status < 0:
                return f"was killed by {signal_name(-status)}"
            case status:
                return f"ended with exit status {status}"


class GuardedProcess:
    """Starts a process in a session of its own; `ended` is done when it, and its group, is gone.

    OSError if not even its keeper can be started.
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
        self._heard = bytearray()
        self._control_socket, theirs = socket.socketpair()
        spec = {
            "line": theirs.fileno(),
            "pass": list(pass_fds),
            "log": None if log is None else str(log),
            "limit": limit,
            "patience": TERMINATE_TIMEOUT_S,
        }
        try:
            self._keeper = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", str(GUARDIAN), json.dumps(spec), *argv],
                cwd=cwd,
                env=env,
                pass_fds=[theirs.fileno(), *pass_fds],
                start_new_session=True,  # a Ctrl+C at the terminal is for the worker to judge
            )
        except BaseException:
            self._control_socket.close()
            raise
        finally:
            theirs.close()
        self._control_socket.setblocking(False)
        self._loop.add_reader(self._control_socket, self._readable)

    def terminate(self) -> None:
        """Ask its whole group to end, and kill what has not done so after PATIENCE."""
        self._send(b"T")

    def kill(self) -> None:
        """Kill its whole group."""
        self._send(b"K")

    def kill_and_wait(self) -> None:
        """Kill it and wait, for when no event loop can any more; harmless when it has ended."""
        if self.ended.done():
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._control_socket)
        self._control_socket.close()  # which its keeper takes as the order to kill
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(_STUCK)

    def _send(self, word: bytes) -> None:
        with suppress(OSError):  # it has ended, or was dropped
            self._control_socket.send(word)

    def _readable(self) -> None:
        try:
            heard = self._control_socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        self._heard += heard
        if not heard:
            self._loop.remove_reader(self._control_socket)
            self._control_socket.close()
            self._reap()

    def _reap(self) -> None:
        if self._keeper.poll() is None:
            self._loop.call_later(_REAPED, self._reap)
        elif not self.ended.done():
            self.ended.set_result(self._told())

    def _told(self) -> ProcessExit:
        words: dict[str, Any] = {}
        for line in self._heard.splitlines():
            with suppress(ValueError):  # cut short: the keeper was killed while it wrote
                words |= json.loads(line)
        if words.keys() & {"status", "error"}:
            return ProcessExit(words.get("status"), words.get("tail", ""), words.get("error"))
        if "pid" in words:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(words["pid"], signal.SIGKILL)
        return ProcessExit()


async def kill_all(leashes: Collection[GuardedProcess]) -> None:
    """Kill them and see them gone; one that not even the kernel can end is not waited for long."""
    for leash in leashes:
        leash.kill()
    if leashes:
        await asyncio.wait([leash.ended for leash in leashes], timeout=_STUCK)


def signal_name(number: int) -> str:
    """`SIGKILL (9)`."""
    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:
        return f"signal {number}"
