"""Inputs of the state machine, and the records of unusual events."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from outlast.core.ids import JobId, RunId
from outlast.core.position import JobEdit, MoveTo
from outlast.core.refusals import Refusals
from outlast.core.state import Loss, RunStatus

ZERO = timedelta(0)
"""No delay."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A worker claimed it. The store applies this event itself, in its claim."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned; `result` is JSON text."""

    result: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised an error; `delay` is the wait of its backoff."""

    error: str
    delay: timedelta = ZERO
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker can no longer end the run. `error` gives details, also in the event record."""

    reason: Loss
    error: str | None = None
    delay: timedelta = ZERO  # wait before it runs again


@dataclass(frozen=True, slots=True)
class Released:
    """The worker releases the run unfinished; no attempt is spent."""

    reason: str


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler asked to run again later; no attempt is spent."""

    delay: timedelta
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Unfit:
    """The params do not fit the code of the worker that claimed it.

    `before` are the refusals in a row before this one, and `age` is how long ago the first was. A
    job that was refused for `max_unfit` is given up.
    """

    error: str
    worker: str
    max_unfit: timedelta
    before: Refusals | None = None
    age: timedelta = ZERO


@dataclass(frozen=True, slots=True)
class Skipped:
    """The handler found nothing to do."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The handler ended after a cancel request, or returned Cancel."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A caller requested that it does not run, or that it stops."""

    reason: str | None = None


class Abandonment(StrEnum):
    """Why a direct job is no longer wanted."""

    CALLER_SILENT = "caller_silent"  # its reservation expired
    OWNER_DEAD = "owner_dead"  # the calling process is dead


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The caller of a direct run is gone, and no worker has claimed the job."""

    reason: Abandonment


@dataclass(frozen=True, slots=True)
class FellDue:
    """Its due time has come."""


@dataclass(frozen=True, slots=True)
class Unblocked:
    """The group member it waited for has ended."""


@dataclass(frozen=True, slots=True)
class Misfired:
    """No worker started it before its deadline."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """An operator or recovery declares that no retry follows."""

    reason: str


@dataclass(frozen=True, slots=True)
class DetachedJobFound:
    """Recovery found a job in no state table.

    `last` is how its last run ended and `reason` why; `last` is None if it has no run. `detail`
    is recorded in the event.
    """

    last: RunStatus | None
    reason: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class SuccessorMissing:
    """Recovery found a failed linked job without the successor it owes."""

    reason: str


@dataclass(frozen=True, slots=True)
class Edited:
    """A caller changes its params, its priority or its due time."""

    edit: JobEdit


@dataclass(frozen=True, slots=True)
class Moved:
    """A caller gives it another position in its queue."""

    place: MoveTo


@dataclass(frozen=True, slots=True)
class GroupStopped:
    """Its group closes: the job is cancelled or, with `skip`, skipped if it waits."""

    skip: bool = False


Event = (
    Claimed
    | Succeeded
    | Failed
    | Lost
    | Released
    | Snoozed
    | Unfit
    | Skipped
    | Stopped
    | CancelRequested
    | Abandoned
    | FellDue
    | Unblocked
    | Misfired
    | GivenUp
    | DetachedJobFound
    | SuccessorMissing
    | Edited
    | Moved
    | GroupStopped
)


class EventKind(StrEnum):
    """Kind of an event record; a routine claim and a success leave none."""

    RETRY = "retry"  # failed, is retried in place
    CHAINED = "chained"  # failed or lost, a successor job was written
    CLOSED = "closed"  # failed or lost, and its delivery does not repeat it
    DEAD_LETTER = "dead_letter"  # attempts exhausted, or a permanent error
    REQUEUED = "requeued"  # lost, back at its position
    RELEASED = "released"  # released unfinished
    SNOOZED = "snoozed"  # asked to run again later
    UNFIT = "unfit"  # refused: its params do not fit the worker's code; the detail counts
    SKIPPED = "skipped"  # nothing to do
    CANCEL_REQUESTED = "cancel_requested"  # asked to stop while running
    CANCELLED = "cancelled"  # will not run, or stopped
    ABANDONED = "abandoned"  # direct, and its caller is gone
    UNBLOCKED = "unblocked"  # may be claimed when due
    MISFIRE = "misfire"  # too late to start
    GIVEN_UP = "given_up"  # declared dead by an operator or by recovery
    RETRIED = "retried"  # ended and retried by hand; the detail is the id of the new job
    GROUP_STOPPED = "group_stopped"  # its end closed its group; the detail is the group's id
    RECOVERED = "recovered"  # its run had succeeded, and recovery ended the job
    PAUSED = "paused"  # of a queue: claims stop
    RESUMED = "resumed"  # of a queue: claims continue
    ORPHAN_RUN_REMOVED = "orphan_run_removed"  # its job is missing; the detail is a copy of the run
    EDITED = "edited"  # edited while waiting; the reason names the fields
    MOVED = "moved"  # given another position; the reason says which
    RENUMBERED = "renumbered"  # of a queue: positions spaced evenly; the detail says how many
    LATE_WRITE_REFUSED = "late_write_refused"  # a former lease holder tried to write


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """One record of the append-only event log.

    `job_id` is None for a run whose job is missing, and for events of a whole `queue`. `detail` is
    free text or JSON.
    """

    id: int
    at: datetime
    job_id: JobId | None
    run_id: RunId | None
    kind: EventKind
    token: int
    reason: str | None
    detail: str | None = None
    queue: str | None = None
