"""What a store holds as the rows of a move, and back: for stores that keep records, not columns."""

from datetime import datetime
from typing import Any, Final

from outlast.clock import MICROSECOND, from_micros, to_micros
from outlast.core.delivery import Delivery
from outlast.core.document import Document
from outlast.core.event import EventKind as Told
from outlast.core.event import EventRecord
from outlast.core.group import ClosePolicy, Group, GroupMode, OnMemberFailure
from outlast.core.ids import JobId, RunId
from outlast.core.job import Job, Slot
from outlast.core.ordering import Ordering
from outlast.core.queue import Pause
from outlast.core.reservation import Reservation, ReservationStatus
from outlast.core.run import UNKNOWN_HOLDER, RunRecord
from outlast.core.schedule import Schedule, SlotOutcome, SlotRecord
from outlast.core.schedule_codec import from_text, to_text
from outlast.core.state import RunStatus, State
from outlast.store.contract.queues import Queue
from outlast.store.contract.transfer import COLUMNS, Row, TableKind

Values = dict[str, Any]
_JOB_TIMES: Final = (
    "created_at", "slot_at", "start_deadline", "template_at", "finished_at", "available_at",
)  # fmt: skip
_HELD_TIMES: Final = ("reserved_at", "expires_at", "ended_at")


def _number(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)


def _moment(number: int | None) -> datetime | None:
    return None if number is None else from_micros(number)


def _row(kind: TableKind, values: Values) -> Row:
    return [values[name] for name in COLUMNS[kind]]


def queue_row(queue: Queue) -> Row:
    pause = queue.pause
    paused = (None, None, None) if pause is None else (pause.at, pause.reason, pause.until)
    at, reason, until = paused
    what = [queue.name, str(queue.ordering), queue.gap, queue.concurrency]
    return [*what, _number(at), reason, _number(until)]


def queue(v: Values) -> Queue:
    at, until = _moment(v["paused_at"]), _moment(v["resume_at"])
    return Queue(
        name=v["name"],
        ordering=Ordering(v["ordering"]),
        gap=v["gap"],
        concurrency=v["concurrency"],
        pause=None if at is None else Pause(at=at, reason=v["pause_reason"], until=until),
    )


def group_row(group: Group, *, swept: bool) -> Row:
    values = {name: getattr(group, name, None) for name in COLUMNS[TableKind.GROUPS]}
    values |= {"mode": str(group.mode), "on_failure": str(group.on_failure), "swept": swept}
    values |= {"created_at": to_micros(group.created_at), "sealed_at": _number(group.sealed_at)}
    return _row(TableKind.GROUPS, values | {"closing": group.closing and str(group.closing)})


def group(v: Values) -> Group:
    return Group(
        id=v["id"],
        seq=v["seq"],
        name=v["name"],
        mode=GroupMode(v["mode"]),
        on_failure=OnMemberFailure(v["on_failure"]),
        total=v["total"],
        created_at=from_micros(v["created_at"]),
        sealed_at=_moment(v["sealed_at"]),
        closing=None if v["closing"] is None else ClosePolicy(v["closing"]),
        reason=v["reason"],
        counts={},
    )


def slot_row(row: SlotRecord) -> Row:
    where = [row.slot.series, to_micros(row.slot.at), str(row.outcome), to_micros(row.planned)]
    return [*where, to_micros(row.actual), row.schedule_id, row.job_id, row.reason]


def slot(v: Values) -> SlotRecord:
    return SlotRecord(
        slot=Slot(series=v["series"], at=from_micros(v["slot_at"])),
        outcome=SlotOutcome(v["outcome"]),
        planned=from_micros(v["planned"]),
        actual=from_micros(v["actual"]),
        schedule_id=v["schedule_id"],
        job_id=v["job_id"],
        reason=v["reason"],
    )


def schedule_row(each: Schedule) -> Row:
    what = [each.id, each.name, to_text(each.plan), each.version, each.plan.enabled]
    moments = (each.next_slot, each.next_trigger_at, each.last_triggered_at)
    return [*what, to_micros(each.created_at), to_micros(each.updated_at), *map(_number, moments)]


def schedule(v: Values) -> Schedule:
    return Schedule(
        id=v["id"],
        plan=from_text(v["name"], v["plan"]),
        version=v["version"],
        created_at=from_micros(v["created_at"]),
        updated_at=from_micros(v["updated_at"]),
        next_slot=_moment(v["next_slot"]),
        next_trigger_at=_moment(v["next_trigger_at"]),
        last_triggered_at=_moment(v["last_triggered_at"]),
    )


def record_row(each: Document) -> Row:
    moments = (to_micros(each.created_at), to_micros(each.updated_at))
    return [each.kind, each.key, each.value, each.version, *moments]


def record(v: Values) -> Document:
    moments = {name: from_micros(v[name]) for name in ("created_at", "updated_at")}
    return Document(**v | moments)


def job_row(job: Job, *, grp: str | None) -> Row:
    own = {name: getattr(job, name) for name in COLUMNS[TableKind.JOBS] if name != "grp"}
    own |= {name: _number(own[name]) for name in _JOB_TIMES}
    own |= {"delivery": str(job.delivery), "state": str(job.state), "grp": grp}
    return _row(TableKind.JOBS, own)


def job(v: Values) -> Job:
    """Without what its runs tell of it: who had it last, and since when."""
    own = {name: value for name, value in v.items() if name != "grp"}
    own |= {name: _moment(v[name]) for name in _JOB_TIMES}
    own |= {"state": State(v["state"]), "delivery": Delivery(v["delivery"])}
    unknown: Values = dict.fromkeys(("holder", "boot_id", "started_at", "progress"))
    return Job(**own, **unknown, cancel_requested=False)


def run_row(run: RunRecord, *, seq: int) -> Row:
    own = {name: getattr(run, name, None) for name in COLUMNS[TableKind.RUNS]}
    own |= {"seq": seq, "status": str(run.status), "artifacts": list(run.artifacts)}
    own |= {"started_at": to_micros(run.started_at), "finished_at": _number(run.finished_at)}
    own |= {
        "holder": run.holder or UNKNOWN_HOLDER.instance_id,
        "boot_id": run.boot_id or UNKNOWN_HOLDER.boot_id,
    }
    return _row(TableKind.RUNS, own)


def run(v: Values, job: Job) -> RunRecord:
    own: Values = {name: value for name, value in v.items() if name != "seq"}
    own |= {"status": RunStatus(v["status"]), "artifacts": tuple(v["artifacts"])}
    own |= {"started_at": from_micros(v["started_at"]), "finished_at": _moment(v["finished_at"])}
    asked: Values = {"params_snapshot": job.params, "template_id": job.template_id}
    return RunRecord(**own, **asked, template_at=job.template_at)


def event_row(event: EventRecord) -> Row:
    own = {name: getattr(event, name) for name in COLUMNS[TableKind.EVENTS]}
    return _row(TableKind.EVENTS, own | {"at": to_micros(event.at), "kind": str(event.kind)})


def event(v: Values) -> EventRecord:
    run_id = None if v["run_id"] is None else RunId(v["run_id"])
    return EventRecord(
        **v | {"at": from_micros(v["at"]), "kind": Told(v["kind"]), "run_id": run_id}
    )


def reservation_row(held: Reservation, *, seq: int, span: Any) -> Row:
    own = {name: getattr(held, name, None) for name in COLUMNS[TableKind.RESERVATIONS]}
    own |= {name: _number(own[name]) for name in _HELD_TIMES}
    own |= {"seq": seq, "status": str(held.status), "span": span // MICROSECOND}
    return _row(TableKind.RESERVATIONS, own)


def reservation(v: Values) -> Reservation:
    own = {name: value for name, value in v.items() if name not in {"seq", "span"}}
    own |= {name: _moment(v[name]) for name in _HELD_TIMES}
    own |= {"status": ReservationStatus(v["status"]), "job_id": JobId(v["job_id"])}
    return Reservation(**own)
