"""Load rows that another store dumped: several per unit of work, index entries included.

Rows of one chain, group or job go in the order given; all others go concurrently.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from outlast.clock import MICROSECOND, to_micros
from outlast.core.delivery import Delivery
from outlast.core.job import DedupeKey, Job
from outlast.core.run_log import LogChunk
from outlast.core.state import State
from outlast.store.contract.transfer import COLUMNS, Row, TableKind, named
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import run_concurrently, run_halved
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, Write
from outlast.store.keyvalue.operations.documents import to_value as record_to_value
from outlast.store.keyvalue.operations.transfer_delete import document_key, drop
from outlast.store.keyvalue.outcomes import require_all
from outlast.store.keyvalue.repositories import (
    bodies,
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
from outlast.store.keyvalue.repositories.groups import GroupRecord
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.repositories.key_windows import WindowRecord
from outlast.store.keyvalue.repositories.queues import register_queue
from outlast.store.keyvalue.repositories.reservations import ReservationRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork
from outlast.store.rows import transfer as rows

Values = dict[str, Any]
ALL: Final = 1_000_000
MOST_RECORDS: Final = 12
RECORDS: Final = {
    TableKind.RUNS: 5,
    TableKind.LOGS: 4,
    TableKind.EVENTS: 3,
    TableKind.KEYS: 5,
    TableKind.SLOTS: 6,
}
"""Records that one row writes or compares at most."""

_TOUCHED: Final[dict[TableKind, tuple[str, ...]]] = {
    TableKind.JOBS: ("member_of", "root_id"),
    TableKind.RUNS: ("job_id",),
    TableKind.LOGS: ("job_id",),
    TableKind.KEYS: ("job_id",),
    TableKind.SLOTS: ("job_id",),
    TableKind.RESERVATIONS: ("queue",),
}
"""Columns of which the first with a value tells what other rows of the table touch, too."""

_JOBS: Final[dict[TableKind, tuple[str, ...]]] = {
    TableKind.JOBS: ("id", "retry_of"),
    TableKind.RUNS: ("job_id",),
    TableKind.KEYS: ("job_id",),
    TableKind.SLOTS: ("job_id",),
    TableKind.LOGS: ("job_id",),
    TableKind.EVENTS: ("job_id",),
    TableKind.RESERVATIONS: ("job_id",),
}
"""Columns with the ids of the jobs that a row reads."""

_ROOTS: Final[dict[TableKind, tuple[str, ...]]] = {
    TableKind.JOBS: ("root_id",),
    TableKind.KEYS: ("job_id",),
    TableKind.SLOTS: ("job_id",),
    TableKind.RESERVATIONS: ("job_id",),
}
"""Columns with the ids of the jobs whose early fields a row reads."""


async def load(
    context: StoreContext, kind: TableKind, page: Sequence[Row], gone: Sequence[Row]
) -> None:
    """Delete the rows of `gone`, and write those of `page`."""
    for key in gone:
        await drop(context, kind, dict(zip(COLUMNS[kind], key, strict=False)))
    found = [named(kind, row) for row in page]
    if kind is TableKind.JOBS:
        for name in {values["queue"] for values in found}:
            await register_queue(context, name)
    put = partial(_put_line, context, kind)
    require_all(await run_concurrently(_lines(kind, found, _most_rows(context, kind)), put))
    await context.run_unit(partial(_raise, kind=kind, page=found))


async def delete_early_fields(context: StoreContext) -> None:
    """Delete the fields that were loaded before their jobs: all jobs are there now."""
    while found := await context.engine.range(
        KeyRange(key_layout.EARLY_FIELDS), limit=context.engine.limits.most_writes
    ):
        await context.engine.transact({}, [Write(entry.key, None) for entry in found])


def _most_rows(context: StoreContext, kind: TableKind) -> int:
    return max(1, context.engine.limits.most_writes // RECORDS.get(kind, MOST_RECORDS))


def _lines(kind: TableKind, page: Sequence[Values], most: int) -> list[list[Values]]:
    """Return the rows in lines that touch different records; short lines are joined."""
    lines: dict[object, list[Values]] = {}
    for number, values in enumerate(page):
        names = (values[column] for column in _TOUCHED.get(kind, ()))
        lines.setdefault(next(filter(None, names), number), []).append(values)
    joined: list[list[Values]] = []
    for line in sorted(lines.values(), key=len):
        if joined and len(joined[-1]) + len(line) <= most:
            joined[-1].extend(line)
        else:
            joined.append(line)
    return joined


async def _put_line(context: StoreContext, kind: TableKind, line: Sequence[Values]) -> None:
    most = _most_rows(context, kind)
    for start in range(0, len(line), most):
        put = partial(_put_rows, context, kind)
        require_all(await run_halved(line[start : start + most], put))


async def _put_rows(
    context: StoreContext, kind: TableKind, page: Sequence[Values]
) -> Sequence[None]:
    async def work(unit: UnitOfWork) -> Sequence[None]:
        await _read_ahead(unit, kind, page)
        for values in page:
            await _PUTS[kind](unit, context, values)
        return [None] * len(page)

    return await context.run_unit(work) if kind in _PUTS else []


async def _read_ahead(unit: UnitOfWork, kind: TableKind, page: Sequence[Values]) -> None:
    """Read in few requests what the rows need."""
    ids = [v[name] for v in page for name in _JOBS.get(kind, ()) if v[name] is not None]
    roots = [v[name] for v in page for name in _ROOTS.get(kind, ()) if v[name] is not None]
    await unit.fetch([*map(key_layout.pointer, ids), *map(_early_fields_key, roots)])
    if ids and kind is not TableKind.EVENTS:
        await job_repository.load_many(unit, ids)


async def _raise(unit: UnitOfWork, *, kind: TableKind, page: Sequence[Values]) -> None:
    """Raise the counters to the highest number of the rows."""
    if kind is TableKind.COUNTERS:
        events = [values["last"] for values in page if values["name"] == "events"]
        numbers = [values["last"] for values in page if values["name"] != "events"]
    else:
        events = [values["id"] for values in page] if kind is TableKind.EVENTS else []
        name = "version" if kind in (TableKind.DOCUMENTS, TableKind.SCHEDULES) else "seq"
        numbers = [values[name] for values in page if name in values]
    await event_numbers.raise_to(unit, max(events, default=0))
    await unit.raise_numbers(max(numbers, default=0))


def _early_fields_key(job_id: str) -> Key:
    return Key(key_layout.EARLY_FIELDS, key_layout.key_safe(job_id))


async def _save_early_fields(unit: UnitOfWork, job_id: str, **told: Any) -> None:
    """Store fields for a job that is loaded later."""
    where = _early_fields_key(job_id)
    unit.put(where, {**(await unit.get(where) or {}), **told})


async def _put_queue(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    record = await queues.load(unit, v["name"])
    queues.save(unit, replace(record, queue=rows.queue(v), is_listed=True))


async def _put_group(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    old, group = await groups.load(unit, v["id"]), rows.group(v)
    new = replace(old or GroupRecord(group=group), group=group, is_swept=v["swept"])
    groups.save(unit, old, new)


async def _put_key(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    if v["expires_at"] is not None:
        await _put_window(unit, v)
        return
    root, key = v["job_id"], v["key"]
    if v["scope"] == "key":
        held = DedupeKey(key=key, bucket=v["bucket"])
        record = await job_repository.load(unit, root)
        if record is not None:
            job_repository.save(unit, record, replace(record, key=held))
        else:  # the job comes later, or was pruned
            purged = {"job_id": root, "job_pk": key_layout.JOB, "job_sk": "-", "purged": True}
            unit.put(key_layout.dedupe_key(held), purged)
        await _save_early_fields(unit, root, key=[key, v["bucket"]])
        return
    there = await unit.get(key_layout.active_key(key))
    holder = there["job_id"] if there and there["root_id"] == root else root
    unit.put(key_layout.active_key(key), {"job_id": holder, "root_id": root, "key": key})
    await _save_early_fields(unit, root, active=key)


async def _put_window(unit: UnitOfWork, v: Values) -> None:
    names = {name: v[name] for name in ("scope", "key", "bucket", "job_id")}
    record = WindowRecord(**names, until=v["expires_at"])
    key_windows.save(unit, await key_windows.load(unit, record.place), record)


async def _put_slot(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    slot_records.save(unit, rows.slot(v))
    if v["job_id"] is None:
        return
    record = await job_repository.load(unit, v["job_id"])
    if record is not None:  # it fired and ended after the slots were read, before the jobs were
        job_repository.save(unit, record, replace(record, series=v["series"]))
    await _save_early_fields(unit, v["job_id"], series=v["series"])


async def _put_schedule(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    schedules.save(unit, await schedules.load(unit, v["id"]), rows.schedule(v))


async def _put_record(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    unit.put(document_key(v), record_to_value(rows.document(v)))


async def _put_job(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    old, job = await job_repository.load(unit, v["id"]), rows.job(v)
    before = None if job.retry_of is None else await job_repository.load(unit, job.retry_of)
    group = None if v["member_of"] is None else await groups.load(unit, v["member_of"])
    if (job.retry_of and before is None) or (v["member_of"] and group is None):
        return
    new = await _kept(unit, job, old, before, v["member_of"])
    job_repository.save(unit, old, new)
    if new.active_key is not None:
        held = {"job_id": job.id, "root_id": job.root_id, "key": new.active_key}
        unit.put(key_layout.active_key(new.active_key), held)
    if before is not None and before.successor is None:
        is_chained = (before.job.delivery, before.job.state) == (Delivery.LINKED, State.FAILED)
        marked = replace(before, successor=job.id, is_followed=is_chained, active_key=None)
        job_repository.save(unit, before, marked)
    if group is not None:
        groups.save(unit, group, _counted(group, old, new))


async def _kept(
    unit: UnitOfWork, job: Job, old: JobRecord | None, before: JobRecord | None, member: str | None
) -> JobRecord:
    noted = await unit.get(_early_fields_key(job.root_id)) or {}
    is_root = before is None
    key = DedupeKey(key=noted["key"][0], bucket=noted["key"][1]) if "key" in noted else None
    known = old or JobRecord(job=job, root_seq=before.root_seq if before else job.seq)
    runs_told = ("holder", "boot_id", "started_at")
    job = replace(job, **{name: getattr(known.job, name) for name in runs_told})
    is_tip = known.successor is None and not job.is_final
    return replace(
        known,
        job=job,
        key=key if is_root else None,
        active_key=noted.get("active") if is_tip else None,
        series=noted.get("series") if is_root else None,
        reservation=noted.get("reservation", known.reservation),
        member=member,
    )


def _counted(group: GroupRecord, old: JobRecord | None, new: JobRecord) -> GroupRecord:
    came = int(old is None)
    left = int(not new.job.is_final) - int(old is not None and not old.job.is_final)
    entered = came if new.job.retry_of is None else 0
    return replace(
        group,
        entered=group.entered + entered,
        present=group.present + came,
        left=group.left + left,
    )


async def _put_run(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    record = await job_repository.load(unit, v["job_id"])
    if record is None:
        return
    run = rows.run(v, record.job)
    value: Values = {
        name: getattr(run, name)
        for name in (
            "run_id", "job_id", "token", "reason", "holder", "boot_id", "exit_code", "log_path",
            "progress",
        )
    }  # fmt: skip
    value |= runs.save_texts(unit, record.job.id, run.token, run.error, run.result)
    assert run.finished_at is not None, "only closed runs are copied"
    value |= {"status": run.status.value, "started_at": key_layout.time_key(run.started_at)}
    value |= {"finished_at": key_layout.time_key(run.finished_at)}
    told = {name: each for name, each in value.items() if each is not None}
    unit.put(key_layout.run_key(record.job.id, run.token), told)
    if run.artifacts:
        where = key_layout.artifacts_key(record.job.id, run.token)
        unit.put(where, {"artifacts": list(run.artifacts)})
    first = (
        run.started_at if record.job.started_at is None or run.token == 1 else record.job.started_at
    )
    who: Values = {"holder": run.holder, "boot_id": run.boot_id}
    is_last = run.token >= record.job.token or await _is_last(unit, record, run.token)
    job = replace(record.job, started_at=first, **(who if is_last else {}))
    error = bodies.refer(run.job_id, run.token, run.error) if is_last else record.last_error
    job_repository.save(unit, record, replace(record, job=job, last_error=error))


async def _is_last(unit: UnitOfWork, record: JobRecord, token: int) -> bool:
    return all(other.token <= token for other in await runs.closed(unit, record.job))


async def _put_event(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    if v["job_id"] is not None and await unit.get(key_layout.pointer(v["job_id"])) is None:
        return
    event = rows.event(v)
    value = {**v, "at": key_layout.time_key(event.at)}
    told = {name: each for name, each in value.items() if each is not None}
    unit.put(key_layout.stream_key(event.id), told)
    unit.put(key_layout.event_key(event.job_id, event.id), {"id": event.id})


async def _put_log(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    record = await job_repository.load(unit, v["job_id"])
    if record is None or await unit.get(key_layout.run_key(v["job_id"], v["token"])) is None:
        return
    logs.put(unit, record.job.id, v["token"], LogChunk(v["first"], v["lines"], v["text"]))
    if not record.is_logged:
        job_repository.save(unit, record, replace(record, is_logged=True))


async def _put_reservation(unit: UnitOfWork, context: StoreContext, v: Values) -> None:
    held, seq = rows.reservation(v), v["seq"]
    left = (v["expires_at"] - to_micros(context.now())) * MICROSECOND
    span = v["span"] * MICROSECOND
    record = ReservationRecord(
        reservation=held, seq=seq, expiry=context.leases.end(left), span=span
    )
    reservations.save(unit, record, is_new=True)
    queue = await queues.load(unit, held.queue)
    if held.is_active:
        queues.save(unit, replace(queue, reservation=seq, reserved_for=held.job_id))
    elif queue.reservation == seq:
        queues.save(unit, replace(queue, reservation=None, reserved_for=None))
    job = await job_repository.load(unit, held.job_id)
    if job is not None:
        job_repository.save(unit, job, replace(job, reservation=seq))
    await _save_early_fields(unit, held.job_id, reservation=seq)


Put = Callable[[UnitOfWork, StoreContext, Values], Awaitable[None]]
_PUTS: Final[dict[TableKind, Put]] = {
    TableKind.QUEUES: _put_queue,
    TableKind.GROUPS: _put_group,
    TableKind.KEYS: _put_key,
    TableKind.SLOTS: _put_slot,
    TableKind.SCHEDULES: _put_schedule,
    TableKind.DOCUMENTS: _put_record,
    TableKind.JOBS: _put_job,
    TableKind.RUNS: _put_run,
    TableKind.LOGS: _put_log,
    TableKind.EVENTS: _put_event,
    TableKind.RESERVATIONS: _put_reservation,
}
