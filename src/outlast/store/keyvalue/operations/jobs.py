"""Leases, progress, and the reads of jobs and their history."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from outlast.clock import to_micros
from outlast.core.event import EventRecord
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.limits import MAX_PROGRESS, is_storable
from outlast.core.ordering import sort_key
from outlast.core.run import Lease, RunRecord
from outlast.core.state import State
from outlast.store.contract.jobs import MAX_PROMOTED_PER_CLAIM, Filter, Renewal
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import run_concurrently
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange
from outlast.store.keyvalue.intent_recovery import complete_all
from outlast.store.keyvalue.leases import SHARED
from outlast.store.keyvalue.operations.claim import due_entries, is_due, is_late
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import queues, reservations, runs
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.texts import is_json
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL: Final = 1_000_000
PAGE: Final = 200
SMALL_PAGE: Final = 10


async def get(desk: StoreContext, job_ids: Sequence[JobId]) -> list[Job | None]:
    async def work(unit: UnitOfWork) -> list[Job | None]:
        asked = [job_id for job_id in job_ids if is_storable(job_id)]
        found = dict(zip(asked, await job_repository.load_many(unit, asked), strict=True))
        return [kept.job if (kept := found.get(job_id)) else None for job_id in job_ids]

    return await desk.run_unit(work)


async def renew(desk: StoreContext, leases: Sequence[Lease], span: timedelta) -> list[Renewal]:
    return await run_concurrently(leases, partial(_renew, desk, span))


async def _renew(desk: StoreContext, span: timedelta, lease: Lease) -> Renewal:
    async def work(unit: UnitOfWork) -> Renewal:
        kept = await job_repository.load(unit, lease.job_id)
        if kept is None or not kept.is_open or kept.job.token != lease.token:
            return Renewal(held=False)
        until = desk.now() + span
        job_repository.save(
            unit, kept, replace(kept, lease=desk.leases.end(span), lease_until=until)
        )
        held = await reservations.active_of(unit, kept)
        if held is not None:
            reservations.save(unit, reservations.extended(held, held.span, desk))
        return Renewal(held=True, cancel_requested=kept.job.cancel_requested)

    return await desk.run_unit(work)


async def report(desk: StoreContext, reports: Sequence[tuple[Lease, str]]) -> list[bool]:
    is_repeated = len({lease.job_id for lease, _ in reports}) < len(reports)
    return await run_concurrently(reports, partial(_report, desk), is_alone=lambda _: is_repeated)


async def _report(desk: StoreContext, told: tuple[Lease, str]) -> bool:
    lease, text = told
    if not is_json(text, MAX_PROGRESS):
        return False

    async def work(unit: UnitOfWork) -> bool:
        kept = await job_repository.load(unit, lease.job_id)
        if kept is None or not kept.is_open or kept.job.token != lease.token:
            return False
        job_repository.save(unit, kept, replace(kept, job=replace(kept.job, progress=text)))
        return True

    return await desk.run_unit(work)


async def attach(desk: StoreContext, lease: Lease, artifacts: Sequence[str]) -> bool:
    async def work(unit: UnitOfWork) -> bool:
        kept = await job_repository.load(unit, lease.job_id)
        if kept is None or kept.job.token != lease.token or not lease.token:
            return False
        await require_kept(unit, kept)
        await runs.append(unit, lease.job_id, lease.token, artifacts)
        return True

    return await desk.run_unit(work)


async def lapsed(desk: StoreContext, *, limit: int) -> list[Job]:
    """The longest lapsed first; what an earlier boot left is older than anything of this one."""

    async def work(unit: UnitOfWork) -> list[Job]:
        spans = [
            span for name in await queues.names(unit) for span in expired_lease_ranges(desk, name)
        ]
        entries = [entry for span in spans for entry in await unit.range(span, limit=ALL)]
        boot = desk.leases.boot
        entries.sort(
            key=lambda e: (e.value["lease_boot"] == boot, e.value["lease_at"], e.value["seq"])
        )
        ids = list(dict.fromkeys(entry.value["id"] for entry in entries))
        found = await job_repository.load_many(unit, ids[:limit])
        return [kept.job for kept in found if kept is not None and _is_over(desk, kept)]

    return await desk.run_unit(work)


def _is_over(desk: StoreContext, kept: JobRecord) -> bool:
    """Whether its lease still is: it may have been renewed since it was listed."""
    return kept.lease is not None and desk.leases.is_over(kept.lease)


def expired_lease_ranges(desk: StoreContext, name: str) -> list[KeyRange]:
    """Where the open runs of one queue are whose lease is over."""
    part, boot = key_layout.OPEN + name, desk.leases.boot
    own = KeyRange(part, f"{boot}#", f"{boot}#{key_layout.number(desk.leases.past + 1)}")
    if boot == SHARED:
        return [own]
    return [own, KeyRange(part, end=f"{boot}#"), KeyRange(part, f"{boot}$")]


async def overdue(desk: StoreContext, *, limit: int) -> list[Job]:
    async def work(unit: UnitOfWork) -> list[Job]:
        span = KeyRange(key_layout.DEADLINE, end=key_layout.number(to_micros(desk.now())))
        entries = await unit.range(span, limit=limit)
        found = await job_repository.load_many(unit, [entry.value["id"] for entry in entries])
        jobs = [kept.job for kept in found if kept is not None]
        return [j for j in jobs if j.state is State.QUEUED and is_late(j, desk.now())]

    return await desk.run_unit(work)


async def peek(desk: StoreContext, queue: str, *, limit: int) -> list[Job]:
    """What is queued, and what the next claim would promote, in claim order."""

    async def work(unit: UnitOfWork) -> list[Job]:
        await queues.load(unit, queue)
        ready = await unit.range(KeyRange(key_layout.READY + queue), limit=limit)
        due = await due_entries(unit, desk.now(), limit=MAX_PROMOTED_PER_CLAIM)
        own = [entry for entry in due if entry.value["queue"] == queue]
        ids = dict.fromkeys(entry.value["id"] for entry in (*ready, *own))  # who moves is met twice
        found = await job_repository.load_many(unit, list(ids))
        jobs = [kept.job for kept in found if kept is not None]
        fitting = [j for j in jobs if j.state is State.QUEUED or is_due(j, desk.now())]
        return sorted(fitting, key=sort_key)[:limit]

    return await desk.run_unit(work)


async def find(desk: StoreContext, what: Filter, *, limit: int, before: int | None) -> list[Job]:
    """The newest first, a page at a time until enough fit."""
    await complete_all(desk)
    keyed = None if what.key is None else await desk.run_unit(partial(_keyed, key=what.key))
    if what.group is not None and not is_storable(what.group):
        return []
    part = key_layout.SEQ if what.group is None else key_layout.member_part(what.group)
    size = min(PAGE, max(SMALL_PAGE, limit))
    found: list[Job] = []
    end = before if before is not None else await _after_the_last(desk)
    while len(found) < limit and end > 0:
        start = max(0, end - size)
        page = await desk.run_unit(partial(_page, part=part, start=start, end=end))
        fitting = [kept for kept in page if _fits(what, kept)]
        found += [k.job for k in fitting if keyed is None or k.job.root_id in keyed]
        end, size = start, size if page else 2 * size  # pruned: the gap is crossed in long steps
    return found[:limit]


async def _after_the_last(desk: StoreContext) -> int:
    """A number that no job has reached."""
    [entry] = await desk.engine.get([key_layout.NUMBERS])
    return 1 if entry is None else entry.value["last"] + 1


def _fits(what: Filter, kept: JobRecord) -> bool:
    return what.fits(kept.job) and not (kept.is_detached and what.states is not None)


async def _page(unit: UnitOfWork, *, part: str, start: int, end: int) -> list[JobRecord]:
    """Those of that part with numbers from `start` to before `end`, the newest first.

    Asked for in rising order, for not every engine finds the last ones without reading all.
    """
    span = KeyRange(part, key_layout.number(start), key_layout.number(end))
    entries = await unit.range(span, limit=ALL)
    found = await job_repository.load_many(unit, [entry.value["id"] for entry in reversed(entries)])
    return [kept for kept in found if kept is not None]


async def _keyed(unit: UnitOfWork, *, key: str) -> set[str]:
    """The roots of the chains that hold that key, in any bucket, or that active key."""
    if not is_storable(key):
        return set()
    buckets = await unit.range(KeyRange(key_layout.dedupe_part(key)), limit=ALL)
    active = await unit.get(key_layout.active_key(key))
    roots = {entry.value["job_id"] for entry in buckets}
    return roots | ({active["root_id"]} if active is not None else set())


async def counts(desk: StoreContext) -> Mapping[tuple[str, State], int]:
    """From the index entries alone; a job adrift is in none of them, and counts as running.

    In the order in which jobs pass through them: one that does so meanwhile counts where it was
    seen last.
    """
    await complete_all(desk)
    unit = UnitOfWork(desk.engine)
    seen: dict[str, tuple[str, State]] = {}
    for name in await queues.names(unit):
        for part in (key_layout.LATER, key_layout.READY):
            waiting = await unit.range(KeyRange(part + name), limit=ALL)
            seen |= {entry.value["id"]: (name, State(entry.value["state"])) for entry in waiting}
        running = await unit.range(KeyRange(key_layout.OPEN + name), limit=ALL)
        seen |= {entry.value["id"]: (name, State.RUNNING) for entry in running}
    ended = await unit.range(KeyRange(key_layout.ENDED), limit=ALL)
    seen |= {e.value["id"]: (e.value["queue"], State(e.value["state"])) for e in ended}
    return Counter(seen.values())


async def chain(desk: StoreContext, job_id: JobId) -> list[Job]:
    """Root first: from the job asked for back to its root, and on from that to the last."""
    return await desk.run_unit(partial(_chain, job_id=job_id))


async def _chain(unit: UnitOfWork, *, job_id: JobId) -> list[Job]:
    return [kept.job for kept in await chain_of(unit, job_id)]


async def chain_of(unit: UnitOfWork, job_id: str) -> list[JobRecord]:
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


async def require_kept(unit: UnitOfWork, kept: JobRecord) -> None:
    """What is added to it goes with it: whoever prunes its chain meanwhile looks again."""
    unit.require(key_layout.job_key(kept.job))
    if kept.job.is_final:
        [*_, last] = await chain_of(unit, kept.job.id)
        await unit.touch(key_layout.job_key(last.job))


async def runs_of(desk: StoreContext, job_id: JobId) -> list[RunRecord]:
    async def work(unit: UnitOfWork) -> list[RunRecord]:
        kept = await job_repository.load(unit, job_id)
        return [] if kept is None else await runs.all_of(unit, kept)

    return await desk.run_unit(work)


async def events(desk: StoreContext, job_id: JobId | None) -> list[EventRecord]:
    if job_id is not None:
        await desk.run_unit(
            partial(job_repository.load, job_id=job_id)
        )  # what was left half-done of it is done
    of_it = key_layout.of_job(key_layout.EVENT, job_id or key_layout.NOBODY)
    told = await desk.engine.range(of_it, limit=ALL)
    found = await desk.engine.get([key_layout.stream_key(each.value["id"]) for each in told])
    return [runs.event(each.value) for each in found if each is not None]


async def stream(desk: StoreContext, *, after: int, limit: int) -> list[EventRecord]:
    """In order: an event gets its number in the write that makes it visible."""
    span = KeyRange(key_layout.STREAM, key_layout.number(after + 1))
    entries = await desk.engine.range(span, limit=limit)
    return [runs.event(entry.value) for entry in entries]
