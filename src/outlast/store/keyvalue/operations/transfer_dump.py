"""Everything the store holds, as rows in the order of their keys."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final

from outlast.clock import from_micros
from outlast.core.state import State
from outlast.errors import StoreCorrupt
from outlast.store.contract.transfer import FIRST, Row, TableKind, key_of
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, Value
from outlast.store.keyvalue.operations.documents import from_value as record_from_value
from outlast.store.keyvalue.pages import scan_partition
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
from outlast.store.keyvalue.repositories import slots as slot_records
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork
from outlast.store.rows import transfer as rows

PAGE: Final = 200
KEYS: Final = key_layout.dedupe_part("a").removesuffix("a")
"""How every part begins that holds a dedupe record."""


class RowDump:
    """Goes through the store kind by kind; what lies in many parts is read once and kept."""

    def __init__(self, desk: StoreContext) -> None:
        self._desk = desk
        self._kept: dict[TableKind, list[Row]] = {}

    async def dump(
        self, kind: TableKind, after: Row | None, limit: int, *, ended_only: bool
    ) -> list[Row]:
        start = tuple(FIRST[kind] if after is None else after)
        if kind in _NUMBERED:
            part, row = _NUMBERED[kind]
            return [row(value) for value in await self._numbered(part, start[0], limit)]
        match kind:
            case TableKind.JOBS:
                return await self._jobs(start[0], limit, ended_only=ended_only)
            case TableKind.RUNS:
                return await self._runs(start[0], start[1], limit)
            case TableKind.SLOTS:
                return await self._slots(start[0], start[1], limit)
            case _:
                return await self._sorted(kind, start, limit, anew=after is None)

    async def _numbered(self, part: str, after: int, limit: int) -> list[Any]:
        found = await self._desk.engine.range(
            KeyRange(part, key_layout.number(after + 1)), limit=limit
        )
        return [entry.value for entry in found]

    async def _slots(self, series: str, at: int, limit: int) -> list[Row]:
        start = f"{series}#{key_layout.time_key(from_micros(at))}\0" if series else ""
        found = await self._desk.engine.range(KeyRange(key_layout.SLOT, start), limit=limit)
        return [rows.slot_row(slot_records.from_value(entry.value)) for entry in found]

    async def _jobs(self, after: int, limit: int, *, ended_only: bool) -> list[Row]:
        found: list[Row] = []
        while len(found) < limit:
            size = min(PAGE, limit)
            page = await self._desk.run_unit(
                partial(job_repository.all_jobs, after=after, limit=size)
            )
            told = [kept for kept in page if _is_told(kept, ended_only=ended_only)]
            found += [rows.job_row(kept.job, member_of=kept.member) for kept in told]
            if not page:
                break
            after = page[-1].job.seq
        return found[:limit]

    async def _runs(self, seq: int, token: int, limit: int) -> list[Row]:
        found: list[Row] = []
        after = seq - 1
        while len(found) < limit:
            page = await self._desk.run_unit(
                partial(job_repository.all_jobs, after=after, limit=PAGE)
            )
            of_each = await runs.closed_of(
                UnitOfWork(self._desk.engine), [kept.job for kept in page]
            )
            for kept, closed in zip(page, of_each, strict=True):
                told = [rows.run_row(run, seq=kept.job.seq) for run in closed]
                found += [row for row in told if key_of(TableKind.RUNS, row) > (seq, token)]
                if len(found) >= limit:
                    break
            if not page:
                break
            after = page[-1].job.seq
        return found[:limit]

    async def _sorted(
        self, kind: TableKind, start: tuple[Any, ...], limit: int, *, anew: bool
    ) -> list[Row]:
        if anew or kind not in self._kept:
            found = [row async for row in self._scanned(kind)]
            self._kept[kind] = sorted(found, key=lambda row: key_of(kind, row))
        return [row for row in self._kept[kind] if key_of(kind, row) > start][:limit]

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
        async for entry in scan_partition(self._desk, key_layout.QUEUE):
            kept = queues.from_value(entry.value)
            if kept.is_listed:
                yield rows.queue_row(kept.queue)

    async def _schedules(self) -> AsyncIterator[Row]:
        async for entry in scan_partition(self._desk, key_layout.SCHEDULE):
            load = partial(schedules.load, schedule_id=entry.value["id"])
            schedule = await self._desk.run_unit(load)
            if schedule is not None:
                yield rows.schedule_row(schedule)

    async def _records(self) -> AsyncIterator[Row]:
        async for entry in self._desk.engine.scan(key_layout.record_part("")):
            yield rows.document_row(record_from_value(entry.value))

    async def _keys(self) -> AsyncIterator[Row]:
        async for entry in scan_partition(self._desk, key_layout.ACTIVE):
            yield ["active", entry.value["key"], "", entry.value["root_id"]]
        async for entry in self._desk.engine.scan(KEYS):
            key, bucket = await self._names(entry.key, entry.value["job_id"])
            yield ["key", key, bucket, entry.value["job_id"]]

    async def _names(self, where: Key, job_id: str) -> tuple[str, str]:
        """What a dedupe record is the record of; a long key is told by its job alone."""
        texts = (where.part.removeprefix(KEYS), where.sort)
        if not any(text.startswith("#sha256:") for text in texts):
            key, bucket = (text.removeprefix("#") for text in texts)
            return key, bucket
        kept = await self._desk.run_unit(partial(job_repository.load, job_id=job_id))
        if kept is None or kept.key is None:
            raise StoreCorrupt(
                f"a key of over 900 bytes was kept by its digest alone, and its job {job_id} was "
                "pruned: it cannot be copied; delete that record if nobody will use the key again"
            )
        return kept.key.key, kept.key.bucket

    async def _counters(self) -> AsyncIterator[Row]:
        numbers, events = await self._desk.engine.get([key_layout.NUMBERS, key_layout.EVENTS])
        last = numbers.value["last"] if numbers else 0
        yield ["documents", last]
        yield ["events", events.value["last"] if events else 0]
        for name in ("groups", "jobs", "reservations", "schedules"):
            yield [name, last]


def _is_told(kept: JobRecord, *, ended_only: bool) -> bool:
    if kept.is_detached or kept.job.state is State.RUNNING:
        return False
    return kept.job.is_final or not ended_only


def _event(value: Value) -> Row:
    return rows.event_row(runs.event(value))


def _group(value: Value) -> Row:
    kept = groups.from_value(value)
    return rows.group_row(kept.group, swept=kept.is_swept)


def _reservation(value: Value) -> Row:
    kept = reservations.from_value(value)
    return rows.reservation_row(kept.reservation, seq=kept.seq, span=kept.span)


_NUMBERED: Final[dict[TableKind, tuple[str, Callable[[Value], Row]]]] = {
    TableKind.EVENTS: (key_layout.STREAM, _event),
    TableKind.GROUPS: (key_layout.GROUP, _group),
    TableKind.RESERVATIONS: (key_layout.RESERVATION, _reservation),
}
"""Where those lie that have a number, and how each becomes a row."""
