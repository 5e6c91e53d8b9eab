"""Key layout: names of the parts, and sort keys whose text order is the order needed.

Jobs and dedupe records have the shapes that readers of the table know: `job` /
`scheduled#<UTC>#<id>` and `scheduled-job#<key>` / `<bucket>`. All other records are beside them.
"""

import hashlib
from datetime import UTC, datetime
from typing import Final

from outlast.clock import to_micros
from outlast.core.job import DedupeKey, Job, Slot
from outlast.core.limits import MAX_PRIORITY
from outlast.store.keyvalue.engine import Key, KeyRange

ONLY: Final = "-"
"""Sort key of a part that holds one record."""

JOB: Final = "job"
SEQ: Final = "seq"
DUE: Final = "due"
DEADLINE: Final = "deadline"
ENDED: Final = "ended"
RUN: Final = "run"
ARTIFACTS: Final = "artifacts"
LOG: Final = "log"
BODY: Final = "body#"
BODY_PARTS: Final = tuple(f"body#{digit:x}" for digit in range(16))
"""Parts of the bodies; several, because long texts fill a partition quickly."""

EVENT: Final = "event"
STREAM: Final = "stream"
ACTIVE: Final = "active"
WINDOW_END: Final = "window-end"
SLOT: Final = "slot"
SCHEDULE: Final = "schedule"
SCHEDULE_NAME: Final = "schedule-name"
SCHEDULE_STATE: Final = "schedule-state"
TRIGGER: Final = "schedule-trigger"
ONCE: Final = "once"
QUEUE: Final = "queue"
QUEUE_NAME: Final = "queue-name"
RESERVATION: Final = "reservation"
GROUP: Final = "group"
WORKER: Final = "worker"
LOCK: Final = "lock"
LIVENESS: Final = "liveness"
PENDING: Final = "pending"
QUARANTINE: Final = "quarantine"
EARLY_FIELDS: Final = "copied"
"""Fields of a transfer that were loaded before their job, by job id."""

EVENTS: Final = Key("counter", "event")
"""Counter of events in a store with one shard."""

EVENT_COUNTER: Final = "event-counter"
"""Counters of events, one for each shard, in a store with several."""

NUMBERS: Final = Key("counter", "seq")
"""Counter of jobs, groups, reservations, documents and plans."""

READY: Final = "ready#"
LATER: Final = "later#"
OPEN: Final = "open#"

NO_JOB: Final = "-"
"""Stands for the job in keys of events that concern no job."""

_SIGNED: Final = 1 << 63
_DIGITS: Final = 16
_LONGEST: Final = 900
"""Bytes of a key that every engine takes; longer texts are stored by their digest."""


def number(value: int) -> str:
    """Return a signed 64-bit number as text that sorts as the number does."""
    return f"{value + _SIGNED:0{_DIGITS}x}"


def from_number(text: str) -> int:
    """Return the number of a `number`."""
    return int(text, 16) - _SIGNED


def leading_number(sort: str) -> int | None:
    """Return the number with which a sort key begins; None if it does not."""
    try:
        return from_number(sort[:_DIGITS])
    except ValueError:
        return None


def ending_number(sort: str) -> int | None:
    """Return the number that ends a sort key; None if none does."""
    try:
        return from_number(sort[-_DIGITS:])
    except ValueError:
        return None


def time_key(moment: datetime) -> str:
    """Return a moment as text of fixed width that sorts by time."""
    # Not strftime, which writes the year 1 as "1".
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def from_time_key(text: str) -> datetime:
    """Return the moment of a `time_key`, in UTC; raise ValueError for a time without an offset."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text} has no UTC offset")
    return moment.astimezone(UTC)


def key_safe(text: str) -> str:
    """Return any text as part of a key: unchanged if short, unique in any case."""
    if len(text.encode()) > _LONGEST:
        return f"#sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    return f"#{text}" if not text or text.startswith("#") else text


def job_sort(job: Job) -> str:
    """Return the sort key of a job's record."""
    return f"scheduled#{time_key(job.available_at)}#{job.id}"


def job_key(job: Job) -> Key:
    """Return the key of a job's record."""
    return Key(JOB, job_sort(job))


def due_before(moment: datetime) -> KeyRange:
    """Return the range of the S2 query: all jobs scheduled up to that moment, inclusive."""
    return KeyRange(JOB, "scheduled#", f"scheduled#{time_key(moment)}#\uffff")


def pointer(job_id: str) -> Key:
    """Return the key of the pointer from a job's id to its record."""
    return Key(f"job-id#{job_id}", ONLY)


def seq_key(seq: int) -> Key:
    """Return the key of a job's number."""
    return Key(SEQ, number(seq))


def order(job: Job) -> str:
    """Return the claim order: `priority DESC, position, available_at, created_at, seq`."""
    times = f"{number(to_micros(job.available_at))}.{number(to_micros(job.created_at))}"
    return f"{lane_start(job.priority)}{number(job.position)}.{times}.{number(job.seq)}"


def lane_start(priority: int) -> str:
    """Return the beginning of the order of all jobs of that priority."""
    return f"{MAX_PRIORITY - priority:04x}."


def lane(part: str, priority: int) -> KeyRange:
    """Return the key range of the jobs of one priority in a part."""
    start = lane_start(priority)
    return KeyRange(part, start, f"{start[:-1]}/")  # "/" follows "." in ASCII


def due_sort(job: Job) -> str:
    """Return the sort key of a due entry."""
    return f"{number(to_micros(job.available_at))}.{number(job.seq)}"


def deadline_sort(deadline: datetime, seq: int) -> str:
    """Return the sort key of a moment with a number."""
    return f"{number(to_micros(deadline))}.{number(seq)}"


def run_key(job_id: str, token: int) -> Key:
    """Return the key of a closed run."""
    return Key(RUN, f"{job_id}#{number(token)}")


def artifacts_key(job_id: str, token: int) -> Key:
    """Return the key of a run's artifacts."""
    return Key(ARTIFACTS, f"{job_id}#{number(token)}")


def log_key(job_id: str, token: int, first: int) -> Key:
    """Return the key of a chunk of a run's log, by the number of its first line."""
    return Key(LOG, log_sort(job_id, token, first))


def log_sort(job_id: str, token: int, first: int) -> str:
    """Return the sort key of a chunk of a run's log."""
    return f"{job_id}#{number(token)}.{number(first)}"


def body_key(sort: str) -> Key:
    """Return the key of a body, `<job id>#<token>#<digest>`; its digest chooses the part."""
    return Key(f"{BODY}{sort[-1]}", sort)


def of_job(part: str, job_id: str) -> KeyRange:
    """Return the key range of one job's records in a part."""
    return KeyRange(part, f"{job_id}#", f"{job_id}$")  # "$" follows "#" in ASCII


def event_key(job_id: str | None, event_id: int) -> Key:
    """Return the key of the entry that lists an event under its job."""
    return Key(EVENT, f"{job_id or NO_JOB}#{number(event_id)}")


def dedupe_part(key: str) -> str:
    """Return the part of a dedupe key's records."""
    return f"scheduled-job#{key_safe(key)}"


def dedupe_key(key: DedupeKey) -> Key:
    """Return the key of a dedupe record."""
    return Key(dedupe_part(key.key), key_safe(key.bucket))


def active_key(key: str) -> Key:
    """Return the key of an active-key record."""
    return Key(ACTIVE, key_safe(key))


def window_part(scope: str, key: str) -> str:
    """Return the part of the windows, or debounce keys, of that key."""
    return f"{scope}#{key_safe(key)}"


def window_key(scope: str, key: str, bucket: str) -> Key:
    """Return the key of a window, or of a debounce key."""
    return Key(window_part(scope, key), key_safe(bucket))


def slot_key(slot: Slot) -> Key:
    """Return the key of a slot."""
    return Key(SLOT, f"{slot.series}#{time_key(slot.at)}")


def slots_before(series: str, moment: datetime | None) -> KeyRange:
    """Return the key range of a series' slots, or of those before a moment."""
    end = (
        f"{series}$" if moment is None else f"{series}#{time_key(moment)}"
    )  # "$" follows "#" in ASCII
    return KeyRange(SLOT, f"{series}#", end)


def trigger_sort(at: datetime, schedule_id: str) -> str:
    """Return the sort key of a due schedule."""
    return f"{number(to_micros(at))}.{schedule_id}"


def member_part(group_id: str) -> str:
    """Return the part of a group's member entries."""
    return f"member#{group_id}"


def record_part(kind: str) -> str:
    """Return the part of the documents of one kind."""
    return f"record#{kind}"


def stream_key(event_id: int) -> Key:
    """Return the key of an event."""
    return Key(STREAM, number(event_id))
