"""Workers: how they describe themselves, and the record a store has of them."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from outlast.core.run import LeaseHolder

SUPERVISED_BOOT_PREFIX: Final = "tree."
"""Prefix of boot ids that are lock names too.

All processes of such a worker share the lock, and the boot id says which process is their
supervisor: see `outlast.process_identity`.
"""


MIN_REGISTRATION_AGE: Final = timedelta(minutes=30)
"""Time for which the registration of an ended worker is kept, however short the retention is.

A schedule counts as undeclared by the registrations of the last minutes."""


class Topology(StrEnum):
    """How many workers may serve one store."""

    SINGLE = "single"  # one, guarded by a lock; a second is refused
    POOL = "pool"  # any number
    CLUSTER = "cluster"  # a pool whose nodes elect a leader


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """The description a worker registers at its start."""

    instance_id: str
    boot_id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    types: tuple[str, ...]
    concurrency: int
    processes: int = 1
    topology: Topology = Topology.POOL
    version: str = ""
    app: str = ""  # name of its app
    schedules: tuple[str, ...] = ()  # names of the schedules that its code declares

    @property
    def holder(self) -> LeaseHolder:
        """The lease holder of its runs."""
        return LeaseHolder(instance_id=self.instance_id, boot_id=self.boot_id)

    @property
    def capacity(self) -> int:
        """How many jobs it runs at a time."""
        return self.concurrency * self.processes


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord(WorkerInfo):
    """A registered worker; `is_alive` is the store's judgement at one moment."""

    started_at: datetime
    seen_at: datetime
    stopped_at: datetime | None
    is_alive: bool
    is_stopping: bool = False  # it ends its jobs and claims no more
