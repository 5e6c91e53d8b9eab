"""Every error Outlast raises, grouped by who can put it right.

OutlastError
├── CallerError           the code that called can put it right
│   ├── InvalidArgument       a value that the call cannot use
│   │   ├── ConfigurationError    a store URL or a setting that cannot be used
│   │   ├── InvalidGroup          a group that is empty, too large or has foreign members
│   │   ├── InvalidSchedule       a time rule or settings that contradict each other
│   │   └── InvalidJob            a job that cannot be stored
│   │       ├── InvalidParams         params that do not match their type
│   │       ├── PartialEnqueueError   some jobs of `enqueue_many` were refused
│   │       └── PayloadTooLarge       params or a result over the size or depth limit
│   ├── InvalidType           a job type whose settings contradict each other
│   ├── TypeNotFound           a type this process has not registered
│   ├── TemplateNotFound       no template of that name
│   ├── TemplateChanged       somebody edited the template meanwhile
│   ├── ScheduleNotFound       no schedule of that name
│   ├── ScheduleChanged       somebody edited the schedule meanwhile
│   ├── SlotTaken             that slot has run, or cannot run now
│   ├── SyncMisused           the synchronous bridge cannot be used here, or no longer
│   ├── DuplicateJob          its key or slot is taken, and the caller chose `reject`
│   ├── JobNotFound           no job of that id
│   ├── GroupNotFound         no group of that id
│   ├── TransitionRefused     the job's state does not allow that
│   ├── QueueBusy             a direct run found its queue held, or paused
│   ├── NoWorkerAvailable              no worker took a direct run in time
│   ├── WaitTimeout           the job had not ended in time
│   └── JobNotSucceeded       a result was asked of a job that ended otherwise
├── RunError              the handler that runs can put it right
│   ├── TransactionTimeout    `run.transaction()` held the write lock too long
│   ├── StopRequested         somebody asked the job to stop, or its worker stops
│   ├── LeaseLost             the job is somebody else's now
│   ├── CommandFailed         a command ended with a code that is not ok
│   ├── PermanentError        raised by handlers: do not retry
│   └── TransientError        raised by handlers: do retry
└── OperatorError         whoever runs the machine can put it right
    ├── StoreBusy             somebody else holds the store's lock
    ├── StoreSealed           the store is being moved, and takes no work until that is over
    ├── StoreMoved            the store was moved, and takes no work ever again
    ├── StoreUnavailable      its server does not answer
    ├── StoreMissing          there is no store where one was looked for
    ├── StoreFull             no space left
    ├── StoreReadOnly         the store cannot be written
    ├── StoreCorrupt           the file is damaged or unreadable
    ├── ForeignStore           the file belongs to something else
    ├── ClockSkewTooLarge            this machine's clock and the store's differ by too much
    ├── SchemaTooNew          a newer Outlast wrote this store
    └── StoreClosed           the store was closed
"""

from datetime import datetime


class OutlastError(Exception):
    """The root: catch this to catch everything of ours."""


class CallerError(OutlastError):
    """The calling code can put it right."""


class InvalidArgument(CallerError, ValueError):
    """A value given to a call or a command cannot be used; nothing was written."""


class ConfigurationError(InvalidArgument):
    """A store URL, a setting or a worker's name cannot be used."""


class InvalidJob(InvalidArgument):
    """The job cannot be stored as it was given; nothing was written."""


class InvalidGroup(InvalidArgument):
    """The group cannot be stored as it was given; none of its members will run."""


class InvalidSchedule(InvalidArgument):
    """The schedule cannot be kept as it was given; nothing was written."""


class InvalidParams(InvalidJob):
    """The params do not fit the job's type."""


class PayloadTooLarge(InvalidJob):
    """The params or the result are over the size or depth limit."""


class InvalidType(CallerError, ValueError):
    """The job type's settings cannot be, or contradict its delivery."""


class TypeNotFound(CallerError, LookupError):
    """This process has not registered that job type."""


class TemplateNotFound(CallerError, LookupError):
    """No template of that name is in the store."""


class TemplateChanged(CallerError):
    """The template is no longer what the caller knew; nothing was written."""


class ScheduleNotFound(CallerError, LookupError):
    """No schedule of that name is in the store."""


class ScheduleChanged(CallerError):
    """The schedule is no longer what the caller knew; nothing was written."""


class SlotTaken(CallerError):
    """The slot was claimed before, for ever, or its job runs already; nothing was written."""


class SyncMisused(CallerError, RuntimeError):
    """The synchronous bridge was closed, or called where waiting would stop what it waits for."""


class DuplicateJob(CallerError):
    """The key or slot is taken; `existing` is the job that holds it."""

    def __init__(self, message: str, *, existing: str) -> None:
        super().__init__(message)
        self.existing = existing


class JobNotFound(CallerError, LookupError):
    """No job of that id is in the store."""


class GroupNotFound(CallerError, LookupError):
    """No group of that id is in the store."""


class TransitionRefused(CallerError):
    """The job's state does not allow what was asked."""


class QueueBusy(CallerError):
    """The queue is held for another direct run, or paused; `until` says how long, if that is known.

    Nothing was stored.
    """

    def __init__(self, message: str, *, queue: str, until: datetime | None) -> None:
        super().__init__(message)
        self.queue = queue
        self.until = until


class NoWorkerAvailable(CallerError):
    """No worker took the job of a direct run in time; it will not run."""


class WaitTimeout(CallerError, TimeoutError):
    """The job had not ended when the wait was over; it goes on regardless."""


class JobNotSucceeded(CallerError):
    """The job ended without a result; `state` and `error` say how."""

    def __init__(self, message: str, *, state: str, error: str | None) -> None:
        super().__init__(message)
        self.state = state
        self.error = error


class RunError(OutlastError):
    """Something about the run that is under way."""


class TransactionTimeout(RunError, TimeoutError):
    """`run.transaction()` took too long, holding what others need; it was rolled back."""


class StopRequested(RunError):
    """The run was asked to stop; let it leave your handler, and the run ends as it was asked to."""


class LeaseLost(RunError):
    """The job was given to another worker; whatever this run still writes is refused."""


class CommandFailed(RunError):
    """A command did not end with a code that is ok; `exit_code` is -9 if SIGKILL ended it."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class PermanentError(RunError):
    """Raise it in a handler when trying again cannot help: the job is closed at once."""


class TransientError(RunError):
    """Raise it in a handler when trying again may help, whatever the type's default says."""


class OperatorError(OutlastError):
    """Whoever runs the machine can put it right."""


class StoreBusy(OperatorError):
    """Another process held the store's lock for the whole waiting time."""


class StoreSealed(OperatorError):
    """The store is being moved; what was asked may be asked again when that is over."""


class StoreMoved(OperatorError):
    """The store was moved, for good; `to` is where, without the password."""

    def __init__(self, message: str, *, to: str) -> None:
        super().__init__(message)
        self.to = to


class StoreUnavailable(OperatorError):
    """The store's server does not answer; what was asked may be asked again."""


class StoreMissing(OperatorError):
    """Nothing is there yet, and whoever asked must not create it."""


class StoreFull(OperatorError):
    """No space is left where the store lives; nothing was half-written."""


class StoreReadOnly(OperatorError):
    """The store, or the folder it lives in, cannot be written."""


class StoreCorrupt(OperatorError):
    """The store's file is damaged or cannot be read."""


class ForeignStore(OperatorError):
    """The file is not a database, or is one that belongs to something else."""


class SchemaTooNew(OperatorError):
    """A newer Outlast wrote this store; this one would not understand it."""


class ClockSkewTooLarge(OperatorError):
    """The machine's clock differs too much from the store's; leases could not be judged."""


class StoreClosed(OperatorError):
    """The store was closed, or has not been opened."""
