"""A job as it is kept: the record that S2's readers know, and the index entries that go with it."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from outlast.clock import to_micros
from outlast.core.delivery import Delivery
from outlast.core.ids import RunId
from outlast.core.job import DedupeKey, Job, Slot
from outlast.core.state import WAITING, State
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Key, Value
from outlast.store.keyvalue.leases import LeaseExpiry

STATUS: Final = {
    State.NEW: "pending",
    State.BLOCKED: "pending",
    State.SCHEDULED: "pending",
    State.QUEUED: "pending",
    State.RUNNING: "in_progress",
    State.RETRY_WAIT: "failed",
    State.SUCCEEDED: "completed",
    State.FAILED: "failed",
    State.DEAD_LETTER: "dead_letter",
    State.SKIPPED: "cancelled",
    State.CANCELLED: "cancelled",
}
"""S2's words for our states, but for what `status` says."""

_TIMES: Final = (
    "created_at",
    "available_at",
    "slot_at",
    "start_deadline",
    "template_at",
    "started_at",
    "finished_at",
)
_RENAMED: Final = {
    "id": "job_id",
    "type": "job_type",
    "params": "payload",
    "available_at": "scheduled_for",
    "failures": "attempts",
}
"""Where S2 has another word for what we have."""

SECOND: Final = 1_000_000
"""In microseconds."""

_STATES: Final = frozenset(state.value for state in State)
_LATER: Final = frozenset({State.SCHEDULED, State.RETRY_WAIT})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job and all that its record knows beside it.

    `is_loose`: its state is lost; somebody broke the record, and recovery will settle it.
    `is_counted`: its run is one of a number that its queue limits, so its end makes room.
    `series` is that of the slot it was made for itself; the job after it in a chain has none.
    `is_followed`: its successor was written by the change that ended it, not by hand.
    """

    job: Job
    root_seq: int
    lease: LeaseExpiry | None = None
    lease_until: datetime | None = None
    run_id: RunId | None = None
    run_started_at: datetime | None = None
    is_counted: bool = False
    successor: str | None = None
    is_followed: bool = False
    key: DedupeKey | None = None
    active_key: str | None = None
    series: str | None = None
    member: str | None = None
    reservation: int | None = None
    last_error: str | None = None
    is_detached: bool = False
    pending: str | None = None

    @property
    def is_open(self) -> bool:
        return self.lease is not None

    def is_locked(self, now: datetime) -> bool:
        """Whether it waits under a lock that is not over: somebody wrote that by hand, for we
        lock a job and open its run in one write."""
        return not self.is_open and self.lease_until is not None and self.lease_until >= now


def to_value(kept: JobRecord) -> Value:
    """The record of a job; what is None is left out."""
    job = kept.job
    own = {field.name: _plain(getattr(job, field.name)) for field in fields(Job)}
    record = {_RENAMED.get(name, name): value for name, value in own.items()}
    record |= {
        "status": status(job),
        "locked_by": job.holder if kept.is_open else None,
        "lock_expires_at": _plain(kept.lease_until),
        "last_error": kept.last_error,
        "completed_at": own["finished_at"] if _is_completed(job) else None,
        "root_seq": kept.root_seq,
        "lease_at": kept.lease and kept.lease.at,
        "lease_boot": kept.lease and kept.lease.boot,
        "run_id": kept.run_id,
        "run_started_at": _plain(kept.run_started_at),
        "is_counted": kept.is_counted or None,
        "successor": kept.successor,
        "is_followed": kept.is_followed or None,
        "dedupe_key": kept.key and kept.key.key,
        "dedupe_bucket": kept.key and kept.key.bucket,
        "active_key": kept.active_key,
        "series": kept.series,
        "member": kept.member,
        "reservation": kept.reservation,
    }
    return {name: value for name, value in record.items() if value is not None}


def status(job: Job) -> str:
    """S2's word for how it stands: what was only put off has not failed, and what ran and found
    nothing to do is done."""
    if job.state is State.RETRY_WAIT and not job.failures:
        return "pending"
    return "completed" if _is_completed(job) else STATUS[job.state]


def _is_completed(job: Job) -> bool:
    return job.state is State.SUCCEEDED or (job.state is State.SKIPPED and job.token > 0)


def from_value(value: Value) -> JobRecord:
    own: dict[str, Any] = {f.name: value.get(_RENAMED.get(f.name, f.name)) for f in fields(Job)}
    own |= {name: _moment(own[name]) for name in _TIMES}
    is_loose = own["state"] not in _STATES
    state = State.RUNNING if is_loose else State(own["state"])
    own |= {"state": state, "delivery": Delivery(own["delivery"])}
    return JobRecord(
        job=Job(**own),
        root_seq=value["root_seq"],
        lease=LeaseExpiry(value["lease_at"], value["lease_boot"]) if "lease_at" in value else None,
        lease_until=_moment(value.get("lock_expires_at")),
        run_id=value.get("run_id"),
        run_started_at=_moment(value.get("run_started_at")),
        is_counted=value.get("is_counted", False),
        successor=value.get("successor"),
        is_followed=value.get("is_followed", False),
        key=_dedupe(value),
        active_key=value.get("active_key"),
        series=value.get("series"),
        member=value.get("member"),
        reservation=value.get("reservation"),
        last_error=value.get("last_error"),
        is_detached=is_loose,
        pending=value.get("pending"),
    )


def indexes(kept: JobRecord) -> dict[Key, Value]:
    """Every entry that must be there while the job stands so."""
    return dict(_indexes(kept))


def _indexes(kept: JobRecord) -> Iterator[tuple[Key, Value]]:
    job = kept.job
    yield key_layout.pointer(job.id), {"sort": key_layout.job_sort(job)}
    yield key_layout.seq_key(job.seq), _number(kept)
    if kept.key is not None:
        yield key_layout.dedupe_key(kept.key), dedupe(job)
    if kept.member is not None:
        yield Key(key_layout.member_part(kept.member), key_layout.number(job.seq)), _member(kept)
    if not kept.is_detached:
        yield from _place(kept)


def _number(kept: JobRecord) -> dict[str, Any]:
    """Whose number it is; of a root that was made for a slot, which one is to be its own."""
    job = kept.job
    if job.slot_at is None or job.retry_of is not None:
        return {"id": job.id}
    slot = Slot(series=kept.series or "", at=job.slot_at)
    return {"id": job.id, "slot": key_layout.slot_key(slot).sort}


def _place(kept: JobRecord) -> Iterator[tuple[Key, Value]]:
    """Where it waits, runs, or has ended."""
    job = kept.job
    if job.state in WAITING:
        yield from _waiting(job)
    elif kept.lease is not None:
        sort = f"{kept.lease.boot}#{key_layout.number(kept.lease.at)}.{key_layout.number(job.seq)}"
        yield Key(key_layout.OPEN + job.queue, sort), _open(kept)
    elif job.finished_at is not None:
        sort = key_layout.deadline_sort(job.finished_at, job.seq)
        yield Key(key_layout.ENDED, sort), _end(kept)


def _waiting(job: Job) -> Iterator[tuple[Key, Value]]:
    entry = _ready_entry(job)
    part = key_layout.READY if job.state is State.QUEUED else key_layout.LATER
    yield Key(part + job.queue, key_layout.order(job)), entry
    if job.state in _LATER:
        yield Key(key_layout.DUE, key_layout.due_sort(job)), {"id": job.id, "queue": job.queue}
    if job.state is State.QUEUED and job.start_deadline is not None and not job.token:
        sort = key_layout.deadline_sort(job.start_deadline, job.seq)
        yield Key(key_layout.DEADLINE, sort), {"id": job.id}


def _ready_entry(job: Job) -> dict[str, Any]:
    """All that a claim chooses by."""
    brief = {
        "id": job.id,
        "seq": job.seq,
        "sort": key_layout.job_sort(job),
        "type": job.type,
        "state": job.state.value,
        "due": to_micros(job.available_at),
        "position": job.position,
        "priority": job.priority,
        "name": job.name if job.delivery is Delivery.ONCE else None,
        "deadline": to_micros(job.start_deadline) if job.start_deadline and not job.token else None,
        "can_wait": job.delivery is Delivery.LEASE and not job.losses,
    }
    return {name: value for name, value in brief.items() if value is not None}


def _open(kept: JobRecord) -> dict[str, Any]:
    job = kept.job
    assert kept.lease is not None
    return {
        "id": job.id,
        "seq": job.seq,
        "sort": key_layout.job_sort(job),
        "type": job.type,
        "name": job.name,
        "once": job.delivery is Delivery.ONCE,
        "holder": job.holder,
        "boot": job.boot_id,
        "started": to_micros(kept.run_started_at) if kept.run_started_at else 0,
        "lease_at": kept.lease.at,
        "lease_boot": kept.lease.boot,
        "cancel": job.cancel_requested,
    }


def _end(kept: JobRecord) -> dict[str, Any]:
    job = kept.job
    return {
        "id": job.id,
        "seq": job.seq,
        "sort": key_layout.job_sort(job),
        "queue": job.queue,
        "state": job.state.value,
        "at": to_micros(job.finished_at) if job.finished_at else 0,
        "tip": kept.successor is None,
        "makes_room": kept.is_counted,
    }


def _member(kept: JobRecord) -> dict[str, Any]:
    job = kept.job
    return {
        "id": job.id,
        "seq": job.seq,
        "root": kept.root_seq,
        "state": job.state.value,
        "followed": kept.is_followed,
        "asked": job.cancel_requested,
        "loose": kept.is_detached,
    }


def dedupe(job: Job) -> dict[str, Any]:
    """S2's dedupe record: it points at the job, and moves with it."""
    return {"job_id": job.root_id, "job_pk": key_layout.JOB, "job_sk": key_layout.job_sort(job)}


def tombstone(kept: JobRecord, key: DedupeKey, until: datetime | None) -> dict[str, Any]:
    """What stays of it when its job is pruned; with a bucket only until then, if that is said."""
    left: dict[str, Any] = {**dedupe(kept.job), "purged": True}
    if until is None or not key.bucket:
        return left
    return {**left, "expires_at": to_micros(until) // SECOND}


def is_over(record: Value, now: datetime) -> bool:
    """Whether it is past its time; an engine may take days to take it away."""
    return "expires_at" in record and record["expires_at"] * SECOND <= to_micros(now)


def _dedupe(value: Value) -> DedupeKey | None:
    if "dedupe_key" not in value:
        return None
    return DedupeKey(key=value["dedupe_key"], bucket=value["dedupe_bucket"])


def _plain(value: Any) -> Any:
    return key_layout.time_key(value) if isinstance(value, datetime) else _word(value)


def _word(value: Any) -> Any:
    return value.value if isinstance(value, State | Delivery) else value


def _moment(text: str | None) -> datetime | None:
    return None if text is None else key_layout.at_stamp(text)
