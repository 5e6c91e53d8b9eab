"""The states a job and a run can be in."""

from enum import StrEnum


class State(StrEnum):
    """Where a job stands."""

    NEW = "new"  # a broadcast job whose node tasks are still being written
    BLOCKED = "blocked"  # waits for other jobs of its group
    SCHEDULED = "scheduled"  # due later
    QUEUED = "queued"  # due now; the next free worker takes it
    RUNNING = "running"  # a worker holds its lease
    RETRY_WAIT = "retry_wait"  # failed or snoozed; due again later
    SUCCEEDED = "succeeded"  # done, result written
    FAILED = "failed"  # closed; nothing more is owed by this record
    DEAD_LETTER = "dead_letter"  # retries used up, or an error no retry can help; kept
    SKIPPED = "skipped"  # decided that nothing was to be done
    CANCELLED = "cancelled"  # somebody asked it not to run


WAITING = frozenset({State.BLOCKED, State.SCHEDULED, State.QUEUED, State.RETRY_WAIT})
FINAL = frozenset(
    {State.SUCCEEDED, State.FAILED, State.DEAD_LETTER, State.SKIPPED, State.CANCELLED}
)


class RunStatus(StrEnum):
    """How one run stands; every value but the first is final."""

    RUNNING = "running"  # open: its worker holds the lease
    SUCCEEDED = "succeeded"  # the handler returned
    FAILED = "failed"  # the handler raised
    LOST = "lost"  # its worker vanished, was silent, or ran out of time; the reason says which
    RELEASED = "released"  # handed back unfinished, counted as nothing
    SKIPPED = "skipped"  # the handler decided there was nothing to do
    CANCELLED = "cancelled"  # it stopped because it was asked to


class Loss(StrEnum):
    """Why a run was lost."""

    LEASE_EXPIRED = "lease_expired"  # nobody renewed its lease
    OWNER_DEAD = "owner_dead"  # its process was seen dead
    STARTUP_RECOVERY = "startup_recovery"  # an earlier boot of the same instance left it
    TIMEOUT = "timeout"  # it ran longer than max_runtime
    SILENT = "silent"  # its process showed no life for max_silence
    SHUTDOWN = "shutdown"  # the worker stopped before it could end
