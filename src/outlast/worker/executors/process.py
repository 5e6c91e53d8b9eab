"""The process executor: runs handlers in a pool of handler processes."""

import asyncio
import json
import socket
import sys
from collections.abc import Mapping
from typing import Any, Final

from outlast.jobs.executor_choice import STOPS
from outlast.worker.executors.guarded_process import (
    TERMINATE_TIMEOUT_S,
    GuardedProcess,
    ProcessExit,
    kill_all,
)
from outlast.worker.executors.process_protocol import (
    MAX_MESSAGE_BYTES,
    decode_outcome,
    decode_raised,
    encode,
    encode_task,
)
from outlast.worker.run_outcome import ActiveRun, EncodedResult, ProcessDied, RemoteError

IDLE_TIMEOUT_S: Final = 60.0
"""Seconds for which an idle handler process is kept."""

IDLE_END_TIMEOUT_S: Final = TERMINATE_TIMEOUT_S + 1
"""Seconds within which an idle handler process must end with its worker."""

_BOOT: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from outlast.worker.executors.process_main import main; main(int(sys.argv[1]))"
)


class ProcessExecutor:
    """Runs one job at a time in each handler process and reuses it; kills it to stop a job."""

    stops: Final = STOPS["process"]

    def __init__(self, addresses: Mapping[str, str], *, idle: float = IDLE_TIMEOUT_S) -> None:
        self._addresses = addresses
        self._idle_timeout = idle
        self._idle: dict[HandlerProcess, asyncio.TimerHandle] = {}
        self._all: set[HandlerProcess] = set()

    async def call(self, active: ActiveRun, params: dict[str, Any]) -> object:  # noqa: ARG002 - the process decodes them itself
        """Run the handler in a handler process."""
        process = self._take_idle() or self._start()
        active.stop = process.guarded.terminate
        try:
            return await process.run(active, self._addresses[active.kind.name])
        finally:
            self._return(process, active)

    async def close(self) -> None:
        """Let idle handler processes end their lifespan, then kill all and wait for their end."""
        for process in self._idle:
            process.guarded.terminate()
        if self._idle:
            await asyncio.wait(
                [process.guarded.ended for process in self._idle], timeout=IDLE_END_TIMEOUT_S
            )
        await kill_all([process.guarded for process in self._all])

    def close_now(self) -> None:
        """Kill all handler processes without an event loop."""
        for process in tuple(self._all):
            process.kill_and_wait()

    def _take_idle(self) -> "HandlerProcess | None":
        while self._idle:
            process, timer = self._idle.popitem()  # the last used, so that the others time out
            timer.cancel()
            if not process.guarded.ended.done():
                return process
        return None

    def _start(self) -> "HandlerProcess":
        process = HandlerProcess()
        self._all.add(process)
        process.guarded.ended.add_done_callback(lambda _: self._all.discard(process))
        return process

    def _return(self, process: "HandlerProcess", active: ActiveRun) -> None:
        if not process.has_answered or active.interrupted is not None:
            process.guarded.kill()
            return
        loop = asyncio.get_running_loop()
        self._idle[process] = loop.call_later(self._idle_timeout, self._retire, process)

    def _retire(self, process: "HandlerProcess") -> None:
        if self._idle.pop(process, None) is not None:
            process.guarded.terminate()


class HandlerProcess:
    """The worker's side of one handler process."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket, theirs = socket.socketpair()
        argv = [sys.executable, "-c", _BOOT, str(theirs.fileno()), json.dumps(sys.path)]
        try:
            self.guarded = GuardedProcess(argv, pass_fds=[theirs.fileno()])
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._partial_line = b""
        self._active: ActiveRun | None = None
        self._answer: asyncio.Future[object] = self._loop.create_future()
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._on_readable)
        self.guarded.ended.add_done_callback(self._on_ended)

    async def run(self, active: ActiveRun, address: str) -> object:
        """Return the handler's value or raise its error; ProcessDied if the process ended."""
        self._active = active
        self._answer = self._loop.create_future()
        task = encode(encode_task(active.claim, address))
        sending = self._loop.create_task(self._send(task))
        try:
            ends: list[asyncio.Future[Any]] = [self._answer, self.guarded.ended]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            self._active = None
        if self._answer.done():
            return self._answer.result()
        raise self._died(active, self.guarded.ended.result())

    @property
    def has_answered(self) -> bool:
        """Whether the process has answered its last task."""
        return self._answer.done()

    async def _send(self, message: bytes) -> None:
        try:
            await self._loop.sock_sendall(self._socket, message)
        except OSError:
            self.guarded.kill()  # the process no longer reads

    def _died(self, active: ActiveRun, end: ProcessExit) -> ProcessDied:
        active.exit_code = end.status
        why = f"could not be started: {end.error}" if end.error else str(end)
        return ProcessDied(f"the handler's process {why} before the handler returned")

    def _on_readable(self) -> None:
        self._read()

    def _read(self) -> bool:
        """Handle received messages. Returns False if there are none left to read."""
        try:
            received = self._socket.recv(1 << 18)
        except BlockingIOError:
            return False
        except OSError:
            received = b""
        if not received:
            self._loop.remove_reader(self._socket)
            self.guarded.kill()  # it closed its end, so it cannot answer
            return False
        *lines, self._partial_line = (self._partial_line + received).split(b"\n")
        for line in lines:
            self._handle_line(line)
        if len(self._partial_line) > MAX_MESSAGE_BYTES:
            self.guarded.kill()
        return True

    def _handle_line(self, line: bytes) -> None:
        try:
            self._handle_message(json.loads(line))
        except (ValueError, KeyError, TypeError):
            self.guarded.kill()  # a malformed message: the handler wrote to the socket

    def _handle_message(self, message: dict[str, Any]) -> None:
        active = self._active
        if active is None or self._answer.done():
            return
        if "progress" in message:
            active.run.note_progress(message["progress"])
        elif "attach" in message:
            active.run.attach(*message["attach"])
        elif "rows" in message:
            active.run.rows(message["rows"])
        elif "outcome" in message:
            self._answer.set_result(decode_outcome(message))
        elif "error" in message:
            error = RemoteError(
                str(message["error"]),
                raised=decode_raised(message["raised"]),
                permanent=bool(message["permanent"]),
                is_unfit=bool(message["unfit"]),
            )
            self._answer.set_exception(error)
        else:
            self._answer.set_result(EncodedResult(message["result"]))

    def kill_and_wait(self) -> None:
        """Kill the process and wait, without an event loop."""
        self.guarded.kill_and_wait()
        self._close_socket()

    def _on_ended(self, _: object) -> None:
        while self._read():  # its last messages are still in the socket
            pass
        self._close_socket()

    def _close_socket(self) -> None:
        if self._socket.fileno() >= 0 and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._socket.close()
