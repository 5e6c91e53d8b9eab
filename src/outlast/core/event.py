"""What can happen to a job, and the record that is kept of everything unusual."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from outlast.core.ids import JobId, RunId
from outlast.core.position import JobEdit, MoveTo
from outlast.core.state import Loss, RunStatus

ZERO = timedelta(0)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A worker took it. The one event a store applies by itself, in its claim."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned; `result` is JSON text."""

    result: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised. `delay` is how long its backoff would wait."""

    error: str
    delay: timedelta = ZERO
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """Its worker can no longer be trusted to end it. `error` tells more, in its event too."""

    reason: Loss
    error: str | None = None
    delay: timedelta = ZERO  # how long to leave it before it runs again


@dataclass(frozen=True, slots=True)
class Released:
    """Its worker hands it back unfinished; nothing is counted."""

    reason: str


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler asked to be run again later; nothing is counted."""

    delay: timedelta
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """The handler decided that there was nothing to do."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The handler ended because it was asked to, or returned Cancel."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody wants it not to run, or to stop."""

    reason: str | None = None


class Abandonment(StrEnum):
    """Why nobody wants a direct job any more."""

    CALLER_SILENT = "caller_silent"  # nobody renewed its reservation in time
    OWNER_DEAD = "owner_dead"  # the process that asked for it was seen dead


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Whoever asked for it at once is gone, and no worker has it."""

    reason: Abandonment


@dataclass(frozen=True, slots=True)
class FellDue:
    """Its time has come."""


@dataclass(frozen=True, slots=True)
class Unblocked:
    """What it waited for is done."""


@dataclass(frozen=True, slots=True)
class Misfired:
    """Nobody could start it before its deadline."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """An operator, or recovery, declares that no retry will follow."""

    reason: str


@dataclass(frozen=True, slots=True)
class DetachedJobFound:
    """Recovery found it running in nobody's hands.

    `last` is how its last run ended and `reason` why; None: it has no run. `detail` is for the
    event.
    """

    last: RunStatus | None
    reason: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class SuccessorMissing:
    """Recovery found that it failed and that nothing follows it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Edited:
    """Somebody changes what it is asked, how urgent it is, or when it is due."""

    edit: JobEdit


@dataclass(frozen=True, slots=True)
class Moved:
    """Somebody gives it another place in its queue."""

    place: MoveTo


@dataclass(frozen=True, slots=True)
class GroupStopped:
    """Its group closes: it is cancelled, or with `skip` it is skipped if it waits."""

    skip: bool = False


Event = (
    Claimed
    | Succeeded
    | Failed
    | Lost
    | Released
    | Snoozed
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
    """What a stored event record tells; the routine claim and success leave none."""

    RETRY = "retry"  # failed, will be tried again in place
    CHAINED = "chained"  # failed or lost, a successor job was written
    CLOSED = "closed"  # failed or lost, and its delivery says: never again
    DEAD_LETTER = "dead_letter"  # retries used up, or an error that no retry can help
    REQUEUED = "requeued"  # lost, back in its place
    RELEASED = "released"  # handed back
    SNOOZED = "snoozed"  # asked to run later
    SKIPPED = "skipped"  # nothing to do
    CANCEL_REQUESTED = "cancel_requested"  # asked to stop while running
    CANCELLED = "cancelled"  # will not run, or stopped
    ABANDONED = "abandoned"  # direct, and whoever wanted it is gone
    UNBLOCKED = "unblocked"  # may be taken when due
    MISFIRE = "misfire"  # too late to start
    GIVEN_UP = "given_up"  # declared dead by hand or by recovery
    RETRIED = "retried"  # ended, and somebody had it done again: the detail is the new job's id
    GROUP_STOPPED = "group_stopped"  # its end closed its group, whose id is the detail
    RECOVERED = "recovered"  # its run had succeeded, and recovery ended the job
    PAUSED = "paused"  # of a queue: nothing is claimed any more
    RESUMED = "resumed"  # of a queue: claims go on
    ORPHAN_RUN_REMOVED = "orphan_run_removed"  # its job is gone; the detail is a copy of the run
    EDITED = "edited"  # changed while it waited; the reason names what
    MOVED = "moved"  # given another place; the reason says which
    RENUMBERED = "renumbered"  # of a queue: its positions made even; the detail says how many
    LATE_WRITE_REFUSED = "late_write_refused"  # a former holder tried to write


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """One line of the append-only record.

    `job_id` is None for a run whose job is gone, and for what concerns a whole `queue`. `detail` is
    free text or JSON, often None.
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
