"""Factories of valid jobs, holders and changes; a test spells out only what matters."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Final

from outlast.core.decide import Change, Guard, JobView, Transition, decide
from outlast.core.delivery import Delivery
from outlast.core.duration import Duration, parse_duration
from outlast.core.event import Event, EventKind, Failed, GroupStopped, Lost, Succeeded
from outlast.core.group import ClosePolicy, Group, NewGroup
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob, Slot
from outlast.core.run import Claim, LeaseHolder, RunRecord
from outlast.core.schedule import (
    CLAIMED,
    Firing,
    JobBlueprint,
    Plan,
    Schedule,
    SlotOutcome,
    TimeRule,
)
from outlast.core.state import Loss, State
from outlast.core.worker import WorkerInfo
from outlast.store.contract import Store
from outlast.store.contract.schedules import SetSchedule

SECOND: Final = timedelta(seconds=1)
HOUR: Final = timedelta(hours=1)
TICK: Final = timedelta(microseconds=1)
LEASE: Final = timedelta(seconds=15)
TYPE: Final = "feed.fetch"
MANY: Final = 1000

SUCCEEDED: Final = Succeeded('"done"')
FAILED: Final = Failed("it broke")
LOST: Final = Lost(Loss.OWNER_DEAD)
LAPSED: Final = Lost(Loss.LEASE_EXPIRED)

_numbers = count(1)


def new_id() -> JobId:
    """An id no other test has; they sort in the order they were made."""
    return JobId(f"00000000-0000-7000-8000-{next(_numbers):012x}")


def make_job(**over: Any) -> NewJob:
    """A job due at once, of type `feed.fetch`, in the default queue."""
    plain: dict[str, Any] = {"id": new_id(), "type": TYPE, "params": "{}", "name": TYPE}
    return NewJob(**{**plain, **over})


def make_holder(name: str = "worker-1") -> LeaseHolder:
    """Return the lease holder of a worker."""
    return LeaseHolder(instance_id=name, boot_id=f"{name}-boot")


def make_worker(name: str = "worker-1", **over: Any) -> WorkerInfo:
    """What `make_holder(name)` tells of itself."""
    holder = make_holder(name)
    plain: dict[str, Any] = {
        "instance_id": holder.instance_id,
        "boot_id": holder.boot_id,
        "host": "here",
        "pid": 7,
        "queues": ("default",),
        "types": (TYPE,),
        "concurrency": 10,
    }
    return WorkerInfo(**{**plain, **over})


def make_plan(name: str = "nightly", **over: Any) -> Plan:
    """Return an hourly schedule of the type `feed.fetch`; fields of `JobBlueprint` may be given."""
    given: dict[str, Any] = {key: over.pop(key) for key in ("delivery", "queue") if key in over}
    plain: dict[str, Any] = {"delivery": Delivery.LEASE, "queue": "default", **given}
    making = JobBlueprint(type=TYPE, name=TYPE, priority=0, max_attempts=5, **plain)
    rule = TimeRule(every=HOUR)
    return Plan(
        name=name,
        **{"rule": rule, "making": making, "coalesce": True, "misfire_grace": HOUR, **over},
    )


async def put_schedule(store: Store, next_slot: datetime, **over: Any) -> Schedule:
    """A schedule whose next slot is that one."""
    value = SetSchedule(plan=make_plan(**over), next_slot=next_slot, next_trigger_at=next_slot)
    written = await store.set_schedule(new_id(), expected=None, value=value)
    assert written is not None
    return written


def make_firing(schedule: Schedule, outcome: SlotOutcome = SlotOutcome.RAN, **over: Any) -> Firing:
    """The answer to its next slot, with a job where that outcome has one."""
    assert schedule.next_slot is not None
    job = make_job(schedule_id=schedule.id) if outcome in CLAIMED else None
    plain: dict[str, Any] = {
        "schedule_id": schedule.id,
        "version": schedule.version,
        "slot": Slot(series=schedule.series, at=schedule.next_slot),
        "outcome": outcome,
        "planned": schedule.next_slot,
        "job": job,
        "next_slot": schedule.next_slot + HOUR,
        "next_trigger_at": schedule.next_slot + HOUR,
    }
    return Firing(**{**plain, **over})


async def put(store: Store, **over: Any) -> JobId:
    """Add one job that nothing stands in the way of."""
    job = make_job(**over)
    [added] = await store.add([job])
    assert added.created, added
    return job.id


async def job_of(store: Store, job_id: JobId) -> Job:
    """The job, which is there."""
    [job] = await store.get([job_id])
    assert job is not None, f"no job {job_id}"
    return job


async def take_many(
    store: Store,
    *,
    limit: int = MANY,
    prefetch: int = 0,
    queue: str = "default",
    types: Collection[str] = (TYPE,),
    holder: str = "worker-1",
    lease: Duration = LEASE,
) -> list[Claim]:
    """Claim what there is."""
    return await store.claim(
        make_holder(holder),
        queue=queue,
        types=types,
        limit=limit,
        prefetch=prefetch,
        lease=parse_duration(lease, what="lease"),
    )


async def take(store: Store, **over: Any) -> Claim:
    """Claim the next job, which is there."""
    claims = await take_many(store, **{"limit": 1, **over})
    assert len(claims) == 1, f"one job was to be taken, not {len(claims)}"
    return claims[0]


async def started(store: Store, **over: Any) -> Claim:
    """Add a job to a queue where nothing else waits, and claim it."""
    job_id = await put(store, **over)
    claim = await take(store, queue=over.get("queue", "default"), types={over.get("type", TYPE)})
    assert claim.id == job_id, "another job was waiting"
    return claim


async def ended(store: Store, event: Event = SUCCEEDED, **over: Any) -> JobId:
    """Add a job, claim it and end it by that event."""
    claim = await started(store, **over)
    assert await settle(store, claim, event)
    return claim.id


async def settle(store: Store, standing: JobView, event: Event) -> bool:
    """Decide and apply; whether it was applied."""
    [applied] = await store.apply([decide(standing, event, new_id=new_id)])
    return applied


async def put_group(
    store: Store, *jobs: NewJob, is_sealed: bool = True, **over: Any
) -> tuple[str, list[JobId]]:
    """A group of these jobs, or of three plain ones, and their ids in order."""
    group_id = new_id()
    given = jobs or (make_job(), make_job(), make_job())
    members = [replace(job, group_id=group_id, member=True) for job in given]
    assert await store.add_group(NewGroup(**{"id": group_id, "total": len(members), **over}))
    added = await store.add(members)
    assert all(answer.created for answer in added), added
    assert not is_sealed or await store.seal_group(group_id)
    return group_id, [job.id for job in members]


async def sweep(store: Store) -> int:
    """End what is left over in every closing group, as a worker does; how many that were."""
    ended = 0
    for group in await store.closing_groups(limit=MANY):
        event = GroupStopped(skip=group.closing is ClosePolicy.SKIP)
        left = await store.remaining_members(group.id, limit=MANY)
        changes = [decide(job, event, new_id=new_id) for job in left]
        ended += sum(await store.apply(changes))
    await store.mark_groups_closed(limit=MANY)
    return ended


async def group_of(store: Store, group_id: str) -> Group:
    """The group, which is there."""
    group = await store.group(group_id)
    assert group is not None, f"no group {group_id}"
    return group


async def last_run(store: Store, job_id: JobId) -> RunRecord:
    """The last run of a job that has run."""
    return (await store.runs(job_id))[-1]


async def kinds(store: Store, job_id: JobId) -> list[EventKind]:
    """What was recorded of a job, oldest first."""
    return [event.kind for event in await store.events(job_id)]


async def next_ids(store: Store, queue: str = "default") -> list[JobId]:
    """The ids of a queue's jobs as `peek` shows them."""
    return [job.id for job in await store.peek(queue, limit=MANY)]


async def block(store: Store, job_id: JobId) -> None:
    """Let a queued job wait for others, as one of a group does."""
    job = await job_of(store, job_id)
    move = Transition(guard=Guard.STATE, to=State.BLOCKED)
    assert await store.apply([Change(job_id, job.token, move, was=job.state)]) == [True]


async def claim_order(store: Store, **over: Any) -> list[JobId]:
    """The ids of all that can be claimed, in the order they are."""
    return [claim.id for claim in await take_many(store, **over)]
