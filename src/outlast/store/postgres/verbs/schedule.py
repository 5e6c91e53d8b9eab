"""Writing schedules, and answering their slots: each firing alone, all of it or nothing."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from outlast.clock import to_micros
from outlast.core.job import NewJob
from outlast.core.schedule import Firing, Schedule
from outlast.store.contract.schedules import FireResult, SetSchedule
from outlast.store.postgres.operations.add_plan import ExistingRows, OpenGroups, asked
from outlast.store.postgres.operations.apply_writes import columns
from outlast.store.postgres.operations.savepoint import bisect_failures
from outlast.store.postgres.unit_of_work import UnitOfWork
from outlast.store.postgres.uuids import is_uuid
from outlast.store.postgres.verbs.add import keep, lock, looking_again
from outlast.store.postgres.verbs.firing import FirePlan, ScheduleState, plan_firings
from outlast.store.rows import schedules as rows


async def set_schedule(
    work: UnitOfWork, schedule_id: str, expected: int | None, value: SetSchedule | None
) -> Schedule | None:
    """It as written or deleted; None if its version is another one. The name may be refused."""
    where = {"id": schedule_id, "expected": expected}
    if value is None:
        found = await work.rows("schedules.delete", **where)
    else:
        name = "schedules.create" if expected is None else "schedules.write"
        found = await work.rows(name, now=work.now, **where, **rows.values(value))
    return rows.schedule(tuple(found[0])) if found else None


async def fire(work: UnitOfWork, firings: Sequence[Firing]) -> list[FireResult]:
    """All of them in a few statements, under the locks of what they build on.

    Queues and groups first, as for any new job; then the schedules, so that where each stands is
    known until the commit.
    """
    doors = await lock(work, _jobs(firings))
    ids = sorted({each.schedule_id for each in firings if is_uuid(each.schedule_id)})
    held = await work.rows("schedules.lock", ids=ids)
    stands = {each: ScheduleState(version, next_slot) for each, version, next_slot in held}
    return await bisect_failures(firings, partial(_fire, work, doors, stands), _refused)


async def _fire(
    work: UnitOfWork, doors: OpenGroups, stands: dict[str, ScheduleState], firings: Sequence[Firing]
) -> list[FireResult]:
    made = await looking_again(work, partial(_write, work, doors, stands, firings))
    stands.update(made.stands)
    return made.fired


async def _write(
    work: UnitOfWork, doors: OpenGroups, stands: dict[str, ScheduleState], firings: Sequence[Firing]
) -> FirePlan:
    slots = [each.slot for each in firings]
    look = asked(_jobs(firings)) | {
        "slot_series": [slot.series for slot in slots],
        "slot_ats": [to_micros(slot.at) for slot in slots],
    }
    facts = ExistingRows.read(await work.rows("add.existing", **look), doors)
    made = plan_firings(firings, stands, facts, work.now)
    await keep(work, made.jobs)
    await _answer(work, made)
    await _go_on(work, made)
    return made


async def _answer(work: UnitOfWork, made: FirePlan) -> None:
    """The rows of slots, in the order in which everybody takes them."""
    if made.answered:
        names = ("series", "ats", "outcomes", "planned", "schedules", "jobs", "reasons")
        taken = sorted(made.answered, key=lambda row: row[:2])
        await work.run("schedules.add_slots", now=work.now, **columns(names, taken))


async def _go_on(work: UnitOfWork, made: FirePlan) -> None:
    if made.moved:
        moved = [(each, made.stands[each]) for each in sorted(made.moved)]
        after = [(each, s.next_slot, s.next_trigger_at, s.triggered) for each, s in moved]
        names = ("ids", "next_slots", "next_triggers", "triggered")
        await work.run("schedules.advance", **columns(names, after))


def _jobs(firings: Sequence[Firing]) -> list[NewJob]:
    return [replace(each.job, slot=each.slot) for each in firings if each.job is not None]


def _refused(_: Firing, __: str) -> FireResult:
    return FireResult.REFUSED
