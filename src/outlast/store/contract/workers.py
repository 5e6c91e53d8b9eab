"""Contract: the worker registry."""

from datetime import timedelta
from typing import Protocol

from outlast.core.run import LeaseHolder
from outlast.core.worker import WorkerInfo, WorkerRecord


class Workers(Protocol):
    """Who runs jobs. For people and for recovery: no claim ever asks it."""

    async def register_worker(self, worker: WorkerInfo) -> None:
        """Put a worker on the list, from now; the same boot again starts anew.

        It counts as alive from its first beat.
        """
        ...

    async def heartbeat(self, holder: LeaseHolder, *, span: timedelta) -> bool:
        """Alive until `span` from now, by the clock nobody can set.

        False if it is not on the list, or was retired: then nothing was written.
        """
        ...

    async def deregister_worker(self, holder: LeaseHolder) -> None:
        """It has stopped, in order. Harmless if it is not on the list, or has stopped already."""
        ...

    async def workers(self) -> list[WorkerRecord]:
        """Everybody on the list, alive or not, the earliest start first."""
        ...
