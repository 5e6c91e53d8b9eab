"""The contract every store keeps. Each promise is written here, once, and tested by name.

**Atomicity is per item.** `add`, `claim` and `apply` take many items and promise each one alone:
its job, run, keys, successor and event are written together or not at all, and one bad item never
sinks its neighbours. All or nothing over a batch is not promised.

**Time is the store's.** Callers give spans; the store turns them into moments by its own clock.
Leases are judged by a clock nobody can set.

**Durable means durable.** When a verb answers, what it wrote survives the death of the process
and, as far as the disk keeps its word, of the machine.

Any verb may raise an `OperatorError` (`StoreBusy`, `StoreFull`, …): then nothing of it was
written, unless it says otherwise. An answer that never came (the process died, the connection
broke) may have been written: `add` with the same job id and `apply` with the same token are both
safe to repeat.
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
    """What some stores can do and others truly cannot; each has tests of its own."""

    DURABLE = "durable"  # what it holds survives its process
    SHARED = "shared"  # several processes may use it at once
    TRANSACTIONS = "transactions"  # a caller's own transaction can carry an enqueue or a finish
    SEALS = "seals"  # a seal holds from one moment on for everybody: see `moving`
    MAINTENANCE_CHECK = (
        "chores"  # one look tells whether there is anything to tidy: see `MaintenanceCheck`
    )


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
    Protocol,
):
    """All of it. Opened before use; closing twice is fine."""

    @property
    def capabilities(self) -> frozenset[Capability]: ...

    def exists(self) -> bool:
        """Whether there is something to open; `open` would otherwise create it."""
        ...

    async def open(self) -> None:
        """Create or migrate what is needed; refuses a store that is foreign or newer."""
        ...

    async def close(self) -> None:
        """Finish what was asked and let go of everything."""
        ...


@runtime_checkable
class Migratable(Protocol):
    """A store, or what it is built on, with something that only `db migrate` does: whoever works
    with it needs no right to that."""

    async def migrate(self) -> None:
        """Harmless when all is as it should be."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingDefaults:
    """The defaults of two settings: a store that nothing wakes, and that is paid by the request,
    wants them rarer."""

    poll: timedelta
    tick: timedelta


@runtime_checkable
class HasPollingDefaults(Protocol):
    """A store with a rhythm of its own."""

    @property
    def polling_defaults(self) -> PollingDefaults: ...


async def check_maintenance(store: Store, *, abandoned: timedelta) -> MaintenanceDue:
    """What there is to tidy; where a store cannot say it at one look, everything may be."""
    if Capability.MAINTENANCE_CHECK not in store.capabilities:
        return MaintenanceDue()
    return await cast("MaintenanceCheck", store).maintenance_due(abandoned=abandoned)
