"""Main of a handler process: receives tasks, calls the handler and sends its outcome."""

import asyncio
import importlib
import json
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from os import PathLike
from types import FrameType
from typing import Any, Final, cast

from outlast.core.classify import ErrorClass
from outlast.core.error_text import error_text
from outlast.core.outcome import HandlerOutcome
from outlast.core.run import Claim
from outlast.errors import TypeNotFound
from outlast.jobs.registry import JobType, Registry
from outlast.run_context import WorkerRun
from outlast.worker.executors.process_call import call_handler
from outlast.worker.executors.process_lifespans import AppOfProcess, ProcessLifespans
from outlast.worker.executors.process_protocol import (
    Capture,
    decode_task,
    encode,
    encode_log,
    encode_outcome,
    encode_raised,
)
from outlast.worker.log_handler import CURRENT_LOG, HANDLER, attach
from outlast.worker.run_log import RunLog

PROGRESS_INTERVAL_S: Final = 0.1
"""Seconds between two progress messages; progress in between is coalesced."""

TERMINATED_EXIT_STATUS: Final = 128 + signal.SIGTERM


def main(fd: int) -> None:
    """Serve the worker on the socket `fd` until one of the two processes ends."""
    sys.argv[1:] = []
    signal.signal(signal.SIGTERM, _terminate)
    HandlerServer(socket.socket(fileno=fd)).serve()


class Terminated(SystemExit):
    """Raised in the handler on SIGTERM, so that it can clean up."""


class HandlerServer:
    """Runs one task at a time in the main thread, and reads the socket in another."""

    def __init__(self, connection: socket.socket) -> None:
        connection.set_inheritable(False)  # a program the handler starts must not keep it open
        self._socket = connection
        self._send_lock = threading.Lock()
        self._lifespans = ProcessLifespans()
        self._tasks: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._reports: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def serve(self) -> None:
        """Run tasks until the worker is gone or the process is asked to end."""
        for target in (self._receive_tasks, self._report):
            threading.Thread(target=target, daemon=True).start()
        try:
            while True:
                answer = self._perform(*decode_task(self._tasks.get()))
                _flush()
                self.send(answer)
        except Terminated:
            with suppress(Terminated):
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends; a SIGKILL ends it at once
                self._lifespans.close()
            _flush()
            os._exit(TERMINATED_EXIT_STATUS)  # skip the threads that the handler left behind
        except OSError:  # the handler or the worker closed the socket
            os._exit(1)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message. Thread-safe."""
        with self._send_lock:
            self._socket.sendall(encode(message))

    def send_progress(self, run: WorkerRun) -> None:
        """Send the new progress of a run, if any.

        Taking and sending are one step under the lock, since the worker ignores messages after the
        answer.
        """
        with self._send_lock:
            if run.has_news:
                self._socket.sendall(encode({"progress": run.take_progress()}))

    def queue_progress(self, run: WorkerRun) -> None:
        """Let the reporting thread send the progress of a run."""
        self._reports.put(partial(self.send_progress, run))

    def send_log(self, run_log: RunLog) -> None:
        """Send the new lines of a run, if any; one step under the lock, as for progress."""
        with self._send_lock:
            if (write := run_log.take()) is not None:
                self._socket.sendall(encode(encode_log(write)))
                run_log.stored(write)

    def queue_log(self, run_log: RunLog) -> None:
        """Let the reporting thread send the lines of a run."""
        self._reports.put(partial(self.send_log, run_log))

    def _receive_tasks(self) -> None:
        with suppress(OSError, ValueError), self._socket.makefile("rb") as lines:
            for line in lines:
                self._tasks.put(json.loads(line))
        _exit_with_worker()

    def _report(self) -> None:
        while True:
            self._reports.get()()
            time.sleep(PROGRESS_INTERVAL_S)  # coalesce the progress and the lines in between

    def _perform(self, claim: Claim, address: str, capture: Capture | None) -> dict[str, Any]:
        kind = None
        run_log = self._new_log(claim, capture)
        run = RemoteRun(claim, self)
        try:
            app = _app(address)
            kind, params = _decode(app, claim)
            with self._lifespans.entered(app) as (runner, context):
                run.enter(context)
                _capture_records(run_log, capture, runner)
                value = call_handler(kind, run, params, runner)
            answer = _answer(kind, value)
        except Terminated:
            raise
        except _Unfit as unfit:
            answer = _failure(kind, unfit.error) | {"unfit": True}
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler is its failure
            answer = _failure(kind, error)
        finally:
            CURRENT_LOG.set(None)
        self.send_progress(run)
        if run_log is not None:
            run_log.end()
            self.send_log(run_log)
        return answer

    def _new_log(self, claim: Claim, capture: Capture | None) -> RunLog | None:
        if capture is None:
            return None
        return RunLog(claim.lease, level=capture.level, limit=capture.limit, notify=self.queue_log)


class RemoteRun(WorkerRun):
    """A run in a handler process. It has no transaction."""

    __slots__ = ("_server",)

    def __init__(self, claim: Claim, server: HandlerServer) -> None:
        super().__init__(claim, notify=server.queue_progress)
        self._server = server

    def attach(self, *paths: str | PathLike[str]) -> None:
        """Record artifacts and send them at once, since the process may be killed."""
        before = len(self.artifacts)
        super().attach(*paths)
        self._server.send({"attach": self.artifacts[before:]})

    def rows(self, number: int) -> None:
        """Record and send the number of processed rows."""
        super().rows(number)
        self._server.send({"rows": number})


def _capture_records(
    run_log: RunLog | None, capture: Capture | None, runner: asyncio.Runner
) -> None:
    """Capture the records of this context.

    The app was imported: unless it has configured logging, the level of the root logger is that
    of the worker.
    """
    if run_log is None or capture is None:
        return
    if not [each for each in logging.root.handlers if each is not HANDLER]:
        logging.root.setLevel(capture.root)
    attach()
    CURRENT_LOG.set(run_log)
    runner.run(_use(run_log))


async def _use(run_log: RunLog) -> None:
    """Capture the records of the runner's own context, in which async code runs."""
    CURRENT_LOG.set(run_log)


def _app(address: str) -> AppOfProcess:
    """Import the app at an address, which comes from the worker and never from the store."""
    module, _, name = address.partition(":")
    app: Any = getattr(importlib.import_module(module), name, None)
    if not isinstance(getattr(app, "registry", None), Registry):
        raise TypeNotFound(
            f"{address} is not an Outlast app; give the worker the address of the app"
        )
    return cast("AppOfProcess", app)


class _Unfit(Exception):
    """The code of this process, which may be newer than the worker's, cannot decode the params."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _decode(app: AppOfProcess, claim: Claim) -> tuple[JobType[..., Any], dict[str, Any]]:
    """Return the type and the params of a claim; _Unfit if this process cannot read them."""
    try:
        kind = app.registry.get(claim.type)
        return kind, kind.load(claim.params)
    except Exception as error:
        raise _Unfit(error) from error


def _answer(kind: JobType[..., Any], value: object) -> dict[str, Any]:
    return (
        encode_outcome(value)
        if isinstance(value, HandlerOutcome)
        else {"result": kind.dump_result(value)}
    )


def _failure(kind: JobType[..., Any] | None, error: BaseException) -> dict[str, Any]:
    verdict = ErrorClass.TRANSIENT if kind is None else kind.classifier.classify(error)
    return {
        "error": error_text(error),
        "raised": encode_raised(error),
        "permanent": verdict is ErrorClass.PERMANENT,
        "unfit": False,
    }


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated(TERMINATED_EXIT_STATUS)


def _exit_with_worker() -> None:
    """Kill this process group: the worker or the guardian is gone, so the result is void."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
