"""How the model store keeps schedules and answers their slots."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta

from outlast.clock import MICROSECOND
from outlast.core.delivery import Delivery
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.schedule import CLAIMED, Firing, Schedule, SlotOutcome, SlotRecord, check_plan
from outlast.core.state import State
from outlast.store.contract.schedules import Due, FireResult, SetSchedule
from outlast.testing.model.add import add_job
from outlast.testing.model.tables import Tables


def set_schedule(
    tables: Tables,
    schedule_id: str,
    expected: int | None,
    value: SetSchedule | None,
    now: datetime,
) -> Schedule | None:
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
    by_name = (each for each in tables.schedules.values() if each.name == name)
    return tables.schedules.get(name) or next(by_name, None)


def page(tables: Tables, after: str, limit: int) -> list[Schedule]:
    later = [each for each in tables.schedules.values() if each.name > after]
    return sorted(later, key=lambda each: each.name)[:limit]


def due(tables: Tables, now: datetime, ahead: timedelta, limit: int) -> Due:
    by_time = sorted(
        (each.next_trigger_at, each.id, each)
        for each in tables.schedules.values()
        if each.plan.enabled and each.next_trigger_at is not None
    )
    later = [at for at, _, _ in by_time if at > now + ahead]
    ready = [each for at, _, each in by_time if at <= now + ahead]
    return Due(now=now, schedules=ready[:limit], next_trigger_at=later[0] if later else None)


def fire(tables: Tables, firing: Firing, now: datetime) -> FireResult:
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
    rows = [row for slot, row in tables.slots.items() if slot.series == series]
    earlier = [row for row in rows if before is None or row.slot.at < before]
    return sorted(earlier, key=lambda row: row.slot.at, reverse=True)[:limit]


def running_names(tables: Tables, names: Collection[str]) -> frozenset[str]:
    running = (job for job in tables.jobs.values() if job.state is State.RUNNING)
    once = {j.name for j in running if j.delivery is Delivery.ONCE and tables.is_open(j)}
    return frozenset(once & set(names))


def misfired(tables: Tables, job_id: JobId) -> None:
    """The job of a slot could not start in time."""
    for slot, row in tables.slots.items():
        if row.job_id == job_id and row.outcome in CLAIMED:
            tables.slots[slot] = replace(row, outcome=SlotOutcome.SKIPPED)


def is_unslotted(tables: Tables, job: Job) -> bool:
    """Whether it was made for a slot that is not its own."""
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
