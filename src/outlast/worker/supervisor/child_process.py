"""A child process as the supervisor sees it: process, shared lease table and control channel."""

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import ExitStack, suppress
from enum import StrEnum
from typing import IO, Any, Final

from outlast.core.state import Loss
from outlast.worker.supervisor.control_channel import ControlChannel
from outlast.worker.supervisor.shared_lease_table import SharedLeaseTable, anonymous_file

DUMP_SIGNAL: Final = signal.SIGUSR2
"""Makes a child dump the stacks of its threads, even while one of them holds the interpreter."""

MAX_DUMP_BYTES: Final = 16_384


class ChildRole(StrEnum):
    """The role of a child in its pool."""

    STARTING = "starting"  # loads the app
    SPARE = "spare"  # loaded, replaces a child that dies
    WORKING = "working"  # claims jobs
    STOPPING = "stopping"  # ends its jobs, then exits
    GONE = "gone"


class ChildProcess:
    """A child process, from its start until its runs are closed."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        *,
        lease_table: SharedLeaseTable,
        channel: ControlChannel,
        lifeline: int,
        dump: IO[bytes],
        started_at: int,
    ) -> None:
        self.process = process
        self.lease_table = lease_table
        self.channel = channel
        self._lifeline = lifeline
        self._dump = dump
        self.started_at = started_at
        self.role = ChildRole.STARTING
        self.is_claiming = False
        self.hello: dict[str, Any] | None = None
        self.startup_error: str | None = None
        self.settled: dict[str, int] = {}
        self.killed_for: Loss | None = None
        self.stacks = ""
        self._drained: asyncio.Future[None] | None = None

    @classmethod
    async def spawn(
        cls, program: list[str], options: dict[str, Any], *, mark: int, started_at: int
    ) -> "ChildProcess":
        """Start a child; `options` are passed as JSON on its command line.

        The child keeps the file `mark` open, which shows that a process of this worker is alive.

        Raises OSError if the system cannot start another process; nothing stays open then.
        """
        with ExitStack() as undo, ExitStack() as theirs:
            ours, end = socket.socketpair()
            undo.callback(ours.close)
            theirs.callback(end.close)
            lease_table = SharedLeaseTable.new()
            undo.callback(lease_table.close)
            alive, lifeline = os.pipe()
            undo.callback(os.close, lifeline)
            theirs.callback(os.close, alive)
            dump = undo.enter_context(os.fdopen(anonymous_file("outlast-stacks"), "w+b"))
            fds = {
                "channel": end.fileno(),
                "lease_table": lease_table.fd,
                "lifeline": alive,
                "dump": dump.fileno(),
                "mark": mark,
            }
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *program,
                json.dumps({**options, "fds": fds}),
                pass_fds=tuple(fds.values()),
                stdin=asyncio.subprocess.DEVNULL,
            )
            channel = await ControlChannel.connect(ours)
            undo.pop_all()
        return cls(
            process,
            lease_table=lease_table,
            channel=channel,
            lifeline=lifeline,
            dump=dump,
            started_at=started_at,
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self.process.returncode is None

    @property
    def wants_events(self) -> bool:
        """Whether the app has telemetry sinks."""
        return self.hello is not None and bool(self.hello.get("wants_events"))

    @property
    def last_heartbeat(self) -> int:
        """Time of the last heartbeat on the monotonic clock; the start counts as one."""
        return max(self.started_at, self.lease_table.heartbeat)

    def request_drain(self) -> asyncio.Future[None]:
        """Return a future that is done when the child has no work left, or is dead."""
        self._drained = asyncio.get_running_loop().create_future()
        self.channel.send("drain")
        return self._drained

    def record_settled(self, settled: dict[str, int]) -> None:
        """Record the end states that the child has reported so far."""
        self.settled = settled
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def kill(self, why: Loss) -> None:
        """Kill the process. The supervisor closes the runs left in its lease table."""
        if self.killed_for is None:
            self.killed_for = why
        with suppress(ProcessLookupError):
            self.process.kill()

    async def dump(self) -> str:
        """Return the truncated stacks of its threads; empty if the child does not answer."""
        with suppress(ProcessLookupError):
            self.process.send_signal(DUMP_SIGNAL)
        for _ in range(20):
            await asyncio.sleep(0.02)
            if os.fstat(self._dump.fileno()).st_size:
                await asyncio.sleep(0.02)  # let it write the rest
                return os.pread(self._dump.fileno(), MAX_DUMP_BYTES, 0).decode(errors="replace")
        return ""

    def close(self) -> None:
        """Close the channel, the lease table, the lifeline and the dump file."""
        self.role = ChildRole.GONE
        self.record_settled(self.settled)
        self.channel.close()
        self.lease_table.close()
        os.close(self._lifeline)
        self._dump.close()

    def exit_description(self) -> str:
        """Return the exit status or the signal that ended the process."""
        code = self.process.returncode
        if code is None or code >= 0:
            return f"exit status {code}"
        return f"signal {-code} ({signal.strsignal(-code) or 'unknown'})"

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL ended it: the supervisor, an operator or the out-of-memory killer."""
        return self.process.returncode == -signal.SIGKILL
