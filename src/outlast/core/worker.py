"""Workers: processes that run jobs, as they describe themselves and as a store sees them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from outlast.core.run import LeaseHolder

SUPERVISED_BOOT_PREFIX: Final = "tree."
"""How boot ids begin that are names of locks too: every process of that worker shares it, so that
whoever gets it alone has proved that none of them is left."""


class Topology(StrEnum):
    """How many workers may serve one thing."""

    SINGLE = "single"  # one, held by a lock; a second is refused
    POOL = "pool"  # any number on one store
    CLUSTER = "cluster"  # a pool whose nodes know each other and elect a leader


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """What a worker tells of itself when it starts."""

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

    @property
    def holder(self) -> LeaseHolder:
        return LeaseHolder(instance_id=self.instance_id, boot_id=self.boot_id)

    @property
    def capacity(self) -> int:
        """How many jobs it runs at a time."""
        return self.concurrency * self.processes


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord(WorkerInfo):
    """A worker as the store has it. Whether it lives is the store's judgement, at one moment."""

    started_at: datetime
    seen_at: datetime
    stopped_at: datetime | None
    is_alive: bool
