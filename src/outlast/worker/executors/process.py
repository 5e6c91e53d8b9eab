"""Handlers in processes of their own, which can die or be killed without harm to the worker."""

import asyncio
import json
import socket
import sys
from collections.abc import Mapping
from typing import Any, Final

from outlast.jobs.executor_choice import STOPS
from outlast.worker.executors.guarded_process import GuardedProcess, ProcessExit, kill_all
from outlast.worker.executors.process_protocol import (
    MAX_MESSAGE_BYTES,
    decode_outcome,
    encode,
    encode_task,
)
from outlast.worker.run_outcome import ActiveRun, EncodedResult, ProcessDied, RemoteError

IDLE_TIMEOUT_S: Final = 60.0
"""How long a process without work is kept, in seconds."""

_BOOT: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from outlast.worker.executors.process_main import main; main(int(sys.argv[1]))"
)


class ProcessExecutor:
    """Gives each process one job at a time, and keeps it for the next; kills one that must stop."""

    stops: Final = STOPS["process"]

    def __init__(self, addresses: Mapping[str, str], *, idle: float = IDLE_TIMEOUT_S) -> None:
        self._addresses = addresses
        self._keep_for = idle
        self._idle: dict[HandlerProcess, asyncio.TimerHandle] = {}
        self._all: set[HandlerProcess] = set()

    async def call(self, active: ActiveRun, params: dict[str, Any]) -> object:  # noqa: ARG002 - the process reads them itself
        process = self._free() or self._start()
        active.stop = process.guarded.terminate
        try:
            return await process.run(active, self._addresses[active.kind.name])
        finally:
            self._take_back(process, active)

    async def close(self) -> None:
        await kill_all([process.guarded for process in self._all])

    def close_now(self) -> None:
        for process in tuple(self._all):
            process.kill_and_wait()

    def _free(self) -> "HandlerProcess | None":
        while self._idle:
            process, timer = self._idle.popitem()  # the last used: those before it grow old
            timer.cancel()
            if not process.guarded.ended.done():
                return process
        return None

    def _start(self) -> "HandlerProcess":
        process = HandlerProcess()
        self._all.add(process)
        process.guarded.ended.add_done_callback(lambda _: self._all.discard(process))
        return process

    def _take_back(self, process: "HandlerProcess", active: ActiveRun) -> None:
        if not process.has_answered or active.interrupted is not None:
            process.guarded.kill()
            return
        loop = asyncio.get_running_loop()
        self._idle[process] = loop.call_later(self._keep_for, self._retire, process)

    def _retire(self, process: "HandlerProcess") -> None:
        if self._idle.pop(process, None) is not None:
            process.guarded.terminate()


class HandlerProcess:
    """The worker's end of one such process."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._line, theirs = socket.socketpair()
        argv = [sys.executable, "-c", _BOOT, str(theirs.fileno()), json.dumps(sys.path)]
        try:
            self.guarded = GuardedProcess(argv, pass_fds=[theirs.fileno()])
        except BaseException:
            self._line.close()
            raise
        finally:
            theirs.close()
        self._heard = b""
        self._active: ActiveRun | None = None
        self._answer: asyncio.Future[object] = self._loop.create_future()
        self._line.setblocking(False)
        self._loop.add_reader(self._line, self._readable)
        self.guarded.ended.add_done_callback(self._gone)

    async def run(self, active: ActiveRun, address: str) -> object:
        """What the handler returned, told by its process; Died if that ended instead."""
        self._active = active
        self._answer = self._loop.create_future()
        sending = self._loop.create_task(self._send(encode(encode_task(active.claim, address))))
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
        """Whether it is done with what it was given."""
        return self._answer.done()

    async def _send(self, message: bytes) -> None:
        try:
            await self._loop.sock_sendall(self._line, message)
        except OSError:
            self.guarded.kill()  # it no longer listens

    def _died(self, active: ActiveRun, end: ProcessExit) -> ProcessDied:
        active.exit_code = end.status
        why = f"could not be started: {end.error}" if end.error else str(end)
        return ProcessDied(f"the handler's process {why} before the handler returned")

    def _readable(self) -> None:
        self._read()

    def _read(self) -> bool:
        """Take what has come; whether there may be more."""
        try:
            heard = self._line.recv(1 << 18)
        except BlockingIOError:
            return False
        except OSError:
            heard = b""
        if not heard:
            self._loop.remove_reader(self._line)
            self.guarded.kill()  # it closed its end, so it can answer no more
            return False
        *lines, self._heard = (self._heard + heard).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._heard) > MAX_MESSAGE_BYTES:
            self.guarded.kill()
        return True

    def _take(self, line: bytes) -> None:
        try:
            self._take_message(json.loads(line))
        except (ValueError, KeyError, TypeError):
            self.guarded.kill()  # what it says makes no sense: a handler wrote on our line

    def _take_message(self, message: dict[str, Any]) -> None:
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
            error = RemoteError(str(message["error"]), permanent=bool(message["permanent"]))
            self._answer.set_exception(error)
        else:
            self._answer.set_result(EncodedResult(message["result"]))

    def kill_and_wait(self) -> None:
        """Kill it, for when no event loop can wait for its end."""
        self.guarded.kill_and_wait()
        self._let_go()

    def _gone(self, _: object) -> None:
        while self._read():  # what it said last is still on the line
            pass
        self._let_go()

    def _let_go(self) -> None:
        if self._line.fileno() >= 0 and not self._loop.is_closed():
            self._loop.remove_reader(self._line)
            self._loop.remove_writer(self._line)
        self._line.close()
