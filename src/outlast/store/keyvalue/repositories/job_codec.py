"""Job record codec: the record in the S2 format, and the index entries of a job."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from outlast.clock import to_micros
from outlast.core.delivery import Delivery
from outlast.core.ids import RunId
from outlast.core.job import DedupeKey, Job, Slot
from outlast.core.state import WAITING, State
from outlast.core.transition import may_be_prefetched
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.clocks import LeaseExpiry
from outlast.store.keyvalue.engine import Key, Value
from outlast.store.keyvalue.repositories import bodies

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
"""Word of the S2 format for each state, except where `status` differs."""

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
"""Field names of the S2 format that differ from those of `Job`."""

SECOND: Final = 1_000_000
"""Microseconds per second."""

_STATES: Final = frozenset(state.value for state in State)
_LATER: Final = frozenset({State.SCHEDULED, State.RETRY_WAIT})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job with all that is stored beside it.

    `job.params` and `last_error` are references if they are long: see `bodies`.

    `listed` is the lease end under which `open#` lists the run, never later than `lease`; None if
    it is `lease` itself. So a renewal writes the job alone.
    `is_detached`: the record has no valid state; recovery settles it.
    `is_counted`: the run counts against the queue's limit, so its end frees capacity.
    `series` is that of the slot the job was made for; the successor in a chain has none.
    `active_key`: the active key while the job holds it; `job.active_key` stays after its end.
    `is_marked`: a prune deletes its chain in steps; some of its history may be gone.
    `is_logged`: a run of the job has logged lines.
    `is_followed`: the change that ended the job wrote its successor, not a manual retry.
    """

    job: Job
    root_seq: int
    lease: LeaseExpiry | None = None
    lease_until: datetime | None = None
    listed: LeaseExpiry | None = None
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
    is_marked: bool = False
    is_logged: bool = False
    pending: str | None = None

    @property
    def place(self) -> LeaseExpiry | None:
        """Lease end under which `open#` lists the run; None if no run is open."""
        return None if self.lease is None else self.listed or self.lease

    @property
    def is_open(self) -> bool:
        """True if a run is open."""
        return self.lease is not None

    def is_locked(self, now: datetime) -> bool:
        """Return True if a waiting job has an unexpired lock, which only a manual edit writes."""
        return not self.is_open and self.lease_until is not None and self.lease_until >= now


def to_value(record: JobRecord) -> Value:
    """Return the stored value of a job, without fields that are None."""
    job = record.job
    own = {field.name: _plain(getattr(job, field.name)) for field in fields(Job)}
    fields_by_name = {_RENAMED.get(name, name): value for name, value in own.items()}
    fields_by_name |= {
        "status": status(job),
        "locked_by": job.holder if record.is_open else None,
        "lock_expires_at": _plain(record.lease_until),
        "completed_at": own["finished_at"] if _is_completed(job) else None,
        "root_seq": record.root_seq,
        "lease_at": record.lease and record.lease.at,
        "lease_boot": record.lease and record.lease.boot,
        "listed_at": record.lease and record.listed and record.listed.at,
        "listed_boot": record.lease and record.listed and record.listed.boot,
        "run_id": record.run_id,
        "run_started_at": _plain(record.run_started_at),
        "is_counted": record.is_counted or None,
        "successor": record.successor,
        "is_followed": record.is_followed or None,
        "dedupe_key": record.key and record.key.key,
        "dedupe_bucket": record.key and record.key.bucket,
        "held_key": record.active_key,
        "series": record.series,
        "member": record.member,
        "reservation": record.reservation,
        "pruning": record.is_marked or None,
        "is_logged": record.is_logged or None,
    }
    fields_by_name |= {"payload": None, **bodies.fields("payload", params_of(record))}
    fields_by_name |= bodies.fields("last_error", last_error_of(record))
    return {name: value for name, value in fields_by_name.items() if value is not None}


def params_of(record: JobRecord) -> str | None:
    """Return the job's params, or the reference to their body."""
    return bodies.refer(record.job.id, bodies.NO_RUN, record.job.params)


def last_error_of(record: JobRecord) -> str | None:
    """Return the last error, or the reference to its body, which its run may have written."""
    return bodies.refer(record.job.id, record.job.token, record.last_error)


def status(job: Job) -> str:
    """Return the word of the S2 format for the job's state.

    A job put off without a failure is pending. A job that ran and skipped is completed.
    """
    if job.state is State.RETRY_WAIT and not job.failures:
        return "pending"
    return "completed" if _is_completed(job) else STATUS[job.state]


def _is_completed(job: Job) -> bool:
    return job.state is State.SUCCEEDED or (job.state is State.SKIPPED and job.token > 0)


def from_value(value: Value) -> JobRecord:
    """Return the record of a stored value; an unknown state makes it detached."""
    own: dict[str, Any] = {f.name: value.get(_RENAMED.get(f.name, f.name)) for f in fields(Job)}
    own |= {name: _moment(own[name]) for name in _TIMES}
    own["params"] = bodies.text_of(value, "payload")
    is_detached = own["state"] not in _STATES
    state = State.RUNNING if is_detached else State(own["state"])
    own |= {"state": state, "delivery": Delivery(own["delivery"])}
    return JobRecord(
        job=Job(**own),
        root_seq=value["root_seq"],
        lease=LeaseExpiry(value["lease_at"], value["lease_boot"]) if "lease_at" in value else None,
        lease_until=_moment(value.get("lock_expires_at")),
        listed=LeaseExpiry(value["listed_at"], value["listed_boot"])
        if "listed_at" in value
        else None,
        run_id=value.get("run_id"),
        run_started_at=_moment(value.get("run_started_at")),
        is_counted=value.get("is_counted", False),
        successor=value.get("successor"),
        is_followed=value.get("is_followed", False),
        key=_dedupe(value),
        active_key=value.get("held_key"),
        series=value.get("series"),
        member=value.get("member"),
        reservation=value.get("reservation"),
        last_error=bodies.text_of(value, "last_error"),
        is_detached=is_detached,
        is_marked=value.get("pruning", False),
        is_logged=value.get("is_logged", False),
        pending=value.get("pending"),
    )


def indexes(record: JobRecord) -> dict[Key, Value]:
    """Return all index entries that the job must have in its state."""
    return dict(_indexes(record))


def _indexes(record: JobRecord) -> Iterator[tuple[Key, Value]]:
    job = record.job
    yield key_layout.pointer(job.id), {"sort": key_layout.job_sort(job)}
    yield key_layout.seq_key(job.seq), _number(record)
    if record.key is not None:
        yield key_layout.dedupe_key(record.key), dedupe(job)
    if record.member is not None:
        yield (
            Key(key_layout.member_part(record.member), key_layout.number(job.seq)),
            _member(record),
        )
    if not record.is_detached:
        yield from _place(record)


def _number(record: JobRecord) -> dict[str, Any]:
    """Return the entry of the job's number; for a root made for a slot, with that slot."""
    job = record.job
    if job.slot_at is None or job.retry_of is not None:
        return {"id": job.id}
    slot = Slot(series=record.series or "", at=job.slot_at)
    return {"id": job.id, "slot": key_layout.slot_key(slot).sort}


def _place(record: JobRecord) -> Iterator[tuple[Key, Value]]:
    """Yield the entry of its state: waiting, running or ended."""
    job = record.job
    if job.state in WAITING:
        yield from _waiting(job)
    elif record.place is not None:
        end = f"{record.place.boot}#{key_layout.number(record.place.at)}"
        sort = f"{end}.{key_layout.number(job.seq)}"
        yield Key(key_layout.OPEN + job.queue, sort), _open(record, record.place)
    elif job.finished_at is not None:
        sort = key_layout.deadline_sort(job.finished_at, job.seq)
        yield Key(key_layout.ENDED, sort), _end(record)


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
    """Return all that a claim selects by."""
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
        "can_wait": may_be_prefetched(job),
    }
    return {name: value for name, value in brief.items() if value is not None}


def _open(record: JobRecord, place: LeaseExpiry) -> dict[str, Any]:
    job = record.job
    return {
        "id": job.id,
        "seq": job.seq,
        "sort": key_layout.job_sort(job),
        "type": job.type,
        "name": job.name,
        "once": job.delivery is Delivery.ONCE,
        "holder": job.holder,
        "boot": job.boot_id,
        "started": to_micros(record.run_started_at) if record.run_started_at else 0,
        "lease_at": place.at,
        "lease_boot": place.boot,
        "cancel": job.cancel_requested,
    }


def _end(record: JobRecord) -> dict[str, Any]:
    job = record.job
    return {
        "id": job.id,
        "seq": job.seq,
        "sort": key_layout.job_sort(job),
        "queue": job.queue,
        "state": job.state.value,
        "at": to_micros(job.finished_at) if job.finished_at else 0,
        "tip": record.successor is None,
        "makes_room": record.is_counted,
    }


def _member(record: JobRecord) -> dict[str, Any]:
    job = record.job
    return {
        "id": job.id,
        "seq": job.seq,
        "root": record.root_seq,
        "state": job.state.value,
        "followed": record.is_followed,
        "asked": job.cancel_requested,
        "loose": record.is_detached,
    }


def dedupe(job: Job) -> dict[str, Any]:
    """Return the dedupe record in the S2 format; it points at the job and moves with it."""
    return {"job_id": job.root_id, "job_pk": key_layout.JOB, "job_sk": key_layout.job_sort(job)}


def tombstone(record: JobRecord, key: DedupeKey, until: datetime | None) -> dict[str, Any]:
    """Return what stays of a dedupe record when its job is pruned.

    With a bucket it expires at `until`, if given.
    """
    left: dict[str, Any] = {**dedupe(record.job), "purged": True}
    if until is None or not key.bucket:
        return left
    return {**left, "expires_at": to_micros(until) // SECOND}


def is_expired(value: Value, now: datetime) -> bool:
    """Return True if the record has expired; the engine may delete it days later."""
    return "expires_at" in value and value["expires_at"] * SECOND <= to_micros(now)


def _dedupe(value: Value) -> DedupeKey | None:
    if "dedupe_key" not in value:
        return None
    return DedupeKey(key=value["dedupe_key"], bucket=value["dedupe_bucket"])


def _plain(value: Any) -> Any:
    return key_layout.time_key(value) if isinstance(value, datetime) else _word(value)


def _word(value: Any) -> Any:
    return value.value if isinstance(value, State | Delivery) else value


def _moment(text: str | None) -> datetime | None:
    return None if text is None else key_layout.from_time_key(text)
