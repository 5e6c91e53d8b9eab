"""The inside of a handler's process: takes an order, calls the handler, and says what happened."""

import asyncio
import importlib
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from functools import partial
from os import PathLike
from types import FrameType
from typing import Any, Final

from outlast.core.classify import ErrorClass
from outlast.core.limits import truncate
from outlast.core.outcome import HandlerOutcome
from outlast.core.run import Claim
from outlast.errors import TypeNotFound
from outlast.jobs.registry import JobType, Registry
from outlast.run_context import WorkerRun
from outlast.worker.executors.process_protocol import encode, encode_task, outcome

BETWEEN_REPORTS: Final = 0.1
ASKED_TO_END: Final = 128 + signal.SIGTERM


def main(line: int) -> None:
    """Serve the worker at the other end of `line` until one of the two is gone."""
    sys.argv[1:] = []
    signal.signal(signal.SIGTERM, _terminate)
    HandlerServer(socket.socket(fileno=line)).serve()


class Terminated(SystemExit):
    """Raised in the handler when its process is asked to end, so that it can clean up."""


class HandlerServer:
    """One order at a time: the handler has the main thread, the line a thread of its own."""

    def __init__(self, line: socket.socket) -> None:
        line.set_inheritable(False)  # or a program the handler starts could keep it open
        self._line = line
        self._speaking = threading.Lock()
        self._orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._news: queue.SimpleQueue[WorkerRun] = queue.SimpleQueue()

    def serve(self) -> None:
        for target in (self._listen, self._report):
            threading.Thread(target=target, daemon=True).start()
        try:
            while True:
                answer = self._perform(*encode_task(self._orders.get()))
                _flush()
                self.send(answer)
        except Terminated:
            _flush()
            os._exit(ASKED_TO_END)  # whatever threads the handler left behind
        except OSError:  # the line is gone: a handler closed it, or the worker did
            os._exit(1)

    def send(self, message: dict[str, Any]) -> None:
        with self._speaking:
            self._line.sendall(encode(message))

    def say_progress(self, run: WorkerRun) -> None:
        """What is new of it, if nobody has said it; whoever takes it says it before anybody else
        speaks, for what comes after the answer is not heard."""
        with self._speaking:
            if run.has_news:
                self._line.sendall(encode({"progress": run.take_progress()}))

    def tell(self, run: WorkerRun) -> None:
        self._news.put(run)

    def _listen(self) -> None:
        with suppress(OSError, ValueError), self._line.makefile("rb") as orders:
            for order in orders:
                self._orders.put(json.loads(order))
        _end_with_the_worker()

    def _report(self) -> None:
        while True:
            self.say_progress(self._news.get())
            time.sleep(BETWEEN_REPORTS)  # what comes meanwhile goes out together

    def _perform(self, claim: Claim, address: str) -> dict[str, Any]:
        kind = None
        run = RemoteRun(claim, self)
        try:
            kind = _registry(address).get(claim.type)
            answer = _answer(kind, _call(kind, run, kind.load(claim.params)))
        except Terminated:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler is its failure
            answer = _failure(kind, error)
        self.say_progress(run)
        return answer


class RemoteRun(WorkerRun):
    """A run whose worker is at the other end of the line. It has no transaction."""

    __slots__ = ("_inside",)

    def __init__(self, claim: Claim, inside: HandlerServer) -> None:
        super().__init__(claim, notify=inside.tell)
        self._inside = inside

    def attach(self, *paths: str | PathLike[str]) -> None:
        before = len(self.artifacts)
        super().attach(*paths)
        self._inside.send({"attach": self.artifacts[before:]})  # at once: it may be killed

    def rows(self, number: int) -> None:
        super().rows(number)
        self._inside.send({"rows": number})


def _registry(address: str) -> Registry:
    """Of the app at that address, which the worker's own code gave; importing fills it."""
    module, _, name = address.partition(":")
    registry = getattr(getattr(importlib.import_module(module), name, None), "registry", None)
    if not isinstance(registry, Registry):
        raise TypeNotFound(f"{address} is no app; give the worker the address of the Outlast app")
    return registry


def _call(kind: JobType[..., Any], run: WorkerRun, params: dict[str, Any]) -> object:
    handler = partial(kind.function, run) if kind.takes_run else kind.function
    value = handler(**params)
    return asyncio.run(value) if asyncio.iscoroutine(value) else value


def _answer(kind: JobType[..., Any], value: object) -> dict[str, Any]:
    return (
        outcome(value) if isinstance(value, HandlerOutcome) else {"result": kind.dump_result(value)}
    )


def _failure(kind: JobType[..., Any] | None, error: BaseException) -> dict[str, Any]:
    verdict = ErrorClass.TRANSIENT if kind is None else kind.classifier.classify(error)
    text = truncate("".join(traceback.format_exception(error)))
    return {"error": text, "permanent": verdict is ErrorClass.PERMANENT}


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated(ASKED_TO_END)


def _end_with_the_worker() -> None:
    """The worker is gone, or its keeper: nobody wants this run's result any more."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
