"""Writing what another store dumped: a unit for each row, with every entry that goes with it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from outlast.clock import MICROSECOND, to_micros
from outlast.core.delivery import Delivery
from outlast.core.job import DedupeKey, Job
from outlast.core.state import State
from outlast.store.contract.transfer import COLUMNS, Row, TableKind, named
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange, Write
from outlast.store.keyvalue.footing import COPIED, copied_key
from outlast.store.keyvalue.known import register_queue
from outlast.store.keyvalue.operations.documents import to_value as record_to_value
from outlast.store.keyvalue.operations.transfer_delete import drop, record_key
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
from outlast.store.keyvalue.repositories.groups import GroupRecord
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.repositories.reservations import ReservationRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork
from outlast.store.rows import transfer as rows

Values = dict[str, Any]
ALL: Final = 1_000_000


async def load(
    desk: StoreContext, kind: TableKind, page: Sequence[Row], gone: Sequence[Row]
) -> None:
    for key in gone:
        await drop(desk, kind, dict(zip(COLUMNS[kind], key, strict=False)))
    found = [named(kind, row) for row in page]
    if kind is TableKind.JOBS:
        for name in {values["queue"] for values in found}:
            await register_queue(desk, name)
    for values in found:
        await desk.run_unit(partial(_put, desk=desk, kind=kind, values=values))
    await desk.run_unit(partial(_raise, kind=kind, page=found))


async def forget_copied(desk: StoreContext) -> None:
    """When all is there, what was noted on the way is of no more use."""
    while found := await desk.engine.range(KeyRange(COPIED), limit=desk.engine.limits.most_writes):
        await desk.engine.transact({}, [Write(entry.key, None) for entry in found])


async def _put(unit: UnitOfWork, *, desk: StoreContext, kind: TableKind, values: Values) -> None:
    if kind in _PUTS:
        await _PUTS[kind](unit, desk, values)


async def _raise(unit: UnitOfWork, *, kind: TableKind, page: Sequence[Values]) -> None:
    """The numbers that rows bear are given; so are those that are counted."""
    if kind is TableKind.COUNTERS:
        events = [values["last"] for values in page if values["name"] == "events"]
        numbers = [values["last"] for values in page if values["name"] != "events"]
    else:
        events = [values["id"] for values in page] if kind is TableKind.EVENTS else []
        name = "version" if kind in (TableKind.RECORDS, TableKind.SCHEDULES) else "seq"
        numbers = [values[name] for values in page if name in values]
    for counter, given in ((key_layout.EVENTS, events), (key_layout.NUMBERS, numbers)):
        there = await unit.get(counter)
        if max(given, default=0) > (there["last"] if there else 0):
            unit.put(counter, {"last": max(given)})


async def _note(unit: UnitOfWork, job_id: str, **told: Any) -> None:
    """What its job will have to know when it comes."""
    where = copied_key(job_id)
    unit.put(where, {**(await unit.get(where) or {}), **told})


async def _put_queue(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    kept = await queues.load(unit, v["name"])
    queues.save(unit, replace(kept, queue=rows.queue(v), is_listed=True))


async def _put_group(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    old, group = await groups.load(unit, v["id"]), rows.group(v)
    new = replace(old or GroupRecord(group=group), group=group, is_swept=v["swept"])
    groups.save(unit, old, new)


async def _put_key(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    root, key = v["job_id"], v["key"]
    if v["scope"] == "key":
        held = DedupeKey(key=key, bucket=v["bucket"])
        kept = await job_repository.load(unit, root)
        if kept is not None:
            job_repository.save(unit, kept, replace(kept, key=held))
        else:  # it comes, or it was pruned
            purged = {"job_id": root, "job_pk": key_layout.JOB, "job_sk": "-", "purged": True}
            unit.put(key_layout.dedupe_key(held), purged)
        await _note(unit, root, key=[key, v["bucket"]])
        return
    there = await unit.get(key_layout.active_key(key))
    holder = there["job_id"] if there and there["root_id"] == root else root
    unit.put(key_layout.active_key(key), {"job_id": holder, "root_id": root, "key": key})
    await _note(unit, root, active=key)


async def _put_slot(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    slot_records.save(unit, rows.slot(v))
    if v["job_id"] is not None:
        await _note(unit, v["job_id"], series=v["series"])


async def _put_schedule(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    schedules.save(unit, await schedules.load(unit, v["id"]), rows.schedule(v))


async def _put_record(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    unit.put(record_key(v), record_to_value(rows.record(v)))


async def _put_job(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    old, job = await job_repository.load(unit, v["id"]), rows.job(v)
    before = None if job.retry_of is None else await job_repository.load(unit, job.retry_of)
    group = None if v["grp"] is None else await groups.load(unit, v["grp"])
    if (job.retry_of and before is None) or (v["grp"] and group is None):
        return
    new = await _kept(unit, job, old, before, v["grp"])
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
    noted = await unit.get(copied_key(job.root_id)) or {}
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
    kept = await job_repository.load(unit, v["job_id"])
    if kept is None:
        return
    run = rows.run(v, kept.job)
    value: Values = {
        name: getattr(run, name)
        for name in (
            "run_id", "job_id", "token", "reason", "holder", "boot_id", "error", "result",
            "exit_code", "log_path", "progress",
        )
    }  # fmt: skip
    assert run.finished_at is not None, "only closed runs are copied"
    value |= {"status": run.status.value, "started_at": key_layout.time_key(run.started_at)}
    value |= {"finished_at": key_layout.time_key(run.finished_at)}
    told = {name: each for name, each in value.items() if each is not None}
    unit.put(key_layout.run_key(kept.job.id, run.token), told)
    if run.artifacts:
        where = key_layout.artifacts_key(kept.job.id, run.token)
        unit.put(where, {"artifacts": list(run.artifacts)})
    first = run.started_at if kept.job.started_at is None or run.token == 1 else kept.job.started_at
    who: Values = {"holder": run.holder, "boot_id": run.boot_id}
    others = await runs.closed(unit, kept.job)
    is_last = all(other.token <= run.token for other in others)
    job = replace(kept.job, started_at=first, **(who if is_last else {}))
    error = run.error if is_last else kept.last_error
    job_repository.save(unit, kept, replace(kept, job=job, last_error=error))


async def _put_event(unit: UnitOfWork, _: StoreContext, v: Values) -> None:
    if v["job_id"] is not None and await unit.get(key_layout.pointer(v["job_id"])) is None:
        return
    event = rows.event(v)
    value = {**v, "at": key_layout.time_key(event.at)}
    told = {name: each for name, each in value.items() if each is not None}
    unit.put(key_layout.stream_key(event.id), told)
    unit.put(key_layout.event_key(event.job_id, event.id), {"id": event.id})


async def _put_reservation(unit: UnitOfWork, desk: StoreContext, v: Values) -> None:
    held, seq = rows.reservation(v), v["seq"]
    left = (v["expires_at"] - to_micros(desk.now())) * MICROSECOND
    span = v["span"] * MICROSECOND
    kept = ReservationRecord(reservation=held, seq=seq, silence=desk.leases.end(left), span=span)
    reservations.save(unit, kept, is_new=True)
    queue = await queues.load(unit, held.queue)
    if held.is_active:
        queues.save(unit, replace(queue, reservation=seq, reserved_for=held.job_id))
    elif queue.reservation == seq:
        queues.save(unit, replace(queue, reservation=None, reserved_for=None))
    job = await job_repository.load(unit, held.job_id)
    if job is not None:
        job_repository.save(unit, job, replace(job, reservation=seq))
    await _note(unit, held.job_id, reservation=seq)


Put = Callable[[UnitOfWork, StoreContext, Values], Awaitable[None]]
_PUTS: Final[dict[TableKind, Put]] = {
    TableKind.QUEUES: _put_queue,
    TableKind.GROUPS: _put_group,
    TableKind.KEYS: _put_key,
    TableKind.SLOTS: _put_slot,
    TableKind.SCHEDULES: _put_schedule,
    TableKind.RECORDS: _put_record,
    TableKind.JOBS: _put_job,
    TableKind.RUNS: _put_run,
    TableKind.EVENTS: _put_event,
    TableKind.RESERVATIONS: _put_reservation,
}
