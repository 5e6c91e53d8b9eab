"""Schedules and slots: read, save and fire."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from outlast.clock import from_micros, to_micros
from outlast.core.duration import MICROSECOND
from outlast.core.event import ZERO
from outlast.core.job import NewJob
from outlast.core.schedule import Firing, Schedule, SlotRecord, check_plan
from outlast.store.contract.schedules import Due, FireResult, SetSchedule
from outlast.store.postgres.operations.add import lock_for_insert, repeat_lookup, write_plan
from outlast.store.postgres.operations.add_plan import (
    ExistingRows,
    InsertPlan,
    Name,
    OpenGroups,
    lookup_values,
    micros,
    plan_insert,
)
from outlast.store.postgres.operations.apply_writes import columns
from outlast.store.postgres.operations.base import PostgresOperations, require_open_store
from outlast.store.postgres.operations.savepoint import bisect_failures, is_unique_violation
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork
from outlast.store.postgres.uuids import is_uuid
from outlast.store.rows import schedules as schedule_rows
from outlast.store.rows.jobs import LAST


class PostgresScheduleOperations(PostgresOperations):
    """Read, save and fire schedules; read slots."""

    async def set_schedule(
        self, schedule_id: str, *, expected: int | None, value: SetSchedule | None
    ) -> Schedule | None:
        """Create, write or delete a schedule if its version is `expected`.

        Returns the schedule as written or deleted, or None if the version or the name conflicts.
        """
        if value is not None:
            check_plan(value.plan)
        operation = partial(_set_schedule, schedule_id=schedule_id, expected=expected, value=value)
        try:
            return await self._pool.transact(require_open_store(operation))
        except Exception as error:
            if not is_unique_violation(error):
                raise
            return None  # another schedule has the name

    async def schedule(self, name: str) -> Schedule | None:
        """Return a schedule by its name or id, or None."""
        schedule_id = name if is_uuid(name) else None
        found = await self._pool.rows("schedules.get", name=name, id=schedule_id)
        return schedule_rows.schedule(tuple(found[0])) if found else None

    async def schedules(self, *, after: str = "", limit: int) -> list[Schedule]:
        """Return the next page of schedules, by name."""
        found = await self._pool.rows("schedules.page", after=after, limit=limit)
        return [schedule_rows.schedule(tuple(row)) for row in found]

    async def due_schedules(self, *, ahead: timedelta = ZERO, limit: int) -> Due:
        """Return the schedules that are due within `ahead`, and when the next one is due."""
        values = {"now": self._now, "ahead": ahead // MICROSECOND, "limit": limit}
        found = [tuple(row) for row in await self._pool.rows("schedules.due", **values)]
        now, later = found[0][:2]
        due = [schedule_rows.schedule(row[2:]) for row in found if row[2] is not None]
        following = None if later is None else from_micros(later)
        return Due(now=from_micros(now), schedules=due, next_trigger_at=following)

    async def fire(self, firings: Sequence[Firing]) -> list[FireResult]:
        """Record slots, add their jobs and advance the schedules; each firing is atomic."""
        if not firings:
            return []
        return await self._pool.transact(require_open_store(partial(_fire_all, firings=firings)))

    async def slots(
        self, series: str, *, before: datetime | None = None, limit: int
    ) -> list[SlotRecord]:
        """Return the slots of a series, newest first."""
        values = {"before": LAST if before is None else to_micros(before), "limit": limit}
        found = await self._pool.rows("schedules.slots", series=series, **values)
        return [schedule_rows.slot(tuple(row)) for row in found]

    async def slot_rows(self, series: str, moments: Sequence[datetime]) -> list[SlotRecord | None]:
        """Return the slot of a series at each moment, or None."""
        values = [to_micros(at) for at in moments]
        found = await self._pool.rows("schedules.slots_at", series=series, moments=values)
        slots = (schedule_rows.slot(tuple(row)) for row in found)
        known = {record.slot.at: record for record in slots}
        return [known.get(at) for at in moments]

    async def running_names(self, names: Collection[str]) -> frozenset[str]:
        """Return those names of `once` jobs that have an open run."""
        found = await self._pool.rows("schedules.running_names", names=sorted(names))
        return frozenset(name for (name,) in found)


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """The version and next slot of an enabled schedule; `triggered` is the last slot fired."""

    version: int
    next_slot: int | None
    next_trigger_at: int | None = None
    triggered: int | None = None


@dataclass(slots=True)
class FirePlan:
    """The result of each firing, and the rows to write."""

    states: dict[str, ScheduleState]
    results: list[FireResult] = field(default_factory=list)
    jobs: InsertPlan = field(default_factory=InsertPlan)
    slots: list[tuple[Any, ...]] = field(default_factory=list)
    advanced: set[str] = field(default_factory=set)

    def advance(self, firing: Firing, *, triggers: bool) -> None:
        """Advance the schedule of a firing to its next slot."""
        before = self.states[firing.schedule_id]
        self.states[firing.schedule_id] = replace(
            before,
            next_slot=micros(firing.next_slot),
            next_trigger_at=micros(firing.next_trigger_at),
            triggered=to_micros(firing.slot.at) if triggers else before.triggered,
        )
        self.advanced.add(firing.schedule_id)


def plan_firings(
    firings: Sequence[Firing], states: dict[str, ScheduleState], existing: ExistingRows, now: int
) -> FirePlan:
    """Plan the firings in order, as if each saw what the ones before it write."""
    plan = FirePlan(dict(states))
    for firing in firings:
        plan.results.append(_plan_firing(firing, plan, existing, now))
    # The slot rows are written with their outcome, not as slots of manual runs.
    plan.jobs.taken = [pair for pair in plan.jobs.taken if pair[0][0] != "slot"]
    return plan


def _plan_firing(firing: Firing, plan: FirePlan, existing: ExistingRows, now: int) -> FireResult:
    state = plan.states.get(firing.schedule_id)
    at = to_micros(firing.slot.at)
    if state is None or (state.version, state.next_slot) != (firing.version, at):
        return FireResult.STALE
    slot: Name = ("slot", firing.slot.series, str(at))
    if slot in existing.holders or slot in existing.answered:
        plan.advance(firing, triggers=False)
        return FireResult.TAKEN
    if firing.job is not None:
        added = plan_insert(replace(firing.job, slot=firing.slot), existing, now, plan.jobs)
        if not added.created:
            return FireResult.BUSY if added.refused is None else FireResult.REFUSED
    existing.answered.add(slot)
    plan.slots.append(_slot_row(firing, at))
    plan.advance(firing, triggers=firing.job is not None)
    return FireResult.WRITTEN


def _slot_row(firing: Firing, at: int) -> tuple[Any, ...]:
    job = None if firing.job is None else firing.job.id
    slot = (firing.slot.series, at, str(firing.outcome), to_micros(firing.planned))
    return *slot, firing.schedule_id, job, firing.reason


async def _set_schedule(
    work: PostgresUnitOfWork, schedule_id: str, expected: int | None, value: SetSchedule | None
) -> Schedule | None:
    target = {"id": schedule_id, "expected": expected}
    if value is None:
        found = await work.rows("schedules.delete", **target)
    else:
        name = "schedules.create" if expected is None else "schedules.write"
        found = await work.rows(name, now=work.now, **target, **schedule_rows.values(value))
    work.schedules = True
    return schedule_rows.schedule(tuple(found[0])) if found else None


async def _fire_all(work: PostgresUnitOfWork, firings: Sequence[Firing]) -> list[FireResult]:
    """Fire slots under the locks of queues and groups, then of the schedules, until the commit."""
    groups = await lock_for_insert(work, _jobs_of(firings))
    ids = sorted({each.schedule_id for each in firings if is_uuid(each.schedule_id)})
    locked = await work.rows("schedules.lock", ids=ids)
    states = {each: ScheduleState(version, next_slot) for each, version, next_slot in locked}
    return await bisect_failures(firings, partial(_fire, work, groups, states), _refused)


async def _fire(
    work: PostgresUnitOfWork,
    groups: OpenGroups,
    states: dict[str, ScheduleState],
    firings: Sequence[Firing],
) -> list[FireResult]:
    plan = await repeat_lookup(work, partial(_lookup_and_fire, work, groups, states, firings))
    states.update(plan.states)
    return plan.results


async def _lookup_and_fire(
    work: PostgresUnitOfWork,
    groups: OpenGroups,
    states: dict[str, ScheduleState],
    firings: Sequence[Firing],
) -> FirePlan:
    slots = [each.slot for each in firings]
    values = lookup_values(_jobs_of(firings)) | {
        "slot_series": [slot.series for slot in slots],
        "slot_ats": [to_micros(slot.at) for slot in slots],
    }
    existing = ExistingRows.read(await work.rows("add.existing", **values), groups)
    plan = plan_firings(firings, states, existing, work.now)
    await write_plan(work, plan.jobs)
    await _add_slots(work, plan)
    await _advance_schedules(work, plan)
    return plan


async def _add_slots(work: PostgresUnitOfWork, plan: FirePlan) -> None:
    """Insert slot rows in lock order."""
    if plan.slots:
        names = ("series", "ats", "outcomes", "planned", "schedules", "jobs", "reasons")
        rows = sorted(plan.slots, key=lambda row: row[:2])
        await work.run("schedules.add_slots", now=work.now, **columns(names, rows))


async def _advance_schedules(work: PostgresUnitOfWork, plan: FirePlan) -> None:
    if plan.advanced:
        advanced = [(each, plan.states[each]) for each in sorted(plan.advanced)]
        rows = [(each, s.next_slot, s.next_trigger_at, s.triggered) for each, s in advanced]
        names = ("ids", "next_slots", "next_triggers", "triggered")
        await work.run("schedules.advance", **columns(names, rows))


def _jobs_of(firings: Sequence[Firing]) -> list[NewJob]:
    return [replace(each.job, slot=each.slot) for each in firings if each.job is not None]


def _refused(_: Firing, __: str) -> FireResult:
    return FireResult.REFUSED
