"""Requests to one store that a step of a history makes, and how their answers are compared."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from outlast.core.decide import JobView
from outlast.core.event import Event, EventRecord
from outlast.core.explain import explain
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob, Slot
from outlast.core.reservation import JOB_OVER, Reservation, ReservationId
from outlast.core.run import Lease
from outlast.core.schedule import CLAIMED, Firing, Schedule, SlotOutcome
from outlast.store.contract import Store
from outlast.store.contract.jobs import Added
from outlast.store.contract.reservations import Reserved
from outlast.store.contract.schedules import SetSchedule
from outlast.testing.conformance.histories.comparison import MANY
from outlast.testing.conformance.histories.strategies import EVENTS, TYPES

Picked = TypeVar("Picked")


def pick(pool: Sequence[Picked], back: int) -> Sequence[Picked]:
    return [pool[-1 - back % len(pool)]] if pool else []


def choose_event(job: JobView, number: int) -> Event | None:
    events = EVENTS.get(job.state, [None])
    return events[number % len(events)]


def lease_of(job: JobView) -> Lease:
    return Lease(job.id, job.token)


async def attach(store: Store, lease: Lease, artifacts: Sequence[str]) -> bool:
    return await store.attach(lease, artifacts)


async def set_schedule(
    store: Store,
    known: dict[Store, list[int | None]],
    back: int,
    name: str,
    value: SetSchedule | None,
) -> list[Schedule | None]:
    given = known.setdefault(store, [None, None])
    expected = given[-1 - back % len(given)] or (-1 if value is None else None)
    schedule_id = f"00000000-0000-7000-8000-{ord(name):012x}"
    written = await store.set_schedule(schedule_id, expected=expected, value=value)
    given.extend([written.version] if written else [])
    return [written, await store.schedule(name), *await list_schedules(store)]


async def list_schedules(store: Store) -> list[Schedule | None]:
    return [*await store.schedules(limit=MANY)]


async def fire(store: Store, ahead: timedelta, outcome: SlotOutcome, job: NewJob) -> list[object]:
    due = await store.due_schedules(ahead=ahead, limit=MANY)
    firings = [_firing(each, outcome, job) for each in due.schedules if each.next_slot]
    fired = await store.fire([*firings, *firings])
    rows = [await store.slots(series, limit=MANY) for series in ("series", *map(_id, firings))]
    names = await store.running_names(["one", "two", "series"])
    return [due.now, due.next_trigger_at, *fired, rows, names]


def _id(firing: Firing) -> str:
    return firing.schedule_id


def _firing(schedule: Schedule, outcome: SlotOutcome, job: NewJob) -> Firing:
    assert schedule.next_slot is not None
    following = schedule.next_slot + timedelta(minutes=1)
    return Firing(
        schedule_id=schedule.id,
        version=schedule.version,
        slot=Slot(series=schedule.series, at=schedule.next_slot),
        outcome=outcome,
        planned=schedule.next_slot,
        job=job if outcome in CLAIMED else None,
        next_slot=following,
        next_trigger_at=following,
    )


def without_versions(told: Sequence[Schedule | None]) -> list[Schedule | None]:
    return [each and replace(each, version=0) for each in told]


async def add_one(store: Store, job: NewJob) -> list[Added]:
    return await store.add([job])


async def seal_group(store: Store, group_id: str) -> bool:
    return await store.seal_group(group_id)


async def stop_group(store: Store, group_id: str, skip: bool) -> bool:
    return await store.stop_group(group_id, reason="enough", skip=skip)


async def remaining_members(store: Store, group_id: str, limit: int) -> list[Job]:
    return await store.remaining_members(group_id, limit=limit)


def outcomes(added: Sequence[Added]) -> list[tuple[JobId, bool, bool, bool]]:
    return [
        (answer.id, answer.created, answer.refused is not None, answer.replaced) for answer in added
    ]


async def running_under_other_boots(
    store: Store, besides: str, instance_id: str | None
) -> list[Job]:
    return await store.running_under_other_boots(
        besides=besides, instance_id=instance_id, limit=MANY
    )


async def events_of_no_job(store: Store) -> list[EventRecord]:
    return [replace(event, id=0) for event in await store.events(None)]


async def find_runnable(store: Store, job_ids: Sequence[JobId]) -> list[JobId]:
    """Those of them that the next claim takes, by what `explain` says."""
    situations = [await store.wait_facts(job_id) for job_id in job_ids]
    return [each.job.id for each in situations if each and explain(each).is_runnable]


async def find_broken(store: Store) -> list[object]:
    """Whatever recovery would have to repair besides."""
    adrift, unfollowed = (
        await store.detached_jobs(limit=MANY),
        await store.missing_successors(limit=MANY),
    )
    freed = [h for h in await store.release_stale_reservations(limit=MANY) if h.reason == JOB_OVER]
    return [*adrift, *unfollowed, *freed, *await store.remove_orphans(limit=MANY)]


def without_refusal(reserved: Reserved) -> Reserved:
    """Without the words of a refusal, which a store is free to choose."""
    return replace(reserved, refused=reserved.refused and "refused")


async def extend_reservation(store: Store, number: ReservationId, span: timedelta) -> bool:
    return await store.extend_reservation(number, span=span)


def sorted_reservation_ids(held: Sequence[Reservation]) -> list[ReservationId]:
    return sorted(each.id for each in held)


def job_ids(jobs: Sequence[JobView]) -> list[JobId]:
    return [job.id for job in jobs]


def sorted_job_ids(jobs: Sequence[JobView]) -> list[JobId]:
    return sorted(job.id for job in jobs)


async def prune_by_type(store: Store, *, older_than: timedelta) -> tuple[list[str], int]:
    """Delete the old jobs of one type; which jobs were found, and how many were deleted."""
    found = await store.ended_jobs(older_than=older_than, after=None, limit=MANY)
    mine = [job for job in found if job.type == TYPES[0]]
    return sorted(job.id for job in found), await store.prune_jobs(mine, older_than=older_than)
