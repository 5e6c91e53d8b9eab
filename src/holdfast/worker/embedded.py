"""The worker that lives in your own process: `async with app.worker(): …`."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Self, cast

from holdfast.config import Settings, check_count
from holdfast.core.decide import Change
from holdfast.core.event import Stopped
from holdfast.core.ids import Ids, JobId
from holdfast.core.limits import check_name
from holdfast.core.run import Claim, Holder, Lease
from holdfast.errors import InvalidType
from holdfast.jobs.registry import Registry
from holdfast.store.base import Capability, Hint, Renewal, Store, Topic, Transaction, Transactions
from holdfast.worker.dispatch import Dispatcher
from holdfast.worker.execute import Judge
from holdfast.worker.finish import Finisher
from holdfast.worker.renew import Renewer
from holdfast.worker.service import every
from holdfast.worker.slots import Slots
from holdfast.worker.tidy import Tidy

log = logging.getLogger("holdfast.worker")


class Worker:
    """Takes jobs and runs them while its block is open; leaving the block stops it in order.

    Leases are renewed from a thread of their own, so a handler that blocks the event loop keeps
    its lease; code that holds the interpreter itself for longer than a lease can lose it. Then
    another worker runs the job again, and whatever this one writes late is refused.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        *,
        ids: Ids,
        random: Callable[[], float],
        instance_id: str,
        queues: Sequence[str] = ("default",),
        types: Collection[str] | None = None,
        concurrency: int | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._settings = settings
        self._ids = ids
        self._random = random
        if isinstance(queues, str):
            raise InvalidType(f"queues is {queues!r:.80}; give a list of queue names")
        self._queues = [check_name(queue, what="queue") for queue in queues]
        self._types = sorted(registry.names() if types is None else types)
        self._concurrency = settings.concurrency
        if concurrency is not None:
            self._concurrency = check_count(concurrency, what="concurrency")
        self.holder = Holder(
            instance_id=check_name(instance_id, what="instance_id"), boot_id=str(uuid.uuid4())
        )
        self._held: dict[JobId, Lease] = {}
        self._stopping: asyncio.Task[None] | None = None
        self._is_running = False
        self._require_work()

    async def __aenter__(self) -> Self:
        await self._store.open()
        self._held.clear()
        self._stopping = None
        self._judge = Judge(self._ids.job, self._random)
        self._finisher = Finisher(self._store, self._settled)
        self._slots = self._make_slots()
        self._dispatcher = self._make_dispatcher()
        self._renewer = self._make_renewer()
        self._tidy = Tidy(self._store, self._ids.job)
        self._renewer.start()
        self._deaf = self._store.listen(self._hint, topics=[Topic.WORK, Topic.CANCELLED])
        self._loops = [
            asyncio.create_task(self._dispatcher.run(), name="holdfast-dispatch"),
            asyncio.create_task(self._look_around(), name="holdfast-tidy"),
        ]
        self._is_running = True
        log.info("worker started instance=%s queues=%s", self.holder.instance_id, self._queues)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Take no more, let what runs end within the grace, hand back the rest. Twice is fine."""
        if not self._is_running:
            return
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="holdfast-stop")
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        dispatching, tidying = self._loops
        self._dispatcher.stop()
        await asyncio.wait([dispatching])
        self._slots.hand_back()
        await self._slots.finished(self._settings.grace.total_seconds())
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.lease.total_seconds()):
                await self._finisher.flushed()
        await self._finisher.give_up()
        tidying.cancel()
        self._slots.close()
        self._deaf()
        await self._renewer.stop()
        await asyncio.wait([tidying])
        self._is_running = False
        log.info("worker stopped instance=%s", self.holder.instance_id)

    async def drained(self) -> None:
        """Wait until nothing is due and everything taken has ended, durably."""
        self._dispatcher.idle.clear()
        await self._dispatcher.idle.wait()

    @property
    def refused(self) -> int:
        """How many late writes of this worker were refused because it had lost the lease."""
        return self._finisher.refused

    @property
    def unwritten(self) -> list[JobId]:
        """Jobs whose end the store has not taken yet; if that lasts, these need attention."""
        return self._finisher.unwritten

    def _require_work(self) -> None:
        unknown = [name for name in self._types if name not in self._registry.names()]
        if unknown or not self._types or not self._queues:
            raise InvalidType(
                f"this worker has nothing to serve: types {self._types}, queues {self._queues}; "
                f"known types: {self._registry.names()}. Register a type before starting it"
            )

    def _make_slots(self) -> Slots:
        return Slots(
            self._registry,
            self._judge,
            concurrency=self._concurrency,
            begin=self._begin if Capability.TRANSACTIONS in self._store.capabilities else None,
            finish=self._finisher.finish,
            settled=self._finisher.settle,
            left=lambda seconds: self._dispatcher.done(seconds),
            expired=self._let_lapse,
        )

    def _make_dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self._store,
            self.holder,
            queues=self._queues,
            types=self._types,
            concurrency=self._concurrency,
            prefetch=self._settings.prefetch,
            lease=self._settings.lease,
            poll=self._settings.poll,
            took=self._took,
            is_busy=lambda: bool(self._held or self._slots.active or self._finisher.is_busy),
        )

    def _make_renewer(self) -> Renewer:
        loop = asyncio.get_running_loop()

        def found(lease: Lease, renewal: Renewal) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody works here any more
                loop.call_soon_threadsafe(self._found, lease, renewal)

        return Renewer(
            self._store,
            self._held,
            span=self._settings.lease,
            interval=self._settings.renew,
            found=found,
            seed=int(self._random() * 2**32),
        )

    async def _look_around(self) -> None:
        await asyncio.gather(
            every(self._settings.tick, self._tidy.run_once, random=self._random),
            every(60 * self._settings.tick, self._prune, random=self._random),
        )

    async def _prune(self) -> None:
        keep = self._settings.retention
        while keep is not None:
            if not await self._tidy.prune_once(keep, self._settings.prune_batch):
                return

    async def _begin(self) -> Transaction:
        store = cast(Transactions, self._store)
        return await store.begin(within=self._settings.transaction)

    def _hint(self, hint: Hint) -> None:
        self._dispatcher.hint(hint)
        if hint.cancelled:
            self._renewer.poke()

    def _took(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._held[claim.job_id] = claim.lease
        self._slots.take(claims)

    def _let_lapse(self, claim: Claim) -> None:
        self._forget(claim.job_id, claim.token)

    def _settled(self, change: Change, _applied: bool) -> None:
        self._forget(change.job_id, change.token)

    def _forget(self, job_id: JobId, token: int) -> None:
        """Renew it no more, unless it is held under another token by now."""
        held = self._held.get(job_id)
        if held is not None and held.token == token:
            del self._held[job_id]

    def _found(self, lease: Lease, renewal: Renewal) -> None:
        """The renewer saw that a lease is gone, or that somebody wants the job to stop."""
        if self._held.get(lease.job_id) != lease:
            return
        if renewal.held:
            self._slots.give_up(lease, Stopped("cancel_requested"))
        elif self._slots.give_up(lease, None):
            log.warning("lease lost job=%s token=%d", lease.job_id, lease.token)
            self._forget(lease.job_id, lease.token)
