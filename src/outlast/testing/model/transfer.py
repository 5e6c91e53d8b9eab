"""Transfer of the model store: rows as every store dumps them, and back."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final

from outlast.clock import MICROSECOND, Clock, from_micros, to_micros
from outlast.core.event import EventRecord
from outlast.core.ids import JobId
from outlast.core.job import DedupeKey
from outlast.core.reservation import ReservationId
from outlast.core.run_log import LogChunk
from outlast.core.state import FINAL, RunStatus, State
from outlast.store.contract.notifications import Notification
from outlast.store.contract.transfer import (
    FIRST,
    Row,
    StatusChange,
    TableKind,
    TransferStage,
    TransferStatus,
    key_of,
    named,
    next_status,
    refuse_load,
)
from outlast.store.rows import transfer as rows
from outlast.testing.model.base import ModelOperations
from outlast.testing.model.tables import GroupRow, HeldWindow, LeaseEnd, Tables

Values = dict[str, Any]


class ModelTransferOperations(ModelOperations):
    """Transfer of the model store."""

    async def transfer_status(self) -> TransferStatus:
        """Return the transfer status."""
        return self._tables.transfer_status.at(self._clock.now())

    async def change_transfer_status(self, step: StatusChange) -> bool:
        """Change the status; return False if the rules refuse it."""
        transfer_status = next_status(self._tables.transfer_status, step, self._clock.now())
        self._tables.transfer_status = transfer_status or self._tables.transfer_status
        self._notify(Notification(queues=frozenset({""})))
        return transfer_status is not None

    async def dump(
        self, kind: TableKind, *, after: Row | None = None, limit: int, ended_only: bool = False
    ) -> list[Row]:
        """Return the next rows of one table, by key."""
        return dump(self._tables, kind, after, limit, ended_only=ended_only)

    async def load(self, kind: TableKind, rows: Sequence[Row], gone: Sequence[Row] = ()) -> None:
        """Write rows and delete those of `gone`; raise unless the store is being filled."""
        transfer_status = await self.transfer_status()
        if transfer_status.stage is not TransferStage.FILLING:
            raise refuse_load(transfer_status)
        load(self._tables, kind, rows, gone, self._clock)


def dump(
    tables: Tables, kind: TableKind, after: Row | None, limit: int, *, ended_only: bool
) -> list[Row]:
    """Return the next rows of one table."""
    start = FIRST[kind] if after is None else tuple(after)
    later = [row for row in _DUMPS[kind](tables) if key_of(kind, row) > start]
    if kind is TableKind.JOBS and ended_only:
        later = [row for row in later if named(kind, row)["state"] in FINAL]
    return sorted(later, key=lambda row: key_of(kind, row))[:limit]


def load(
    tables: Tables, kind: TableKind, rows: Sequence[Row], gone: Sequence[Row], clock: Clock
) -> None:
    """Write these rows, and delete those keys."""
    for key in gone:
        _drop(tables, kind, tuple(key))
    for row in rows:
        _PUTS[kind](tables, named(kind, row), clock)


def _keys(tables: Tables) -> Iterator[Row]:
    for held, root in tables.keys.items():
        yield ["key", held.key, held.bucket, root, None]
    for key, holder in tables.active_keys.items():
        root = tables.jobs[holder].root_id if holder in tables.jobs else holder
        yield ["active", key, "", root, None]
    for name, window in tables.windows.items():
        yield [*name, window.root_id, to_micros(window.until)]


def _jobs(tables: Tables) -> Iterator[Row]:
    for job in tables.jobs.values():
        if job.state is not State.RUNNING:
            yield rows.job_row(job, member_of=tables.members.get(job.id))


def _runs(tables: Tables) -> Iterator[Row]:
    for job_id, runs in tables.runs.items():
        job = tables.jobs.get(job_id)
        for run in runs:
            if job is not None and run.status is not RunStatus.RUNNING:
                yield rows.run_row(run, seq=job.seq)


def _logs(tables: Tables) -> Iterator[Row]:
    for job_id, log in tables.logs.items():
        job = tables.jobs.get(job_id)
        runs = tables.runs.get(job_id, [])
        closed = {run.token for run in runs if run.status is not RunStatus.RUNNING}
        for (token, _), chunk in log.items():
            if job is not None and token in closed:
                yield [job.seq, token, chunk.first, job_id, chunk.lines, chunk.text]


def _events(tables: Tables) -> Iterator[Row]:
    for event in (*tables.removed, *(each for told in tables.events.values() for each in told)):
        yield rows.event_row(event)


def _reservations(tables: Tables) -> Iterator[Row]:
    for held in tables.reservations.values():
        seq = tables.numbers.get(held.id) or next(tables.seqs)
        tables.numbers[held.id] = seq
        yield rows.reservation_row(held, seq=seq, span=tables.expiries[held.id][1])


def _counters(tables: Tables) -> Iterator[Row]:
    """Yield the counters; each read uses up a number, so none is given twice."""
    last = next(tables.versions)
    yield ["events", next(tables.event_ids)]
    yield ["documents", last]
    yield ["schedules", last]
    yield ["jobs", next(tables.seqs)]


_DUMPS: Final[dict[TableKind, Callable[[Tables], Iterator[Row]]]] = {
    TableKind.QUEUES: lambda tables: map(rows.queue_row, tables.queues.values()),
    TableKind.GROUPS: lambda tables: (
        rows.group_row(row.group, swept=row.swept) for row in tables.groups.values()
    ),
    TableKind.KEYS: _keys,
    TableKind.SLOTS: lambda tables: map(rows.slot_row, tables.slots.values()),
    TableKind.SCHEDULES: lambda tables: map(rows.schedule_row, tables.schedules.values()),
    TableKind.DOCUMENTS: lambda tables: map(rows.document_row, tables.records.values()),
    TableKind.JOBS: _jobs,
    TableKind.RUNS: _runs,
    TableKind.LOGS: _logs,
    TableKind.EVENTS: _events,
    TableKind.RESERVATIONS: _reservations,
    TableKind.COUNTERS: _counters,
}


def _put_queue(tables: Tables, v: Values, _: Clock) -> None:
    tables.queues[v["name"]] = rows.queue(v)


def _put_group(tables: Tables, v: Values, _: Clock) -> None:
    tables.groups[v["id"]] = GroupRow(rows.group(v), swept=v["swept"])


def _put_key(tables: Tables, v: Values, _: Clock) -> None:
    if v["scope"] == "key":
        tables.keys[DedupeKey(key=v["key"], bucket=v["bucket"])] = JobId(v["job_id"])
    elif v["scope"] == "active":
        tables.active_keys[v["key"]] = _tip(tables, JobId(v["job_id"]))
    else:
        until = from_micros(v["expires_at"])
        name = v["scope"], v["key"], v["bucket"]
        tables.windows[name] = HeldWindow(JobId(v["job_id"]), until)


def _tip(tables: Tables, root: JobId) -> JobId:
    """Return the last job of the chain, which holds its active key."""
    chain = tables.chain(root)
    return chain[-1].id if chain else root


def _put_slot(tables: Tables, v: Values, _: Clock) -> None:
    row = rows.slot(v)
    tables.slots[row.slot] = row


def _put_schedule(tables: Tables, v: Values, _: Clock) -> None:
    tables.schedules[v["id"]] = rows.schedule(v)


def _put_record(tables: Tables, v: Values, _: Clock) -> None:
    tables.records[v["kind"], v["key"]] = rows.document(v)


def _put_job(tables: Tables, v: Values, _: Clock) -> None:
    group, job = v["member_of"], rows.job(v)
    is_strange = job.retry_of is not None and job.retry_of not in tables.jobs
    if is_strange or (group is not None and group not in tables.groups):
        return
    if job.id not in tables.jobs:
        tables.insert(job)
    tables.jobs[job.id] = job
    if group is not None:
        tables.members[job.id] = group
    chain = {each.id for each in tables.chain(job.root_id)}
    for key, holder in tables.active_keys.items():
        if holder in chain:
            tables.active_keys[key] = _tip(tables, job.root_id)
    _know_runs(tables, job.id)


def _put_run(tables: Tables, v: Values, _: Clock) -> None:
    job = tables.jobs.get(v["job_id"])
    if job is None:
        return
    run = rows.run(v, job)
    others = [each for each in tables.runs[job.id] if each.token != run.token]
    tables.runs[job.id] = sorted([*others, run], key=lambda each: each.token)
    _know_runs(tables, job.id)


def _know_runs(tables: Tables, job_id: JobId) -> None:
    runs = tables.runs[job_id]
    if runs:
        tables.jobs[job_id] = replace(
            tables.jobs[job_id],
            holder=runs[-1].holder,
            boot_id=runs[-1].boot_id,
            started_at=runs[0].started_at,
        )


def _put_log(tables: Tables, v: Values, _: Clock) -> None:
    runs = tables.runs.get(v["job_id"], [])
    if any(run.token == v["token"] for run in runs):
        chunk = LogChunk(v["first"], v["lines"], v["text"])
        tables.logs.setdefault(v["job_id"], {})[v["token"], chunk.first] = chunk


def _put_event(tables: Tables, v: Values, _: Clock) -> None:
    event = rows.event(v)
    told = tables.removed if event.job_id is None else tables.events.get(event.job_id)
    if told is not None:
        told[:] = sorted([*(e for e in told if e.id != event.id), event], key=_event_id)


def _event_id(event: EventRecord) -> int:
    return event.id


def _put_reservation(tables: Tables, v: Values, clock: Clock) -> None:
    number = ReservationId(v["id"])
    tables.reservations[number] = rows.reservation(v)
    tables.numbers[number] = v["seq"]
    left = v["expires_at"] - to_micros(clock.now())
    end = LeaseEnd(clock.monotonic() + left, clock.boot_id())
    tables.expiries[number] = (end, v["span"] * MICROSECOND)


def _raise_counter(tables: Tables, v: Values, _: Clock) -> None:
    names = {"events": "event_ids", "documents": "versions", "schedules": "versions"}
    name = names.get(v["name"], "seqs")
    setattr(tables, name, count(max(v["last"] + 1, next(getattr(tables, name)))))


_PUTS: Final[dict[TableKind, Callable[[Tables, Values, Clock], None]]] = {
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
    TableKind.COUNTERS: _raise_counter,
}


def _drop(tables: Tables, kind: TableKind, key: tuple[Any, ...]) -> None:
    """Delete a row. Slots stay for ever, runs go with their jobs, counters only rise."""
    if kind in _DROPS:
        _DROPS[kind](tables, key)


def _drop_group(tables: Tables, key: tuple[Any, ...]) -> None:
    for group_id in [each for each, row in tables.groups.items() if row.group.seq == key[0]]:
        del tables.groups[group_id]


def _drop_key(tables: Tables, key: tuple[Any, ...]) -> None:
    if key[0] == "key":
        tables.keys.pop(DedupeKey(key=key[1], bucket=key[2]), None)
    elif key[0] == "active":
        tables.active_keys.pop(key[1], None)
    else:
        tables.windows.pop((key[0], key[1], key[2]), None)


def _drop_job(tables: Tables, key: tuple[Any, ...]) -> None:
    for job in [each for each in tables.jobs.values() if each.seq == key[0]]:
        tables.forget(job.id)
        tables.members.pop(job.id, None)


def _drop_event(tables: Tables, key: tuple[Any, ...]) -> None:
    for told in (tables.removed, *tables.events.values()):
        told[:] = [event for event in told if event.id != key[0]]


def _drop_reservation(tables: Tables, key: tuple[Any, ...]) -> None:
    for number in [each for each, seq in tables.numbers.items() if seq == key[0]]:
        tables.reservations.pop(number, None)
        tables.expiries.pop(number, None)


_DROPS: Final[dict[TableKind, Callable[[Tables, tuple[Any, ...]], object]]] = {
    TableKind.QUEUES: lambda tables, key: tables.queues.pop(key[0], None),
    TableKind.GROUPS: _drop_group,
    TableKind.KEYS: _drop_key,
    TableKind.SCHEDULES: lambda tables, key: tables.schedules.pop(key[0], None),
    TableKind.DOCUMENTS: lambda tables, key: tables.records.pop((key[0], key[1]), None),
    TableKind.JOBS: _drop_job,
    TableKind.EVENTS: _drop_event,
    TableKind.RESERVATIONS: _drop_reservation,
}
