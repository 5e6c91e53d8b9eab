"""Storing new jobs: plain ones in one statement, the others after a look at what is in the way."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar

from outlast.core.job import NewJob
from outlast.errors import StoreBusy
from outlast.store.contract.jobs import Added
from outlast.store.postgres.operations.add_plan import (
    ExistingRows,
    InsertPlan,
    JobInsert,
    OpenGroups,
    asked,
    columns,
    door,
    is_far,
    moment,
    plan,
    span,
    written,
)
from outlast.store.postgres.operations.savepoint import bisect_failures, is_unique_violation, saved
from outlast.store.postgres.unit_of_work import StatementRunner, UnitOfWork
from outlast.store.postgres.uuids import is_uuid, known_uuids
from outlast.store.postgres.verbs.group import group_of
from outlast.store.postgres.verbs.queue import lock_queues

_KIND = attrgetter(*(each.name for each in fields(NewJob) if each.name not in {"id", "params"}))

MARK: Final = "\x1e"
"""Between the params of two jobs: JSON holds none, nor anything else that is kept."""

T = TypeVar("T")

LOOKS: Final = 20
"""How often somebody else may come first between the look and the write."""


async def add(work: UnitOfWork, jobs: Sequence[NewJob]) -> list[Added]:
    """In a transaction under way: each job is stored, or known, or refused; it goes on in any case.

    What somebody else writes meanwhile is no error either: after a look the next write knows it.
    """
    if not jobs:
        return []
    doors = await lock(work, jobs)
    return await bisect_failures(jobs, partial(_add, work, doors), _refused)


async def add_plain_batch(
    asks: StatementRunner, jobs: Sequence[NewJob], *, now: int | None, channel: str | None
) -> bool:
    """Plain jobs, in one statement that is a transaction of its own.

    False, and nothing is stored, if a queue wants them placed. It raises what the database says of
    a bad one, and of one that is stored already: then none is.
    """
    if are_alike(jobs) and not any(MARK in job.params for job in jobs):
        name, values = "add.uniform", _alike(jobs)
    else:
        values = written(InsertPlan(drafts=[JobInsert(job) for job in jobs])) | {"placed": False}
        name = "add.mixed"
    [(stored, *_)] = await asks.fetch(name, values | {"now": now, "channel": channel})
    return bool(stored)


def _alike(jobs: Sequence[NewJob]) -> dict[str, Any]:
    first = jobs[0]
    return {
        "ids": ",".join([job.id for job in jobs]),
        "params": MARK.join([job.params for job in jobs]),
        "mark": MARK,
        "type": first.type,
        "name": first.name,
        "queue": first.queue,
        "delivery": first.delivery,
        "priority": first.priority,
        "max_attempts": first.max_attempts,
        "at": moment(first.at),
        "delay": span(first.delay),
        "within": span(first.start_within),
        "group_id": first.group_id,
        "template_id": first.template_id,
        "template_at": moment(first.template_at),
        "schedule_id": first.schedule_id,
    }


async def add_with_lookup(
    asks: StatementRunner, jobs: Sequence[NewJob], *, now: int | None, channel: str | None
) -> list[Added] | None:
    """Jobs that need no lock: what the unique indexes refuse after the look, the next look sees.

    None, and nothing is stored, if a queue wants them placed.
    """
    facts = ExistingRows.read(await asks.fetch("add.existing", asked(jobs)), {})
    made = plan(jobs, facts, now)
    if facts.places:
        return None
    if made.drafts:
        values = written(made) | {"now": now, "channel": channel, "placed": False}
        if not (await asks.fetch("add.mixed", values))[0][0]:
            return None
    return made.answers


def are_plain(jobs: Sequence[NewJob]) -> bool:
    """Whether nothing that is stored can be in their way, but themselves."""
    if not known_uuids([job.id for job in jobs]):
        return False
    kinds = jobs[:1] if are_alike(jobs) else jobs
    return all(job.is_plain and not job.member and not is_far(job) for job in kinds)


def are_alike(jobs: Sequence[NewJob]) -> bool:
    """Whether they differ in nothing but their ids and params."""
    kind = _KIND(jobs[0])
    return all(_KIND(job) == kind for job in jobs)


def needs_locks(job: NewJob) -> bool:
    """Whether something that it builds on must not change until it is stored."""
    return job.member or job.retry_of is not None or is_far(job)


async def lock(work: UnitOfWork, jobs: Sequence[NewJob]) -> OpenGroups:
    """Queues first, then groups, then jobs, as everybody does. Answers which groups are open."""
    queues = sorted({job.queue for job in jobs if _is_text(job.queue)})
    placed = [name for (name,) in await work.rows("add.position_queues", queues=queues)]
    await lock_queues(work, placed)
    members = {door(job): job for job in jobs if job.member}
    doors = {each: await _why_shut(work, members[each]) for each in sorted(members, key=str)}
    befores = sorted({job.retry_of for job in jobs if job.retry_of and is_uuid(job.retry_of)})
    if befores:
        await work.rows("add.lock_predecessors", ids=befores)
    return doors


def _is_text(value: str) -> bool:
    """Whether the database can be asked for it at all."""
    return value.isascii() and "\0" not in value


async def _why_shut(work: UnitOfWork, job: NewJob) -> str | None:
    try:
        await group_of(work, job)
    except ValueError as error:
        return str(error)
    return None


async def _add(work: UnitOfWork, doors: OpenGroups, jobs: Sequence[NewJob]) -> list[Added]:
    return await looking_again(work, partial(_write, work, doors, jobs))


async def looking_again(work: UnitOfWork, step: Callable[[], Awaitable[T]]) -> T:
    """What it answers; anew, from its look on, for as long as somebody else comes first."""
    for _ in range(LOOKS):
        try:
            return await saved(work, step)
        except Exception as error:
            if not is_unique_violation(error):
                raise
    raise StoreBusy(
        "a key or slot was taken by somebody whom this transaction cannot see; begin it anew"
    )


async def _write(work: UnitOfWork, doors: OpenGroups, jobs: Sequence[NewJob]) -> list[Added]:
    facts = ExistingRows.read(await work.rows("add.existing", **asked(jobs)), doors)
    made = plan(jobs, facts, work.now)
    await keep(work, made)
    return made.answers


async def keep(work: UnitOfWork, made: InsertPlan) -> None:
    """Store what was planned, and tell of the jobs that are retried."""
    if made.drafts:
        values = written(made) | {"now": work.now, "channel": None, "placed": True}
        [(_, queues, _)] = await work.rows("add.mixed", **values)
        work.queues.update((queues or "").split())
    retries = [draft.job for draft in made.drafts if draft.job.retry_of is not None]
    if retries:
        told = columns([JobInsert(job) for job in retries])
        await work.run("add.record_retries", ids=told["ids"], retries=told["retries"], now=work.now)


def _refused(job: NewJob, why: str) -> Added:
    return Added(job.id, created=False, refused=why)
