"""One attempt at a job: read its params, call its handler, and hand on what became of it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from outlast.core.decide import Change
from outlast.core.event import Lost
from outlast.core.ids import JobId
from outlast.core.run import Claim
from outlast.core.state import Loss, RunStatus
from outlast.errors import OutlastError
from outlast.jobs.executor_choice import ExecutorName
from outlast.jobs.registry import Registry
from outlast.run_context import Begin, WorkerRun
from outlast.worker import log_events
from outlast.worker.deadlines import Deadlines
from outlast.worker.executors.base import Executor
from outlast.worker.executors.coroutine import ImmediateError, clear_cancellation
from outlast.worker.lease_table import LeaseTable
from outlast.worker.progress_reporter import ProgressReporter
from outlast.worker.run_outcome import ActiveRun, AnyType, OutcomeJudge, describe

log = logging.getLogger("outlast.worker")

KEPT = frozenset({RunStatus.SUCCEEDED, RunStatus.SKIPPED})
"""Runs whose transaction is committed with their end; any other end undoes it."""


class AttemptRunner:
    """Runs claims, each in the task of its slot, and hands what became of them to `finish`.

    Every job passes here, so what most jobs do not need is made only when it is asked for.
    """

    def __init__(
        self,
        registry: Registry,
        judge: OutcomeJudge,
        executors: Mapping[ExecutorName, Executor],
        *,
        begin: Begin | None,
        finish: Callable[[Change], None],
        settled: Callable[[Sequence[Change], Sequence[bool]], None],
        held: LeaseTable,
        reporter: ProgressReporter | None,
        is_torn_down: Callable[[], bool],
    ) -> None:
        self._registry = registry
        self._judge = judge
        self._executors = executors
        self._begin = begin
        self._finish = finish
        self._settled = settled
        self._held = held
        self._reporter = reporter
        self._is_torn_down = is_torn_down
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._timed_out)
        self.active: dict[tuple[JobId, int], ActiveRun] = {}

    def begin(
        self, claim: Claim, slot: "asyncio.Task[Any]", started: float
    ) -> Coroutine[Any, Any, None] | None:
        """Call its handler. None if it is over already; else the rest of it, for `slot` to await.

        `started` is a moment of the loop. Raises for no fault of a handler's.
        """
        try:
            kind = self._registry.get(claim.type)
            params = kind.load(claim.params)
        except BaseException as error:  # noqa: BLE001 - whatever it is, this job cannot be run
            change = self._judge.unreadable(claim, error)
            self._finish(change)
            log_events.job_error(claim, error, change.error or type(error).__name__)
            return None
        active = ActiveRun(claim, kind, self._new_run, slot, started)
        active.is_told = log_events.job_start(claim)
        self._tell_start(claim, kind)
        step = self._executors[kind.executor].call(active, params)
        if type(step) is ImmediateError and active.is_plain and self._is_closed(active, step.value):
            return None
        return self._rest(active, step)

    def abandon(self, claim: Claim, error: Exception) -> None:
        """It could not even be judged, and nobody knows how far it was."""
        self._finish(self._judge.decide(claim, Lost(Loss.OWNER_DEAD, describe(error))))
        with suppress(Exception):
            log.error("run could not be ended job=%s", claim.id, exc_info=error)

    def close(self) -> None:
        self._deadlines.close()

    def _new_run(self, claim: Claim, kind: AnyType) -> WorkerRun:
        tell = None if self._reporter is None else self._reporter.tell
        # What its type asks for counts, also where a test runs it in another place.
        begin = None if kind.policy.executor in {"process", "command"} else self._begin
        return WorkerRun(claim, begin=begin, loop=self._loop, notify=tell)

    def _tell_start(self, claim: Claim, kind: AnyType) -> None:
        name = kind.executor
        if name == "async":
            self._held.enter(claim, limit=kind.max_runtime)
            return
        # What a command is to be is said by a function, in a thread of this process.
        place = "thread" if name == "command" else name
        self._held.start(claim, executor=place, limit=kind.max_runtime)

    def _tell_end(self, active: ActiveRun, change: Change) -> None:
        rows = active.run.rows_processed if active.has_run else 0
        log_events.job_end(active.claim, change, self._loop.time() - active.started, rows)

    def _is_closed(self, active: ActiveRun, value: object) -> bool:
        """Whether that was all there is to do about it; else the long way is the right one."""
        try:
            change = self._judge.returned(active, value)
        except BaseException:  # noqa: BLE001 - it will be raised there again, and judged
            return False
        self._held.returned(active.claim)
        if active.is_told:
            self._tell_end(active, change)
        self._finish(change)
        return True

    async def _rest(self, active: ActiveRun, step: Awaitable[object]) -> None:
        """From its first step to its end, which is handed on."""
        key = active.claim.job_id, active.claim.token
        self.active[key] = active
        try:
            change = await self._watched(active, step)
            if active.has_run:
                await self._end(active, change)
            elif not active.abandoned:
                self._finish(change)
        finally:
            del self.active[key]

    async def _watched(self, active: ActiveRun, step: Awaitable[object]) -> Change:
        """Await the handler; whatever it does, a change comes back, and the slot is as before."""
        limit = active.kind.max_runtime
        if limit is not None:
            self._deadlines.watch(active, limit)
        try:
            change = self._judge.returned(active, await step)
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler is its failure
            self._leave_if_torn_down(active, error)
            change = self._judge.raised(active, error)
            if change.error is not None:
                log_events.job_error(active.claim, error, change.error)
        finally:
            task, active.task, active.stop = active.task, None, None  # nobody may cancel the slot
            if limit is not None:
                self._deadlines.forget(active, limit)
            self._held.returned(active.claim)
        if task is not None and task.cancelling():
            await clear_cancellation(task)
        if active.is_told:
            self._tell_end(active, change)
        return change

    def _leave_if_torn_down(self, active: ActiveRun, error: BaseException) -> None:
        """When the loop itself is being ended: leave the job in order, then go."""
        if isinstance(error, asyncio.CancelledError) and self._is_torn_down():
            if not active.abandoned:
                self._finish(self._judge.abandon(active.claim))
            raise error

    def _timed_out(self, active: ActiveRun) -> None:
        """Ask it to stop, and renew no more: a handler that does not comply loses its lease."""
        self._held.expire(active.claim.lease)
        active.interrupt(Lost(Loss.TIMEOUT))

    async def _end(self, active: ActiveRun, change: Change) -> None:
        """For whoever had a hand on their run: they may have said or opened something."""
        run = active.run
        # Not beside an open transaction: it holds the lock that a report would wait for.
        if self._reporter is not None and run.has_news and run.opened is None:
            await self._reporter.last(run)
        if not active.abandoned:
            await self._close(active, change)

    async def _close(self, active: ActiveRun, change: Change) -> None:
        """Finish the run; where it opened a transaction, together with that or not at all."""
        opened = active.run.opened
        if opened is None:
            self._finish(change)
            return
        try:
            if change.move.run not in KEPT:
                await opened.rollback()
            elif await opened.commit([change]):
                self._settled([change], [True])
                return
            # Refused, and its effects undone with it: written again, the refusal is on record.
        except OutlastError as error:
            change = self._judge.raised(active, error)
        self._finish(change)
