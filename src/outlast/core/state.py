"""States of jobs and statuses of runs."""

from enum import StrEnum


class State(StrEnum):
    """State of a job."""

    NEW = "new"  # a broadcast job whose node tasks are being written
    BLOCKED = "blocked"  # waits for another job of its group
    SCHEDULED = "scheduled"  # due later
    QUEUED = "queued"  # due; the next free worker claims it
    RUNNING = "running"  # a worker holds its lease
    RETRY_WAIT = "retry_wait"  # failed or snoozed; due again later
    SUCCEEDED = "succeeded"  # the handler returned; its result is stored
    FAILED = "failed"  # ended without a further attempt of this job
    DEAD_LETTER = "dead_letter"  # attempts exhausted, or a permanent error; never pruned
    SKIPPED = "skipped"  # there was nothing to do
    CANCELLED = "cancelled"  # cancelled before or during its run


WAITING = frozenset({State.BLOCKED, State.SCHEDULED, State.QUEUED, State.RETRY_WAIT})
FINAL = frozenset(
    {State.SUCCEEDED, State.FAILED, State.DEAD_LETTER, State.SKIPPED, State.CANCELLED}
)


class RunStatus(StrEnum):
    """Status of a run; every value but the first is final."""

    RUNNING = "running"  # open: a worker holds its lease
    SUCCEEDED = "succeeded"  # the handler returned
    FAILED = "failed"  # the handler raised
    LOST = "lost"  # its worker died, stalled or exceeded a time limit; see the reason
    RELEASED = "released"  # released unfinished; no attempt spent
    SKIPPED = "skipped"  # the handler found nothing to do
    CANCELLED = "cancelled"  # it stopped after a cancel request


class Loss(StrEnum):
    """Why a run was lost."""

    LEASE_EXPIRED = "lease_expired"  # its lease was not renewed in time
    OWNER_DEAD = "owner_dead"  # its process is dead
    STARTUP_RECOVERY = "startup_recovery"  # an earlier start of the same instance left it open
    TIMEOUT = "timeout"  # it ran longer than max_runtime
    SILENT = "silent"  # its process sent no heartbeat for max_silence
    SHUTDOWN = "shutdown"  # its worker stopped before the run ended
