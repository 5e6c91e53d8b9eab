"""Schedules and slots of the model store."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from outlast.clock import MICROSECOND
from outlast.core.delivery import Delivery
from outlast.core.event import ZERO
from outlast.core.ids import JobId
from outlast.core.job import Job, Slot
from outlast.core.schedule import CLAIMED, Firing, Schedule, SlotOutcome, SlotRecord, check_plan
from outlast.core.state import State
from outlast.store.contract.notifications import Notification
from outlast.store.contract.schedules import Due, FireResult, SetSchedule
from outlast.testing.model.add import add_job
from outlast.testing.model.base import ModelOperations
from outlast.testing.model.tables import Tables


class ModelScheduleOperations(ModelOperations):
    """Schedules and slots of the model store."""

    async def now(self) -> datetime:
        """Return the time by the store's clock."""
        self._require_open()
        return self._clock.now()

    async def set_schedule(
        self, schedule_id: str, *, expected: int | None, value: SetSchedule | None
    ) -> Schedule | None:
        """Write, create or delete a schedule if its version is `expected`."""
        now = self._clock.now()
        written = set_schedule(self._working, schedule_id, expected, value, now)
        self._notify(Notification(schedules=True))
        return written

    async def schedule(self, name: str) -> Schedule | None:
        """Return a schedule by its name or id, or None."""
        return find(self._tables, name)

    async def schedules(self, *, after: str = "", limit: int) -> list[Schedule]:
        """Return the next schedules by name."""
        return page(self._tables, after, limit)

    async def due_schedules(self, *, ahead: timedelta = ZERO, limit: int) -> Due:
        """Return schedules to trigger until `ahead` from now."""
        return due(self._tables, self._clock.now(), ahead, limit)

    async def fire(self, firings: Sequence[Firing]) -> list[FireResult]:
        """Answer slots and return what became of each."""
        now = self._clock.now()
        fired = [fire(self._working, firing, now) for firing in firings]
        self._notify(Notification(queues=frozenset(each.job.queue for each in firings if each.job)))
        return fired

    async def slots(
        self, series: str, *, before: datetime | None = None, limit: int
    ) -> list[SlotRecord]:
        """Return answered slots of a series, the latest first."""
        return slots(self._tables, series, before, limit)

    async def slot_rows(self, series: str, moments: Sequence[datetime]) -> list[SlotRecord | None]:
        """Return the slots at `moments`; None for those not answered."""
        return [self._tables.slots.get(Slot(series=series, at=at)) for at in moments]

    async def running_names(self, names: Collection[str]) -> frozenset[str]:
        """Return those of `names` under which a `once` job runs."""
        return running_names(self._tables, names)


def set_schedule(
    tables: Tables,
    schedule_id: str,
    expected: int | None,
    value: SetSchedule | None,
    now: datetime,
) -> Schedule | None:
    """Write, create or delete a schedule if its version is as expected."""
    there = tables.schedules.get(schedule_id)
    if (there and there.version) != expected:
        return None
    if value is None:
        return tables.schedules.pop(schedule_id, None)
    named = find(tables, check_plan(value.plan).name)
    if named is not None and named.id != schedule_id:
        return None
    tables.schedules[schedule_id] = Schedule(
        id=schedule_id,
        plan=value.plan,
        version=next(tables.versions),
        created_at=there.created_at if there else now,
        updated_at=max(now, there.updated_at + MICROSECOND) if there else now,
        next_slot=value.next_slot,
        next_trigger_at=value.next_trigger_at,
        last_triggered_at=there.last_triggered_at if there else None,
    )
    return tables.schedules[schedule_id]


def find(tables: Tables, name: str) -> Schedule | None:
    """Return a schedule by its id or name."""
    by_name = (each for each in tables.schedules.values() if each.name == name)
    return tables.schedules.get(name) or next(by_name, None)


def page(tables: Tables, after: str, limit: int) -> list[Schedule]:
    """Return the next schedules by name."""
    later = [each for each in tables.schedules.values() if each.name > after]
    return sorted(later, key=lambda each: each.name)[:limit]


def due(tables: Tables, now: datetime, ahead: timedelta, limit: int) -> Due:
    """Return due schedules, and when the next one is."""
    by_time = sorted(
        (each.next_trigger_at, each.id, each)
        for each in tables.schedules.values()
        if each.plan.enabled and each.next_trigger_at is not None
    )
    later = [at for at, _, _ in by_time if at > now + ahead]
    ready = [each for at, _, each in by_time if at <= now + ahead]
    return Due(now=now, schedules=ready[:limit], next_trigger_at=later[0] if later else None)


def fire(tables: Tables, firing: Firing, now: datetime) -> FireResult:
    """Answer one slot."""
    there = tables.schedules.get(firing.schedule_id)
    if there is None or not _is_expected(there, firing):
        return FireResult.STALE
    if firing.slot in tables.slots:
        _go_on(tables, there, firing)
        return FireResult.TAKEN
    if firing.job is not None:
        added = add_job(tables, replace(firing.job, slot=firing.slot), now)
        if added.refused is not None:
            return FireResult.REFUSED
        if not added.created:
            return FireResult.BUSY
        there = replace(there, last_triggered_at=firing.slot.at)
    tables.slots[firing.slot] = _row(firing, now)
    _go_on(tables, there, firing)
    return FireResult.WRITTEN


def slots(tables: Tables, series: str, before: datetime | None, limit: int) -> list[SlotRecord]:
    """Return answered slots of a series, the latest first."""
    rows = [row for slot, row in tables.slots.items() if slot.series == series]
    earlier = [row for row in rows if before is None or row.slot.at < before]
    return sorted(earlier, key=lambda row: row.slot.at, reverse=True)[:limit]


def running_names(tables: Tables, names: Collection[str]) -> frozenset[str]:
    """Return those of `names` under which a `once` job runs."""
    running = (job for job in tables.jobs.values() if job.state is State.RUNNING)
    once = {j.name for j in running if j.delivery is Delivery.ONCE and tables.is_open(j)}
    return frozenset(once & set(names))


def misfired(tables: Tables, job_id: JobId) -> None:
    """Mark the slot of a job that missed its start deadline as skipped."""
    for slot, row in tables.slots.items():
        if row.job_id == job_id and row.outcome in CLAIMED:
            tables.slots[slot] = replace(row, outcome=SlotOutcome.SKIPPED)


def is_unslotted(tables: Tables, job: Job) -> bool:
    """Return True if the job was made for a slot that does not name it."""
    if job.slot_at is None or job.retry_of is not None:
        return False
    own = (row for row in tables.slots.values() if row.job_id == job.id)
    return not any(row.slot.at == job.slot_at for row in own)


def _is_expected(there: Schedule, firing: Firing) -> bool:
    return (
        there.plan.enabled and there.version == firing.version and there.next_slot == firing.slot.at
    )


def _row(firing: Firing, now: datetime) -> SlotRecord:
    return SlotRecord(
        slot=firing.slot,
        outcome=firing.outcome,
        planned=firing.planned,
        actual=now,
        schedule_id=firing.schedule_id,
        job_id=firing.job.id if firing.job else None,
        reason=firing.reason,
    )


def _go_on(tables: Tables, there: Schedule, firing: Firing) -> None:
    tables.schedules[there.id] = replace(
        there, next_slot=firing.next_slot, next_trigger_at=firing.next_trigger_at
    )
