"""Renew leases, and read jobs."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from outlast.clock import to_micros
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.limits import is_storable
from outlast.core.ordering import sort_key
from outlast.core.overview import JobCounts
from outlast.core.run import Lease
from outlast.core.state import State
from outlast.core.transition import has_missed_start_deadline
from outlast.errors import InvalidArgument
from outlast.store.contract.jobs import (
    MAX_LABEL_SCAN,
    MAX_PROMOTED_PER_CLAIM,
    Filter,
    Renewal,
)
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import KeyRange, StoredItem
from outlast.store.keyvalue.intent_recovery import complete_all
from outlast.store.keyvalue.operations import open_leases, quarantine
from outlast.store.keyvalue.operations.base import KeyValueOperations
from outlast.store.keyvalue.operations.promotion import due_entries, is_due
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import queues
from outlast.store.keyvalue.repositories.job_codec import JobRecord, indexes
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL: Final = 1_000_000
PAGE: Final = 200
SMALL_PAGE: Final = 10
MOST_COUNTED: Final = 1_000_000
MAX_PAGE: Final = 2 * PAGE
STEP: Final = 8
"""Factor by which a page covers more or fewer numbers than the one before."""


class KeyValueJobOperations(KeyValueOperations):
    """Renew leases, and read jobs."""

    async def get(self, job_ids: Sequence[JobId]) -> list[Job | None]:
        """Return the jobs of these ids, in order; None for those that do not exist."""
        context = self._context

        async def work(unit: UnitOfWork) -> list[Job | None]:
            asked = [job_id for job_id in job_ids if is_storable(job_id)]
            records = await job_repository.load_many(unit, asked)
            found = {job.id: job for job in await job_repository.whole_jobs(unit, records)}
            return [found.get(job_id) for job_id in job_ids]

        return await context.run_unit(work)

    async def renew(self, leases: Sequence[Lease], *, span: timedelta) -> list[Renewal]:
        """Renew leases, many in one transaction; return for each whether it is still held."""
        return await open_leases.renew(self._context, leases, span)

    async def expired_leases(self, *, limit: int) -> list[Job]:
        """Return jobs whose lease expired, the longest expired first; earlier boots come first."""
        context = self._context
        left: list[StoredItem] = []
        living: list[JobRecord] = []

        async def work(unit: UnitOfWork) -> list[Job]:
            spans = [
                span
                for name in await queues.names(unit)
                for span in open_leases.expired_ranges(context, name)
            ]
            entries = [entry for span in spans for entry in await unit.range(span, limit=ALL)]
            ids = list(dict.fromkeys(entry.value["id"] for entry in entries))
            found = await job_repository.load_many(unit, ids)
            left[:] = _unfit(entries, found)
            over, living[:] = open_leases.divided(context, found)
            return await job_repository.whole_jobs(unit, over[:limit])

        jobs = await context.run_unit(work)
        await self._set_aside(left)
        await open_leases.list_anew(context, living)
        return jobs

    async def missed_start_deadline(self, *, limit: int) -> list[Job]:
        """Return queued jobs whose start deadline has passed, the earliest first."""
        context = self._context

        left: list[StoredItem] = []

        async def work(unit: UnitOfWork) -> list[Job]:
            span = KeyRange(key_layout.DEADLINE, end=key_layout.number(to_micros(context.now())))
            entries = await unit.range(span, limit=limit)
            found = await job_repository.load_many(unit, [entry.value["id"] for entry in entries])
            left[:] = _unfit(entries, found)
            jobs = await job_repository.whole_jobs(unit, found)
            return [
                j
                for j in jobs
                if j.state is State.QUEUED and has_missed_start_deadline(j, context.now())
            ]

        late = await context.run_unit(work)
        await self._set_aside(left)
        return late

    async def peek(self, queue: str, *, limit: int) -> list[Job]:
        """Return the next jobs of a queue in claim order: with due ones, without the direct one."""
        context = self._context

        async def work(unit: UnitOfWork) -> list[Job]:
            direct = (await queues.load(unit, queue)).reserved_for
            more = limit + (direct is not None)
            ready = await unit.range(KeyRange(key_layout.READY + queue), limit=more)
            due = await due_entries(unit, context.now(), limit=MAX_PROMOTED_PER_CLAIM)
            own = [entry for entry in due if entry.value["queue"] == queue]
            ids = dict.fromkeys(
                entry.value["id"] for entry in (*ready, *own)
            )  # a job that moves may be read twice
            found = await job_repository.load_many(unit, list(ids))
            fitting = [
                record
                for record in found
                if record
                and record.job.id != direct
                and (record.job.state is State.QUEUED or is_due(record.job, context.now()))
            ]
            fitting.sort(key=lambda record: sort_key(record.job))
            return await job_repository.whole_jobs(unit, fitting[:limit])

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
        size = wanted = min(PAGE, max(SMALL_PAGE, limit))
        found: list[Job] = []
        end = (
            before
            if before is not None
            else await context.engine.last_number(key_layout.NUMBERS) + 1
        )
        scan = LabelScan(what)
        while len(found) < limit and end > 0 and scan.goes_on(found):
            start = max(0, end - size)
            work = partial(_page, part=part, start=start, end=end, fits=partial(_fits, what, keyed))
            page = await context.run_unit(work)
            if page is None:  # too many: the numbers are denser here
                size = max(wanted, size // STEP)
                continue
            fitting, seen, oldest = page
            found += fitting
            scan.note(seen, oldest)
            # Few jobs here: numbers have gaps, so cross them in longer steps.
            end, size = start, size * STEP if seen * STEP < wanted else size
        return found[:limit]

    async def counts(self) -> JobCounts:
        """Return the number of jobs per queue and state, from the index entries alone.

        Reads states in the order in which jobs pass through them: a job that moves meanwhile counts
        once, where it was read last. A detached job counts as running. Of each list of entries at
        most `MOST_COUNTED` are read; the numbers are capped then.
        """
        context = self._context
        await complete_all(context)
        unit = UnitOfWork(context.engine)
        seen: dict[str, tuple[str, State]] = {}
        capped: set[tuple[str, State]] = set()
        for span, name in await _counted_spans(unit):
            found = await unit.range(span, limit=MOST_COUNTED + 1)
            places = {e.value["id"]: _place_of(e, name) for e in found[:MOST_COUNTED]}
            capped |= set(places.values()) if len(found) > MOST_COUNTED else set()
            seen |= places
        aside = await quarantine.listed_ids(context.engine)
        counts = Counter(place for job_id, place in seen.items() if job_id not in aside)
        answer = JobCounts(counts)
        answer.capped = frozenset(capped)
        return answer

    async def chain(self, job_id: JobId) -> list[Job]:
        """Return all jobs of the chain of a job, the root first."""
        context = self._context
        return await context.run_unit(partial(_chain, job_id=job_id))


async def _counted_spans(unit: UnitOfWork) -> list[tuple[KeyRange, str | None]]:
    """Return the entries to count, in the order in which jobs pass through them."""
    parts = (key_layout.LATER, key_layout.READY, key_layout.OPEN)
    per_queue = [(KeyRange(part + n), n) for n in await queues.names(unit) for part in parts]
    return [*per_queue, (KeyRange(key_layout.ENDED), None)]


def _place_of(entry: StoredItem, queue: str | None) -> tuple[str, State]:
    """Return queue and state of an entry; entries of open runs name no state."""
    value = entry.value
    return queue or value["queue"], State(value.get("state", State.RUNNING))


def _unfit(entries: Sequence[StoredItem], found: Sequence[JobRecord | None]) -> list[StoredItem]:
    """Return the entries of jobs that were looked for and do not demand them."""
    fitting = {key for record in found if record is not None for key in indexes(record)}
    return [entry for entry in entries[: len(found)] if entry.key not in fitting]


class LabelScan:
    """How far a search has read; without labels and `since` it goes on to the first job."""

    def __init__(self, what: Filter) -> None:
        self._what = what
        self._read = 0
        self._is_recent = True

    def note(self, seen: int, oldest: Job | None) -> None:
        """Count the jobs of a page; `oldest` is its last one."""
        self._read += seen
        self._is_recent = oldest is None or self._what.is_recent(oldest)

    def goes_on(self, found: Sequence[Job]) -> bool:
        """Return whether to read another page; InvalidArgument if too many had no match."""
        if not self._what.labels or self._read < MAX_LABEL_SCAN:
            return self._is_recent
        if self._is_recent and not found:
            raise InvalidArgument(
                f"none of {self._read:,} jobs has {', '.join(sorted(self._what.labels))}; this "
                "store reads every job for that, so narrow it with since:, such as since:2h"
            )
        return False


def _fits(what: Filter, keyed: set[str] | None, record: JobRecord) -> bool:
    is_unfit = record.is_detached and what.states is not None
    is_keyed = keyed is None or record.job.root_id in keyed
    return is_keyed and not is_unfit and what.fits(record.job)


async def _page(
    unit: UnitOfWork, *, part: str, start: int, end: int, fits: Callable[[JobRecord], bool]
) -> tuple[list[Job], int, Job | None] | None:
    """Return the fitting jobs with numbers from `start` to below `end`, the newest first.

    Also returns how many jobs have such a number, and the oldest of them.

    None if they are more than `MAX_PAGE`. Reads in rising order: not every engine finds the last
    records of a range cheaply.
    """
    span = KeyRange(part, key_layout.number(start), key_layout.number(end))
    entries = await unit.range(span, limit=MAX_PAGE + 1)
    if len(entries) > MAX_PAGE:
        return None
    found = await job_repository.load_many(unit, [entry.value["id"] for entry in reversed(entries)])
    there = [record for record in found if record is not None]
    jobs = await job_repository.whole_jobs(unit, [record for record in there if fits(record)])
    return jobs, len(there), there[-1].job if there else None


async def _keyed(unit: UnitOfWork, *, key: str) -> set[str]:
    """Return the roots of the chains that took that key, of any kind and in any bucket."""
    if not is_storable(key):
        return set()
    parts = [key_layout.dedupe_part(key)]
    parts += [key_layout.window_part(scope, key) for scope in ("window", "debounce")]
    buckets = [e for part in parts for e in await unit.range(KeyRange(part), limit=ALL)]
    active = await unit.get(key_layout.active_key(key))
    roots = {entry.value["job_id"] for entry in buckets}
    return roots | ({active["root_id"]} if active is not None else set())


async def _chain(unit: UnitOfWork, *, job_id: JobId) -> list[Job]:
    return await job_repository.whole_jobs(unit, await chain_of(unit, job_id))


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
