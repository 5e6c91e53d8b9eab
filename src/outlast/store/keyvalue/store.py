"""KeyValueStore: the store contract on an engine of ordered keys and small transactions."""

import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final

from outlast.clock import Clock
from outlast.core.ids import Ids
from outlast.errors import ConfigurationError, SchemaTooNew, StoreClosed
from outlast.process_identity import process_name
from outlast.store.contract import Capability, Migratable, PollingDefaults
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.keyvalue import clocks, hot_partition, intent_recovery, numbering
from outlast.store.keyvalue.checked_engine import CheckedEngine
from outlast.store.keyvalue.clocks import FleetClock, LeaseClock
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Engine, Key, Write
from outlast.store.keyvalue.liveness import MISSED_HEARTBEATS
from outlast.store.keyvalue.locks import KeyValueLocks, Lock
from outlast.store.keyvalue.notifications import EngineWatchBridge
from outlast.store.keyvalue.number_source import NumberSource
from outlast.store.keyvalue.operations import quarantine
from outlast.store.keyvalue.operations.add import KeyValueAddOperations
from outlast.store.keyvalue.operations.apply import KeyValueApplyOperations
from outlast.store.keyvalue.operations.audit import KeyValueAuditOperations
from outlast.store.keyvalue.operations.claim import KeyValueClaimOperations
from outlast.store.keyvalue.operations.documents import KeyValueDocumentOperations
from outlast.store.keyvalue.operations.fire import KeyValueFireOperations
from outlast.store.keyvalue.operations.groups import KeyValueGroupOperations
from outlast.store.keyvalue.operations.insight import KeyValueInsightOperations
from outlast.store.keyvalue.operations.jobs import KeyValueJobOperations
from outlast.store.keyvalue.operations.logs import KeyValueLogOperations
from outlast.store.keyvalue.operations.maintenance import KeyValueMaintenanceOperations
from outlast.store.keyvalue.operations.positions import KeyValuePositionOperations
from outlast.store.keyvalue.operations.queues import KeyValueQueueOperations
from outlast.store.keyvalue.operations.reservations import KeyValueReservationOperations
from outlast.store.keyvalue.operations.runs import KeyValueRunOperations
from outlast.store.keyvalue.operations.schedules import KeyValueScheduleOperations
from outlast.store.keyvalue.operations.transfer import KeyValueTransferOperations
from outlast.store.keyvalue.operations.workers import KeyValueWorkerOperations
from outlast.store.keyvalue.sharded_engine import ShardedEngine
from outlast.store.keyvalue.transfer_gate import TransferGate
from outlast.store.keyvalue.unit_of_work import UnitRunner
from outlast.store.subscribers import Subscribers

RECORD_VERSION: Final = 1
"""Version of the record formats; a newer Outlast writes a higher one."""

SHARDED_VERSION: Final = 2
"""The same of a store with several shards: an Outlast that knows none must not open it."""

MAX_SKEW: Final = timedelta(seconds=5)
"""Default for the largest allowed difference between the clocks of two machines."""

MIN_MAINTENANCE_INTERVAL: Final = timedelta(seconds=1)
MAX_MAINTENANCE_INTERVAL: Final = timedelta(seconds=3)
"""A lease that has expired is noticed within a fifth more."""

_VERSION_KEY: Final = Key("outlast", "version")


@dataclass(frozen=True, slots=True)
class OpenParts:
    """What an open store has and a closed one has not."""

    context: StoreContext
    locks: KeyValueLocks
    gate: TransferGate


class KeyValueStore(
    KeyValueAddOperations,
    KeyValueClaimOperations,
    KeyValueApplyOperations,
    KeyValueJobOperations,
    KeyValueRunOperations,
    KeyValueLogOperations,
    KeyValuePositionOperations,
    KeyValueQueueOperations,
    KeyValueReservationOperations,
    KeyValueGroupOperations,
    KeyValueScheduleOperations,
    KeyValueFireOperations,
    KeyValueDocumentOperations,
    KeyValueWorkerOperations,
    KeyValueMaintenanceOperations,
    KeyValueInsightOperations,
    KeyValueAuditOperations,
    KeyValueTransferOperations,
):
    """A store on any `Engine`: DynamoDB, etcd, or memory in tests.

    Without a `clock`, leases use the wall clock that all machines share. The clocks of two
    machines may differ by `max_skew`.
    """

    capabilities = frozenset(
        {
            Capability.DURABLE,
            Capability.SHARED,
            Capability.MAINTENANCE_CHECK,
            Capability.PAID_READS,
        }
    )

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        max_skew: timedelta = MAX_SKEW,
        tombstones: timedelta | None = None,
        shards: int = 1,
        address: Callable[[int], str] = "shards={}".format,
        watched: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a store on `engine`; `open()` connects.

        Args:
            engine: Keeps the records.
            clock: Clock of leases and events; None for the shared wall clock.
            ids: Generator of ids; None for one by the clock.
            max_skew: Largest allowed difference between two machines' clocks.
            tombstones: How long the dedupe key of a pruned job stays; None for ever. Only for
                engines that delete expired records themselves.
            shards: Partitions over which jobs are spread, 1 to 64; `open` refuses a store that
                was created with another number.
            address: Returns the address with another number of shards, for messages.
            watched: Seconds by which lock holders are watched; tests set their own.
        """
        self._bare_engine = engine
        self._engine = engine if shards == 1 else ShardedEngine(engine, shards=shards)
        self._address = address
        self._clock: Clock = clock or FleetClock()
        self._tombstones = tombstones
        self._watched = watched
        self._fleet_clock = self._clock if isinstance(self._clock, FleetClock) else None
        self._margin = max_skew if self._fleet_clock else timedelta(0)
        self._ids = ids or Ids(self._clock.now, secrets.randbits)
        self._subscribers = Subscribers()
        self._parts: OpenParts | None = None

    @property
    def engine(self) -> Engine:
        """The engine that keeps the records."""
        return self._engine

    @property
    def polling_defaults(self) -> PollingDefaults:
        """Poll interval of the engine; maintenance runs in every poll, and each few seconds."""
        poll = timedelta(seconds=self._engine.limits.poll)
        tick = min(max(MIN_MAINTENANCE_INTERVAL, poll), MAX_MAINTENANCE_INTERVAL)
        return PollingDefaults(poll=poll, tick=tick)

    def exists(self) -> bool:
        """Return True if the engine's storage exists already."""
        return self._engine.exists()

    async def open(self) -> None:
        """Connect, check version and clock skew, and complete pending intents.

        No-op if open. If a check fails, the engine is closed again.
        """
        if self._parts is not None:
            return
        try:
            await self._engine.open()
            is_new = await self._write_or_check_version()
            if self._fleet_clock and self._margin:
                await clocks.require_small_skew(self._engine, self._fleet_clock, self._margin)
        except BaseException:
            await self._engine.close()
            raise
        context = self._new_context()
        owner = process_name("store.", secrets.token_hex(8))
        locks = KeyValueLocks(self._engine, owner, self._watched)
        self._parts = OpenParts(context, locks, TransferGate(self._engine, context.now))
        if not is_new:
            await numbering.raise_numbers(context)
            await intent_recovery.complete_all(context)
        self._subscribers.connect(EngineWatchBridge(self._engine, self._subscribers.deliver))

    async def migrate(self) -> None:
        """Create or change the engine's storage, if it has a schema."""
        self._require_open()
        if isinstance(self._bare_engine, Migratable):
            await self._bare_engine.migrate()

    async def close(self) -> None:
        """Release all locks and disconnect; no-op if closed."""
        if self._parts is not None:
            locks = self._parts.locks
            self._parts = None
            self._subscribers.disconnect()
            await locks.close()
            await self._engine.close()

    def connection_warnings(self) -> list[str]:
        """Return the engine's warnings about its connection."""
        return self._engine.connection_warnings()

    async def health_warnings(self) -> list[str]:
        """Return warnings of the engine, its partitions, damaged records and intents, and skew."""
        warnings = self.connection_warnings() + await self._engine.health_warnings()
        warnings += await hot_partition.warnings(self._engine, self._context.now())
        warnings += await quarantine.warnings(self._context)
        warnings += await intent_recovery.warnings(self._context)
        if self._fleet_clock and self._margin:
            warnings += await clocks.skew_warnings(self._engine, self._fleet_clock, self._margin)
        return warnings

    async def acquire_lock(
        self,
        name: str,
        *,
        shared: bool = False,
        lasting: bool = False,  # noqa: ARG002 - a lock needs no connection
    ) -> Lock | None:
        """Acquire a named lock; return None if a live holder excludes it."""
        return await self._locks.acquire_lock(name, shared=shared)

    async def acquire_lock_at_once(self, name: str) -> Lock | None:
        """Acquire a named lock; return None unless it is certain that no live holder has it."""
        return await self._locks.acquire_lock(name, watch=False)

    @property
    def watch_time(self) -> timedelta:
        """For how long a lock holder elsewhere is watched before it counts as dead."""
        return timedelta(seconds=MISSED_HEARTBEATS * self._engine.limits.beat)

    async def free_locks(self, names: Collection[str]) -> frozenset[str]:
        """Return those of `names` that no live process holds."""
        return await self._locks.free_locks(names)

    def subscribe(
        self, wake: Callable[[Notification], None], *, topics: Collection[Topic] = frozenset(Topic)
    ) -> Callable[[], None]:
        """Call `wake` after commits that concern `topics`; return the unsubscribe function."""
        return self._subscribers.add(wake, topics)

    @property
    def _context(self) -> StoreContext:
        return self._require_open().context

    @property
    def _locks(self) -> KeyValueLocks:
        return self._require_open().locks

    @property
    def _gate(self) -> TransferGate:
        return self._require_open().gate

    def _require_open(self) -> OpenParts:
        if self._parts is None:
            raise StoreClosed("the store is not open; await open() first")
        return self._parts

    def _new_context(self) -> StoreContext:
        random = Random(secrets.randbits(64))  # noqa: S311 - only spreads the pauses of retries
        engine = CheckedEngine(self._engine)
        units = UnitRunner(
            engine, random, lambda intent: intent_recovery.complete(self._context, intent)
        )
        return StoreContext(
            units=units,
            clock=self._clock,
            leases=LeaseClock(
                self._clock, margin=self._margin, latest=lambda: self._engine.latest_time
            ),
            ids=self._ids,
            notify=self._subscribers.publish,
            registered_queues=set(),
            number_source=NumberSource(self._engine),
            tombstones=self._tombstones,
        )

    async def _write_or_check_version(self) -> bool:
        """Return True if the storage is new; raise if it is not what this store can work with."""
        shards = self._engine.limits.shards
        written = {"version": RECORD_VERSION}
        if shards > 1:
            written = {"version": SHARDED_VERSION, "shards": shards}
        if await self._engine.transact({_VERSION_KEY: None}, [Write(_VERSION_KEY, written)]):
            return True
        [item] = await self._engine.get([_VERSION_KEY])
        if item is not None and item.value["version"] > SHARDED_VERSION:
            raise SchemaTooNew(
                f"the store's records have version {item.value['version']}, and this Outlast knows "
                f"version {SHARDED_VERSION}; use the newer Outlast"
            )
        if item is not None and item.value.get("shards", 1) != shards:
            raise self._other_shards(item.value.get("shards", 1))
        return False

    def _other_shards(self, stored: int) -> ConfigurationError:
        return ConfigurationError(
            f"the store was created with shards={stored}, and its address says "
            f"shards={self._engine.limits.shards}; use {self._address(stored)}. To change the "
            "number, copy the jobs into a new store: `outlast db copy`"
        )
