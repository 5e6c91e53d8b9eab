"""Quarantine: jobs whose stored record is damaged are set aside, named, and taken back.

An index entry that leads to a damaged record, or that its record does not demand, is removed, so
that it stops no queue, and its job is listed. Maintenance looks at the listed jobs: as soon as the
record of one is sound again, its index entries are written anew.
"""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Final

from outlast.core.audit.model import DanglingKind, DanglingRecord
from outlast.core.ids import JobId
from outlast.store.contract.notifications import Notification
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext, pages
from outlast.store.keyvalue.engine import DamagedValue, Engine, Key, KeyRange, StoredItem
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import queues
from outlast.store.keyvalue.repositories.job_codec import JobRecord, indexes
from outlast.store.keyvalue.repositories.record_check import is_foreign, why_damaged
from outlast.store.keyvalue.repositories.record_shapes import SHAPES
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL: Final = 1_000_000
PAGE: Final = 500
NAMED: Final = 5
"""Damaged records that a warning names."""

MOST_LOOKED_AT: Final = 20_000
"""Job records that the warnings look at."""


def fits(entry: StoredItem, record: JobRecord | None) -> bool:
    """Return True if the record demands that index entry."""
    return record is not None and entry.key in indexes(record)


async def set_aside(context: StoreContext, suspects: Sequence[StoredItem]) -> int:
    """Remove those index entries whose job is damaged, gone or elsewhere; return how many.

    An entry that another process removed meanwhile is left out: its job has only moved on.
    """
    found = await context.engine.get([entry.key for entry in suspects]) if suspects else []
    there = [entry for entry in found if entry is not None and entry.damage is None]
    return sum([await context.run_unit(partial(_set_aside, context, entry)) for entry in there])


async def _set_aside(context: StoreContext, entry: StoredItem, unit: UnitOfWork) -> bool:
    job_id = entry.value["id"]
    if await unit.get(entry.key) is None:
        return False
    record = await job_repository.load(unit, job_id)
    if fits(entry, record):
        return False
    unit.delete(entry.key)
    damage = await job_repository.damage(unit, job_id)
    if damage is not None or record is not None:
        why = f"{entry.key.part} / {entry.key.sort} did not fit it"
        listed = {"id": job_id, "sort": entry.key.sort, "why": damage.why if damage else why}
        unit.put(_key(job_id), {**listed, "at": key_layout.time_key(context.now())})
    return True


async def take_back(context: StoreContext) -> None:
    """Write the index entries of listed jobs whose record is sound again."""
    async for page in pages(context, key_layout.QUARANTINE):
        for entry in page:
            queue = await context.run_unit(partial(_take_back, entry.value["id"]))
            if queue is not None:
                context.notify(Notification(queues=frozenset({queue})))


async def _take_back(job_id: str, unit: UnitOfWork) -> str | None:
    listed, record = await unit.get(_key(job_id)), await job_repository.load(unit, job_id)
    if listed is None or await job_repository.damage(unit, job_id) is not None:
        return None
    unit.delete(_key(job_id))
    if record is None:
        return None
    await unit.touch(key_layout.job_key(record.job))  # it must not change meanwhile
    wanted = indexes(record)
    await unit.fetch(list(wanted))
    for key, value in wanted.items():
        there = await unit.get(key)
        if isinstance(there, DamagedValue) or there != value:
            unit.put(key, value)
    return record.job.queue


async def listed_ids(engine: Engine) -> set[str]:
    """Return the ids of the jobs that are set aside."""
    found = await engine.range(KeyRange(key_layout.QUARANTINE), limit=ALL)
    return {entry.value["id"] for entry in found}


async def damaged_records(context: StoreContext) -> AsyncIterator[DanglingRecord]:
    """Yield every damaged record; items of other writers are none."""
    names = await queues.names(UnitOfWork(context.engine))
    per_queue = (key_layout.READY, key_layout.LATER, key_layout.OPEN)
    for part in (*SHAPES, *(start + name for start in per_queue for name in names)):
        async for item in _raw(context.raw_engine, part):
            why = why_damaged(item)
            if why is not None and not is_foreign(item):
                yield _named(item, why)


async def warnings(context: StoreContext) -> list[str]:
    """Return what operators should know: jobs set aside, damaged ones, and foreign items."""
    listed = await context.engine.range(KeyRange(key_layout.QUARANTINE), limit=ALL)
    damaged = {entry.value["id"]: entry.value["why"] for entry in listed}
    foreign = looked_at = 0
    async for item in _raw(context.raw_engine, key_layout.JOB):
        looked_at += 1
        foreign += is_foreign(item)
        if not is_foreign(item) and (why := why_damaged(item)) is not None:
            damaged.setdefault(_id_in(item), why)
        if looked_at == MOST_LOOKED_AT:
            break
    return [*_told(damaged, looked_at), *_told_foreign(foreign)]


def _told(damaged: dict[str, str], looked_at: int) -> list[str]:
    named = [f"job {job_id}: {why}" for job_id, why in list(damaged.items())[:NAMED]]
    if len(damaged) > NAMED:
        named.append(f"and {len(damaged) - NAMED} more; `outlast verify` names all")
    if looked_at == MOST_LOOKED_AT:
        named.append(f"only the first {looked_at:,} job records were looked at")
    if not damaged:
        return []
    return [f"{len(damaged)} quarantined (correct or delete the record): {'; '.join(named)}"]


def _told_foreign(foreign: int) -> list[str]:
    if not foreign:
        return []
    return [f"{foreign} job items were not written by Outlast; they are left alone"]


async def _raw(engine: Engine, part: str) -> AsyncIterator[StoredItem]:
    """Yield the records of a part as they are."""
    start = ""
    while page := await engine.range(KeyRange(part, start), limit=PAGE):
        for item in page:
            yield item
        start = f"{page[-1].key.sort}\0"


def _named(item: StoredItem, why: str) -> DanglingRecord:
    job_id = JobId(_id_in(item)) if item.key.part == key_layout.JOB else None
    rows = (f"{item.key.part} / {item.key.sort}",)
    return DanglingRecord(kind=DanglingKind.QUARANTINED, rows=rows, about=why, job_id=job_id)


def _id_in(item: StoredItem) -> str:
    """Return the id in the sort key of a job's record."""
    return item.key.sort.rpartition("#")[2]


def _key(job_id: str) -> Key:
    return Key(key_layout.QUARANTINE, job_id)
