"""How the model store keeps its list of workers."""

from dataclasses import asdict, replace
from datetime import timedelta

from outlast.clock import MICROSECOND, Clock
from outlast.core.run import LeaseHolder
from outlast.core.worker import WorkerInfo, WorkerRecord
from outlast.testing.model.tables import LeaseEnd, Tables


def enlist(tables: Tables, worker: WorkerInfo, clock: Clock) -> None:
    """Put it on the list, not alive yet."""
    now = clock.now()
    tables.workers[worker.holder] = WorkerRecord(
        **asdict(worker), started_at=now, seen_at=now, stopped_at=None, is_alive=False
    )
    tables.beats.pop(worker.holder, None)


def beat(tables: Tables, holder: LeaseHolder, span: timedelta, clock: Clock) -> bool:
    """Note that it lives; False if it is not there to live."""
    record = tables.workers.get(holder)
    if record is None or record.stopped_at is not None:
        return False
    tables.workers[holder] = replace(record, seen_at=clock.now())
    tables.beats[holder] = LeaseEnd(clock.monotonic() + span // MICROSECOND, clock.boot_id())
    return True


def retire(tables: Tables, holder: LeaseHolder, clock: Clock) -> None:
    """Note that it has stopped."""
    record = tables.workers.get(holder)
    if record is not None and record.stopped_at is None:
        tables.workers[holder] = replace(record, stopped_at=clock.now())


def listed(tables: Tables, clock: Clock) -> list[WorkerRecord]:
    """The list as it stands now."""
    records = [replace(w, is_alive=_is_alive(tables, w, clock)) for w in tables.workers.values()]
    return sorted(records, key=lambda w: (w.started_at, w.instance_id, w.boot_id))


def forget(tables: Tables, older_than: timedelta, clock: Clock) -> None:
    """Drop whoever stopped, or fell silent, that long ago."""
    before = clock.now() - older_than
    for record in listed(tables, clock):
        last = record.stopped_at or record.seen_at
        if last < before and not record.is_alive:
            del tables.workers[record.holder]


def _is_alive(tables: Tables, record: WorkerRecord, clock: Clock) -> bool:
    end = tables.beats.get(record.holder)
    return record.stopped_at is None and end is not None and not end.is_past(clock)
