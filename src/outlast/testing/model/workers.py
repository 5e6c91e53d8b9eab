"""Worker registry of the model store."""

from dataclasses import asdict, replace
from datetime import timedelta

from outlast.clock import MICROSECOND, Clock
from outlast.core.run import LeaseHolder
from outlast.core.worker import MIN_REGISTRATION_AGE, WorkerInfo, WorkerRecord
from outlast.testing.model.base import ModelOperations
from outlast.testing.model.tables import LeaseEnd, Tables


class ModelWorkerOperations(ModelOperations):
    """Worker registry of the model store."""

    async def register_worker(self, worker: WorkerInfo) -> None:
        """Register a worker, not alive until its first heartbeat."""
        register(self._tables, worker, self._clock)

    async def heartbeat(
        self, holder: LeaseHolder, *, span: timedelta, is_stopping: bool = False
    ) -> bool:
        """Record a heartbeat; return False if the worker is not registered."""
        is_registered = heartbeat(self._tables, holder, span, self._clock)
        if is_registered and is_stopping:
            record = self._tables.workers[holder]
            self._tables.workers[holder] = replace(record, is_stopping=True)
        return is_registered

    async def deregister_worker(self, holder: LeaseHolder) -> None:
        """Record that the worker has stopped."""
        deregister(self._tables, holder, self._clock)

    async def workers(self) -> list[WorkerRecord]:
        """Return all registered workers."""
        return listed(self._tables, self._clock)


def register(tables: Tables, worker: WorkerInfo, clock: Clock) -> None:
    """Register a worker, not alive yet."""
    now = clock.now()
    tables.workers[worker.holder] = WorkerRecord(
        **asdict(worker), started_at=now, seen_at=now, stopped_at=None, is_alive=False
    )
    tables.heartbeats.pop(worker.holder, None)


def heartbeat(tables: Tables, holder: LeaseHolder, span: timedelta, clock: Clock) -> bool:
    """Record a heartbeat; return False if the worker is not registered."""
    record = tables.workers.get(holder)
    if record is None or record.stopped_at is not None:
        return False
    tables.workers[holder] = replace(record, seen_at=clock.now())
    tables.heartbeats[holder] = LeaseEnd(clock.monotonic() + span // MICROSECOND, clock.boot_id())
    return True


def deregister(tables: Tables, holder: LeaseHolder, clock: Clock) -> None:
    """Record that the worker has stopped."""
    record = tables.workers.get(holder)
    if record is not None and record.stopped_at is None:
        tables.workers[holder] = replace(record, stopped_at=clock.now())


def listed(tables: Tables, clock: Clock) -> list[WorkerRecord]:
    """Return all registered workers, the earliest started first."""
    records = [replace(w, is_alive=_is_alive(tables, w, clock)) for w in tables.workers.values()]
    return sorted(records, key=lambda w: (w.started_at, w.instance_id, w.boot_id))


def forget(tables: Tables, older_than: timedelta, clock: Clock) -> None:
    """Delete workers that stopped, or sent their last heartbeat, that long ago."""
    before = clock.now() - max(older_than, MIN_REGISTRATION_AGE)
    for record in listed(tables, clock):
        last = record.stopped_at or record.seen_at
        if last < before and not record.is_alive:
            del tables.workers[record.holder]


def _is_alive(tables: Tables, record: WorkerRecord, clock: Clock) -> bool:
    end = tables.heartbeats.get(record.holder)
    return record.stopped_at is None and end is not None and not end.is_past(clock)
