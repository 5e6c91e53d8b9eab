"""Mappers between values and transfer rows, for stores that keep records instead of columns."""

from datetime import datetime
from typing import Any, Final

from outlast.clock import MICROSECOND, from_micros, to_micros
from outlast.core.delivery import Delivery
from outlast.core.document import Document
from outlast.core.event import EventKind, EventRecord
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
_RESERVATION_TIMES: Final = ("reserved_at", "expires_at", "ended_at")


def _number(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)


def _moment(number: int | None) -> datetime | None:
    return None if number is None else from_micros(number)


def _row(kind: TableKind, values: Values) -> Row:
    return [values[name] for name in COLUMNS[kind]]


def queue_row(queue: Queue) -> Row:
    """Return the transfer row of a queue."""
    pause = queue.pause
    paused = (None, None, None) if pause is None else (pause.at, pause.reason, pause.until)
    at, reason, until = paused
    what = [queue.name, str(queue.ordering), queue.gap, queue.concurrency]
    return [*what, _number(at), reason, _number(until)]


def queue(v: Values) -> Queue:
    """Return the queue of a transfer row."""
    at, until = _moment(v["paused_at"]), _moment(v["resume_at"])
    return Queue(
        name=v["name"],
        ordering=Ordering(v["ordering"]),
        gap=v["gap"],
        concurrency=v["concurrency"],
        pause=None if at is None else Pause(at=at, reason=v["pause_reason"], until=until),
    )


def group_row(group: Group, *, swept: bool) -> Row:
    """Return the transfer row of a group."""
    values = {name: getattr(group, name, None) for name in COLUMNS[TableKind.GROUPS]}
    values |= {"mode": str(group.mode), "on_failure": str(group.on_failure), "swept": swept}
    values |= {"created_at": to_micros(group.created_at), "sealed_at": _number(group.sealed_at)}
    return _row(TableKind.GROUPS, values | {"closing": group.closing and str(group.closing)})


def group(v: Values) -> Group:
    """Return the group of a transfer row."""
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
    """Return the transfer row of a slot."""
    where = [row.slot.series, to_micros(row.slot.at), str(row.outcome), to_micros(row.planned)]
    return [*where, to_micros(row.actual), row.schedule_id, row.job_id, row.reason]


def slot(v: Values) -> SlotRecord:
    """Return the slot of a transfer row."""
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
    """Return the transfer row of a schedule."""
    what = [each.id, each.name, to_text(each.plan), each.version, each.plan.enabled]
    moments = (each.next_slot, each.next_trigger_at, each.last_triggered_at)
    return [*what, to_micros(each.created_at), to_micros(each.updated_at), *map(_number, moments)]


def schedule(v: Values) -> Schedule:
    """Return the schedule of a transfer row."""
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


def document_row(each: Document) -> Row:
    """Return the transfer row of a document."""
    moments = (to_micros(each.created_at), to_micros(each.updated_at))
    return [each.kind, each.key, each.value, each.version, *moments]


def document(v: Values) -> Document:
    """Return the document of a transfer row."""
    moments = {name: from_micros(v[name]) for name in ("created_at", "updated_at")}
    return Document(**v | moments)


def job_row(job: Job, *, member_of: str | None) -> Row:
    """Return the transfer row of a job."""
    own = {name: getattr(job, name) for name in COLUMNS[TableKind.JOBS] if name != "member_of"}
    own |= {name: _number(own[name]) for name in _JOB_TIMES}
    own |= {"delivery": str(job.delivery), "state": str(job.state), "member_of": member_of}
    return _row(TableKind.JOBS, own)


def job(v: Values) -> Job:
    """Return the job of a transfer row, without what only its runs know."""
    own = {name: value for name, value in v.items() if name != "member_of"}
    own |= {name: _moment(v[name]) for name in _JOB_TIMES}
    own |= {"state": State(v["state"]), "delivery": Delivery(v["delivery"])}
    unknown: Values = dict.fromkeys(("holder", "boot_id", "started_at", "progress"))
    return Job(**own, **unknown, cancel_requested=False)


def run_row(run: RunRecord, *, seq: int) -> Row:
    """Return the transfer row of a run."""
    own = {name: getattr(run, name, None) for name in COLUMNS[TableKind.RUNS]}
    own |= {"seq": seq, "status": str(run.status), "artifacts": list(run.artifacts)}
    own |= {"started_at": to_micros(run.started_at), "finished_at": _number(run.finished_at)}
    own |= {
        "holder": run.holder or UNKNOWN_HOLDER.instance_id,
        "boot_id": run.boot_id or UNKNOWN_HOLDER.boot_id,
    }
    return _row(TableKind.RUNS, own)


def run(v: Values, job: Job) -> RunRecord:
    """Return the run of a transfer row."""
    own: Values = {name: value for name, value in v.items() if name != "seq"}
    own |= {"status": RunStatus(v["status"]), "artifacts": tuple(v["artifacts"])}
    own |= {"started_at": from_micros(v["started_at"]), "finished_at": _moment(v["finished_at"])}
    asked: Values = {"params_snapshot": job.params, "template_id": job.template_id}
    return RunRecord(**own, **asked, template_at=job.template_at)


def event_row(event: EventRecord) -> Row:
    """Return the transfer row of an event."""
    own = {name: getattr(event, name) for name in COLUMNS[TableKind.EVENTS]}
    return _row(TableKind.EVENTS, own | {"at": to_micros(event.at), "kind": str(event.kind)})


def event(v: Values) -> EventRecord:
    """Return the event of a transfer row."""
    run_id = None if v["run_id"] is None else RunId(v["run_id"])
    return EventRecord(
        **v | {"at": from_micros(v["at"]), "kind": EventKind(v["kind"]), "run_id": run_id}
    )


def reservation_row(held: Reservation, *, seq: int, span: Any) -> Row:
    """Return the transfer row of a reservation."""
    own = {name: getattr(held, name, None) for name in COLUMNS[TableKind.RESERVATIONS]}
    own |= {name: _number(own[name]) for name in _RESERVATION_TIMES}
    own |= {"seq": seq, "status": str(held.status), "span": span // MICROSECOND}
    return _row(TableKind.RESERVATIONS, own)


def reservation(v: Values) -> Reservation:
    """Return the reservation of a transfer row."""
    own = {name: value for name, value in v.items() if name not in {"seq", "span"}}
    own |= {name: _moment(v[name]) for name in _RESERVATION_TIMES}
    own |= {"status": ReservationStatus(v["status"]), "job_id": JobId(v["job_id"])}
    return Reservation(**own)
