"""Dump all rows of the store in the order of their keys."""

from bisect import bisect_right
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final

from outlast.clock import from_micros
from outlast.core.state import State
from outlast.errors import StoreCorrupt
from outlast.store.contract.transfer import FIRST, Row, TableKind, key_of
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext, scan_partition
from outlast.store.keyvalue.engine import Key, KeyRange, Value
from outlast.store.keyvalue.operations.documents import from_value as record_from_value
from outlast.store.keyvalue.repositories import (
    event_numbers,
    groups,
    key_windows,
    logs,
    queues,
    reservations,
    runs,
    schedules,
)
from outlast.store.keyvalue.repositories import (
    jobs as job_repository,
)
from outlast.store.keyvalue.repositories import slots as slot_records
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork
from outlast.store.rows import transfer as rows

PAGE: Final = 200
KEYS: Final = key_layout.dedupe_part("a").removesuffix("a")
"""Beginning of every part that holds dedupe records."""


class RowDump:
    """Dumps table by table; tables spread over many parts are read once and cached."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context.refusing()  # a damaged record must not be left behind
        self._kept: dict[TableKind, list[Row]] = {}

    async def dump(
        self, kind: TableKind, after: Row | None, limit: int, *, ended_only: bool
    ) -> list[Row]:
        """Return the next rows of one table."""
        start = tuple(FIRST[kind] if after is None else after)
        if kind in _NUMBERED:
            part, row = _NUMBERED[kind]
            return [row(value) for value in await self._numbered(part, start[0], limit)]
        match kind:
            case TableKind.JOBS:
                return await self._jobs(start[0], limit, ended_only=ended_only)
            case TableKind.RUNS:
                return await self._runs(start[0], start[1], limit)
            case TableKind.LOGS:
                return await self._logs((start[0], start[1], start[2]), limit)
            case TableKind.SLOTS:
                return await self._slots(start[0], start[1], limit)
            case _:
                return await self._sorted(kind, start, limit, anew=after is None)

    async def _numbered(self, part: str, after: int, limit: int) -> list[Any]:
        found = await self._context.engine.range(
            KeyRange(part, key_layout.number(after + 1)), limit=limit
        )
        return [entry.value for entry in found]

    async def _slots(self, series: str, at: int, limit: int) -> list[Row]:
        start = f"{series}#{key_layout.time_key(from_micros(at))}\0" if series else ""
        found = await self._context.engine.range(KeyRange(key_layout.SLOT, start), limit=limit)
        return [rows.slot_row(slot_records.from_value(entry.value)) for entry in found]

    async def _jobs(self, after: int, limit: int, *, ended_only: bool) -> list[Row]:
        found: list[Row] = []
        while len(found) < limit:
            work = partial(_job_rows, after=after, limit=min(PAGE, limit), ended_only=ended_only)
            told, last = await self._context.run_unit(work)
            found += told
            if last is None:
                break
            after = last
        return found[:limit]

    async def _runs(self, seq: int, token: int, limit: int) -> list[Row]:
        found: list[Row] = []
        after = seq - 1
        while len(found) < limit:
            work = partial(_run_rows, after=after, behind=(seq, token), most=limit - len(found))
            told, last = await self._context.run_unit(work)
            found += told
            if last is None:
                break
            after = last
        return found[:limit]

    async def _logs(self, behind: tuple[int, int, int], limit: int) -> list[Row]:
        found: list[Row] = []
        after = behind[0] - 1
        while len(found) < limit:
            told, last = await self._context.run_unit(partial(_log_rows, after=after))
            found += [row for row in told if key_of(TableKind.LOGS, row) > behind]
            if last is None:
                break
            after = last
        return found[:limit]

    async def _sorted(
        self, kind: TableKind, start: tuple[Any, ...], limit: int, *, anew: bool
    ) -> list[Row]:
        if anew or kind not in self._kept:
            found = [row async for row in self._scanned(kind)]
            self._kept[kind] = sorted(found, key=lambda row: key_of(kind, row))
        kept = self._kept[kind]
        first = bisect_right(kept, start, key=partial(key_of, kind))
        return kept[first : first + limit]

    async def _scanned(self, kind: TableKind) -> AsyncIterator[Row]:
        scans = {
            TableKind.QUEUES: self._queues,
            TableKind.SCHEDULES: self._schedules,
            TableKind.DOCUMENTS: self._records,
            TableKind.KEYS: self._keys,
            TableKind.COUNTERS: self._counters,
        }
        async for row in scans[kind]():
            yield row

    async def _queues(self) -> AsyncIterator[Row]:
        async for entry in scan_partition(self._context, key_layout.QUEUE):
            record = queues.from_value(entry.value)
            if record.is_listed:
                yield rows.queue_row(record.queue)

    async def _schedules(self) -> AsyncIterator[Row]:
        async for entry in scan_partition(self._context, key_layout.SCHEDULE):
            load = partial(schedules.load, schedule_id=entry.value["id"])
            schedule = await self._context.run_unit(load)
            if schedule is not None:
                yield rows.schedule_row(schedule)

    async def _records(self) -> AsyncIterator[Row]:
        async for entry in self._context.engine.scan(key_layout.record_part("")):
            yield rows.document_row(record_from_value(entry.value))

    async def _keys(self) -> AsyncIterator[Row]:
        async for entry in scan_partition(self._context, key_layout.ACTIVE):
            yield ["active", entry.value["key"], "", entry.value["root_id"], None]
        async for entry in self._context.engine.scan(KEYS):
            key, bucket = await self._names(entry.key, entry.value["job_id"])
            yield ["key", key, bucket, entry.value["job_id"], None]
        async for entry in scan_partition(self._context, key_layout.WINDOW_END):
            load = partial(key_windows.load, place=key_windows.place_of(entry.value))
            held = await self._context.run_unit(load)
            if held is not None:
                yield [held.scope, held.key, held.bucket, held.job_id, held.until]

    async def _names(self, where: Key, job_id: str) -> tuple[str, str]:
        """Return key and bucket of a dedupe record; a long key is known by its job alone."""
        texts = (where.part.removeprefix(KEYS), where.sort)
        if not any(text.startswith("#sha256:") for text in texts):
            key, bucket = (text.removeprefix("#") for text in texts)
            return key, bucket
        record = await self._context.run_unit(partial(job_repository.load, job_id=job_id))
        if record is None or record.key is None:
            raise StoreCorrupt(
                f"the job {job_id} of a dedupe key of over 900 bytes was pruned, and the key is "
                "stored by its digest alone: it cannot be copied; delete that record if the key "
                "is no longer used"
            )
        return record.key.key, record.key.bucket

    async def _counters(self) -> AsyncIterator[Row]:
        last = await self._context.engine.last_number(key_layout.NUMBERS)
        yield ["documents", last]
        yield ["events", await event_numbers.highest(self._context.engine)]
        for name in ("groups", "jobs", "reservations", "schedules"):
            yield [name, last]


async def _job_rows(
    unit: UnitOfWork, *, after: int, limit: int, ended_only: bool
) -> tuple[list[Row], int | None]:
    """Return the rows of the next jobs, and the number of the last; None if there are no more."""
    page = await job_repository.all_jobs(unit, after=after, limit=limit)
    told = [record for record in page if _is_dumped(record, ended_only=ended_only)]
    pairs = zip(await job_repository.whole_jobs(unit, told), told, strict=True)
    found = [rows.job_row(job, member_of=record.member) for job, record in pairs]
    return found, page[-1].job.seq if page else None


async def _run_rows(
    unit: UnitOfWork, *, after: int, behind: tuple[int, int], most: int
) -> tuple[list[Row], int | None]:
    """Return up to `most` rows of runs of the next jobs, and the number of the last job."""
    page = await job_repository.all_jobs(unit, after=after, limit=PAGE)
    of_each = await runs.closed_of(unit, [record.job for record in page])
    numbered = [
        (record.job.seq, run)
        for record, closed in zip(page, of_each, strict=True)
        for run in closed
        if (record.job.seq, run.token) > behind
    ][:most]
    whole = await runs.whole(unit, [run for _, run in numbered])
    found = [rows.run_row(run, seq=seq) for (seq, _), run in zip(numbered, whole, strict=True)]
    return found, page[-1].job.seq if page else None


async def _log_rows(unit: UnitOfWork, *, after: int) -> tuple[list[Row], int | None]:
    """Return the chunks of the closed runs of the next jobs, and the number of the last job."""
    page = await job_repository.all_jobs(unit, after=after, limit=PAGE)
    logged = [record for record in page if record.is_logged]
    closed = await runs.closed_of(unit, [record.job for record in logged])
    stored = await runs.of_jobs(unit, key_layout.LOG, [record.job.id for record in logged])
    found: list[Row] = []
    for record, ended, chunks in zip(logged, closed, stored, strict=True):
        tokens = {run.token for run in ended}
        found += [
            [record.job.seq, token, chunk.first, record.job.id, chunk.lines, chunk.text]
            for token, chunk in logs.from_records(chunks)
            if token in tokens
        ]
    return found, page[-1].job.seq if page else None


def _is_dumped(record: JobRecord, *, ended_only: bool) -> bool:
    if record.is_detached or record.job.state is State.RUNNING:
        return False
    return record.job.is_final or not ended_only


def _event(value: Value) -> Row:
    return rows.event_row(runs.event(value))


def _group(value: Value) -> Row:
    record = groups.from_value(value)
    return rows.group_row(record.group, swept=record.is_swept)


def _reservation(value: Value) -> Row:
    record = reservations.from_value(value)
    return rows.reservation_row(record.reservation, seq=record.seq, span=record.span)


_NUMBERED: Final[dict[TableKind, tuple[str, Callable[[Value], Row]]]] = {
    TableKind.EVENTS: (key_layout.STREAM, _event),
    TableKind.GROUPS: (key_layout.GROUP, _group),
    TableKind.RESERVATIONS: (key_layout.RESERVATION, _reservation),
}
"""Part of each numbered table, and how a value becomes a row."""
