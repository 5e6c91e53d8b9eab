"""The worker engine: claim, execute, finish. Lease renewal is the caller's part."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import compress
from typing import Any, cast

from outlast.config import Settings, check_count
from outlast.core.decide import SUCCESS, Change
from outlast.core.event import Stopped
from outlast.core.failure_sink import FailureSink
from outlast.core.ids import Ids, JobId
from outlast.core.limits import check_name
from outlast.core.run import Claim, Lease, LeaseHolder
from outlast.core.state import State
from outlast.errors import InvalidType
from outlast.jobs.registry import Registry
from outlast.run_context import NO_CONTEXT
from outlast.store.contract import Capability, Store
from outlast.store.contract.jobs import Renewal
from outlast.store.contract.notifications import Notification
from outlast.store.contract.transactions import Transaction, Transactions
from outlast.worker import log_events
from outlast.worker.dispatcher import Dispatcher
from outlast.worker.execution_pool import ExecutionPool
from outlast.worker.executors.app_address import find_addresses
from outlast.worker.failure_reporter import FailureReporter
from outlast.worker.finisher import Finisher
from outlast.worker.lease_table import LeaseTable
from outlast.worker.maintenance.group_closer import GroupCloser
from outlast.worker.maintenance.seal_monitor import SealMonitor
from outlast.worker.periodic import run_periodically
from outlast.worker.refusal_judge import RefusalJudge
from outlast.worker.run_outcome import OutcomeJudge

log = logging.getLogger("outlast.worker")

DRAIN_POLL_S = 0.05
"""Seconds between two checks of `drained`, however long the poll interval is."""

SEAL_CHECK_INTERVALS = timedelta(seconds=1), timedelta(seconds=5)
"""Interval at which a worker with claimed jobs checks whether its store is sealed."""


class WorkerEngine:
    """The pipeline of one app. `start` and `stop` are called once each."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        *,
        ids: Ids,
        random: Callable[[], float],
        leases: LeaseTable,
        queues: Sequence[str] | None = None,
        types: Collection[str] | None = None,
        concurrency: int | None = None,
        app_address: str | None = None,
        judge: OutcomeJudge | None = None,
        failure_sinks: Sequence[FailureSink] = (),
    ) -> None:
        self._store = store
        self._registry = registry
        self._settings = settings
        self._failures = FailureReporter(failure_sinks)
        self._judge = judge or OutcomeJudge(
            ids.job, random, self._failures.record if failure_sinks else None
        )
        self._leases = leases
        self._ids = ids
        self._app_address = app_address
        self._serves_all = queues is None, types is None
        queues = registry.queues() if queues is None else queues
        if isinstance(queues, str):
            raise InvalidType(f"queues is {queues!r:.80}; give a list of queue names")
        self.queues = [check_name(queue, what="queue") for queue in dict.fromkeys(queues)]
        self.types = sorted(set(registry.names() if types is None else types))
        self.concurrency = settings.concurrency
        if concurrency is not None:
            self.concurrency = check_count(concurrency, what="concurrency")
        self.settled: Counter[State] = Counter()
        self.on_settled: Callable[[State], None] | None = None
        self.on_broken: Callable[[], None] = lambda: None  # a task of the pipeline has failed
        self._dispatch_task: asyncio.Task[None] | None = None
        self._seal_task: asyncio.Task[None] | None = None
        self._random = random
        self.context: Any = NO_CONTEXT  # value of the lifespan, set before the start
        self._require_work()
        self._addresses = dict(find_addresses(registry, self.types, app_address))

    def start(self, holder: LeaseHolder) -> None:
        """Start to claim jobs, on the running loop and an open store."""
        self.prepare(holder)
        self._dispatch_task = asyncio.create_task(self._dispatcher.run(), name="outlast-dispatch")
        for task in (self._dispatch_task, *self._pool.tasks):
            task.add_done_callback(self._on_task_done)
        least, most = SEAL_CHECK_INTERVALS
        interval = min(max(least, self._settings.tick), most)
        checks = run_periodically(interval, self._seal_monitor().run_once, random=self._random)
        self._seal_task = asyncio.create_task(checks, name="outlast-seal")

    def prepare(self, holder: LeaseHolder) -> None:
        """Build the pipeline without the claim loop, for a caller that uses `run_once`."""
        self._failures.worker = holder.instance_id
        close_groups = GroupCloser(self._store, self._ids.job).close_first_batch
        self._finisher = Finisher(self._store, self._on_written, close_groups)
        self._pool = self._make_pool(holder)
        self._dispatcher = self._make_dispatcher(holder)
        self._pool.on_run_end = self._dispatcher.run_ended

    def follow_registry(self) -> None:
        """Serve the types registered since, and their queues, unless they were chosen."""
        all_queues, all_types = self._serves_all
        queues = self._registry.queues() if all_queues else self.queues
        types = self._registry.names() if all_types else self.types
        try:
            self._addresses |= find_addresses(self._registry, types, self._app_address)
        except InvalidType as error:
            log.error("new job types are not served: %s", error)  # noqa: TRY400 - complete message
            return
        self.queues, self.types = queues, types
        if self._dispatch_task is not None:
            self._dispatcher.serve(queues, types)

    async def run_once(self) -> int:
        """Claim once and wait until the end of every claimed job is durable; return the count."""
        claimed = await self._dispatcher.run_once()
        await self._pool.wait_idle()
        await self._finisher.flush()
        return claimed

    async def stop(self, grace: timedelta) -> None:
        """Stop claiming, let running jobs end within the grace, release the rest."""
        self._dispatcher.stop()
        if self._seal_task is not None:
            self._seal_task.cancel()
        tasks = [task for task in (self._dispatch_task, self._seal_task) if task is not None]
        if tasks:
            await asyncio.wait(tasks)
        self._pool.release_all()
        await self._pool.shut_down(grace.total_seconds())
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.lease.total_seconds()):
                await self._finisher.flush()
        await self._finisher.abandon()
        await self._failures.close()

    def shorten_grace(self, grace: timedelta) -> None:
        """Let a `stop` under way take no longer than this."""
        self._pool.shorten_grace(grace.total_seconds())

    def close(self) -> None:
        """Cancel the execution slots. The result of a handler that still runs is discarded."""
        self._pool.close()

    async def drained(self) -> None:
        """Wait until no job is due and the end of every claimed job is durable."""
        dispatcher = self._dispatcher
        dispatcher.idle.clear()
        dispatcher.wake()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_POLL_S):
                    await dispatcher.idle.wait()
                return  # the event may be cleared again by now
            if not dispatcher.claimed_count:
                dispatcher.wake()  # all claimed jobs have ended: claim before the next poll

    def notify(self, notification: Notification) -> None:
        """Wake the dispatcher after a commit that may have added work. Thread-safe."""
        self._dispatcher.notify(notification)

    def wake(self) -> None:
        """Claim now instead of at the next poll."""
        self._dispatcher.wake()

    def on_renewal(self, lease: Lease, renewal: Renewal) -> None:
        """Stop a run whose lease was lost or whose cancellation was requested."""
        if not self._leases.has(lease):
            return
        if renewal.held:
            self._pool.stop_run(lease, Stopped("cancel_requested"))
        elif self._pool.stop_run(lease, None):
            log_events.job_lost(lease, reason="lease_lost")
            self._leases.lose(lease)

    @property
    def refused(self) -> int:
        """Number of late writes that the store refused because the lease was lost."""
        return self._finisher.refused

    @property
    def unwritten(self) -> list[JobId]:
        """Jobs whose end is not durable yet."""
        return self._finisher.unwritten

    @property
    def is_busy(self) -> bool:
        """Whether a lease is held, a handler runs, or an end is being written."""
        return bool(len(self._leases) or self._pool.active or self._finisher.is_busy)

    def _seal_monitor(self) -> SealMonitor:
        return SealMonitor(
            self._store,
            is_busy=lambda: bool(self._dispatcher.claimed_count),
            release=self._release_running,
        )

    def _release_running(self) -> None:
        log.warning("store sealed by a transfer: running jobs are stopped and released")
        self._dispatcher.release_prefetched()
        self._pool.stop_all()

    def _require_work(self) -> None:
        unknown = [name for name in self.types if name not in self._registry.names()]
        if unknown or not self.types or not self.queues:
            raise InvalidType(
                f"this worker has nothing to serve: types {self.types}, queues {self.queues}; "
                f"known types: {self._registry.names()}. Register a type before starting it"
            )

    def _make_pool(self, holder: LeaseHolder) -> ExecutionPool:
        refusals = RefusalJudge(
            self._store,
            self._judge,
            worker=holder.instance_id,
            max_unfit=self._settings.max_unfit,
        )
        return ExecutionPool(
            self._registry,
            self._judge,
            concurrency=self.concurrency,
            begin=self._begin if Capability.TRANSACTIONS in self._store.capabilities else None,
            finish=self._finisher.finish,
            on_written=self._finisher.on_written,
            leases=self._leases,
            logs=self._settings.logs,
            addresses=self._addresses,
            refuse=refusals.refuse,
            record_progress=self._store.record_progress,
            context=self.context,
        )

    def _make_dispatcher(self, holder: LeaseHolder) -> Dispatcher:
        return Dispatcher(
            self._store,
            holder,
            self._pool,
            queues=self.queues,
            types=self.types,
            concurrency=self.concurrency,
            prefetch=self._settings.prefetch,
            lease=self._settings.lease,
            poll=self._settings.poll,
            on_claimed=self._on_claimed,
            lease_capacity=lambda: self._leases.room,
            is_busy=lambda: self.is_busy,
        )

    async def _begin(self, blocking: bool) -> Transaction:
        store = cast(Transactions, self._store)
        return await store.begin(within=self._settings.transaction, blocking=blocking)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Report a task that ended with an error: no job would be claimed, or a slot is missing."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        try:
            log.error("task %s of the worker failed", task.get_name(), exc_info=error)
        finally:
            self.on_broken()

    def _on_claimed(self, claims: Sequence[Claim]) -> None:
        for lease in self._leases.add(claims):
            # This worker lost the job, and claimed it again: no renewal reports the first run.
            log_events.job_lost(lease, reason="lease_lost")
            self._pool.stop_run(lease, None)
        self._pool.submit(claims)

    def _on_written(self, changes: Sequence[Change], answers: Sequence[bool]) -> None:
        self._leases.remove_ended(changes)
        self._failures.on_written(changes, answers)
        applied = changes if all(answers) else list(compress(changes, answers))
        others = [change.move.to for change in applied if change.move is not SUCCESS]
        ends = Counter({State.SUCCEEDED: len(applied) - len(others)}) + Counter(others)
        self.settled += ends
        if self.on_settled is not None:
            for state in ends:
                self.on_settled(state)
