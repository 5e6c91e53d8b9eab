"""Takes jobs, runs them and closes their runs; renewing their leases is somebody else's part."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import compress
from typing import cast

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
from outlast.worker.run_outcome import OutcomeJudge

log = logging.getLogger("outlast.worker")

DRAIN_POLL_S = 0.05
"""How often, in seconds, who waits for all to be done has it looked at, however rare polls are."""


SEAL_CHECK_INTERVAL = timedelta(seconds=1)
"""How often a worker with something in hand looks whether its store is being moved."""


class WorkerEngine:
    """Made for one app; `start` and `stop` frame its work, once."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        *,
        ids: Ids,
        random: Callable[[], float],
        held: LeaseTable,
        queues: Sequence[str] = ("default",),
        types: Collection[str] | None = None,
        concurrency: int | None = None,
        app_address: str | None = None,
        judge: OutcomeJudge | None = None,
        watches: Sequence[FailureSink] = (),
    ) -> None:
        self._store = store
        self._registry = registry
        self._settings = settings
        self._failures = FailureReporter(watches)
        self._judge = judge or OutcomeJudge(
            ids.job, random, self._failures.record if watches else None
        )
        self._held = held
        self._ids = ids
        if isinstance(queues, str):
            raise InvalidType(f"queues is {queues!r:.80}; give a list of queue names")
        self.queues = [check_name(queue, what="queue") for queue in dict.fromkeys(queues)]
        self.types = sorted(set(registry.names() if types is None else types))
        self.concurrency = settings.concurrency
        if concurrency is not None:
            self.concurrency = check_count(concurrency, what="concurrency")
        self.settled: Counter[State] = Counter()
        self.on_settled: Callable[[State], None] | None = None
        self._taking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._random = random
        self._require_work()
        self._addresses = find_addresses(registry, self.types, app_address)

    def start(self, holder: LeaseHolder) -> None:
        """Begin to take jobs, on the running loop, over an open store."""
        self.prepare(holder)
        self._taking = asyncio.create_task(self._dispatcher.run(), name="outlast-dispatch")
        if Capability.SEALS in self._store.capabilities:  # elsewhere nobody may work meanwhile
            looking = run_periodically(
                SEAL_CHECK_INTERVAL, self._seal_watch().run_once, random=self._random
            )
            self._watching = asyncio.create_task(looking, name="outlast-seal")

    def prepare(self, holder: LeaseHolder) -> None:
        """Be ready to take jobs, for whoever says when: `run_once`."""
        self._failures.worker = holder.instance_id
        hurry = GroupCloser(self._store, self._ids.job).close_first_batch
        self._finisher = Finisher(self._store, self._settled, hurry)
        self._slots = self._make_slots()
        self._dispatcher = self._make_dispatcher(holder)
        self._slots.on_run_end = self._dispatcher.run_ended

    async def run_once(self) -> int:
        """Take what there is room for and see it ended, durably; how many jobs that was."""
        taken = await self._dispatcher.run_once()
        await self._slots.wait_idle()
        await self._finisher.flush()
        return taken

    async def stop(self, grace: timedelta) -> None:
        """Take no more, let what runs end within the grace, hand back the rest."""
        self._dispatcher.stop()
        if self._watching is not None:
            self._watching.cancel()
        loops = [task for task in (self._taking, self._watching) if task is not None]
        if loops:
            await asyncio.wait(loops)
        self._slots.release_all()
        await self._slots.shut_down(grace.total_seconds())
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.lease.total_seconds()):
                await self._finisher.flush()
        await self._finisher.abandon()
        await self._failures.close()

    def shorten_grace(self, grace: timedelta) -> None:
        """Stopping already: from now on no longer than this."""
        self._slots.shorten_grace(grace.total_seconds())

    def close(self) -> None:
        """Let go of the slots; whatever still runs there runs for nobody."""
        self._slots.close()

    async def drained(self) -> None:
        """Wait until nothing is due and everything taken has ended, durably."""
        dispatcher = self._dispatcher
        dispatcher.idle.clear()
        dispatcher.wake()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_POLL_S):
                    await dispatcher.idle.wait()
                return  # whether or not it is so still
            if (
                not dispatcher.claimed_count
            ):  # all that was taken has ended: look again, be it not time
                dispatcher.wake()

    def notify(self, hint: Notification) -> None:
        """A commit may have brought work. Any thread may call it."""
        self._dispatcher.notify(hint)

    def on_renewal(self, lease: Lease, renewal: Renewal) -> None:
        """Whoever renews saw that a lease is gone, or that somebody wants the job to stop."""
        if not self._held.has(lease):
            return
        if renewal.held:
            self._slots.stop_run(lease, Stopped("cancel_requested"))
        elif self._slots.stop_run(lease, None):
            log_events.job_lost(lease, reason="lease_lost")
            self._held.remove(lease)

    @property
    def refused(self) -> int:
        """How many late writes were refused because the lease had been lost."""
        return self._finisher.refused

    @property
    def unwritten(self) -> list[JobId]:
        """Jobs whose end the store has not taken yet."""
        return self._finisher.unwritten

    @property
    def is_busy(self) -> bool:
        return bool(len(self._held) or self._slots.active or self._finisher.is_busy)

    def _seal_watch(self) -> SealMonitor:
        return SealMonitor(
            self._store,
            is_busy=lambda: bool(self._dispatcher.claimed_count),
            hand_back=self._release_running,
        )

    def _release_running(self) -> None:
        log.warning("the store is being moved: what still runs here is handed back")
        self._dispatcher.release_prefetched()
        self._slots.stop_all()

    def _require_work(self) -> None:
        unknown = [name for name in self.types if name not in self._registry.names()]
        if unknown or not self.types or not self.queues:
            raise InvalidType(
                f"this worker has nothing to serve: types {self.types}, queues {self.queues}; "
                f"known types: {self._registry.names()}. Register a type before starting it"
            )

    def _make_slots(self) -> ExecutionPool:
        return ExecutionPool(
            self._registry,
            self._judge,
            concurrency=self.concurrency,
            begin=self._begin if Capability.TRANSACTIONS in self._store.capabilities else None,
            finish=self._finisher.finish,
            settled=self._finisher.on_written,
            held=self._held,
            logs=self._settings.logs,
            addresses=self._addresses,
            report=self._store.record_progress,
        )

    def _make_dispatcher(self, holder: LeaseHolder) -> Dispatcher:
        return Dispatcher(
            self._store,
            holder,
            self._slots,
            queues=self.queues,
            types=self.types,
            concurrency=self.concurrency,
            prefetch=self._settings.prefetch,
            lease=self._settings.lease,
            poll=self._settings.poll,
            took=self._took,
            room=lambda: self._held.room,
            is_busy=lambda: self.is_busy,
        )

    async def _begin(self, blocking: bool) -> Transaction:
        store = cast(Transactions, self._store)
        return await store.begin(within=self._settings.transaction, blocking=blocking)

    def _took(self, claims: Sequence[Claim]) -> None:
        for lease in self._held.add(claims):
            # Lost, reclaimed and claimed again, all here: nobody else would tell its first run.
            log_events.job_lost(lease, reason="lease_lost")
            self._slots.stop_run(lease, None)
        self._slots.submit(claims)

    def _settled(self, changes: Sequence[Change], answers: Sequence[bool]) -> None:
        self._held.remove_ended(changes)
        self._failures.on_written(changes, answers)
        applied = changes if all(answers) else list(compress(changes, answers))
        others = [change.move.to for change in applied if change.move is not SUCCESS]
        ends = Counter({State.SUCCEEDED: len(applied) - len(others)}) + Counter(others)
        self.settled += ends
        if self.on_settled is not None:
            for state in ends:
                self.on_settled(state)
