"""Writing what another store dumped: a unit for each row, with every entry that goes with it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from outlast.clock import MICROSECOND, micros
from outlast.core.delivery import Delivery
from outlast.core.job import Job
from outlast.core.job import Key as DedupeKey
from outlast.core.state import State
from outlast.store.contract.transfer import COLUMNS, Kind, Row, named
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import Desk
from outlast.store.keyvalue.engine import Span, Write
from outlast.store.keyvalue.footing import COPIED, copied_key
from outlast.store.keyvalue.known import remember_queue
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
from outlast.store.keyvalue.repositories.groups import KeptGroup
from outlast.store.keyvalue.repositories.job_codec import Kept
from outlast.store.keyvalue.repositories.reservations import KeptReservation
from outlast.store.keyvalue.unit_of_work import Unit
from outlast.store.rows import transfer as rows

Values = dict[str, Any]
ALL: Final = 1_000_000


async def load(desk: Desk, kind: Kind, page: Sequence[Row], gone: Sequence[Row]) -> None:
    for key in gone:
        await drop(desk, kind, dict(zip(COLUMNS[kind], key, strict=False)))
    found = [named(kind, row) for row in page]
    if kind is Kind.JOBS:
        for name in {values["queue"] for values in found}:
            await remember_queue(desk, name)
    for values in found:
        await desk.do(partial(_put, desk=desk, kind=kind, values=values))
    await desk.do(partial(_raise, kind=kind, page=found))


async def forget_copied(desk: Desk) -> None:
    """When all is there, what was noted on the way is of no more use."""
    while found := await desk.engine.range(Span(COPIED), limit=desk.engine.limits.most_writes):
        await desk.engine.transact({}, [Write(entry.key, None) for entry in found])


async def _put(unit: Unit, *, desk: Desk, kind: Kind, values: Values) -> None:
    if kind in _PUTS:
        await _PUTS[kind](unit, desk, values)


async def _raise(unit: Unit, *, kind: Kind, page: Sequence[Values]) -> None:
    """The numbers that rows bear are given; so are those that are counted."""
    if kind is Kind.COUNTERS:
        events = [values["last"] for values in page if values["name"] == "events"]
        numbers = [values["last"] for values in page if values["name"] != "events"]
    else:
        events = [values["id"] for values in page] if kind is Kind.EVENTS else []
        name = "version" if kind in (Kind.RECORDS, Kind.SCHEDULES) else "seq"
        numbers = [values[name] for values in page if name in values]
    for counter, given in ((key_layout.EVENTS, events), (key_layout.NUMBERS, numbers)):
        there = await unit.get(counter)
        if max(given, default=0) > (there["last"] if there else 0):
            unit.put(counter, {"last": max(given)})


async def _note(unit: Unit, job_id: str, **told: Any) -> None:
    """What its job will have to know when it comes."""
    where = copied_key(job_id)
    unit.put(where, {**(await unit.get(where) or {}), **told})


async def _put_queue(unit: Unit, _: Desk, v: Values) -> None:
    kept = await queues.load(unit, v["name"])
    queues.save(unit, replace(kept, queue=rows.queue(v), is_listed=True))


async def _put_group(unit: Unit, _: Desk, v: Values) -> None:
    old, group = await groups.load(unit, v["id"]), rows.group(v)
    new = replace(old or KeptGroup(group=group), group=group, is_swept=v["swept"])
    groups.save(unit, old, new)


async def _put_key(unit: Unit, _: Desk, v: Values) -> None:
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


async def _put_slot(unit: Unit, _: Desk, v: Values) -> None:
    slot_records.save(unit, rows.slot(v))
    if v["job_id"] is not None:
        await _note(unit, v["job_id"], series=v["series"])


async def _put_schedule(unit: Unit, _: Desk, v: Values) -> None:
    schedules.save(unit, await schedules.load(unit, v["id"]), rows.schedule(v))


async def _put_record(unit: Unit, _: Desk, v: Values) -> None:
    unit.put(record_key(v), record_to_value(rows.record(v)))


async def _put_job(unit: Unit, _: Desk, v: Values) -> None:
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
        is_chained = (before.job.delivery, before.job.state) == (Delivery.CHAIN, State.FAILED)
        marked = replace(before, successor=job.id, is_followed=is_chained, active_key=None)
        job_repository.save(unit, before, marked)
    if group is not None:
        groups.save(unit, group, _counted(group, old, new))


async def _kept(
    unit: Unit, job: Job, old: Kept | None, before: Kept | None, member: str | None
) -> Kept:
    noted = await unit.get(copied_key(job.root_id)) or {}
    is_root = before is None
    key = DedupeKey(key=noted["key"][0], bucket=noted["key"][1]) if "key" in noted else None
    known = old or Kept(job=job, root_seq=before.root_seq if before else job.seq)
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


def _counted(group: KeptGroup, old: Kept | None, new: Kept) -> KeptGroup:
    came = int(old is None)
    left = int(not new.job.is_final) - int(old is not None and not old.job.is_final)
    entered = came if new.job.retry_of is None else 0
    return replace(
        group,
        entered=group.entered + entered,
        present=group.present + came,
        left=group.left + left,
    )


async def _put_run(unit: Unit, _: Desk, v: Values) -> None:
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
    value |= {"status": run.status.value, "started_at": key_layout.stamp(run.started_at)}
    value |= {"finished_at": key_layout.stamp(run.finished_at)}
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


async def _put_event(unit: Unit, _: Desk, v: Values) -> None:
    if v["job_id"] is not None and await unit.get(key_layout.pointer(v["job_id"])) is None:
        return
    event = rows.event(v)
    value = {**v, "at": key_layout.stamp(event.at)}
    told = {name: each for name, each in value.items() if each is not None}
    unit.put(key_layout.stream_key(event.id), told)
    unit.put(key_layout.event_key(event.job_id, event.id), {"id": event.id})


async def _put_reservation(unit: Unit, desk: Desk, v: Values) -> None:
    held, seq = rows.reservation(v), v["seq"]
    left = (v["expires_at"] - micros(desk.now())) * MICROSECOND
    span = v["span"] * MICROSECOND
    kept = KeptReservation(reservation=held, seq=seq, silence=desk.leases.end(left), span=span)
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


Put = Callable[[Unit, Desk, Values], Awaitable[None]]
_PUTS: Final[dict[Kind, Put]] = {
    Kind.QUEUES: _put_queue,
    Kind.GROUPS: _put_group,
    Kind.KEYS: _put_key,
    Kind.SLOTS: _put_slot,
    Kind.SCHEDULES: _put_schedule,
    Kind.RECORDS: _put_record,
    Kind.JOBS: _put_job,
    Kind.RUNS: _put_run,
    Kind.EVENTS: _put_event,
    Kind.RESERVATIONS: _put_reservation,
}
