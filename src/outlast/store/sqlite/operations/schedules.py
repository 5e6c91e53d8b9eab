"""Schedules and slots: compare-and-swap of schedules, firing slots, reads."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from outlast.clock import from_micros, to_micros
from outlast.core.duration import MICROSECOND
from outlast.core.event import ZERO
from outlast.core.job import NewJob
from outlast.core.schedule import Firing, Schedule, SlotRecord, check_plan
from outlast.core.state import State
from outlast.store.contract.schedules import Due, FireResult, SetSchedule
from outlast.store.rows import jobs as job_rows
from outlast.store.rows import schedules as schedule_rows
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.operations.add import insert_keyed
from outlast.store.sqlite.operations.base import SqliteOperations, require_open_store
from outlast.store.sqlite.operations.savepoint import in_savepoint
from outlast.store.sqlite.reader import Query
from outlast.store.sqlite.writer import WriteTransaction

_LATEST_SLOT: Final = datetime.max.replace(tzinfo=UTC)

_BATCH_JOB_COLUMNS: Final = (
    "id", "type", "name", "params", "queue", "delivery", "max_attempts", "slot_at",
    "start_deadline", "group_id", "template_id", "template_at", "schedule_id", "state",
    "priority", "available_at", "active_key", "metadata",
)  # fmt: skip
"""Columns of a job in the order in which the batch statements read them."""


class SqliteScheduleOperations(SqliteOperations):
    """Schedules and their slots."""

    async def now(self) -> datetime:
        """Return the time of the store's clock."""
        return self._clock.now()

    async def set_schedule(
        self, schedule_id: str, *, expected: int | None, value: SetSchedule | None
    ) -> Schedule | None:
        """Write or delete the schedule if its version is `expected`; None if it is not."""
        if value is not None:
            check_plan(value.plan)
        write = ScheduleWrite(id=schedule_id, expected=expected, value=value)
        written: Schedule | None = (await self._writer.submit(set_schedule, [write]))[0]
        return written

    async def schedule(self, name: str) -> Schedule | None:
        """Return the schedule of that name or id, or None."""
        found = await self._reader.rows("schedules.get", name=name)
        return schedule_rows.schedule(found[0]) if found else None

    async def schedules(self, *, after: str = "", limit: int) -> list[Schedule]:
        """Return the next schedules by name."""
        found = await self._reader.rows("schedules.page", after=after, limit=limit)
        return [schedule_rows.schedule(row) for row in found]

    async def due_schedules(self, *, ahead: timedelta = ZERO, limit: int) -> Due:
        """Return the schedules to trigger by `ahead` from now, and the next trigger after them."""
        now = self._clock.now()
        read = partial(_read_due, now=now, ahead=ahead, limit=limit)
        return await self._reader.in_snapshot(read)

    async def fire(self, firings: Sequence[Firing]) -> list[FireResult]:
        """Write the slot, the job and the next slot of each firing; atomic per firing."""
        return await self._writer.submit(fire, firings) if firings else []

    async def slots(
        self, series: str, *, before: datetime | None = None, limit: int
    ) -> list[SlotRecord]:
        """Return the stored slots of a series, the latest first."""
        values = {"before": to_micros(before or _LATEST_SLOT), "limit": limit}
        found = await self._reader.rows("schedules.slots", series=series, **values)
        return [schedule_rows.slot(row) for row in found]

    async def slot_rows(self, series: str, moments: Sequence[datetime]) -> list[SlotRecord | None]:
        """Return the stored slot of each moment, or None."""
        encoded = to_json_param([to_micros(at) for at in moments])
        found = await self._reader.rows("schedules.slot_rows", series=series, moments=encoded)
        rows = {row.slot.at: row for row in map(schedule_rows.slot, found)}
        return [rows.get(at) for at in moments]

    async def running_names(self, names: Collection[str]) -> frozenset[str]:
        """Return the names under which a `once` job runs."""
        encoded = to_json_param(sorted(names))
        found = await self._reader.rows("schedules.running_names", names=encoded)
        return frozenset(name for (name,) in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleWrite:
    """One call of `set_schedule`: no expected version creates, no value deletes."""

    id: str
    expected: int | None
    value: SetSchedule | None


@require_open_store
def set_schedule(tx: WriteTransaction, writes: Sequence[ScheduleWrite]) -> list[Schedule | None]:
    """Compare and swap each schedule in turn."""
    tx.notify_schedules = True
    return [
        _delete_schedule(tx, write)
        if write.value is None
        else _write_schedule(tx, write, write.value)
        for write in writes
    ]


@require_open_store
def fire(tx: WriteTransaction, firings: Sequence[Firing]) -> list[FireResult]:
    """Fire slots in one batch if all are routine, else one by one."""
    if not tx.isolate_items and len(firings) > 1 and fire_batch(tx, firings):
        return [FireResult.WRITTEN] * len(firings)
    return [_fire_isolated(tx, firing) for firing in firings]


def fire_batch(tx: WriteTransaction, firings: Sequence[Firing]) -> bool:
    """Fire all slots in a few statements; return False and write nothing if any is not routine."""
    jobs = [replace(each.job, slot=each.slot) for each in firings if each.job is not None]
    if (
        len(jobs) < len(firings)
        or not all(map(_is_unkeyed, jobs))
        or not _is_distinct(firings, jobs)
    ):
        return False
    encoded = to_json_param(
        [_firing_params(firing, job) for firing, job in zip(firings, jobs, strict=True)]
    )
    if tx.value("schedules.count_routine", firings=encoded) < len(firings):
        return False
    tx.run("schedules.advance_batch", firings=encoded)
    _insert_job_batch(tx, jobs)
    tx.run("schedules.claim_slot_batch", firings=encoded, now=tx.now)
    tx.run("schedules.claim_key_batch", firings=encoded)
    return True


def _read_due(query: Query, *, now: datetime, ahead: timedelta, limit: int) -> Due:
    until = to_micros(now) + ahead // MICROSECOND
    found = query("schedules.due", until=until, limit=limit)
    [(later,)] = query("schedules.later", until=until)
    return Due(
        now=now,
        schedules=[schedule_rows.schedule(row) for row in found],
        next_trigger_at=None if later is None else from_micros(later),
    )


def _write_schedule(
    tx: WriteTransaction, write: ScheduleWrite, value: SetSchedule
) -> Schedule | None:
    values = schedule_rows.values(value) | {"id": write.id}
    version = {"id": write.id, "expected": write.expected}
    found = tx.run("schedules.expected", name=values["name"], **version).fetchone()
    if found is None:
        return None
    created_at, updated_at, last = found
    tx.run("schedules.delete", **version)
    tx.run(
        "schedules.write",
        created_at=tx.now if created_at is None else created_at,
        updated_at=tx.now if updated_at is None else max(tx.now, updated_at + 1),
        last_triggered_at=last,
        **values,
    )
    return _read_schedule(tx, write.id)


def _delete_schedule(tx: WriteTransaction, write: ScheduleWrite) -> Schedule | None:
    present = _read_schedule(tx, write.id)
    deleted = tx.run("schedules.delete", id=write.id, expected=write.expected)
    return present if deleted.rowcount > 0 else None


def _read_schedule(tx: WriteTransaction, schedule_id: str) -> Schedule | None:
    found = tx.run("schedules.get", name=schedule_id).fetchone()
    return None if found is None else schedule_rows.schedule(found)


def _fire_isolated(tx: WriteTransaction, firing: Firing) -> FireResult:
    """Fire one slot; after a failed batch under a savepoint, so that only it is refused."""
    if not tx.isolate_items:
        return _fire_one(tx, firing)
    fired = in_savepoint(tx, lambda: _fire_one(tx, firing))
    return fired if isinstance(fired, FireResult) else FireResult.REFUSED


def _fire_one(tx: WriteTransaction, firing: Firing) -> FireResult:
    at = to_micros(firing.slot.at)
    has_row, is_busy = tx.run("schedules.slot_state", **_slot_params(firing), at=at).fetchone()
    current = {"at": at, "id": firing.schedule_id, "version": firing.version}
    following = {
        "next_slot": schedule_rows.number(firing.next_slot),
        "next_trigger_at": schedule_rows.number(firing.next_trigger_at),
    }
    if has_row:
        passed = tx.run("schedules.pass_slot", **current, **following)
        return FireResult.TAKEN if passed.rowcount > 0 else FireResult.STALE
    if is_busy:
        return FireResult.BUSY if tx.value("schedules.is_current", **current) else FireResult.STALE
    triggers = firing.job is not None
    if tx.run("schedules.advance", triggers=triggers, **current, **following).rowcount < 1:
        return FireResult.STALE
    _claim_slot(tx, firing, at)
    return FireResult.WRITTEN


def _slot_params(firing: Firing) -> dict[str, Any]:
    job = firing.job
    key = job.key if job else None
    return {
        "series": firing.slot.series,
        "job_id": job and job.id,
        "key": key and key.key,
        "bucket": key and key.bucket,
        "active_key": job and job.active_key,
    }


def _claim_slot(tx: WriteTransaction, firing: Firing, at: int) -> None:
    if firing.job is not None:
        insert_keyed(tx, replace(firing.job, slot=firing.slot))
    tx.run(
        "schedules.claim_slot",
        series=firing.slot.series,
        at=at,
        now=tx.now,
        id=firing.schedule_id,
        outcome=firing.outcome,
        planned=to_micros(firing.planned),
        job_id=None if firing.job is None else firing.job.id,
        reason=firing.reason,
    )


def _insert_job_batch(tx: WriteTransaction, jobs: Sequence[NewJob]) -> None:
    rows = [job_rows.new_job(job, tx.now) | {"id": job.id, "params": job.params} for job in jobs]
    for values in rows:
        job_rows.require_storable(values.values())
    encoded = to_json_param([[values[name] for name in _BATCH_JOB_COLUMNS] for values in rows])
    last = tx.run("schedules.job_batch", jobs=encoded, now=tx.now).lastrowid or 0
    first = last - len(jobs) + 1
    tx.run("schedules.wait_batch", jobs=encoded, now=tx.now, first=first)
    tx.run("add.set_positions", first=first)
    tx.notify_queues.update(each["queue"] for each in rows if each["state"] == State.QUEUED)


def _is_unkeyed(job: NewJob) -> bool:
    return job.key is None and job.retry_of is None and not job.member


def _is_distinct(firings: Sequence[Firing], jobs: Sequence[NewJob]) -> bool:
    keys = [job.active_key for job in jobs if job.active_key is not None]
    return (
        len({firing.schedule_id for firing in firings}) == len(firings)
        and len({firing.slot for firing in firings}) == len(firings)
        and len({job.id for job in jobs}) == len(jobs)
        and len(set(keys)) == len(keys)
    )


def _firing_params(firing: Firing, job: NewJob) -> list[Any]:
    return [
        firing.schedule_id,
        firing.version,
        firing.slot.series,
        to_micros(firing.slot.at),
        firing.outcome,
        to_micros(firing.planned),
        firing.reason,
        schedule_rows.number(firing.next_slot),
        schedule_rows.number(firing.next_trigger_at),
        job.id,
        job.active_key,
    ]
