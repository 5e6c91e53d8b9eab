"""The store: the contract's verbs over whatever engine it is given."""

import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from random import Random

from outlast.clock import Clock
from outlast.core.decide import Change
from outlast.core.event import EventRecord
from outlast.core.ids import Ids, JobId
from outlast.core.job import Job, NewJob
from outlast.core.run import Claim, Lease, LeaseHolder, RunRecord
from outlast.core.state import State
from outlast.errors import SchemaTooNew, StoreClosed
from outlast.store.contract import Capability, Migratable, PollingDefaults
from outlast.store.contract.jobs import Added, Filter, Renewal
from outlast.store.contract.maintenance import MaintenanceDue
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.keyvalue import intent_recovery, repair, skew, upkeep
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Engine, Key, Write
from outlast.store.keyvalue.footing import while_open
from outlast.store.keyvalue.leases import FleetClock, LeaseClock
from outlast.store.keyvalue.locks import Lock, Locks
from outlast.store.keyvalue.moving_surface import KeyValueMoving
from outlast.store.keyvalue.notifications import EngineWatchBridge
from outlast.store.keyvalue.operations import add, apply, claim, jobs, workers
from outlast.store.keyvalue.schedule_surface import KeyValueSchedules
from outlast.store.keyvalue.surface import KeyValueAround, KeyValueGroups, KeyValueQueues
from outlast.store.keyvalue.unit_of_work import UnitRunner
from outlast.store.subscribers import Subscribers

VERSION = 1
"""Of the records; a store that a newer Outlast wrote has a higher one."""

MAX_SKEW = timedelta(seconds=5)
"""By how much the clocks of two machines may differ."""

TICK = timedelta(seconds=1)
_OURS = Key("outlast", "version")


@while_open
class KeyValueStore(
    KeyValueQueues, KeyValueGroups, KeyValueSchedules, KeyValueAround, KeyValueMoving
):
    """Ordered keys and small transactions, whoever keeps them.

    Without a `clock`, leases go by one that all machines share, `max_skew` apart at most.
    """

    capabilities = frozenset({Capability.DURABLE, Capability.SHARED, Capability.MAINTENANCE_CHECK})

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        max_skew: timedelta = MAX_SKEW,
        tombstones: timedelta | None = None,
        watched: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tombstones`: how long a bucket's key is remembered once its job is pruned; None: for
        ever. For engines that take away by themselves what is past its time. `watched`: the
        seconds by which holders of locks are watched; for tests."""
        self._engine = engine
        self._clock: Clock = clock or FleetClock()
        self._tombstones = tombstones
        self._watched = watched
        self._margin = max_skew if clock is None else timedelta(0)
        self._ids = ids or Ids(self._clock.now, secrets.randbits)
        self._listeners = Subscribers()
        self._opened: tuple[StoreContext, Locks] | None = None

    @property
    def engine(self) -> Engine:
        """Where everything is kept."""
        return self._engine

    @property
    def polling_defaults(self) -> PollingDefaults:
        """As often as its engine wants to be asked; tidying no more often than looking."""
        poll = timedelta(seconds=self._engine.limits.poll)
        return PollingDefaults(poll=poll, tick=max(TICK, poll))

    def exists(self) -> bool:
        return self._engine.exists()

    async def open(self) -> None:
        if self._opened is not None:
            return
        try:
            await self._engine.open()
            is_new = await self._require_version()
            if self._margin:
                await skew.require_small_skew(self._engine, self._clock, self._margin)
        except BaseException:
            await self._engine.close()  # nobody will close what was never open
            raise
        random = Random(secrets.randbits(64))  # noqa: S311 - how long to pause is no secret
        units = UnitRunner(
            self._engine, random, lambda note: intent_recovery.complete(self._desk, note)
        )
        desk = StoreContext(
            units=units,
            clock=self._clock,
            leases=LeaseClock(self._clock, margin=self._margin),
            ids=self._ids,
            notify=self._listeners.publish,
            registered_queues=set(),
            tombstones=self._tombstones,
        )
        self._opened = desk, Locks(self._engine, secrets.token_hex(8), self._watched)
        if not is_new:
            await intent_recovery.complete_all(desk)
        self._listeners.connect(EngineWatchBridge(self._engine, self._listeners.deliver))

    async def migrate(self) -> None:
        self._require_open()
        if isinstance(self._engine, Migratable):
            await self._engine.migrate()

    async def close(self) -> None:
        if self._opened is not None:
            _, locks = self._opened
            self._opened = None
            self._listeners.disconnect()
            await locks.close()
            await self._engine.close()

    @property
    def _desk(self) -> StoreContext:
        return self._require_open()[0]

    def _require_open(self) -> tuple[StoreContext, Locks]:
        if self._opened is None:
            raise StoreClosed("the store is not open; await open() first")
        return self._opened

    async def _require_version(self) -> bool:
        """Whether nobody was here before."""
        if await self._engine.transact({_OURS: None}, [Write(_OURS, {"version": VERSION})]):
            return True
        [entry] = await self._engine.get([_OURS])
        if entry is not None and entry.value["version"] > VERSION:
            raise SchemaTooNew(
                f"its records are of version {entry.value['version']}, and this Outlast knows "
                f"version {VERSION}; use the newer Outlast"
            )
        return False

    async def add(self, new: Sequence[NewJob]) -> list[Added]:
        return await add.add(self._desk, new)

    async def get(self, job_ids: Sequence[JobId]) -> list[Job | None]:
        return await jobs.get(self._desk, job_ids)

    async def claim(
        self,
        holder: LeaseHolder,
        *,
        queue: str,
        types: Collection[str],
        limit: int,
        prefetch: int = 0,
        lease: timedelta,
    ) -> list[Claim]:
        return await claim.claim(
            self._desk,
            holder,
            queue=queue,
            types=types,
            limit=limit,
            prefetch=prefetch,
            lease=lease,
        )

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        return await apply.apply(self._desk, changes)

    async def renew(self, leases: Sequence[Lease], *, span: timedelta) -> list[Renewal]:
        return await jobs.renew(self._desk, leases, span)

    async def expired_leases(self, *, limit: int) -> list[Job]:
        return await jobs.lapsed(self._desk, limit=limit)

    async def missed_start_deadline(self, *, limit: int) -> list[Job]:
        return await jobs.overdue(self._desk, limit=limit)

    async def promote_due(self, *, limit: int) -> int:
        return await claim.promote_due(self._desk, limit=limit)

    async def peek(self, queue: str, *, limit: int) -> list[Job]:
        return await jobs.peek(self._desk, queue, limit=limit)

    async def find(self, what: Filter, *, limit: int, before: int | None = None) -> list[Job]:
        return await jobs.find(self._desk, what, limit=limit, before=before)

    async def counts(self) -> Mapping[tuple[str, State], int]:
        return await jobs.counts(self._desk)

    async def chain(self, job_id: JobId) -> list[Job]:
        return await jobs.chain(self._desk, job_id)

    async def prune(self, *, older_than: timedelta, limit: int) -> int:
        gone = await repair.prune(self._desk, older_than=older_than, limit=limit)
        await workers.forget(self._desk, self._desk.now() - older_than)
        return gone

    async def runs(self, job_id: JobId) -> list[RunRecord]:
        return await jobs.runs_of(self._desk, job_id)

    async def record_progress(self, reports: Sequence[tuple[Lease, str]]) -> list[bool]:
        return await jobs.report(self._desk, reports)

    async def attach(self, lease: Lease, artifacts: Sequence[str]) -> bool:
        return await jobs.attach(self._desk, lease, artifacts)

    async def events(self, job_id: JobId | None) -> list[EventRecord]:
        return await jobs.events(self._desk, job_id)

    async def stream(self, *, after: int = 0, limit: int) -> list[EventRecord]:
        return await jobs.stream(self._desk, after=after, limit=limit)

    async def running_under_other_boots(
        self, *, besides: str, instance_id: str | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        return await repair.held(
            self._desk, besides=besides, instance_id=instance_id, after=after, limit=limit
        )

    async def detached_jobs(self, *, after: int = 0, limit: int) -> list[Job]:
        return await repair.adrift(self._desk, after=after, limit=limit)

    async def missing_successors(self, *, after: int = 0, limit: int) -> list[Job]:
        return await repair.unfollowed(self._desk, after=after, limit=limit)

    async def remove_orphans(self, *, limit: int) -> list[EventRecord]:
        return await repair.remove_orphans(self._desk, limit=limit)

    async def health_warnings(self) -> list[str]:
        told = await self._engine.health_warnings()
        if self._margin:
            told += await skew.concerns(self._engine, self._clock, self._margin)
        return told

    async def maintenance_due(self, *, abandoned: timedelta) -> MaintenanceDue:
        return await upkeep.chores(*self._require_open(), abandoned=abandoned)

    async def acquire_lock(self, name: str, *, shared: bool = False) -> Lock | None:
        return await self._require_open()[1].acquire_lock(name, shared=shared)

    async def free_locks(self, names: Collection[str]) -> frozenset[str]:
        return await self._require_open()[1].free_locks(names)

    def subscribe(
        self, wake: Callable[[Notification], None], *, topics: Collection[Topic] = frozenset(Topic)
    ) -> Callable[[], None]:
        return self._listeners.add(wake, topics)
