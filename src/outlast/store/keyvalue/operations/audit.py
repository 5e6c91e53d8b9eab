"""Everything that is held of a job, and what belongs to none, for `verify`."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Final

from outlast.core.audit.model import (
    AuditedEvent,
    AuditedReservation,
    ClosedRun,
    DanglingKind,
    DanglingRecord,
    JobAudit,
    Predecessor,
    StateRow,
    StateTable,
)
from outlast.core.event import EventKind, EventRecord
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.run import RunRecord
from outlast.store.keyvalue import key_layout, schedule_audits
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem
from outlast.store.keyvalue.intent_recovery import complete_all
from outlast.store.keyvalue.pages import pages, scan_partition
from outlast.store.keyvalue.repositories import (
    groups,
    queues,
    reservations,
    runs,
)
from outlast.store.keyvalue.repositories import (
    jobs as job_repository,
)
from outlast.store.keyvalue.repositories.job_codec import JobRecord, indexes
from outlast.store.keyvalue.texts import is_json
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL: Final = 1_000_000
ANY_SIZE: Final = 1 << 62


async def size(desk: StoreContext) -> int:
    await complete_all(desk)
    return len(await desk.engine.range(KeyRange(key_layout.SEQ), limit=ALL))


async def dossiers(desk: StoreContext, *, after: int, limit: int) -> list[JobAudit]:
    """A page at one moment: if anything that was read changed meanwhile, it is read again."""
    await complete_all(desk)
    return await desk.run_unit(partial(_dossiers, after=after, limit=limit))


async def _dossiers(unit: UnitOfWork, *, after: int, limit: int) -> list[JobAudit]:
    page = await job_repository.all_jobs(unit, after=after, limit=limit)
    await unit.fetch([key for kept in page for key in indexes(kept)])
    closed = await runs.closed_of(unit, [kept.job for kept in page])
    told = await _events_of(unit, [kept.job.id for kept in page])
    each = zip(page, closed, told, strict=True)
    answer = [await _dossier(unit, kept, done, events) for kept, done, events in each]
    await unit.require_unchanged()
    return answer


async def _dossier(
    unit: UnitOfWork, kept: JobRecord, closed: Sequence[RunRecord], events: Sequence[EventRecord]
) -> JobAudit:
    job = kept.job
    root = kept if job.root_id == job.id else await job_repository.load(unit, job.root_id)
    after = None if kept.successor is None else await job_repository.load(unit, kept.successor)
    group = None if kept.member is None else await groups.load(unit, kept.member)
    return JobAudit(
        id=job.id,
        seq=job.seq,
        delivery=job.delivery,
        queue=job.queue,
        created_at=job.created_at,
        params_are_json=is_json(job.params, ANY_SIZE),
        places=await _places(unit, kept),
        runs=tuple(_run(run) for run in closed),
        events=tuple(_told(event) for event in events),
        root_id=None if root is None else root.job.id,
        before=None if job.retry_of is None else await _before(unit, kept, job.retry_of),
        successors=() if after is None else (after.job.id,),
        reservations=await _reserved(unit, kept),
        is_member=kept.member is not None,
        group_id=None if group is None else group.group.id,
    )


async def _places(unit: UnitOfWork, kept: JobRecord) -> tuple[StateRow, ...]:
    """One, unless it is adrift, or an index entry without which nobody would find it is gone."""
    job = kept.job
    is_found = all([await unit.get(key) is not None for key in indexes(kept)])
    if kept.is_detached or not is_found:
        return ()
    where = (
        StateTable.END if job.is_final else StateTable.OPEN if kept.is_open else StateTable.WAITING
    )
    return (
        StateRow(
            where=where,
            state=job.state,
            token=job.token,
            failures=job.failures,
            losses=job.losses,
            at=job.finished_at,
            run_id=kept.run_id,
        ),
    )


async def _events_of(unit: UnitOfWork, jobs: Sequence[str]) -> list[list[EventRecord]]:
    """The events of each of these jobs."""
    told = await runs.of_jobs(unit, key_layout.EVENT, jobs)
    numbers = [each.value["id"] for found in told for each in found]
    records = await unit.engine.get([key_layout.stream_key(number) for number in numbers])
    by_number = {n: runs.event(e.value) for n, e in zip(numbers, records, strict=True) if e}
    mine = [[each.value["id"] for each in found] for found in told]
    return [[by_number[n] for n in each if n in by_number] for each in mine]


async def _before(unit: UnitOfWork, kept: JobRecord, job_id: JobId) -> Predecessor:
    before = await job_repository.load(unit, job_id)
    if before is None:
        return Predecessor(id=None)
    [events] = await _events_of(unit, [job_id])
    told = {(event.kind, event.at) for event in events}
    is_final = before.job.is_final
    return Predecessor(
        id=before.job.id,
        root_id=before.job.root_id,
        failures=before.job.failures if is_final else None,
        losses=before.job.losses if is_final else None,
        chained=(EventKind.CHAINED, kept.job.created_at) in told,
    )


async def _reserved(unit: UnitOfWork, kept: JobRecord) -> tuple[AuditedReservation, ...]:
    if kept.reservation is None:
        return ()
    found = await reservations.load(unit, kept.reservation)
    if found is None or found.reservation.job_id != kept.job.id:
        return ()
    held = found.reservation
    return (AuditedReservation(id=held.id, queue=held.queue, status=held.status),)


def _run(run: RunRecord) -> ClosedRun:
    return ClosedRun(
        token=run.token,
        run_id=run.run_id,
        status=run.status,
        finished_at=run.finished_at,
        has_result=run.result is not None,
    )


def _told(event: EventRecord) -> AuditedEvent:
    return AuditedEvent(id=event.id, kind=event.kind, token=event.token, at=event.at)


async def strays(desk: StoreContext, *, limit: int) -> list[DanglingRecord]:
    """Up to so many of each kind."""
    await complete_all(desk)
    found = [stray async for stray in _strays(desk)]
    return [
        stray
        for kind in DanglingKind
        for stray in [stray for stray in found if stray.kind is kind][:limit]
    ]


async def _strays(desk: StoreContext) -> AsyncIterator[DanglingRecord]:
    async for entry in _orphans(desk, key_layout.RUN):
        rows = (f"runs job={entry.value['job_id']} token={entry.value['token']}",)
        yield DanglingRecord(kind=DanglingKind.RUN, rows=rows)
    async for stray in _of_events(desk):
        yield stray
    async for stray in _of_places(desk):
        yield stray
    async for stray in _of_keys(desk):
        yield stray
    async for stray in _of_slots(desk):
        yield stray
    async for stray in _of_reservations(desk):
        yield stray
    async for stray in schedule_audits.strays(desk):
        yield stray


async def _of_events(desk: StoreContext) -> AsyncIterator[DanglingRecord]:
    async for entry in _orphans(desk, key_layout.STREAM):
        yield DanglingRecord(kind=DanglingKind.EVENT, rows=(f"events id={entry.value['id']}",))


async def _orphans(desk: StoreContext, part: str) -> AsyncIterator[StoredItem]:
    """Records that are there though the job that they are of is not."""
    async for page in pages(desk, part):
        of_jobs = [entry for entry in page if entry.value.get("job_id") is not None]
        found = await desk.engine.get([key_layout.pointer(e.value["job_id"]) for e in of_jobs])
        for entry, job in zip(of_jobs, found, strict=True):
            if job is None and (await desk.engine.get([entry.key]))[0] is not None:
                yield entry


async def _of_places(desk: StoreContext) -> AsyncIterator[DanglingRecord]:
    """Index entries that their job knows nothing of."""
    unit = UnitOfWork(desk.engine)
    per_queue = (key_layout.READY, key_layout.LATER, key_layout.OPEN)
    parts = [part + name for name in await queues.names(unit) for part in per_queue]
    for part in (*parts, key_layout.DUE, key_layout.DEADLINE, key_layout.ENDED):
        async for page in pages(desk, part):
            for entry in await desk.run_unit(partial(_unknown, page=page)):
                if await desk.run_unit(partial(_is_ghost, key=entry.key, job_id=entry.value["id"])):
                    rows = (f"{part} {entry.key.sort}",)
                    yield DanglingRecord(
                        kind=DanglingKind.PLACE, rows=rows, job_id=entry.value["id"]
                    )


async def _unknown(unit: UnitOfWork, *, page: Sequence[StoredItem]) -> list[StoredItem]:
    """Those that are not their job's, or were not when it was looked at."""
    jobs = await job_repository.load_many(unit, [entry.value["id"] for entry in page])
    found = zip(page, jobs, strict=True)
    return [entry for entry, kept in found if kept is None or entry.key not in indexes(kept)]


async def _is_ghost(unit: UnitOfWork, *, key: Key, job_id: str) -> bool:
    kept = await job_repository.load(unit, job_id)
    is_wanted = kept is not None and key in indexes(kept)
    return not is_wanted and await unit.get(key) is not None


async def _of_keys(desk: StoreContext) -> AsyncIterator[DanglingRecord]:
    """An active key is held by the last job of a chain, and said to be its root's."""
    async for entry in scan_partition(desk, key_layout.ACTIVE):
        kept = await desk.run_unit(partial(job_repository.load, job_id=entry.value["job_id"]))
        rows, about = (f"keys scope=active key={entry.value['key']}",), entry.value["key"]
        if kept is None:
            yield DanglingRecord(kind=DanglingKind.KEY, rows=rows, about=about)
        elif kept.job.is_final:
            root = JobId(entry.value["root_id"])
            yield DanglingRecord(
                kind=DanglingKind.KEY_OF_ENDED, rows=rows, about=about, job_id=root
            )


async def _of_slots(desk: StoreContext) -> AsyncIterator[DanglingRecord]:
    """A root that was made for a slot holds it, and then nobody else does."""
    async for page in pages(desk, key_layout.SEQ):
        made = [entry.value for entry in page if "slot" in entry.value]
        rows = await desk.engine.get([Key(key_layout.SLOT, value["slot"]) for value in made])
        for value, row in zip(made, rows, strict=True):
            is_own = row is not None and row.value.get("job_id") == value["id"]
            kept = (
                None
                if is_own
                else await desk.run_unit(partial(job_repository.load, job_id=value["id"]))
            )
            if kept is not None:
                yield _unslotted(kept.job)


def _unslotted(job: Job) -> DanglingRecord:
    return DanglingRecord(
        kind=DanglingKind.SLOT, rows=(f"jobs seq={job.seq}",), about=job.name, job_id=job.id
    )


async def _of_reservations(desk: StoreContext) -> AsyncIterator[DanglingRecord]:
    async for entry in scan_partition(desk, key_layout.RESERVATION):
        held = reservations.from_value(entry.value).reservation
        if held.is_active and await _is_gone(desk, held.job_id):
            rows = (f"reservations id={held.id}",)
            yield DanglingRecord(kind=DanglingKind.RESERVATION, rows=rows, about=held.queue)


async def _is_gone(desk: StoreContext, job_id: str) -> bool:
    return (await desk.engine.get([key_layout.pointer(job_id)]))[0] is None
