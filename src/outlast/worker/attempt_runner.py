"""Runs one attempt of a job: decode params, call the handler, hand the change to the finisher."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from outlast.core.decide import Change
from outlast.core.delivery import Delivery
from outlast.core.event import Lost
from outlast.core.ids import JobId
from outlast.core.run import Claim
from outlast.core.state import Loss, RunStatus
from outlast.errors import OperatorError, OutlastError, TypeNotFound
from outlast.jobs.executor_choice import ExecutorName
from outlast.jobs.registry import Registry
from outlast.run_context import NO_CONTEXT, Begin, WorkerRun
from outlast.worker import log_events
from outlast.worker.deadlines import Deadlines
from outlast.worker.executors.base import Executor
from outlast.worker.executors.coroutine import ImmediateResult, clear_cancellation
from outlast.worker.lease_table import LeaseTable
from outlast.worker.progress_reporter import ProgressReporter
from outlast.worker.run_outcome import (
    ActiveRun,
    AnyType,
    OutcomeJudge,
    RemoteError,
    describe_error,
)

log = logging.getLogger("outlast.worker")

COMMITTED_STATUSES = frozenset({RunStatus.SUCCEEDED, RunStatus.SKIPPED})
"""Run statuses that commit the run's transaction; every other status rolls it back."""


Refuse = Callable[[Claim, BaseException], Awaitable[Change]]
"""Decides the change of a claim whose params do not fit this worker's code."""


class AttemptRunner:
    """Runs claims, each in the task of its execution slot, and passes changes to `finish`.

    Every job passes through this class, so objects that most jobs do not need are created lazily.
    """

    def __init__(
        self,
        registry: Registry,
        judge: OutcomeJudge,
        executors: Mapping[ExecutorName, Executor],
        *,
        begin: Begin | None,
        finish: Callable[[Change], None],
        on_written: Callable[[Sequence[Change], Sequence[bool]], None],
        leases: LeaseTable,
        reporter: ProgressReporter | None,
        is_torn_down: Callable[[], bool],
        refuse: Refuse,
        context: Any = NO_CONTEXT,
    ) -> None:
        self._registry = registry
        self._judge = judge
        self._executors = executors
        self._begin = begin
        self._finish = finish
        self._on_written = on_written
        self._leases = leases
        self._reporter = reporter
        self._is_torn_down = is_torn_down
        self._refuse = refuse
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._on_timeout, self._abandon_stuck)
        self.active: dict[tuple[JobId, int], ActiveRun] = {}

    def begin(
        self, claim: Claim, slot_task: "asyncio.Task[Any]", started: float
    ) -> Coroutine[Any, Any, None] | None:
        """Call the handler of a claim.

        `started` is a time of the event loop. Returns None if the run has ended already, otherwise
        the coroutine that `slot_task` awaits for the rest of it. Handler errors are not raised.
        """
        try:
            kind = self._registry.get(claim.type)
        except TypeNotFound as error:
            change = self._judge.unknown_type(claim, error)
            self._finish(change)
            log_events.job_error(claim, error, change.error or type(error).__name__)
            return None
        active = ActiveRun(claim, kind, self._new_run, slot_task, started)
        try:
            params = kind.load(claim.params)
        except BaseException as error:  # noqa: BLE001 - any error means that it cannot run here
            return self._refuse_unstarted(active, error)
        active.is_logged = log_events.job_start(claim)
        self._record_start(claim, kind)
        step = self._executors[kind.executor].call(active, params)
        if (
            type(step) is ImmediateResult
            and active.is_plain
            and self._is_closed(active, step.value)
        ):
            return None
        return self._rest(active, step)

    def abandon(self, claim: Claim, error: Exception) -> None:
        """Close a run as lost because an internal error prevented its outcome."""
        self._finish(self._judge.decide(claim, Lost(Loss.OWNER_DEAD, describe_error(error))))
        with suppress(Exception):
            log.error("run could not be ended job=%s", claim.id, exc_info=error)

    def close(self) -> None:
        """Cancel the `max_runtime` timers."""
        self._deadlines.close()

    def _new_run(self, claim: Claim, kind: AnyType) -> WorkerRun:
        notify = None if self._reporter is None else self._reporter.notify
        # The policy of the type decides, also where a test replaces the executor.
        begin = None if kind.policy.executor in {"process", "command"} else self._begin
        return WorkerRun(claim, begin=begin, loop=self._loop, notify=notify, context=self._context)

    def _record_start(self, claim: Claim, kind: AnyType) -> None:
        name = kind.executor
        if name == "async":
            self._leases.start_async(claim, limit=kind.max_runtime)
            return
        # The handler that builds a command runs in a thread of this process.
        executor = "thread" if name == "command" else name
        self._leases.start(claim, executor=executor, limit=kind.max_runtime)

    def _log_end(self, active: ActiveRun, change: Change) -> None:
        rows = active.run.rows_processed if active.has_run else 0
        log_events.job_end(active.claim, change, self._loop.time() - active.started, rows)

    def _is_closed(self, active: ActiveRun, value: object) -> bool:
        """Close a run that returned without awaiting. Returns False if `_rest` must handle it."""
        try:
            change = self._judge.returned(active, value)
        except BaseException:  # noqa: BLE001 - `_rest` raises it again and judges it
            return False
        self._leases.returned(active.claim)
        if active.is_logged:
            self._log_end(active, change)
        self._finish(change)
        return True

    async def _rest(self, active: ActiveRun, step: Awaitable[object]) -> None:
        """Await the handler and pass its change to the finisher."""
        key = active.claim.job_id, active.claim.token
        self.active[key] = active
        try:
            change = await self._await_handler(active, step)
            if active.has_run:
                await self._end(active, change)
            elif not active.abandoned:
                self._finish(change)
        finally:
            del self.active[key]

    async def _refuse_unstarted(self, active: ActiveRun, error: BaseException) -> None:
        """Refuse a run whose params do not fit this worker's code."""
        key = active.claim.job_id, active.claim.token
        self.active[key] = active
        try:
            change = await self._refused(active, error)
            if not active.abandoned:
                self._finish(change)
        finally:
            del self.active[key]

    async def _refused(self, active: ActiveRun, error: BaseException) -> Change:
        change = await self._refuse(active.claim, error)
        log_events.job_unfit(active.claim, error, change)
        return change

    async def _await_handler(self, active: ActiveRun, step: Awaitable[object]) -> Change:
        """Await the handler. Always returns a change and leaves the slot's task uncancelled."""
        limit = active.kind.max_runtime
        if limit is not None:
            self._deadlines.watch(active, limit)
        try:
            change = self._judge.returned(active, await step)
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler is its failure
            self._leave_if_torn_down(active, error)
            change = await self._raised(active, error)
        finally:
            task, active.task, active.stop = active.task, None, None  # the slot's task is reused
            if limit is not None:
                self._deadlines.forget(active, limit)
            self._leases.returned(active.claim)
        if task is not None and task.cancelling():
            await clear_cancellation(task)
        if active.is_logged:
            self._log_end(active, change)
        return change

    async def _raised(self, active: ActiveRun, error: BaseException) -> Change:
        if isinstance(error, RemoteError) and error.is_unfit and active.interrupted is None:
            return await self._refused(active, error)
        change = self._judge.raised(active, error)
        if change.error is not None:
            log_events.job_error(active.claim, error, change.error)
        return change

    def _leave_if_torn_down(self, active: ActiveRun, error: BaseException) -> None:
        """Release the run and raise again if the event loop itself is being closed."""
        if isinstance(error, asyncio.CancelledError) and self._is_torn_down():
            if not active.abandoned:
                self._finish(self._judge.abandon(active.claim))
            raise error

    def _on_timeout(self, active: ActiveRun) -> None:
        """Ask the handler to stop and stop renewing its lease, which then expires.

        The lease of a `once` run is renewed until its handler has ended: the job of the next slot
        must not start beside it.
        """
        if active.claim.delivery is not Delivery.ONCE:
            self._leases.expire(active.claim.lease)
        active.interrupt(Lost(Loss.TIMEOUT))

    def _abandon_stuck(self, active: ActiveRun) -> None:
        """Close a run as lost whose handler cannot be stopped; the store refuses its late write.

        A lease that is still in the table is that of a `once` run, which stays open until its
        handler ends, or has a supervisor, which ends this process. An open transaction has a time
        limit of its own.
        """
        claim, run = active.claim, active.run
        is_held = self._leases.has(claim.lease)
        if is_held or active.kind.stops == "now" or run.opened is not None:
            return
        active.abandoned = True
        run.lose_lease()
        log_events.job_lost(claim.lease, reason=str(Loss.TIMEOUT))
        self._finish(self._judge.decide(claim, Lost(Loss.TIMEOUT)))

    async def _end(self, active: ActiveRun, change: Change) -> None:
        """Write the last progress of a run whose handler used its run object, then close it."""
        run = active.run
        # An open transaction holds the lock that a progress write would wait for.
        if self._reporter is not None and run.has_news and run.opened is None:
            await self._reporter.write_last(run)
        if not active.abandoned:
            await self._close(active, change)
        elif run.opened is not None:
            with suppress(OutlastError):  # it has ended at its own time limit
                await run.opened.rollback()

    async def _close(self, active: ActiveRun, change: Change) -> None:
        """Finish the run, in one commit with its transaction if the handler opened one."""
        opened = active.run.opened
        if opened is None:
            self._finish(change)
            return
        try:
            if change.move.run not in COMMITTED_STATUSES:
                await opened.rollback()
            elif await opened.commit([change]):
                self._on_written([change], [True])
                return
            # The store refused the change and rolled back the effects. The finisher writes the
            # change again, so that the refusal is counted and logged.
        except OperatorError as error:
            change = self._judge.store_failed(active, error)
        except OutlastError as error:
            change = self._judge.raised(active, error)
        self._finish(change)
