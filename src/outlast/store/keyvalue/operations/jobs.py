"""Renew leases, and read jobs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from outlast.clock import to_micros
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.limits import is_storable
from outlast.core.ordering import sort_key
from outlast.core.run import Lease
from outlast.core.state import State
from outlast.core.transition import has_missed_start_deadline
from outlast.store.contract.jobs import MAX_PROMOTED_PER_CLAIM, Filter, Renewal
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import run_concurrently
from outlast.store.keyvalue.clocks import SHARED
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange
from outlast.store.keyvalue.intent_recovery import complete_all
from outlast.store.keyvalue.operations.base import KeyValueOperations
from outlast.store.keyvalue.operations.claim import due_entries, is_due
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import queues, reservations
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL: Final = 1_000_000
PAGE: Final = 200
SMALL_PAGE: Final = 10


class KeyValueJobOperations(KeyValueOperations):
    """Renew leases, and read jobs."""

    async def get(self, job_ids: Sequence[JobId]) -> list[Job | None]:
        """Return the jobs of these ids, in order; None for those that do not exist."""
        context = self._context

        async def work(unit: UnitOfWork) -> list[Job | None]:
            asked = [job_id for job_id in job_ids if is_storable(job_id)]
            found = dict(zip(asked, await job_repository.load_many(unit, asked), strict=True))
            return [record.job if (record := found.get(job_id)) else None for job_id in job_ids]

        return await context.run_unit(work)

    async def renew(self, leases: Sequence[Lease], *, span: timedelta) -> list[Renewal]:
        """Renew leases concurrently; return for each whether it is still held."""
        context = self._context
        return await run_concurrently(leases, partial(_renew, context, span))

    async def expired_leases(self, *, limit: int) -> list[Job]:
        """Return jobs whose lease expired, the longest expired first; earlier boots come first."""
        context = self._context

        async def work(unit: UnitOfWork) -> list[Job]:
            spans = [
                span
                for name in await queues.names(unit)
                for span in expired_lease_ranges(context, name)
            ]
            entries = [entry for span in spans for entry in await unit.range(span, limit=ALL)]
            boot = context.leases.boot
            entries.sort(
                key=lambda e: (e.value["lease_boot"] == boot, e.value["lease_at"], e.value["seq"])
            )
            ids = list(dict.fromkeys(entry.value["id"] for entry in entries))
            found = await job_repository.load_many(unit, ids[:limit])
            return [
                record.job for record in found if record is not None and _is_over(context, record)
            ]

        return await context.run_unit(work)

    async def missed_start_deadline(self, *, limit: int) -> list[Job]:
        """Return queued jobs whose start deadline has passed, the earliest first."""
        context = self._context

        async def work(unit: UnitOfWork) -> list[Job]:
            span = KeyRange(key_layout.DEADLINE, end=key_layout.number(to_micros(context.now())))
            entries = await unit.range(span, limit=limit)
            found = await job_repository.load_many(unit, [entry.value["id"] for entry in entries])
            jobs = [record.job for record in found if record is not None]
            return [
                j
                for j in jobs
                if j.state is State.QUEUED and has_missed_start_deadline(j, context.now())
            ]

        return await context.run_unit(work)

    async def peek(self, queue: str, *, limit: int) -> list[Job]:
        """Return the next jobs of a queue in claim order, due ones included."""
        context = self._context

        async def work(unit: UnitOfWork) -> list[Job]:
            await queues.load(unit, queue)
            ready = await unit.range(KeyRange(key_layout.READY + queue), limit=limit)
            due = await due_entries(unit, context.now(), limit=MAX_PROMOTED_PER_CLAIM)
            own = [entry for entry in due if entry.value["queue"] == queue]
            ids = dict.fromkeys(
                entry.value["id"] for entry in (*ready, *own)
            )  # a job that moves may be read twice
            found = await job_repository.load_many(unit, list(ids))
            jobs = [record.job for record in found if record is not None]
            fitting = [j for j in jobs if j.state is State.QUEUED or is_due(j, context.now())]
            return sorted(fitting, key=sort_key)[:limit]

        return await context.run_unit(work)

    async def find(self, what: Filter, *, limit: int, before: int | None = None) -> list[Job]:
        """Return jobs that match the filter, the newest first.

        `before` is the `seq` below which it starts.
        """
        context = self._context
        await complete_all(context)
        keyed = None if what.key is None else await context.run_unit(partial(_keyed, key=what.key))
        if what.group is not None and not is_storable(what.group):
            return []
        part = key_layout.SEQ if what.group is None else key_layout.member_part(what.group)
        size = min(PAGE, max(SMALL_PAGE, limit))
        found: list[Job] = []
        end = before if before is not None else await _after_the_last(context)
        while len(found) < limit and end > 0:
            start = max(0, end - size)
            page = await context.run_unit(partial(_page, part=part, start=start, end=end))
            fitting = [record for record in page if _fits(what, record)]
            found += [k.job for k in fitting if keyed is None or k.job.root_id in keyed]
            end, size = (
                start,
                size if page else 2 * size,
            )  # no jobs here: cross the gap in longer steps
        return found[:limit]

    async def counts(self) -> Mapping[tuple[str, State], int]:
        """Return the number of jobs per queue and state, from the index entries alone.

        Reads states in the order in which jobs pass through them: a job that moves meanwhile counts
        once, where it was read last. A detached job counts as running.
        """
        context = self._context
        await complete_all(context)
        unit = UnitOfWork(context.engine)
        seen: dict[str, tuple[str, State]] = {}
        for name in await queues.names(unit):
            for part in (key_layout.LATER, key_layout.READY):
                waiting = await unit.range(KeyRange(part + name), limit=ALL)
                seen |= {
                    entry.value["id"]: (name, State(entry.value["state"])) for entry in waiting
                }
            running = await unit.range(KeyRange(key_layout.OPEN + name), limit=ALL)
            seen |= {entry.value["id"]: (name, State.RUNNING) for entry in running}
        ended = await unit.range(KeyRange(key_layout.ENDED), limit=ALL)
        seen |= {e.value["id"]: (e.value["queue"], State(e.value["state"])) for e in ended}
        return Counter(seen.values())

    async def chain(self, job_id: JobId) -> list[Job]:
        """Return all jobs of the chain of a job, the root first."""
        context = self._context
        return await context.run_unit(partial(_chain, job_id=job_id))


async def _renew(context: StoreContext, span: timedelta, lease: Lease) -> Renewal:
    async def work(unit: UnitOfWork) -> Renewal:
        record = await job_repository.load(unit, lease.job_id)
        if record is None or not record.is_open or record.job.token != lease.token:
            return Renewal(held=False)
        until = context.now() + span
        job_repository.save(
            unit, record, replace(record, lease=context.leases.end(span), lease_until=until)
        )
        held = await reservations.active_of(unit, record)
        if held is not None:
            reservations.save(unit, reservations.extended(held, held.span, context))
        return Renewal(held=True, cancel_requested=record.job.cancel_requested)

    return await context.run_unit(work)


def _is_over(context: StoreContext, record: JobRecord) -> bool:
    """Return True if the lease is still expired: it may have been renewed since it was listed."""
    return record.lease is not None and context.leases.is_over(record.lease)


def expired_lease_ranges(context: StoreContext, name: str) -> list[KeyRange]:
    """Return the key ranges of a queue's open runs whose lease has expired."""
    part, boot = key_layout.OPEN + name, context.leases.boot
    own = KeyRange(part, f"{boot}#", f"{boot}#{key_layout.number(context.leases.past + 1)}")
    if boot == SHARED:
        return [own]
    return [own, KeyRange(part, end=f"{boot}#"), KeyRange(part, f"{boot}$")]


async def _after_the_last(context: StoreContext) -> int:
    """Return a number higher than that of every job."""
    [entry] = await context.engine.get([key_layout.NUMBERS])
    return 1 if entry is None else entry.value["last"] + 1


def _fits(what: Filter, record: JobRecord) -> bool:
    return what.fits(record.job) and not (record.is_detached and what.states is not None)


async def _page(unit: UnitOfWork, *, part: str, start: int, end: int) -> list[JobRecord]:
    """Return the jobs of a part with numbers from `start` to below `end`, the newest first.

    Reads in rising order: not every engine finds the last records of a range cheaply.
    """
    span = KeyRange(part, key_layout.number(start), key_layout.number(end))
    entries = await unit.range(span, limit=ALL)
    found = await job_repository.load_many(unit, [entry.value["id"] for entry in reversed(entries)])
    return [record for record in found if record is not None]


async def _keyed(unit: UnitOfWork, *, key: str) -> set[str]:
    """Return the roots of the chains that hold that dedupe key, in any bucket, or active key."""
    if not is_storable(key):
        return set()
    buckets = await unit.range(KeyRange(key_layout.dedupe_part(key)), limit=ALL)
    active = await unit.get(key_layout.active_key(key))
    roots = {entry.value["job_id"] for entry in buckets}
    return roots | ({active["root_id"]} if active is not None else set())


async def _chain(unit: UnitOfWork, *, job_id: JobId) -> list[Job]:
    return [record.job for record in await chain_of(unit, job_id)]


async def chain_of(unit: UnitOfWork, job_id: str) -> list[JobRecord]:
    """Return the records of a job's chain, the root first."""
    asked = await job_repository.load(unit, job_id) if is_storable(job_id) else None
    if asked is None:
        return []
    links, first = [asked], asked
    while first.job.retry_of is not None:
        before = await job_repository.load(unit, first.job.retry_of)
        if before is None:
            break
        links.insert(0, before)
        first = before
    while links[-1].successor is not None:
        after = await job_repository.load(unit, links[-1].successor)
        if after is None:
            break
        links.append(after)
    return links


async def require_kept(unit: UnitOfWork, record: JobRecord) -> None:
    """Make the unit of work conflict with a concurrent prune of the job's chain."""
    unit.require(key_layout.job_key(record.job))
    if record.job.is_final:
        [*_, last] = await chain_of(unit, record.job.id)
        await unit.touch(key_layout.job_key(last.job))
