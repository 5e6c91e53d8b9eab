"""One child as its supervisor knows it: its process, its board, and what the two say."""

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
"""Makes a child write the stacks of its threads, even while one of them holds the interpreter."""

MAX_DUMP_BYTES: Final = 16_384


class ChildRole(StrEnum):
    """What a child is there for."""

    STARTING = "coming"  # started, has not said yet whether it can work
    SPARE = "spare"  # ready, and waits in case another one dies
    WORKING = "working"
    STOPPING = "leaving"  # ends its jobs, then itself
    GONE = "gone"


class ChildProcess:
    """A child process, from its start to what is left of it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        *,
        board: SharedLeaseTable,
        line: ControlChannel,
        lifeline: int,
        dump: IO[bytes],
        born: int,
    ) -> None:
        self.process = process
        self.lease_table = board
        self.channel = line
        self._lifeline = lifeline
        self._dump = dump
        self.started_at = born
        self.role = ChildRole.STARTING
        self.hello: dict[str, Any] | None = None
        self.startup_error: str | None = None
        self.settled: dict[str, int] = {}
        self.killed_for: Loss | None = None
        self.stacks = ""
        self._drained: asyncio.Future[None] | None = None

    @classmethod
    async def spawn(cls, program: list[str], order: dict[str, Any], *, born: int) -> "ChildProcess":
        """Start a child; `order` is what it is to do, as JSON on its command line.

        OSError if the system has no room for another one; nothing is left open then.
        """
        with ExitStack() as undo, ExitStack() as theirs:
            ours, end = socket.socketpair()
            undo.callback(ours.close)
            theirs.callback(end.close)
            board = SharedLeaseTable.new()
            undo.callback(board.close)
            alive, lifeline = os.pipe()
            undo.callback(os.close, lifeline)
            theirs.callback(os.close, alive)
            dump = undo.enter_context(os.fdopen(anonymous_file("outlast-stacks"), "w+b"))
            ways = {
                "line": end.fileno(),
                "board": board.fd,
                "lifeline": alive,
                "dump": dump.fileno(),
            }
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *program,
                json.dumps({**order, "ways": ways}),
                pass_fds=tuple(ways.values()),
                stdin=asyncio.subprocess.DEVNULL,
            )
            line = await ControlChannel.connect(ours)
            undo.pop_all()
        return cls(process, board=board, line=line, lifeline=lifeline, dump=dump, born=born)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None

    @property
    def wants_events(self) -> bool:
        """Whether its app wants to hear of events."""
        return self.hello is not None and bool(self.hello.get("listens"))

    @property
    def last_heartbeat(self) -> int:
        """When it last showed life; its birth counts."""
        return max(self.started_at, self.lease_table.heartbeat)

    def request_drain(self) -> asyncio.Future[None]:
        """Comes when it has nothing to do, or is dead."""
        self._drained = asyncio.get_running_loop().create_future()
        self.channel.send("drain")
        return self._drained

    def record_settled(self, settled: dict[str, int]) -> None:
        """It said what became of its jobs so far."""
        self.settled = settled
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def kill(self, why: Loss) -> None:
        """End it now; what is left on its board is for the supervisor to settle."""
        if self.killed_for is None:
            self.killed_for = why
        with suppress(ProcessLookupError):
            self.process.kill()

    async def dump(self) -> str:
        """The stacks of its threads, bounded; empty when it does not answer (it was stopped)."""
        with suppress(ProcessLookupError):
            self.process.send_signal(DUMP_SIGNAL)
        for _ in range(20):
            await asyncio.sleep(0.02)
            if os.fstat(self._dump.fileno()).st_size:
                await asyncio.sleep(0.02)  # the rest of it
                return os.pread(self._dump.fileno(), MAX_DUMP_BYTES, 0).decode(errors="replace")
        return ""

    def close(self) -> None:
        """Let go of what connected the two."""
        self.role = ChildRole.GONE
        self.record_settled(self.settled)
        self.channel.close()
        self.lease_table.close()
        os.close(self._lifeline)
        self._dump.close()

    def exit_description(self) -> str:
        code = self.process.returncode
        if code is None or code >= 0:
            return f"exit status {code}"
        return f"signal {-code} ({signal.strsignal(-code) or 'unknown'})"

    @property
    def was_killed(self) -> bool:
        """SIGKILL: by us, by an operator, or for want of memory. None of its handlers did it."""
        return self.process.returncode == -signal.SIGKILL
