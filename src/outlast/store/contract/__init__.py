"""The contract of a store. Each promise is stated here once and tested by name.

**Atomicity is per item.** `add`, `claim` and `apply` accept many items. Each item's job, run, keys,
successor and event are written together or not at all, and an invalid item does not affect the
others. A batch as a whole is not atomic.

**The store owns the time.** Callers pass durations; the store adds them to its own clock. Leases
are measured by a monotonic clock that cannot be set.

**Results are durable.** When a method returns, what it wrote survives the death of the process
and, as far as the disk honours a flush, of the machine.

Any method may raise an `OperatorError` (`StoreBusy`, `StoreFull`, …). Nothing was written then,
unless its docstring says otherwise. If a reply is lost because the process died or the connection
broke, the write may have happened: repeating `add` with the same job id or `apply` with the same
token is safe.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Protocol, cast, runtime_checkable

from outlast.store.contract.audit import AuditReads
from outlast.store.contract.documents import Documents
from outlast.store.contract.groups import Groups
from outlast.store.contract.insight import InsightReads
from outlast.store.contract.jobs import Jobs
from outlast.store.contract.locks import Locks
from outlast.store.contract.maintenance import MaintenanceCheck, MaintenanceDue, RecoveryReads
from outlast.store.contract.notifications import Notifications
from outlast.store.contract.queues import Queues
from outlast.store.contract.reservations import Reservations
from outlast.store.contract.runs import Runs
from outlast.store.contract.schedules import Schedules
from outlast.store.contract.transfer import Transfers
from outlast.store.contract.workers import Workers


class Capability(StrEnum):
    """What some stores support and others cannot; each capability has its own tests."""

    DURABLE = "durable"  # its content survives its process
    SHARED = "shared"  # several processes may use it at once
    TRANSACTIONS = "transactions"  # an enqueue or a finish can join the caller's transaction
    ONE_WRITE_LOCK = "one_write_lock"  # a handler transaction keeps all other writes waiting
    MAINTENANCE_CHECK = "maintenance_check"  # one cheap read finds due work: `MaintenanceCheck`
    KERNEL_LOCKS = "kernel_locks"  # a free lock proves that its former holder is dead: see `locks`
    PAID_READS = "paid_reads"  # each record read is a request or a price: nothing scans unasked


class HasCapabilities(Protocol):
    """Says what the store supports."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this store supports."""
        ...


class Store(
    Jobs,
    Runs,
    RecoveryReads,
    Queues,
    Reservations,
    Schedules,
    Groups,
    Documents,
    Workers,
    Locks,
    Notifications,
    AuditReads,
    InsightReads,
    Transfers,
    HasCapabilities,
    Protocol,
):
    """All pages of the contract. Open a store before use; `close` is idempotent."""

    def exists(self) -> bool:
        """Return whether the store exists already; `open` creates it otherwise."""
        ...

    async def open(self) -> None:
        """Create or migrate the schema and connect.

        Raises ForeignStore for a database of another application and SchemaTooNew for a schema of
        a later release.
        """
        ...

    async def close(self) -> None:
        """Finish the submitted writes, release all locks and disconnect."""
        ...


@runtime_checkable
class Migratable(Protocol):
    """A store with an explicit migration, so that workers need no right to change the schema."""

    async def migrate(self) -> None:
        """Bring the schema up to date; no-op if it is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingDefaults:
    """Defaults of the worker settings `poll` and `tick`.

    A store without notifications, or with a price per request, raises them.
    """

    poll: timedelta
    tick: timedelta


@runtime_checkable
class HasPollingDefaults(Protocol):
    """A store with its own defaults for polling."""

    @property
    def polling_defaults(self) -> PollingDefaults:
        """The defaults of this store."""
        ...


async def check_maintenance(store: Store, *, abandoned: timedelta) -> MaintenanceDue:
    """Return which maintenance is due; all kinds, if the store has no maintenance check."""
    if Capability.MAINTENANCE_CHECK not in store.capabilities:
        return MaintenanceDue()
    return await cast("MaintenanceCheck", store).maintenance_due(abandoned=abandoned)
