"""Insert jobs: plain ones in one statement, others after a read of the rows they conflict with."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar

from outlast.core.job import NewJob
from outlast.core.metadata import is_sound
from outlast.errors import StoreBusy
from outlast.store.contract.jobs import Added
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.postgres.connection import RETRYABLE
from outlast.store.postgres.notify.channels import channel
from outlast.store.postgres.operations.add_plan import (
    ExistingRows,
    InsertPlan,
    JobInsert,
    OpenGroups,
    columns,
    entry_of,
    insert_values,
    is_far,
    lookup_values,
    micros,
    plan_inserts,
    span_micros,
)
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.operations.groups import require_membership
from outlast.store.postgres.operations.queues import lock_queues
from outlast.store.postgres.operations.savepoint import (
    bisect_failures,
    is_data_error,
    is_unique_violation,
    with_savepoint,
)
from outlast.store.postgres.retry import retry_while_unavailable
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork, StatementRunner
from outlast.store.postgres.uuids import are_uuids, is_uuid

T = TypeVar("T")

_SHARED_FIELDS = attrgetter(
    *(field.name for field in fields(NewJob) if field.name not in {"id", "params"})
)

PARAMS_SEPARATOR: Final = "\x1e"
"""Separates the params of two jobs: JSON text never contains this character."""

MAX_LOOKUPS: Final = 20
"""Number of times a lookup and its write are repeated after a unique violation."""


class PostgresAddOperations(PostgresOperations):
    """Insert jobs by group commit."""

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        """Insert jobs; return for each one whether it was created, known or refused."""
        if not jobs:
            return []
        added = await self._pool.group_commit("add", self._add_group).submit(jobs)
        if not self.address.notify:  # else the statement itself notifies, this process included
            self._notify(Notification(frozenset(job.queue for job in jobs)))
        return added

    async def _add_group(self, jobs: Sequence[NewJob], _: bool) -> list[Added]:
        """Insert jobs, and repeat while the server is unavailable.

        A repetition is safe: every job brings its id, so none is stored twice.
        """
        return await retry_while_unavailable(partial(self._add_once, jobs), self.address)

    async def _add_once(self, jobs: Sequence[NewJob]) -> list[Added]:
        if are_plain(jobs):
            try:
                stored = await self._add_plain(jobs)
            except Exception as error:
                if not (
                    is_data_error(error)
                    or is_unique_violation(error)
                    or isinstance(error, RETRYABLE)
                ):
                    raise
            else:
                if stored:
                    return [Added(job.id, created=True) for job in jobs]
        return await bisect_failures(jobs, self._add_with_lookup, _refused)

    async def _add_plain(self, jobs: Sequence[NewJob]) -> bool:
        async with self._pool.connection("add").acquire() as runner:
            return await add_plain_batch(runner, jobs, now=self._now, channel=self._work_channel)

    async def _add_with_lookup(self, jobs: Sequence[NewJob]) -> list[Added]:
        if any(map(needs_locks, jobs)):
            return await self._add_locked(jobs)
        for _ in range(MAX_LOOKUPS):
            try:
                async with self._pool.connection("add").acquire() as runner:
                    added = await add_with_lookup(
                        runner, jobs, now=self._now, channel=self._work_channel
                    )
            except RETRYABLE:
                await asyncio.sleep(0)
            except Exception as error:
                if not is_unique_violation(error):
                    raise
            else:
                return await self._add_locked(jobs) if added is None else added
        raise StoreBusy(
            f"{self.address.safe_text}: the insert conflicted with other inserts {MAX_LOOKUPS} "
            "times; try again"
        )

    async def _add_locked(self, jobs: Sequence[NewJob]) -> list[Added]:
        return await self._pool.transact(lambda work: add_jobs(work, jobs), "add")

    @property
    def _work_channel(self) -> str | None:
        """The channel that idle workers listen on; None if notifications are off."""
        return channel(self.address.schema, Topic.WORK) if self.address.notify else None


async def add_jobs(work: PostgresUnitOfWork, jobs: Sequence[NewJob]) -> list[Added]:
    """Insert jobs in the current transaction; each is stored, known or refused.

    A refused job does not abort the transaction. A unique violation by a concurrent insert does
    not either: the lookup and the write are repeated.
    """
    if not jobs:
        return []
    groups = await lock_for_insert(work, jobs)
    return await bisect_failures(jobs, partial(_add_jobs, work, groups), _refused)


async def add_plain_batch(
    runner: StatementRunner, jobs: Sequence[NewJob], *, now: int | None, channel: str | None
) -> bool:
    """Insert plain jobs by one statement, which is a transaction of its own.

    Returns False, with nothing stored, if a queue assigns positions. Raises the driver's error if
    one job is refused or already stored; then none is stored.
    """
    if are_uniform(jobs) and not any(PARAMS_SEPARATOR in job.params for job in jobs):
        name, values = "add.uniform", _uniform_values(jobs)
    else:
        values = insert_values(InsertPlan(inserts=[JobInsert(job) for job in jobs]))
        values["placed"] = False
        name = "add.mixed"
    [(stored, *_)] = await runner.fetch(name, values | {"now": now, "channel": channel})
    return bool(stored)


def _uniform_values(jobs: Sequence[NewJob]) -> dict[str, Any]:
    first = jobs[0]
    return {
        "ids": ",".join([job.id for job in jobs]),
        "params": PARAMS_SEPARATOR.join([job.params for job in jobs]),
        "separator": PARAMS_SEPARATOR,
        "type": first.type,
        "name": first.name,
        "queue": first.queue,
        "delivery": first.delivery,
        "priority": first.priority,
        "max_attempts": first.max_attempts,
        "at": micros(first.at),
        "delay": span_micros(first.delay),
        "within": span_micros(first.start_within),
        "group_id": first.group_id,
        "template_id": first.template_id,
        "template_at": micros(first.template_at),
        "schedule_id": first.schedule_id,
        "metadata": first.metadata,
    }


async def add_with_lookup(
    runner: StatementRunner, jobs: Sequence[NewJob], *, now: int | None, channel: str | None
) -> list[Added] | None:
    """Insert jobs that need no lock: a lookup, then one write.

    Returns None, with nothing stored, if a queue assigns positions. Raises a unique violation if
    another transaction took a key or slot after the lookup; the next lookup finds it.
    """
    existing = ExistingRows.read(await runner.fetch("add.existing", lookup_values(jobs)), {})
    plan = plan_inserts(jobs, existing, now)
    if existing.positions:
        return None
    if plan.inserts:
        values = insert_values(plan) | {"now": now, "channel": channel, "placed": False}
        if not (await runner.fetch("add.mixed", values))[0][0]:
            return None
    return plan.answers


def are_plain(jobs: Sequence[NewJob]) -> bool:
    """Return whether no stored row but the jobs themselves can conflict with them."""
    if not are_uuids([job.id for job in jobs]):
        return False
    samples = jobs[:1] if are_uniform(jobs) else jobs
    return all(
        job.is_plain and not job.member and not is_far(job) and is_sound(job.metadata)
        for job in samples
    )


def are_uniform(jobs: Sequence[NewJob]) -> bool:
    """Return whether the jobs differ only in their ids and params."""
    shared = _SHARED_FIELDS(jobs[0])
    return all(_SHARED_FIELDS(job) == shared for job in jobs)


def needs_locks(job: NewJob) -> bool:
    """Return whether a row that the job depends on must be locked until it is stored."""
    return job.member or job.retry_of is not None or is_far(job)


async def lock_for_insert(work: PostgresUnitOfWork, jobs: Sequence[NewJob]) -> OpenGroups:
    """Lock queues, then groups, then predecessors, in the order of all transactions.

    Returns, for each group, why it accepts no member, or None if it does.
    """
    queues = sorted({job.queue for job in jobs if _is_queryable(job.queue)})
    placed = [name for (name,) in await work.rows("add.position_queues", queues=queues)]
    await lock_queues(work, placed)
    members = {entry_of(job): job for job in jobs if job.member}
    groups = {
        entry: await _membership_error(work, members[entry]) for entry in sorted(members, key=str)
    }
    predecessors = sorted({job.retry_of for job in jobs if job.retry_of and is_uuid(job.retry_of)})
    if predecessors:
        await work.rows("add.lock_predecessors", ids=predecessors)
    return groups


def _is_queryable(value: str) -> bool:
    """Return whether the server accepts the text as a value."""
    return value.isascii() and "\0" not in value


async def _membership_error(work: PostgresUnitOfWork, job: NewJob) -> str | None:
    try:
        await require_membership(work, job)
    except ValueError as error:
        return str(error)
    return None


async def _add_jobs(
    work: PostgresUnitOfWork, groups: OpenGroups, jobs: Sequence[NewJob]
) -> list[Added]:
    return await repeat_lookup(work, partial(_lookup_and_write, work, groups, jobs))


async def repeat_lookup(work: PostgresUnitOfWork, step: Callable[[], Awaitable[T]]) -> T:
    """Run a lookup with its write under a savepoint; repeat it after a unique violation."""
    for _ in range(MAX_LOOKUPS):
        try:
            return await with_savepoint(work, step)
        except Exception as error:
            if not is_unique_violation(error):
                raise
    raise StoreBusy(
        "a key or slot was taken by a transaction that this one cannot see; roll back and begin "
        "a new transaction"
    )


async def _lookup_and_write(
    work: PostgresUnitOfWork, groups: OpenGroups, jobs: Sequence[NewJob]
) -> list[Added]:
    existing = ExistingRows.read(await work.rows("add.existing", **lookup_values(jobs)), groups)
    plan = plan_inserts(jobs, existing, work.now)
    await write_plan(work, plan)
    return plan.answers


async def write_plan(work: PostgresUnitOfWork, plan: InsertPlan) -> None:
    """Write the planned jobs with their keys and slots, and record manual retries."""
    if plan.inserts:
        values = insert_values(plan) | {"now": work.now, "channel": None, "placed": True}
        [(_, queues, _)] = await work.rows("add.mixed", **values)
        work.queues.update((queues or "").split())
    retries = [insert.job for insert in plan.inserts if insert.job.retry_of is not None]
    if retries:
        retried = columns([JobInsert(job) for job in retries])
        await work.run(
            "add.record_retries", ids=retried["ids"], retries=retried["retries"], now=work.now
        )


def _refused(job: NewJob, why: str) -> Added:
    return Added(job.id, created=False, refused=why)
