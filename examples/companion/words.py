"""Our jobs in S2's words: pure, a function for an item and one for its status."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, assert_never

from outlast import Job, State
from outlast.core.delivery import Delivery
from outlast.core.run import RunRecord

PK: Final = "job"


class Status(StrEnum):
    """S2's six."""

    PENDING = "pending"  # ready to run, or scheduled in the future
    IN_PROGRESS = "in_progress"  # claimed by a worker whose lock is active
    COMPLETED = "completed"  # executed with success
    FAILED = "failed"  # failed for now; it will be tried again
    DEAD_LETTER = "dead_letter"  # failed for good
    CANCELLED = "cancelled"  # it will not run


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """S2 1, field by field; `lock_expires_at` is the store's own."""

    PK: str
    SK: str
    job_type: str
    payload: dict[str, Any]
    scheduled_for: str
    status: Status
    locked_by: str | None
    attempts: int
    last_error: str | None
    created_at: str
    completed_at: str | None


def item(job: Job, runs: Sequence[RunRecord] = ()) -> Item:
    """The job as S2's table has it; ValueError if it is none of S2's. `runs` are its runs."""
    state = status(job)
    due = moment(job.available_at)
    errors = [run.error for run in runs if run.error]
    return Item(
        PK=PK,
        SK=f"scheduled#{due}#{job.id}",
        job_type=job.type,
        payload=json.loads(job.params),
        scheduled_for=due,
        status=state,
        locked_by=job.holder if state is Status.IN_PROGRESS else None,
        attempts=job.failures,
        last_error=errors[-1] if errors else None,
        created_at=moment(job.created_at),
        completed_at=(
            moment(job.finished_at) if state is Status.COMPLETED and job.finished_at else None
        ),
    )


def status(job: Job) -> Status:  # noqa: PLR0911 - a word for each state
    """One of the six; S2's jobs are leased, so nothing else has a word."""
    if job.delivery is not Delivery.LEASE:
        raise ValueError(f"job {job.id} is delivered {job.delivery}; S2 has words for lease alone")
    match job.state:
        case State.NEW | State.BLOCKED | State.SCHEDULED | State.QUEUED:
            return Status.PENDING
        case State.RUNNING:
            return Status.IN_PROGRESS
        case State.RETRY_WAIT:
            # One that was only put off has not failed.
            return Status.FAILED if job.failures else Status.PENDING
        case State.SUCCEEDED:
            return Status.COMPLETED
        case State.SKIPPED:
            # Its handler found nothing to do, and that is done; without a run it never will be.
            return Status.COMPLETED if job.token else Status.CANCELLED
        case State.DEAD_LETTER:
            return Status.DEAD_LETTER
        case State.CANCELLED:
            return Status.CANCELLED
        case State.FAILED:
            raise ValueError(f"job {job.id} failed and was closed, which no job of S2 ever is")
        case _:
            assert_never(job.state)


def moment(at: datetime) -> str:
    """UTC, of one width: the order of the text is the order of time."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
