"""Where everything is: the names of the parts, and sort keys whose text order is the right order.

The jobs and their dedupe records lie where a reader of the table expects them: `job` /
`scheduled#<UTC>#<id>` and `scheduled-job#<key>` / `<bucket>`. Everything else is beside them.
"""

import hashlib
from datetime import UTC, datetime
from typing import Final

from outlast.clock import to_micros
from outlast.core.job import DedupeKey, Job, Slot
from outlast.core.limits import MAX_PRIORITY
from outlast.store.keyvalue.engine import Key, KeyRange

ONLY: Final = "-"
"""The sort key of a part that holds one record."""

JOB: Final = "job"
SEQ: Final = "seq"
DUE: Final = "due"
DEADLINE: Final = "deadline"
ENDED: Final = "ended"
RUN: Final = "run"
ARTIFACTS: Final = "artifacts"
EVENT: Final = "event"
STREAM: Final = "stream"
ACTIVE: Final = "active"
SLOT: Final = "slot"
SCHEDULE: Final = "schedule"
SCHEDULE_NAME: Final = "schedule-name"
STANDING: Final = "schedule-standing"
TRIGGER: Final = "schedule-trigger"
ONCE: Final = "once"
QUEUE: Final = "queue"
QUEUE_NAME: Final = "queue-name"
RESERVATION: Final = "reservation"
GROUP: Final = "group"
WORKER: Final = "worker"
LOCK: Final = "lock"
LIVENESS: Final = "life"
PENDING: Final = "pending"
EVENTS: Final = Key("counter", "event")
"""The number of the last event."""

NUMBERS: Final = Key("counter", "seq")
"""The last number that was given to a job, a group, a reservation, a record or a plan."""

READY: Final = "ready#"
LATER: Final = "later#"
OPEN: Final = "open#"

NOBODY: Final = "-"
"""Whose events concern no job."""

_SIGNED: Final = 1 << 63
_LONGEST: Final = 900
"""Bytes of a key's text that every engine takes; longer ones go by their digest."""


def number(value: int) -> str:
    """A whole number of 64 bits as text that sorts as it does, negative ones too."""
    return f"{value + _SIGNED:016x}"


def time_key(moment: datetime) -> str:
    """A moment as text of one width, whose order is that of time."""
    # Not strftime, which writes the year 1 as "1".
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def at_stamp(text: str) -> datetime:
    return datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)


def key_safe(text: str) -> str:
    """Any text as part of a key: itself, where it is short; nothing else becomes the same."""
    if len(text.encode()) > _LONGEST:
        return f"#sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    return f"#{text}" if not text or text.startswith("#") else text


def job_sort(job: Job) -> str:
    return f"scheduled#{time_key(job.available_at)}#{job.id}"


def job_key(job: Job) -> Key:
    return Key(JOB, job_sort(job))


def due_before(moment: datetime) -> KeyRange:
    """The S2 query: everything that was to be run up to that moment, the moment included."""
    return KeyRange(JOB, "scheduled#", f"scheduled#{time_key(moment)}#\uffff")


def pointer(job_id: str) -> Key:
    return Key(f"job-id#{job_id}", ONLY)


def seq_key(seq: int) -> Key:
    return Key(SEQ, number(seq))


def order(job: Job) -> str:
    """The claim order of a queue: `priority DESC, position, available_at, created_at, seq`."""
    times = f"{number(to_micros(job.available_at))}.{number(to_micros(job.created_at))}"
    return f"{lane_start(job.priority)}{number(job.position)}.{times}.{number(job.seq)}"


def lane_start(priority: int) -> str:
    """How the order of every job of that priority begins."""
    return f"{MAX_PRIORITY - priority:04x}."


def lane(part: str, priority: int) -> KeyRange:
    start = lane_start(priority)
    return KeyRange(part, start, f"{start[:-1]}/")  # "/" is next after "."


def due_sort(job: Job) -> str:
    return f"{number(to_micros(job.available_at))}.{number(job.seq)}"


def deadline_sort(deadline: datetime, seq: int) -> str:
    return f"{number(to_micros(deadline))}.{number(seq)}"


def run_key(job_id: str, token: int) -> Key:
    return Key(RUN, f"{job_id}#{number(token)}")


def artifacts_key(job_id: str, token: int) -> Key:
    return Key(ARTIFACTS, f"{job_id}#{number(token)}")


def of_job(part: str, job_id: str) -> KeyRange:
    """What a part holds of one job."""
    return KeyRange(part, f"{job_id}#", f"{job_id}$")  # "$" is next after "#"


def event_key(job_id: str | None, event_id: int) -> Key:
    return Key(EVENT, f"{job_id or NOBODY}#{number(event_id)}")


def dedupe_part(key: str) -> str:
    return f"scheduled-job#{key_safe(key)}"


def dedupe_key(key: DedupeKey) -> Key:
    return Key(dedupe_part(key.key), key_safe(key.bucket))


def active_key(key: str) -> Key:
    return Key(ACTIVE, key_safe(key))


def slot_key(slot: Slot) -> Key:
    return Key(SLOT, f"{slot.series}#{time_key(slot.at)}")


def slots_before(series: str, moment: datetime | None) -> KeyRange:
    """The slots of a series, or those of them before a moment."""
    end = (
        f"{series}$" if moment is None else f"{series}#{time_key(moment)}"
    )  # "$" is next after "#"
    return KeyRange(SLOT, f"{series}#", end)


def trigger_sort(at: datetime, schedule_id: str) -> str:
    return f"{number(to_micros(at))}.{schedule_id}"


def member_part(group_id: str) -> str:
    return f"member#{group_id}"


def record_part(kind: str) -> str:
    return f"record#{kind}"


def stream_key(event_id: int) -> Key:
    return Key(STREAM, number(event_id))
