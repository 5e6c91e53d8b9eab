"""The places where handlers run: as many at a time as the worker's concurrency."""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.context import Begin, Run
from holdfast.core.decide import Change
from holdfast.core.event import Event, Lost, Stopped
from holdfast.core.ids import JobId
from holdfast.core.run import Claim
from holdfast.core.state import Loss, RunStatus
from holdfast.errors import HoldfastError
from holdfast.jobs.registry import Registry
from holdfast.worker.execute import Active, Judge, shutdown

log = logging.getLogger("holdfast.worker")

BREATH = 0.005
"""Handlers that never wait still let the event loop turn this often, in seconds."""

LAST_WORDS = 1.0
"""How long a handler that was cancelled may still take, in seconds."""

KEPT = frozenset({RunStatus.SUCCEEDED, RunStatus.SKIPPED})
"""Runs whose transaction is committed with their end; any other end undoes it."""


class Slots:
    """Runs claims, and hands what became of them to `finish`."""

    def __init__(
        self,
        registry: Registry,
        judge: Judge,
        *,
        concurrency: int,
        begin: Begin | None,
        finish: Callable[[Change], None],
        settled: Callable[[Change, bool], None],
        left: Callable[[float], None],
        expired: Callable[[Claim], None],
    ) -> None:
        self._registry = registry
        self._judge = judge
        self._begin = begin
        self._finish = finish
        self._settled = settled
        self._left = left
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Queue[Claim] = asyncio.Queue()
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="holdfast-handler")
        self._tasks = [
            asyncio.create_task(self._slot(), name=f"holdfast-slot-{n}") for n in range(concurrency)
        ]
        self._breathed = 0.0
        self._hushed = asyncio.Event()
        self._doomed: dict[JobId, Event | None] = {}
        self.active: dict[JobId, Active] = {}

    def take(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self._ready.put_nowait(claim)

    def give_up(self, job_id: JobId, event: Event | None) -> None:
        """Stop that job. One that has not started never will; without an event, without a word."""
        active = self.active.get(job_id)
        if active is not None:
            active.interrupt(event or Stopped("lease_lost"))
        else:
            self._doomed[job_id] = event

    def hand_back(self) -> None:
        """Give back what has not started, where its delivery allows; the rest will start."""
        claims = [self._ready.get_nowait() for _ in range(self._ready.qsize())]
        for claim in claims:
            if claim.delivery.runs_again:
                self._finish(self._judge.abandon(claim))
                self._left(0.0)
            else:
                self._ready.put_nowait(claim)

    async def finished(self, within: float) -> None:
        """Wait for what runs, then ask it to stop, then let go of what does not."""
        await self._quiet(within)
        for active in tuple(self.active.values()):
            active.interrupt(shutdown(active.claim))
        await self._quiet(LAST_WORDS if self.active else 0.0)
        for active in self.active.values():
            log.warning("handler did not stop job=%s type=%s", active.claim.id, active.kind.name)
            active.abandoned = True
            self._finish(self._judge.abandon(active.claim))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _quiet(self, within: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self.active or self._ready.qsize():
                    self._hushed.clear()
                    await self._hushed.wait()

    async def _slot(self) -> None:
        while True:
            claim = await self._ready.get()
            started = self._loop.time()
            await self._run(claim)
            ended = self._loop.time()
            self._left(ended - started)
            if not self.active:
                self._hushed.set()
            if ended - self._breathed > BREATH:
                await asyncio.sleep(0)
                self._breathed = self._loop.time()

    async def _run(self, claim: Claim) -> None:
        if claim.job_id in self._doomed:
            self._drop(claim, self._doomed.pop(claim.job_id))
            return
        try:
            kind = self._registry.get(claim.type)
            params = kind.load(claim.params)
        except Exception as error:  # noqa: BLE001 - whatever it is, this job cannot be run
            self._finish(self._judge.unreadable(claim, error))
            return
        await self._run_active(
            Active(claim, kind, Run(claim, begin=self._begin, loop=self._loop)), params
        )

    async def _run_active(self, active: Active, params: dict[str, Any]) -> None:
        self.active[active.claim.job_id] = active
        try:
            change = await self._watched(active, params)
            if not active.abandoned:
                await self._close(active, change)
        finally:
            del self.active[active.claim.job_id]

    def _drop(self, claim: Claim, event: Event | None) -> None:
        if event is not None:
            self._finish(self._judge.decide(claim, event))

    async def _watched(self, active: Active, params: dict[str, Any]) -> Change:
        """Call the handler; whatever it does, a change comes back."""
        timer = self._time_limit(active)
        try:
            return self._judge.returned(active, await self._call(active, params))
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler is its failure
            return self._raised(active, error)
        finally:
            active.task = None  # from here on nothing may cancel it: the slot goes on
            if timer is not None:
                timer.cancel()

    def _time_limit(self, active: Active) -> asyncio.TimerHandle | None:
        limit = active.kind.max_runtime
        if limit is None:
            return None
        return self._loop.call_later(limit.total_seconds(), self._timed_out, active)

    def _timed_out(self, active: Active) -> None:
        """Ask it to stop, and renew no more: a handler that does not comply loses its lease."""
        self._expired(active.claim)
        active.interrupt(Lost(Loss.TIMEOUT))

    async def _call(self, active: Active, params: dict[str, Any]) -> object:
        kind = active.kind
        handler = partial(kind.function, active.run) if kind.takes_run else kind.function
        if kind.executor == "async":
            active.task = asyncio.current_task()
            return await handler(**params)
        call = partial(contextvars.copy_context().run, _outcome, handler, params)
        value, error = await self._loop.run_in_executor(self._threads, call)
        if error is not None:
            raise error
        return value

    def _raised(self, active: Active, error: BaseException) -> Change:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            if active.interrupted is None:
                # Not our doing: the loop is being torn down. Leave the job in order, then go.
                self._finish(self._judge.abandon(active.claim))
                raise error
            task.uncancel()
        return self._judge.raised(active, error)

    async def _close(self, active: Active, change: Change) -> None:
        """Finish the run; where it opened a transaction, together with that or not at all."""
        opened = active.run.opened
        if opened is None:
            self._finish(change)
            return
        try:
            if change.move.run in KEPT:
                self._settled(change, await opened.commit([change]))
                return
            await opened.rollback()
        except HoldfastError as error:
            change = self._judge.raised(active, error)
        self._finish(change)


def _outcome(handler: Callable[..., Any], params: dict[str, Any]) -> tuple[Any, Any]:
    """Errors as values: a StopIteration could not travel through a future, and would hang it."""
    try:
        return handler(**params), None
    except BaseException as error:  # noqa: BLE001 - SystemExit of a handler is its failure
        return None, error
