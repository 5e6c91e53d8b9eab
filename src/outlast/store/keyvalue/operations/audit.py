"""Audit reads for `verify`: all records of a job, and dangling records."""

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
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
from outlast.core.limits import is_json, is_storable
from outlast.core.run import RunRecord
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext, pages, scan_partition
from outlast.store.keyvalue.engine import DamagedValue, Key, KeyRange, StoredItem, Value
from outlast.store.keyvalue.intent_recovery import complete_all
from outlast.store.keyvalue.operations import audit_bodies, audit_indexes, audit_logs, quarantine
from outlast.store.keyvalue.operations.base import KeyValueOperations
from outlast.store.keyvalue.repositories import (
    groups,
    queues,
    reservations,
    runs,
    schedules,
)
from outlast.store.keyvalue.repositories import (
    jobs as job_repository,
)
from outlast.store.keyvalue.repositories.job_codec import JobRecord, indexes
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL: Final = 1_000_000
ANY_SIZE: Final = 1 << 62


class KeyValueAuditOperations(KeyValueOperations):
    """Raw reads for `verify`."""

    async def job_count(self) -> int:
        """Return the number of jobs."""
        context = self._context
        await complete_all(context)
        return len(await context.engine.range(KeyRange(key_layout.SEQ), limit=ALL))

    async def audit_jobs(self, *, after: int, limit: int) -> list[JobAudit]:
        """Return all that is stored of the next jobs, at one moment.

        If a record changes meanwhile, the page is read again.
        """
        context = self._context
        context = context.despite(await complete_all(context))
        while True:
            page = partial(_audit_page, after=after, limit=limit)
            answer, last = await context.run_unit(page)
            if answer or last is None:
                return answer
            after = last

    async def dangling_records(self, *, limit: int) -> list[DanglingRecord]:
        """Return up to `limit` records of each kind that belong to nothing."""
        context = self._context
        stuck = await complete_all(context)
        found = [record async for record in _dangling_records(context.despite(stuck))]
        found += [
            DanglingRecord(
                kind=DanglingKind.INTENT, rows=(f"pending {key.sort}",), about=str(error)
            )
            for key, error in stuck.items()
        ]
        return [
            record
            for kind in DanglingKind
            for record in [record for record in found if record.kind is kind][:limit]
        ]

    async def why_quarantined(self, job_id: str) -> str | None:
        """Return which record of the job is damaged, and how; None if it is sound or missing."""
        if not is_storable(job_id):
            return None
        damage = await self._context.run_unit(partial(job_repository.damage, job_id=job_id))
        return None if damage is None else str(damage)


async def _audit_page(
    unit: UnitOfWork, *, after: int, limit: int
) -> tuple[list[JobAudit], int | None]:
    """Return the next jobs, without those that are being pruned, and the number of the last."""
    found = await job_repository.all_jobs(unit, after=after, limit=limit)
    page = [record for record in found if not record.is_marked]
    await unit.fetch([key for record in page for key in indexes(record)])
    closed = await runs.closed_of(unit, [record.job for record in page])
    told = await _events_of(unit, [record.job.id for record in page])
    held = await audit_bodies.read(unit, page, closed)
    logged = await audit_logs.tokens(unit, page)
    each = zip(page, closed, told, held, logged, strict=True)
    answer = [await _audit_job(unit, *own) for own in each]
    await unit.require_unchanged()
    return answer, found[-1].job.seq if found else None


async def _audit_job(
    unit: UnitOfWork,
    record: JobRecord,
    closed: Sequence[RunRecord],
    events: Sequence[EventRecord],
    held: audit_bodies.JobBodies,
    logged: tuple[int, ...],
) -> JobAudit:
    job = record.job
    root = record if job.root_id == job.id else await job_repository.load(unit, job.root_id)
    after = None if record.successor is None else await job_repository.load(unit, record.successor)
    group = None if record.member is None else await groups.load(unit, record.member)
    return JobAudit(
        id=job.id,
        seq=job.seq,
        delivery=job.delivery,
        queue=job.queue,
        created_at=job.created_at,
        params_are_json=held.params is None or is_json(held.params, ANY_SIZE),
        missing_bodies=held.missing,
        logged=logged,
        places=await _places(unit, record),
        runs=tuple(_run(run) for run in closed),
        events=tuple(_told(event) for event in events),
        root_id=None if root is None else root.job.id,
        before=None if job.retry_of is None else await _before(unit, record, job.retry_of),
        successors=() if after is None else (after.job.id,),
        reservations=await _reserved(unit, record),
        is_member=record.member is not None,
        group_id=None if group is None else group.group.id,
        active_key=job.active_key,
        key_holder=await _key_holder(unit, job.active_key),
    )


async def _key_holder(unit: UnitOfWork, key: str | None) -> JobId | None:
    held = None if key is None else await unit.get(key_layout.active_key(key))
    return None if held is None else JobId(held["root_id"])


async def _places(unit: UnitOfWork, record: JobRecord) -> tuple[StateRow, ...]:
    """Return the job's state row; none if it is detached, or an index entry of it is missing."""
    job = record.job
    is_found = all([await unit.get(key) is not None for key in indexes(record)])
    if record.is_detached or not is_found:
        return ()
    where = (
        StateTable.END
        if job.is_final
        else StateTable.OPEN
        if record.is_open
        else StateTable.WAITING
    )
    return (
        StateRow(
            where=where,
            state=job.state,
            token=job.token,
            failures=job.failures,
            losses=job.losses,
            at=job.finished_at,
            run_id=record.run_id,
        ),
    )


async def _events_of(unit: UnitOfWork, jobs: Sequence[str]) -> list[list[EventRecord]]:
    """Return the events of each job."""
    told = await runs.of_jobs(unit, key_layout.EVENT, jobs)
    numbers = [each.value["id"] for found in told for each in found]
    records = await unit.engine.get([key_layout.stream_key(number) for number in numbers])
    pairs = zip(numbers, records, strict=True)
    by_number = {n: runs.event(e.value) for n, e in pairs if e and e.damage is None}
    mine = [[each.value["id"] for each in found] for found in told]
    return [[by_number[n] for n in each if n in by_number] for each in mine]


async def _before(unit: UnitOfWork, record: JobRecord, job_id: JobId) -> Predecessor:
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
        chained=(EventKind.CHAINED, record.job.created_at) in told,
    )


async def _reserved(unit: UnitOfWork, record: JobRecord) -> tuple[AuditedReservation, ...]:
    if record.reservation is None:
        return ()
    found = await reservations.load(unit, record.reservation)
    if found is None or found.reservation.job_id != record.job.id:
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


async def _dangling_records(context: StoreContext) -> AsyncIterator[DanglingRecord]:
    for look in (
        _of_runs,
        _of_events,
        _of_logs,
        _of_index_entries,
        audit_bodies.dangling,
        _of_keys,
        _of_slots,
        _of_reservations,
        _of_schedules,
        audit_indexes.mismatches,
        quarantine.damaged_records,
    ):
        async for dangling in look(context):
            yield dangling


async def _of_runs(context: StoreContext) -> AsyncIterator[DanglingRecord]:
    async for entry in _orphans(context, key_layout.RUN):
        rows = (f"runs job={entry.value['job_id']} token={entry.value['token']}",)
        yield DanglingRecord(kind=DanglingKind.RUN, rows=rows)


async def _of_events(context: StoreContext) -> AsyncIterator[DanglingRecord]:
    async for entry in _orphans(context, key_layout.STREAM):
        yield DanglingRecord(kind=DanglingKind.EVENT, rows=(f"events id={entry.value['id']}",))


async def _of_logs(context: StoreContext) -> AsyncIterator[DanglingRecord]:
    async for entry in _orphans(context, key_layout.LOG):
        yield DanglingRecord(kind=DanglingKind.LOG, rows=(f"{entry.key.part} {entry.key.sort}",))


async def _orphans(context: StoreContext, part: str) -> AsyncIterator[StoredItem]:
    """Return records whose job does not exist."""
    async for page in pages(context, part):
        of_jobs = [entry for entry in page if entry.value.get("job_id") is not None]
        found = await context.engine.get([key_layout.pointer(e.value["job_id"]) for e in of_jobs])
        for entry, job in zip(of_jobs, found, strict=True):
            if job is None and (await context.engine.get([entry.key]))[0] is not None:
                yield entry


async def _of_index_entries(context: StoreContext) -> AsyncIterator[DanglingRecord]:
    """Return index entries that do not belong to their job."""
    unit = UnitOfWork(context.engine)
    per_queue = (key_layout.READY, key_layout.LATER, key_layout.OPEN)
    parts = [part + name for name in await queues.names(unit) for part in per_queue]
    for part in (*parts, key_layout.DUE, key_layout.DEADLINE, key_layout.ENDED):
        async for page in pages(context, part):
            for entry in await context.run_unit(partial(_unknown, page=page)):
                if await context.run_unit(
                    partial(_is_dangling, key=entry.key, job_id=entry.value["id"])
                ):
                    rows = (f"{part} {entry.key.sort}",)
                    yield DanglingRecord(
                        kind=DanglingKind.PLACE, rows=rows, job_id=entry.value["id"]
                    )


async def _unknown(unit: UnitOfWork, *, page: Sequence[StoredItem]) -> list[StoredItem]:
    """Return the entries that their jobs do not have, or did not have when read."""
    jobs = await job_repository.load_many(unit, [entry.value["id"] for entry in page])
    found = zip(page, jobs, strict=True)
    return [entry for entry, record in found if record is None or entry.key not in indexes(record)]


async def _is_dangling(unit: UnitOfWork, *, key: Key, job_id: str) -> bool:
    record = await job_repository.load(unit, job_id)
    if record is None and await job_repository.damage(unit, job_id) is not None:
        return False
    is_wanted = record is not None and key in indexes(record)
    return not is_wanted and await unit.get(key) is not None


async def _of_keys(context: StoreContext) -> AsyncIterator[DanglingRecord]:
    """Return active keys whose job is gone or has ended."""
    async for entry in scan_partition(context, key_layout.ACTIVE):
        record = await context.run_unit(partial(job_repository.load, job_id=entry.value["job_id"]))
        rows, about = (f"keys scope=active key={entry.value['key']}",), entry.value["key"]
        damage = partial(job_repository.damage, job_id=entry.value["job_id"])
        if record is None and await context.run_unit(damage) is not None:
            continue
        if record is None:
            yield DanglingRecord(kind=DanglingKind.KEY, rows=rows, about=about)
        elif record.job.is_final:
            root = JobId(entry.value["root_id"])
            yield DanglingRecord(
                kind=DanglingKind.KEY_OF_ENDED, rows=rows, about=about, job_id=root
            )


async def _of_slots(context: StoreContext) -> AsyncIterator[DanglingRecord]:
    """Return root jobs that were made for a slot that does not name them."""
    async for page in pages(context, key_layout.SEQ):
        made = [entry.value for entry in page if "slot" in entry.value]
        rows = await context.engine.get([Key(key_layout.SLOT, value["slot"]) for value in made])
        for value, row in zip(made, rows, strict=True):
            is_own = row is not None and (row.damage or row.value.get("job_id") == value["id"])
            record = (
                None
                if is_own
                else await context.run_unit(partial(job_repository.load, job_id=value["id"]))
            )
            if record is not None:
                yield _unslotted(record.job)


def _unslotted(job: Job) -> DanglingRecord:
    return DanglingRecord(
        kind=DanglingKind.SLOT, rows=(f"jobs seq={job.seq}",), about=job.name, job_id=job.id
    )


async def _of_reservations(context: StoreContext) -> AsyncIterator[DanglingRecord]:
    async for entry in scan_partition(context, key_layout.RESERVATION):
        held = reservations.from_value(entry.value).reservation
        if held.is_active and await _is_gone(context, held.job_id):
            rows = (f"reservations id={held.id}",)
            yield DanglingRecord(kind=DanglingKind.RESERVATION, rows=rows, about=held.queue)


async def _is_gone(context: StoreContext, job_id: str) -> bool:
    return (await context.engine.get([key_layout.pointer(job_id)]))[0] is None


FOUND_BY: Final = (key_layout.SCHEDULE_NAME, key_layout.TRIGGER)


async def _of_schedules(context: StoreContext) -> AsyncIterator[DanglingRecord]:
    """Return schedules whose records disagree with their index entries.

    Reads all once. A schedule that looks wrong is read again, at one moment.
    """
    held: dict[str, dict[Key, Value | None]] = defaultdict(dict)
    for part in (key_layout.SCHEDULE, key_layout.SCHEDULE_STATE, *FOUND_BY):
        async for entry in scan_partition(context, part):
            held[entry.value["id"]][entry.key] = entry.value
    for schedule_id, records in held.items():
        if _apart(schedule_id, records):
            rows = await context.run_unit(
                partial(_look, schedule_id=schedule_id, seen=list(records))
            )
            if rows:
                yield DanglingRecord(kind=DanglingKind.SCHEDULE, rows=rows, about=schedule_id)


async def _look(unit: UnitOfWork, *, schedule_id: str, seen: Collection[Key]) -> tuple[str, ...]:
    own = schedules.record_keys(schedule_id)
    await unit.fetch([*own, *seen])
    if any([isinstance(await unit.get(key), DamagedValue) for key in (*own, *seen)]):
        return ()
    wanted = schedules.found_by(*[await unit.get(key) for key in own])
    await unit.fetch(list(wanted))
    records = {key: await unit.get(key) for key in {*own, *seen, *wanted}}
    await unit.require_unchanged()
    return _apart(schedule_id, records)


def _apart(schedule_id: str, records: Mapping[Key, Value | None]) -> tuple[str, ...]:
    """Return the records that lack their other half, and entries that are missing or too many."""
    planned, state = [records.get(key) for key in schedules.record_keys(schedule_id)]
    if (planned and planned["version"]) != (state and state["version"]):
        return tuple(f"{key.part} {key.sort}" for key in schedules.record_keys(schedule_id))
    found = {
        key
        for key, value in records.items()
        if key.part in FOUND_BY and value is not None and value["id"] == schedule_id
    }
    apart = found ^ schedules.found_by(planned, state)
    return tuple(f"{key.part} {key.sort}" for key in sorted(apart))
