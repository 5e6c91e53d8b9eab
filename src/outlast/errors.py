"""Exception tree of Outlast, grouped by who can act on the error.

OutlastError
├── CallerError           the calling code can act
│   ├── InvalidArgument       a value that the call cannot use
│   │   ├── ConfigurationError    a store URL or a setting that cannot be used
│   │   ├── InvalidGroup          a group that is empty, too large or has foreign members
│   │   ├── InvalidSchedule       a time rule or settings that contradict each other
│   │   └── InvalidJob            a job that cannot be stored
│   │       ├── InvalidParams         params that do not match their type
│   │       │   └── UnfitParams           stored params that this process cannot decode
│   │       │       └── PayloadUnreadable     a stored text that needs a codec or a key
│   │       ├── CodecFailed           the payload codec could not encode a text
│   │       ├── PartialEnqueueError   some jobs of `enqueue_many` were refused
│   │       └── PayloadTooLarge       params or a result over the size or depth limit
│   ├── InvalidType           a job type whose settings contradict each other
│   ├── JobNotFound           no job with that id
│   ├── GroupNotFound         no group with that id
│   ├── ScheduleNotFound      no schedule with that name
│   ├── TemplateNotFound      no template with that name
│   ├── TypeNotFound          a job type that this process has not registered
│   ├── ScheduleChanged       the schedule was edited meanwhile
│   ├── TemplateChanged       the template was edited meanwhile
│   ├── SlotTaken             the slot has run, or cannot run now
│   ├── SyncMisused           the synchronous bridge cannot be used here, or no longer
│   ├── DuplicateJob          the key or slot is taken, and `on_conflict` is `reject`
│   ├── TransitionRefused     the state of the job does not allow the change
│   ├── QueueBusy             a direct run found its queue reserved or paused
│   ├── NoWorkerAvailable     no worker claimed a direct run in time
│   ├── WaitTimeout           the job had not ended in time
│   └── JobNotSucceeded       the job ended without a result
├── RunError              the running handler can act
│   ├── TransactionTimeout    `run.transaction()` held its locks for too long
│   ├── StopRequested         the job or its worker was asked to stop
│   ├── LeaseLost             another worker has claimed the job
│   ├── CommandFailed         a command ended with an exit code that is not ok
│   ├── PermanentError        raised by handlers: do not retry
│   └── TransientError        raised by handlers: retry
└── OperatorError         the operator of the machine or store can act
    ├── StoreBusy             another process held the store's lock for too long
    ├── StoreSealed           the store is in transfer and accepts no work until that ends
    ├── StoreMoved            the store was transferred and accepts no more work
    ├── StoreUnavailable      the store's server does not answer
    ├── StoreMissing          no store exists at the URL
    ├── StoreFull             no space is left
    ├── StoreReadOnly         the store cannot be written
    ├── IdentityInUse         another worker has that name or scope
    ├── StoreCorrupt          the file is damaged or unreadable
    ├── ForeignStore          the file belongs to another program
    ├── ClockSkewTooLarge     the clocks of this machine and the store differ by too much
    ├── SchemaTooNew          a newer Outlast wrote this store
    └── StoreClosed           the store is closed
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self


class OutlastError(Exception):
    """Base of all errors that Outlast raises."""


class CallerError(OutlastError):
    """Errors that the calling code can act on."""


class InvalidArgument(CallerError, ValueError):
    """A value given to a call or a command cannot be used; nothing was written."""


class ConfigurationError(InvalidArgument):
    """A store URL, a setting or a worker's name cannot be used."""


class InvalidJob(InvalidArgument):
    """The job cannot be stored; nothing was written."""


class InvalidGroup(InvalidArgument):
    """The group cannot be stored; none of its members runs."""


class InvalidSchedule(InvalidArgument):
    """The schedule cannot be stored; nothing was written."""


class InvalidParams(InvalidJob):
    """The params do not match the job type."""


class UnfitParams(InvalidParams):
    """The stored params do not fit this process: its code refuses them, or cannot read them.

    Another process may: one with newer or older code, or with the key that they need. A worker
    that meets this error refuses the job and spends no attempt.

    Attributes:
        problems: What is wrong, such as `param "day": missing`, without any value of the params.
    """

    def __init__(self, message: str, *, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class PayloadUnreadable(UnfitParams):
    """A stored text was encoded by a codec, or with a key, that this process does not have."""


class CodecFailed(InvalidJob):
    """The payload codec of the app could not encode a text; nothing was written."""


class PayloadTooLarge(InvalidJob):
    """The params or the result exceed the size or depth limit."""


class InvalidType(CallerError, ValueError):
    """The settings of the job type are invalid or contradict each other."""


class TypeNotFound(CallerError, LookupError):
    """This process has not registered the job type."""


class TemplateNotFound(CallerError, LookupError):
    """The store has no template with that name."""


class TemplateChanged(CallerError):
    """The template was changed since the caller read it; nothing was written."""


class ScheduleNotFound(CallerError, LookupError):
    """The store has no schedule with that name."""


class ScheduleChanged(CallerError):
    """The schedule was changed since the caller read it; nothing was written."""


class SlotTaken(CallerError):
    """The slot was used before, or a job of it is running; nothing was written."""


class SyncMisused(CallerError, RuntimeError):
    """The synchronous bridge is closed, or was called on a thread with an event loop."""


class DuplicateJob(CallerError):
    """The key or slot is taken; `existing` is the id of the job that holds it."""

    def __init__(self, message: str, *, existing: str) -> None:
        super().__init__(message)
        self.existing = existing


class JobNotFound(CallerError, LookupError):
    """The store has no job with that id."""


class QueueNotFound(CallerError, LookupError):
    """No job, setting or job type uses a queue of that name."""


class GroupNotFound(CallerError, LookupError):
    """The store has no group with that id."""


class TransitionRefused(CallerError):
    """The state of the job does not allow the change."""


class QueueBusy(CallerError):
    """The queue is paused or reserved for another direct run; nothing was stored.

    `until` is the end of the pause or reservation, None if unknown.
    """

    def __init__(self, message: str, *, queue: str, until: datetime | None) -> None:
        super().__init__(message)
        self.queue = queue
        self.until = until


class NoWorkerAvailable(CallerError):
    """No worker claimed the job of a direct run in time; the job does not run."""


class WaitTimeout(CallerError, TimeoutError):
    """The job had not ended when the timeout was reached; the job goes on."""


class JobNotSucceeded(CallerError):
    """The job ended without a result; `state` and `error` describe its end."""

    def __init__(self, message: str, *, state: str, error: str | None) -> None:
        super().__init__(message)
        self.state = state
        self.error = error


class RunError(OutlastError):
    """Errors of the current run, which its handler can act on."""


class TransactionTimeout(RunError, TimeoutError):
    """`run.transaction()` exceeded its time limit and was rolled back."""


class StopRequested(RunError):
    """The run was asked to stop; let this error leave the handler."""


class LeaseLost(RunError):
    """Another worker has claimed the job; later writes of this run are refused."""


class CommandFailed(RunError):
    """A command ended with an exit code that is not ok; -9 means SIGKILL."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class PermanentError(RunError):
    """Raise it in a handler if a retry cannot help: the job fails at once."""


class TransientError(RunError):
    """Raise it in a handler if a retry may help, whatever the default of the type is."""


class OperatorError(OutlastError):
    """Errors that the operator of the machine or store can act on.

    `answers`: where the store failed in the midst of a call of several items, the answer of each
    item in order, None for those it did not give; empty if it gave none.
    """

    answers: Sequence[Any] = ()

    def with_answers(self, answers: Sequence[Any]) -> Self:
        """Return a copy of this error with the answers that the store gave before it failed."""
        copy = type(self).__new__(type(self), *self.args)
        copy.__dict__.update(self.__dict__, answers=tuple(answers))
        return copy


class StoreBusy(OperatorError):
    """Another process held the store's lock for the whole timeout."""


class StoreSealed(OperatorError):
    """The store is in transfer; retry when the transfer has ended."""


class StoreMoved(OperatorError):
    """The store was transferred; `to` is its new URL without the password."""

    def __init__(self, message: str, *, to: str) -> None:
        super().__init__(message)
        self.to = to


class StoreUnavailable(OperatorError):
    """The store's server does not answer; the call may be retried."""


class StoreMissing(OperatorError):
    """No store exists at the URL, and this call does not create one."""


class StoreFull(OperatorError):
    """No space is left for the store; the write was rolled back."""


class StoreReadOnly(OperatorError):
    """The store or its folder cannot be written."""


class IdentityInUse(OperatorError):
    """A living worker has that instance id or scope."""


class StoreCorrupt(OperatorError):
    """The file of the store is damaged or unreadable."""


class ForeignStore(OperatorError):
    """The file is not a database, or belongs to another program."""


class SchemaTooNew(OperatorError):
    """A newer version of Outlast wrote this store; upgrade this process."""


class ClockSkewTooLarge(OperatorError):
    """The clocks of machine and store differ by too much to compare leases."""


class StoreClosed(OperatorError):
    """The store is closed or was never opened."""
