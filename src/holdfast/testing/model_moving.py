"""How the model store is moved: its rows as every store dumps them, and rows as its own."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Final

from holdfast.clock import MICROSECOND, Clock, micros, moment
from holdfast.core.delivery import Delivery
from holdfast.core.event import EventRecord
from holdfast.core.event import Kind as Told
from holdfast.core.group import Closing, Group, GroupMode, OnMemberFailure
from holdfast.core.ids import JobId, RunId
from holdfast.core.job import Job, Key, Slot
from holdfast.core.order import Ordering
from holdfast.core.queue import Pause
from holdfast.core.record import Record
from holdfast.core.reservation import Reservation, ReservationId, ReservationStatus
from holdfast.core.run import NOBODY, RunRecord
from holdfast.core.schedule import Outcome, Schedule, SlotRecord
from holdfast.core.schedule_text import from_text, to_text
from holdfast.core.state import FINAL, RunStatus, State
from holdfast.store.base import Queue
from holdfast.store.moving import COLUMNS, FIRST, Kind, Row, key_of, named
from holdfast.testing.model_tables import KeptGroup, LeaseEnd, Tables

Values = dict[str, Any]


def dump(
    tables: Tables, kind: Kind, after: Row | None, limit: int, *, ended_only: bool
) -> list[Row]:
    """The next rows of that kind."""
    rows = [[values[name] for name in COLUMNS[kind]] for values in _DUMPS[kind](tables)]
    start = FIRST[kind] if after is None else tuple(after)
    later = sorted(
        (row for row in rows if key_of(kind, row) > start), key=lambda r: key_of(kind, r)
    )
    if kind is Kind.JOBS and ended_only:
        later = [row for row in later if named(kind, row)["state"] in FINAL]
    return list(later[:limit])


def load(
    tables: Tables, kind: Kind, rows: Sequence[Row], gone: Sequence[Row], clock: Clock
) -> None:
    """Have these rows, and none with those keys."""
    for key in gone:
        _drop(tables, kind, tuple(key))
    for row in rows:
        _PUTS[kind](tables, named(kind, row), clock)


def _number(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def _moment(number: int | None) -> datetime | None:
    return None if number is None else moment(number)


def _queues(tables: Tables) -> Iterator[Values]:
    for queue in tables.queues.values():
        pause = queue.pause
        yield {
            "name": queue.name,
            "ordering": str(queue.ordering),
            "gap": queue.gap,
            "concurrency": queue.concurrency,
            "paused_at": pause and micros(pause.at),
            "pause_reason": pause and pause.reason,
            "resume_at": pause and _number(pause.until),
        }


def _groups(tables: Tables) -> Iterator[Values]:
    for kept in tables.groups.values():
        group = kept.group
        yield {
            "seq": group.seq,
            "id": group.id,
            "name": group.name,
            "mode": str(group.mode),
            "on_failure": str(group.on_failure),
            "total": group.total,
            "created_at": micros(group.created_at),
            "sealed_at": _number(group.sealed_at),
            "closing": group.closing and str(group.closing),
            "reason": group.reason,
            "swept": kept.swept,
        }


def _keys(tables: Tables) -> Iterator[Values]:
    for held, root in tables.keys.items():
        yield {"scope": "key", "key": held.key, "bucket": held.bucket, "job_id": root}
    for key, holder in tables.active_keys.items():
        root = tables.jobs[holder].root_id if holder in tables.jobs else holder
        yield {"scope": "active", "key": key, "bucket": "", "job_id": root}


def _slots(tables: Tables) -> Iterator[Values]:
    for row in tables.slots.values():
        yield {
            "series": row.slot.series,
            "slot_at": micros(row.slot.at),
            "outcome": str(row.outcome),
            "planned": micros(row.planned),
            "actual": micros(row.actual),
            "schedule_id": row.schedule_id,
            "job_id": row.job_id,
            "reason": row.reason,
        }


def _schedules(tables: Tables) -> Iterator[Values]:
    for each in tables.schedules.values():
        yield {
            "id": each.id,
            "name": each.name,
            "plan": to_text(each.plan),
            "version": each.version,
            "enabled": each.plan.enabled,
            "created_at": micros(each.created_at),
            "updated_at": micros(each.updated_at),
            "next_slot": _number(each.next_slot),
            "next_trigger_at": _number(each.next_trigger_at),
            "last_triggered_at": _number(each.last_triggered_at),
        }


def _records(tables: Tables) -> Iterator[Values]:
    for each in tables.records.values():
        moments = {"created_at": micros(each.created_at), "updated_at": micros(each.updated_at)}
        what = {"kind": each.kind, "key": each.key, "value": each.value, "version": each.version}
        yield what | moments


_TIMES: Final = (
    "created_at", "slot_at", "start_deadline", "template_at", "finished_at", "available_at",
)  # fmt: skip


def _jobs(tables: Tables) -> Iterator[Values]:
    for job in tables.jobs.values():
        if job.state is State.RUNNING:
            continue
        own = {name: getattr(job, name) for name in COLUMNS[Kind.JOBS] if name != "grp"}
        own |= {name: _number(own[name]) for name in _TIMES}
        own |= {"delivery": str(job.delivery), "state": str(job.state)}
        yield own | {"grp": tables.members.get(job.id)}


def _runs(tables: Tables) -> Iterator[Values]:
    for job_id, runs in tables.runs.items():
        job = tables.jobs.get(job_id)
        closed = (run for run in runs if job and run.status is not RunStatus.RUNNING)
        for run in closed:
            names = COLUMNS[Kind.RUNS]
            own = {name: getattr(run, name, None) for name in names}
            own |= {"seq": job.seq if job else 0, "status": str(run.status)}
            own |= {"started_at": micros(run.started_at), "finished_at": _number(run.finished_at)}
            own |= {"holder": run.holder or NOBODY.instance_id}
            own |= {"boot_id": run.boot_id or NOBODY.boot_id}
            yield own | {"artifacts": list(run.artifacts)}


def _events(tables: Tables) -> Iterator[Values]:
    for event in (*tables.removed, *(each for told in tables.events.values() for each in told)):
        own = {name: getattr(event, name) for name in COLUMNS[Kind.EVENTS]}
        yield own | {"at": micros(event.at), "kind": str(event.kind)}


def _reservations(tables: Tables) -> Iterator[Values]:
    for held in tables.reservations.values():
        own = {name: getattr(held, name, None) for name in COLUMNS[Kind.RESERVATIONS]}
        seq = tables.numbers.get(held.id) or next(tables.seqs)
        tables.numbers[held.id] = seq
        _, span = tables.silences[held.id]
        moments = ("reserved_at", "expires_at", "ended_at")
        own |= {name: _number(own[name]) for name in moments}
        yield own | {"seq": seq, "status": str(held.status), "span": span // MICROSECOND}


def _counters(tables: Tables) -> Iterator[Values]:
    """A number is spent on the look; none is given twice."""
    yield {"name": "events", "last": next(tables.event_ids)}
    last = next(tables.versions)
    yield {"name": "records", "last": last}
    yield {"name": "schedules", "last": last}
    yield {"name": "jobs", "last": next(tables.seqs)}


_DUMPS: Final[dict[Kind, Callable[[Tables], Iterator[Values]]]] = {
    Kind.QUEUES: _queues,
    Kind.GROUPS: _groups,
    Kind.KEYS: _keys,
    Kind.SLOTS: _slots,
    Kind.SCHEDULES: _schedules,
    Kind.RECORDS: _records,
    Kind.JOBS: _jobs,
    Kind.RUNS: _runs,
    Kind.EVENTS: _events,
    Kind.RESERVATIONS: _reservations,
    Kind.COUNTERS: _counters,
}


def _put_queue(tables: Tables, v: Values, _: Clock) -> None:
    paused = v["paused_at"]
    pause = None
    if paused is not None:
        until = _moment(v["resume_at"])
        pause = Pause(at=moment(paused), reason=v["pause_reason"], until=until)
    tables.queues[v["name"]] = Queue(
        name=v["name"],
        ordering=Ordering(v["ordering"]),
        gap=v["gap"],
        concurrency=v["concurrency"],
        pause=pause,
    )


def _put_group(tables: Tables, v: Values, _: Clock) -> None:
    group = Group(
        id=v["id"],
        seq=v["seq"],
        name=v["name"],
        mode=GroupMode(v["mode"]),
        on_failure=OnMemberFailure(v["on_failure"]),
        total=v["total"],
        created_at=moment(v["created_at"]),
        sealed_at=_moment(v["sealed_at"]),
        closing=None if v["closing"] is None else Closing(v["closing"]),
        reason=v["reason"],
        counts={},
    )
    tables.groups[group.id] = KeptGroup(group, swept=v["swept"])


def _put_key(tables: Tables, v: Values, _: Clock) -> None:
    if v["scope"] == "key":
        tables.keys[Key(key=v["key"], bucket=v["bucket"])] = JobId(v["job_id"])
    else:
        tables.active_keys[v["key"]] = _tip(tables, JobId(v["job_id"]))


def _tip(tables: Tables, root: JobId) -> JobId:
    """An active key is held by the last job of its chain."""
    chain = tables.chain(root)
    return chain[-1].id if chain else root


def _put_slot(tables: Tables, v: Values, _: Clock) -> None:
    slot = Slot(series=v["series"], at=moment(v["slot_at"]))
    tables.slots[slot] = SlotRecord(
        slot=slot,
        outcome=Outcome(v["outcome"]),
        planned=moment(v["planned"]),
        actual=moment(v["actual"]),
        schedule_id=v["schedule_id"],
        job_id=v["job_id"],
        reason=v["reason"],
    )


def _put_schedule(tables: Tables, v: Values, _: Clock) -> None:
    tables.schedules[v["id"]] = Schedule(
        id=v["id"],
        plan=from_text(v["name"], v["plan"]),
        version=v["version"],
        created_at=moment(v["created_at"]),
        updated_at=moment(v["updated_at"]),
        next_slot=_moment(v["next_slot"]),
        next_trigger_at=_moment(v["next_trigger_at"]),
        last_triggered_at=_moment(v["last_triggered_at"]),
    )


def _put_record(tables: Tables, v: Values, _: Clock) -> None:
    moments = {name: moment(v[name]) for name in ("created_at", "updated_at")}
    tables.records[v["kind"], v["key"]] = Record(**v | moments)


def _put_job(tables: Tables, v: Values, _: Clock) -> None:
    group = v.pop("grp")
    is_strange = v["retry_of"] is not None and v["retry_of"] not in tables.jobs
    if is_strange or (group is not None and group not in tables.groups):
        return
    own = v | {name: _moment(v[name]) for name in _TIMES}
    own |= {"state": State(v["state"]), "delivery": Delivery(v["delivery"])}
    job = Job(
        **own, cancel_requested=False, holder=None, boot_id=None, started_at=None, progress=None
    )
    if job.id not in tables.jobs:
        tables.insert(job)
    tables.jobs[job.id] = job
    if group is not None:
        tables.members[job.id] = group
    for key, holder in tables.active_keys.items():
        if holder == job.root_id or holder in {each.id for each in tables.chain(job.root_id)}:
            tables.active_keys[key] = _tip(tables, job.root_id)
    _know_runs(tables, job.id)


def _put_run(tables: Tables, v: Values, _: Clock) -> None:
    job = tables.jobs.get(v["job_id"])
    if job is None:
        return
    own: Values = {name: value for name, value in v.items() if name != "seq"}
    own |= {"status": RunStatus(v["status"]), "artifacts": tuple(v["artifacts"])}
    own |= {"started_at": moment(v["started_at"]), "finished_at": _moment(v["finished_at"])}
    asked: Values = {"params_snapshot": job.params, "template_id": job.template_id}
    run = RunRecord(**own, **asked, template_at=job.template_at)
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


def _put_event(tables: Tables, v: Values, _: Clock) -> None:
    run_id = None if v["run_id"] is None else RunId(v["run_id"])
    own = v | {"at": moment(v["at"]), "kind": Told(v["kind"]), "run_id": run_id}
    if v["job_id"] is None:
        told = tables.removed
    elif v["job_id"] in tables.jobs:
        told = tables.events[v["job_id"]]
    else:
        return
    told[:] = sorted([e for e in told if e.id != v["id"]] + [EventRecord(**own)], key=_event_id)


def _event_id(event: EventRecord) -> int:
    return event.id


def _put_reservation(tables: Tables, v: Values, clock: Clock) -> None:
    number = ReservationId(v["id"])
    own = {name: value for name, value in v.items() if name not in {"seq", "span"}}
    own |= {name: _moment(v[name]) for name in ("reserved_at", "expires_at", "ended_at")}
    tables.reservations[number] = Reservation(**own | {"status": ReservationStatus(v["status"])})
    tables.numbers[number] = v["seq"]
    left = v["expires_at"] - micros(clock.now())
    end = LeaseEnd(clock.monotonic() + left, clock.boot_id())
    tables.silences[number] = (end, timedelta(microseconds=v["span"]))


def _raise_counter(tables: Tables, v: Values, _: Clock) -> None:
    names = {"events": "event_ids", "records": "versions", "schedules": "versions"}
    name = names.get(v["name"], "seqs")
    setattr(tables, name, count(max(v["last"] + 1, next(getattr(tables, name)))))


_PUTS: Final[dict[Kind, Callable[[Tables, Values, Clock], None]]] = {
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
    Kind.COUNTERS: _raise_counter,
}


def _drop(tables: Tables, kind: Kind, key: tuple[Any, ...]) -> None:
    """Slots stay for ever, runs go with their jobs, counters only rise."""
    if kind in _DROPS:
        _DROPS[kind](tables, key)


def _drop_group(tables: Tables, key: tuple[Any, ...]) -> None:
    for group_id in [each for each, kept in tables.groups.items() if kept.group.seq == key[0]]:
        del tables.groups[group_id]


def _drop_key(tables: Tables, key: tuple[Any, ...]) -> None:
    if key[0] == "key":
        tables.keys.pop(Key(key=key[1], bucket=key[2]), None)
    else:
        tables.active_keys.pop(key[1], None)


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
        tables.silences.pop(number, None)


_DROPS: Final[dict[Kind, Callable[[Tables, tuple[Any, ...]], object]]] = {
    Kind.QUEUES: lambda tables, key: tables.queues.pop(key[0], None),
    Kind.GROUPS: _drop_group,
    Kind.KEYS: _drop_key,
    Kind.SCHEDULES: lambda tables, key: tables.schedules.pop(key[0], None),
    Kind.RECORDS: lambda tables, key: tables.records.pop((key[0], key[1]), None),
    Kind.JOBS: _drop_job,
    Kind.EVENTS: _drop_event,
    Kind.RESERVATIONS: _drop_reservation,
}
