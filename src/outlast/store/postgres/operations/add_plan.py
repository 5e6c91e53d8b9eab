"""What becomes of new jobs, given what stands in their way: who is stored, and with which keys."""

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

_FAR: Final = timedelta(days=365_000)
_LATE: Final = 9000

Name = tuple[str, str, str]
"""What one job has to itself: ('slot', series, when), ('key', key, bucket), ('active', key, '')."""


OpenGroups = Mapping[tuple[str | None, bool], str | None]
"""By group, and whether it is a retry that comes: why no new member is let in, None if it is."""


class Predecessor(NamedTuple):
    """A job that is to be followed by another one."""

    root: str
    has_ended: bool
    follower: str | None


@dataclass(slots=True)
class JobInsert:
    """A job that is to be stored, and where."""

    job: NewJob
    root: str | None = None
    member_group_id: str | None = None
    position: int | None = None


@dataclass(slots=True)
class ExistingRows:
    """What the store holds of that which these jobs ask for. Planning writes into it as it goes."""

    known: set[str] = field(default_factory=set)
    holders: dict[Name, str] = field(default_factory=dict)
    answered: set[Name] = field(default_factory=set)  # slots with a row, whether taken or not
    befores: dict[str, Predecessor] = field(default_factory=dict)
    places: dict[tuple[str, int], list[int]] = field(default_factory=dict)  # gap, last position
    doors: "OpenGroups" = field(default_factory=dict)

    @classmethod
    def read(cls, found: Iterable[Row], doors: "OpenGroups") -> "ExistingRows":
        facts = cls(doors=doors)
        for what, a, b, c, d in found:
            match what:
                case "known":
                    facts.known.add(a)
                case "before":
                    facts.befores[a] = Predecessor(b, c is not None, d)
                case "place":
                    facts.places[a, int(b)] = [int(c), int(d)]
                case "slot" if d is None:
                    facts.answered.add((what, a, b))
                case _:
                    facts.holders[what, a, b] = d
        return facts


@dataclass(slots=True)
class InsertPlan:
    """Each job's answer, and what is to be written for those that are stored."""

    answers: list[Added] = field(default_factory=list)
    drafts: list[JobInsert] = field(default_factory=list)
    taken: list[tuple[Name, str]] = field(default_factory=list)


def plan(jobs: Sequence[NewJob], facts: ExistingRows, now: int | None) -> InsertPlan:
    """One after the other, as if each saw what those before it wrote."""
    made = InsertPlan()
    for job in jobs:
        made.answers.append(answer(job, facts, now, made))
    return made


def names(job: NewJob) -> list[Name]:
    """What it takes, in the order in which it is asked for."""
    taken: list[Name] = []
    if job.slot is not None:
        taken.append(("slot", job.slot.series, str(to_micros(job.slot.at))))
    if job.key is not None:
        taken.append(("key", job.key.key, job.key.bucket))
    if job.active_key is not None:
        taken.append(("active", job.active_key, ""))
    return taken


def door(job: NewJob) -> tuple[str | None, bool]:
    """Which door it comes to, if it is to be a member."""
    return job.group_id, job.retry_of is not None


def is_far(job: NewJob) -> bool:
    """Whether its times may lie beyond what can be kept, which only the store's clock can say."""
    return (
        (job.delay is not None and job.delay > _FAR)
        or (job.start_within is not None and job.start_within > _FAR)
        or (job.at is not None and job.at.year > _LATE)
        or (job.slot is not None and job.slot.at.year > _LATE)
    )


def fault(job: NewJob, now: int | None) -> str | None:
    """Why no store can keep it, as far as that can be told by looking at it."""
    if not is_uuid(job.id):
        return "its id is not a UUID"
    if not _has_place(job):
        return "its priority is out of bounds"
    try:
        job_rows.require_storable(part for name in names(job) for part in name)
        job_rows.require_storable(job_rows.new_job(job, now or 0).values())
    except (ValueError, OverflowError) as error:
        return str(error)
    return None


def answer(job: NewJob, facts: ExistingRows, now: int | None, made: InsertPlan) -> Added:
    """What becomes of one, after those that are planned already."""
    if job.id in facts.known:
        return Added(job.id, created=False)
    wanted = names(job)
    for name in wanted:
        if name in facts.holders:
            return Added(JobId(facts.holders[name]), created=False)
    trouble = fault(job, now) or _no_successor(job, facts) or _no_member(job, facts)
    if trouble is not None:
        return Added(job.id, created=False, refused=trouble)
    draft = _draft(job, facts)
    facts.known.add(job.id)
    for name in wanted:
        facts.holders[name] = draft.root or job.id
        made.taken.append((name, draft.root or job.id))
    made.drafts.append(draft)
    return Added(job.id, created=True)


def _draft(job: NewJob, facts: ExistingRows) -> JobInsert:
    before = None if job.retry_of is None else facts.befores.pop(job.retry_of)
    draft = JobInsert(
        job, root=before and before.root, member_group_id=job.group_id if job.member else None
    )
    if before is not None and job.retry_of is not None:
        facts.befores[job.retry_of] = before._replace(follower=job.id)
    place = facts.places.get((job.queue, job.priority))
    if place is not None:
        place[1] += place[0]
        draft.position = place[1]
    return draft


def _no_successor(job: NewJob, facts: ExistingRows) -> str | None:
    if job.retry_of is None:
        return None
    before = facts.befores.get(job.retry_of)
    if before is None:
        return f"there is no job {job.retry_of}"
    if not before.has_ended:
        return f"job {job.retry_of} has not ended"
    if before.follower is not None:
        return f"job {job.retry_of} has a successor already: {before.follower}"
    return None


def _no_member(job: NewJob, facts: ExistingRows) -> str | None:
    return facts.doors.get(door(job)) if job.member else None


def _has_place(job: NewJob) -> bool:
    return MIN_PRIORITY <= job.priority <= MAX_PRIORITY


def asked(jobs: Sequence[NewJob]) -> dict[str, Any]:
    """What `add.look` is asked about these jobs. What cannot be stored is not looked for."""
    taken = [name for job in jobs for name in names(job)]
    slots = [(series, int(at)) for what, series, at in taken if what == "slot"]
    keys = [name for name in taken if name[0] != "slot"]
    places = sorted({(job.queue, job.priority) for job in jobs if _has_place(job)})
    return {
        "ids": [job.id for job in jobs if is_uuid(job.id)],
        "befores": [job.retry_of for job in jobs if is_uuid(job.retry_of)],
        "queues": [queue for queue, _ in places],
        "priorities": [priority for _, priority in places],
        **_slots([(*slot, "") for slot in slots]),
        **_keys([(*key, "") for key in keys]),
    }


def written(made: InsertPlan) -> dict[str, Any]:
    """What `add.mixed` binds. Keys and slots are taken in one order by everybody."""
    taken = sorted(made.taken)
    slots = [(name[1], int(name[2]), holder) for name, holder in taken if name[0] == "slot"]
    keys = [(*name, holder) for name, holder in taken if name[0] != "slot"]
    whose = {name: each.job.schedule_id for each in made.drafts for name in names(each.job)}
    schedules = [whose[name] for name, _ in taken if name[0] == "slot"]
    bound = {**_slots(slots), "slot_schedules": schedules, **_keys(keys)}
    return {**columns(made.drafts), **bound}


def columns(drafts: Sequence[JobInsert]) -> dict[str, Any]:
    """The jobs, column by column; None for a column in which nothing stands."""
    jobs = [draft.job for draft in drafts]
    return {
        "ids": [job.id for job in jobs],
        "params": [job.params for job in jobs],
        "types": [job.type for job in jobs],
        "names": [job.name for job in jobs],
        "queues": [job.queue for job in jobs],
        "deliveries": [str(job.delivery) for job in jobs],
        "max_attempts": [job.max_attempts for job in jobs],
        "priorities": [job.priority for job in jobs],
        "positions": _column(draft.position for draft in drafts),
        "ats": _column(moment(job.at) for job in jobs),
        "delays": _column(span(job.delay) for job in jobs),
        "slots": _column(job.slot and to_micros(job.slot.at) for job in jobs),
        "withins": _column(span(job.start_within) for job in jobs),
        "retries": _column(job.retry_of for job in jobs),
        "roots": _column(draft.root for draft in drafts),
        "group_ids": _column(job.group_id for job in jobs),
        "member_group_ids": _column(draft.member_group_id for draft in drafts),
        "template_ids": _column(job.template_id for job in jobs),
        "template_ats": _column(moment(job.template_at) for job in jobs),
        "schedule_ids": _column(job.schedule_id for job in jobs),
        "actives": _column(job.active_key is not None or None for job in jobs),
    }


def moment(at: Any) -> int | None:
    return None if at is None else to_micros(at)


def span(length: Any) -> int | None:
    return None if length is None else length // MICROSECOND


def _column(values: Iterable[Any]) -> list[Any] | None:
    held = list(values)
    return held if any(value is not None for value in held) else None


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
