"""Contract: the worker registry."""

from datetime import timedelta
from typing import Protocol

from outlast.core.run import LeaseHolder
from outlast.core.worker import WorkerInfo, WorkerRecord


class Workers(Protocol):
    """The workers of a store, for people and for recovery; no claim reads it."""

    async def register_worker(self, worker: WorkerInfo) -> None:
        """Register a worker from now on; the same boot again starts anew.

        It counts as alive from its first heartbeat.
        """
        ...

    async def heartbeat(
        self, holder: LeaseHolder, *, span: timedelta, is_stopping: bool = False
    ) -> bool:
        """Mark the worker alive until `span` from now, by the monotonic clock.

        With `is_stopping` it also counts as stopping, until it is registered again. Returns False
        and writes nothing if it is not registered or was deregistered.
        """
        ...

    async def deregister_worker(self, holder: LeaseHolder) -> None:
        """Mark the worker stopped; no-op if it is not registered or has stopped already."""
        ...

    async def workers(self) -> list[WorkerRecord]:
        """Return all registered workers, alive or not, the earliest start first."""
        ...
