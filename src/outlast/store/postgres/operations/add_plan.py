"""Plan an insert of jobs: which are stored, with which keys, slots, positions and groups."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple

from outlast.clock import to_micros
from outlast.core.duration import MICROSECOND
from outlast.core.ids import JobId
from outlast.core.job import NewJob
from outlast.core.limits import MAX_PRIORITY, MIN_PRIORITY
from outlast.store.contract.jobs import Added
from outlast.store.postgres.unit_of_work import Row
from outlast.store.postgres.uuids import is_uuid
from outlast.store.rows import jobs as job_rows

_FAR_SPAN: Final = timedelta(days=365_000)
"""A span beyond which a moment may lie after the year 9999."""

_FAR_YEAR: Final = 9000
"""A year after which a moment plus a span may lie after the year 9999."""

Name = tuple[str, str, str]
"""A unique name: ('slot', series, at), ('key', key, bucket) or ('active', key, '')."""

OpenGroups = Mapping[tuple[str | None, bool], str | None]
"""By group and whether the new member is a retry: why the group refuses it, or None."""


class RetriedJob(NamedTuple):
    """A stored job that a new job is a retry of."""

    root: str
    has_ended: bool
    successor: str | None


@dataclass(slots=True)
class JobInsert:
    """A job to insert, with its root, group and position."""

    job: NewJob
    root: str | None = None
    member_group_id: str | None = None
    position: int | None = None


@dataclass(slots=True)
class ExistingRows:
    """Stored rows that new jobs refer to or conflict with; planning adds the planned ones."""

    known: set[str] = field(default_factory=set)
    holders: dict[Name, str] = field(default_factory=dict)
    answered: set[Name] = field(default_factory=set)  # slots with a row but no job
    predecessors: dict[str, RetriedJob] = field(default_factory=dict)
    positions: dict[tuple[str, int], list[int]] = field(default_factory=dict)  # gap, last position
    groups: "OpenGroups" = field(default_factory=dict)

    @classmethod
    def read(cls, found: Iterable[Row], groups: "OpenGroups") -> "ExistingRows":
        """Return the existing rows from the result of `add.existing`."""
        existing = cls(groups=groups)
        for what, a, b, c, d in found:
            match what:
                case "known":
                    existing.known.add(a)
                case "predecessor":
                    existing.predecessors[a] = RetriedJob(b, c is not None, d)
                case "position":
                    existing.positions[a, int(b)] = [int(c), int(d)]
                case "slot" if d is None:
                    existing.answered.add((what, a, b))
                case _:
                    existing.holders[what, a, b] = d
        return existing


@dataclass(slots=True)
class InsertPlan:
    """The answer to each job, and the rows to write for those that are stored."""

    answers: list[Added] = field(default_factory=list)
    inserts: list[JobInsert] = field(default_factory=list)
    taken: list[tuple[Name, str]] = field(default_factory=list)


def plan_inserts(jobs: Sequence[NewJob], existing: ExistingRows, now: int | None) -> InsertPlan:
    """Plan the jobs in order, as if each saw what the jobs before it write."""
    plan = InsertPlan()
    for job in jobs:
        plan.answers.append(plan_insert(job, existing, now, plan))
    return plan


def unique_names(job: NewJob) -> list[Name]:
    """Return the unique names of a job, in the order in which conflicts are checked."""
    taken: list[Name] = []
    if job.slot is not None:
        taken.append(("slot", job.slot.series, str(to_micros(job.slot.at))))
    if job.key is not None:
        taken.append(("key", job.key.key, job.key.bucket))
    if job.active_key is not None:
        taken.append(("active", job.active_key, ""))
    return taken


def entry_of(job: NewJob) -> tuple[str | None, bool]:
    """Return the key of a member in `OpenGroups`."""
    return job.group_id, job.retry_of is not None


def is_far(job: NewJob) -> bool:
    """Return whether a moment of the job may lie after the year 9999, by the store's clock."""
    return (
        (job.delay is not None and job.delay > _FAR_SPAN)
        or (job.start_within is not None and job.start_within > _FAR_SPAN)
        or (job.at is not None and job.at.year > _FAR_YEAR)
        or (job.slot is not None and job.slot.at.year > _FAR_YEAR)
    )


def storage_error(job: NewJob, now: int | None) -> str | None:
    """Return why the job cannot be stored, or None."""
    if not is_uuid(job.id):
        return "its id is not a UUID"
    if not _has_valid_priority(job):
        return "its priority is out of bounds"
    try:
        job_rows.require_storable(part for name in unique_names(job) for part in name)
        job_rows.require_storable(job_rows.new_job(job, now or 0).values())
    except (ValueError, OverflowError) as error:
        return str(error)
    return None


def plan_insert(job: NewJob, existing: ExistingRows, now: int | None, plan: InsertPlan) -> Added:
    """Plan one job after those that are planned already; return its answer."""
    if job.id in existing.known:
        return Added(job.id, created=False)
    wanted = unique_names(job)
    for name in wanted:
        if name in existing.holders:
            return Added(JobId(existing.holders[name]), created=False)
    refusal = (
        storage_error(job, now)
        or _successor_error(job, existing)
        or _membership_error(job, existing)
    )
    if refusal is not None:
        return Added(job.id, created=False, refused=refusal)
    insert = _to_insert(job, existing)
    existing.known.add(job.id)
    for name in wanted:
        existing.holders[name] = insert.root or job.id
        plan.taken.append((name, insert.root or job.id))
    plan.inserts.append(insert)
    return Added(job.id, created=True)


def _to_insert(job: NewJob, existing: ExistingRows) -> JobInsert:
    predecessor = None if job.retry_of is None else existing.predecessors.pop(job.retry_of)
    insert = JobInsert(
        job,
        root=predecessor and predecessor.root,
        member_group_id=job.group_id if job.member else None,
    )
    if predecessor is not None and job.retry_of is not None:
        existing.predecessors[job.retry_of] = predecessor._replace(successor=job.id)
    gap_and_last = existing.positions.get((job.queue, job.priority))
    if gap_and_last is not None:
        gap_and_last[1] += gap_and_last[0]
        insert.position = gap_and_last[1]
    return insert


def _successor_error(job: NewJob, existing: ExistingRows) -> str | None:
    if job.retry_of is None:
        return None
    predecessor = existing.predecessors.get(job.retry_of)
    if predecessor is None:
        return f"there is no job {job.retry_of}"
    if not predecessor.has_ended:
        return f"job {job.retry_of} has not ended"
    if predecessor.successor is not None:
        return f"job {job.retry_of} has a successor already: {predecessor.successor}"
    return None


def _membership_error(job: NewJob, existing: ExistingRows) -> str | None:
    return existing.groups.get(entry_of(job)) if job.member else None


def _has_valid_priority(job: NewJob) -> bool:
    return MIN_PRIORITY <= job.priority <= MAX_PRIORITY


def lookup_values(jobs: Sequence[NewJob]) -> dict[str, Any]:
    """Return the values of `add.existing`, without those that cannot be stored."""
    taken = [name for job in jobs for name in unique_names(job)]
    slots = [(series, int(at)) for what, series, at in taken if what == "slot"]
    keys = [name for name in taken if name[0] != "slot"]
    positions = sorted({(job.queue, job.priority) for job in jobs if _has_valid_priority(job)})
    return {
        "ids": [job.id for job in jobs if is_uuid(job.id)],
        "predecessors": [job.retry_of for job in jobs if is_uuid(job.retry_of)],
        "queues": [queue for queue, _ in positions],
        "priorities": [priority for _, priority in positions],
        **_slots([(*slot, "") for slot in slots]),
        **_keys([(*key, "") for key in keys]),
    }


def insert_values(plan: InsertPlan) -> dict[str, Any]:
    """Return the values of `add.mixed`, with keys and slots in lock order."""
    taken = sorted(plan.taken)
    slots = [(name[1], int(name[2]), holder) for name, holder in taken if name[0] == "slot"]
    keys = [(*name, holder) for name, holder in taken if name[0] != "slot"]
    schedule_ids = {
        name: each.job.schedule_id for each in plan.inserts for name in unique_names(each.job)
    }
    schedules = [schedule_ids[name] for name, _ in taken if name[0] == "slot"]
    bound = {**_slots(slots), "slot_schedules": schedules, **_keys(keys)}
    return {**columns(plan.inserts), **bound}


def columns(inserts: Sequence[JobInsert]) -> dict[str, Any]:
    """Return the jobs as columns; a column without values is None."""
    jobs = [insert.job for insert in inserts]
    return {
        "ids": [job.id for job in jobs],
        "params": [job.params for job in jobs],
        "types": [job.type for job in jobs],
        "names": [job.name for job in jobs],
        "queues": [job.queue for job in jobs],
        "deliveries": [str(job.delivery) for job in jobs],
        "max_attempts": [job.max_attempts for job in jobs],
        "priorities": [job.priority for job in jobs],
        "positions": _column(insert.position for insert in inserts),
        "ats": _column(micros(job.at) for job in jobs),
        "delays": _column(span_micros(job.delay) for job in jobs),
        "slots": _column(job.slot and to_micros(job.slot.at) for job in jobs),
        "withins": _column(span_micros(job.start_within) for job in jobs),
        "retries": _column(job.retry_of for job in jobs),
        "roots": _column(insert.root for insert in inserts),
        "group_ids": _column(job.group_id for job in jobs),
        "member_group_ids": _column(insert.member_group_id for insert in inserts),
        "template_ids": _column(job.template_id for job in jobs),
        "template_ats": _column(micros(job.template_at) for job in jobs),
        "schedule_ids": _column(job.schedule_id for job in jobs),
        "active_keys": _column(job.active_key for job in jobs),
        "metadatas": _column(job.metadata for job in jobs),
    }


def micros(at: Any) -> int | None:
    """Return a moment in microseconds, or None."""
    return None if at is None else to_micros(at)


def span_micros(length: Any) -> int | None:
    """Return a span in microseconds, or None."""
    return None if length is None else length // MICROSECOND


def _column(values: Iterable[Any]) -> list[Any] | None:
    column = list(values)
    return column if any(value is not None for value in column) else None


def _slots(slots: Sequence[tuple[str, int, str]]) -> dict[str, Any]:
    return {
        "slot_series": [slot[0] for slot in slots],
        "slot_ats": [slot[1] for slot in slots],
        "slot_jobs": [slot[2] for slot in slots],
    }


def _keys(keys: Sequence[tuple[str, str, str, str]]) -> dict[str, Any]:
    return {
        "key_scopes": [key[0] for key in keys],
        "keys": [key[1] for key in keys],
        "buckets": [key[2] for key in keys],
        "key_jobs": [key[3] for key in keys],
    }
