"""The places where handlers run: as many at a time as the worker's concurrency."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from holdfast.context import Begin, Run
from holdfast.core.decide import Change
from holdfast.core.event import Event, Lost, Stopped
from holdfast.core.ids import JobId
from holdfast.core.run import Claim, Lease
from holdfast.core.state import Loss, RunStatus
from holdfast.errors import HoldfastError
from holdfast.jobs.registry import Registry
from holdfast.worker import telling
from holdfast.worker.execute import Active, AnyType, Judge, describe, shutdown
from holdfast.worker.executors.all import all_executors
from holdfast.worker.executors.command import Moved
from holdfast.worker.executors.coroutine import Stepping, shake_off
from holdfast.worker.report import Report, Reporter

log = logging.getLogger("holdfast.worker")

BREATH = 0.005
"""Handlers that never wait still let the event loop turn this often, in seconds."""

LAST_WORDS = 1.0
"""How long a handler that was cancelled may still take, in seconds."""

KEPT = frozenset({RunStatus.SUCCEEDED, RunStatus.SKIPPED})
"""Runs whose transaction is committed with their end; any other end undoes it."""


class Started(Protocol):
    """Told right before a handler is called."""

    def __call__(self, claim: Claim, *, executor: str, limit: timedelta | None) -> None: ...


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
        started: Started,
        moved: Moved,
        stepping: Stepping | None,
        left: Callable[[float], None],
        expired: Callable[[Claim], None],
        logs: Path,
        addresses: Mapping[str, str],
        report: Report | None = None,
    ) -> None:
        self._registry = registry
        self._judge = judge
        self._begin = begin
        self._finish = finish
        self._settled = settled
        self._started = started
        self._moved = moved
        self._left = left
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Claim] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._doomed: dict[Lease, Event | None] = {}
        self._executors = all_executors(
            concurrency=concurrency,
            logs=logs,
            addresses=addresses,
            stepping=stepping,
            moved=moved,
        )
        self._reporter = None if report is None else Reporter(report)
        self._tasks = [
            asyncio.create_task(self._slot(), name=f"holdfast-slot-{n}") for n in range(concurrency)
        ]
        # Nobody cancels this one but whoever tears down the whole loop.
        self._canary = asyncio.create_task(asyncio.Event().wait(), name="holdfast-canary")
        self._breathed = 0.0
        self._hushed = asyncio.Event()
        self._patience: asyncio.Timeout | None = None
        self.active: dict[tuple[JobId, int], Active] = {}

    def take(self, claims: Sequence[Claim]) -> None:
        self._ready.extend(claims)
        for _ in range(min(len(claims), len(self._idle))):
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def give_up(self, lease: Lease, event: Event | None) -> bool:
        """Stop that run. One that has not started never will; without an event, without a word.

        False if its handler is done with: then its end is on the way to the store, or there.
        """
        active = self.active.get((lease.job_id, lease.token))
        if active is not None:
            if event is None:
                active.run.lose_lease()
            active.interrupt(event or Stopped("lease_lost"))
            return True
        if any(claim.lease == lease for claim in self._ready):
            self._doomed[lease] = event
            return True
        return False

    def hand_back(self) -> None:
        """Give back what has not started, where its delivery allows; the rest will start."""
        for claim in [claim for claim in self._ready if claim.delivery.runs_again]:
            self._ready.remove(claim)
            self._finish(self._judge.abandon(claim))
            self._left(0.0)

    async def finished(self, within: float) -> None:
        """Wait for what runs, then ask it to stop, then let go of what does not."""
        await self.quiet(within)
        for active in tuple(self.active.values()):
            active.interrupt(shutdown(active.claim))
        await self.quiet(LAST_WORDS if self.active else 0.0)
        killed = any(active.kind.stops == "now" for active in self.active.values())
        for executor in self._executors.values():
            await executor.close()
        await self.quiet(LAST_WORDS if killed else 0.0)
        for active in self.active.values():
            log.warning("handler did not stop job=%s type=%s", active.claim.id, active.kind.name)
            active.abandoned = True
            self._finish(self._judge.abandon(active.claim))

    def hasten(self, within: float) -> None:
        """Whatever it waits for now, it waits no longer than that."""
        latest = self._loop.time() + within
        if self._patience is not None and (self._patience.when() or 0) > latest:
            self._patience.reschedule(latest)

    def close(self) -> None:
        for task in (*self._tasks, self._canary):
            task.cancel()
        if self._reporter is not None:
            self._reporter.close()
        for executor in self._executors.values():
            executor.drop()

    async def quiet(self, within: float | None = None) -> None:
        """Wait until nothing runs here and nothing is about to; no longer than that."""
        try:
            async with asyncio.timeout(within) as self._patience:
                while self.active or self._ready:
                    self._hushed.clear()
                    await self._hushed.wait()
        except TimeoutError:
            pass
        finally:
            self._patience = None

    async def _slot(self) -> None:
        while True:
            claim = self._ready.popleft() if self._ready else await self._next()
            started = self._loop.time()
            try:
                await self._run(claim)
            except Exception as error:  # noqa: BLE001 - or the slot is dead and its job runs for ever
                self._lose(claim, error)
            ended = self._loop.time()
            self._left(ended - started)
            if not self.active:
                self._hushed.set()
            if ended - self._breathed > BREATH:
                await asyncio.sleep(0)
                self._breathed = self._loop.time()

    def _lose(self, claim: Claim, error: Exception) -> None:
        """It could not even be judged, and nobody knows how far it was."""
        self._finish(self._judge.decide(claim, Lost(Loss.OWNER_DEAD, describe(error))))
        with suppress(Exception):
            log.error("run could not be ended job=%s", claim.id, exc_info=error)

    async def _next(self) -> Claim:
        while not self._ready:
            waiter = self._loop.create_future()
            self._idle.append(waiter)
            await waiter
        return self._ready.popleft()

    async def _run(self, claim: Claim) -> None:
        if self._doomed and claim.lease in self._doomed:
            self._drop(claim, self._doomed.pop(claim.lease))
            return
        try:
            kind = self._registry.get(claim.type)
            params = kind.load(claim.params)
        except BaseException as error:  # noqa: BLE001 - whatever it is, this job cannot be run
            self._finish(self._judge.unreadable(claim, error))
            return
        run = self._new_run(claim, kind)
        key = claim.job_id, claim.token
        active = self.active[key] = Active(claim, kind, run)
        started = self._loop.time()
        try:
            change = await self._watched(active, params)
            telling.job_end(claim, change, self._loop.time() - started, run.rows_processed)
            # Not beside an open transaction: it holds the lock that a report would wait for.
            if self._reporter is not None and run.has_news and run.opened is None:
                await self._reporter.last(run)
            if not active.abandoned:
                await self._close(active, change)
        finally:
            del self.active[key]

    def _new_run(self, claim: Claim, kind: AnyType) -> Run:
        tell = None if self._reporter is None else self._reporter.tell
        # What its type asks for counts, also where a test runs it in another place.
        begin = None if kind.policy.executor in {"process", "command"} else self._begin
        return Run(claim, begin=begin, loop=self._loop, tell=tell)

    def _drop(self, claim: Claim, event: Event | None) -> None:
        if event is not None:
            self._finish(self._judge.decide(claim, event))

    async def _watched(self, active: Active, params: dict[str, Any]) -> Change:
        """Call the handler; whatever it does, a change comes back, and the slot is as before."""
        timer = self._time_limit(active)
        kind = active.kind
        # What a command is to be is said by a function, in a thread of this process.
        place = "thread" if kind.executor == "command" else kind.executor
        self._started(active.claim, executor=place, limit=kind.max_runtime)
        telling.job_start(active.claim)
        try:
            value = await self._executors[active.kind.executor].call(active, params)
            change = self._judge.returned(active, value)
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler is its failure
            self._leave_if_torn_down(active, error)
            change = self._judge.raised(active, error)
            if change.error is not None:
                telling.job_error(active.claim, error)
        finally:
            task, active.task, active.stop = active.task, None, None  # nobody may cancel the slot
            if timer is not None:
                timer.cancel()
            self._moved(active.claim.lease, "none")
        if task is not None and task.cancelling():
            await shake_off(task)
        return change

    def _leave_if_torn_down(self, active: Active, error: BaseException) -> None:
        """When the loop itself is being ended: leave the job in order, then go."""
        torn_down = self._canary.done() or self._canary.cancelling()
        if isinstance(error, asyncio.CancelledError) and torn_down:
            if not active.abandoned:
                self._finish(self._judge.abandon(active.claim))
            raise error

    def _time_limit(self, active: Active) -> asyncio.TimerHandle | None:
        limit = active.kind.max_runtime
        if limit is None:
            return None
        return self._loop.call_later(limit.total_seconds(), self._timed_out, active)

    def _timed_out(self, active: Active) -> None:
        """Ask it to stop, and renew no more: a handler that does not comply loses its lease."""
        self._expired(active.claim)
        active.interrupt(Lost(Loss.TIMEOUT))

    async def _close(self, active: Active, change: Change) -> None:
        """Finish the run; where it opened a transaction, together with that or not at all."""
        opened = active.run.opened
        if opened is None:
            self._finish(change)
            return
        try:
            if change.move.run not in KEPT:
                await opened.rollback()
            elif await opened.commit([change]):
                self._settled(change, True)
                return
            # Refused, and its effects undone with it: written again, the refusal is on record.
        except HoldfastError as error:
            change = self._judge.raised(active, error)
        self._finish(change)
