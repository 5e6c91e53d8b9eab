"""Log events about jobs, with the same event names and keys everywhere.

A line reads `job_end job=… run=… status=succeeded`. The log record has the same fields in `facts`,
for a formatter that writes JSON. Arguments and results are never logged.
"""

import logging
import traceback
from pathlib import Path
from typing import Any

from outlast.core.decide import Change
from outlast.core.run import Claim, Lease
from outlast.core.state import RunStatus
from outlast.telemetry.events import emit, has_audience

log = logging.getLogger("outlast.jobs")


def job_start(claim: Claim) -> bool:
    """Log that a handler is about to be called.

    Returns False, without an event, if neither the log nor a sink wants the start and the end.
    """
    if not has_audience(log, logging.INFO):
        return False
    emit(log, logging.INFO, "job_start", _claim_fields(claim))
    return True


def job_end(claim: Claim, change: Change, seconds: float, rows: int = 0) -> None:
    """Log the end of a handler, with its duration and the rows it reported.

    The reason of a `Skip`, `Snooze` or `Cancel` is free text and may quote arguments: not logged.
    """
    status = change.move.run or change.move.to
    ended = {
        "status": str(status),
        "to": str(change.move.to),
        "duration_seconds": round(seconds, 6),
        "rows_processed": rows,
    }
    why = {"reason": change.reason_code} if change.reason_code else {}
    emit(log, logging.INFO, "job_end", {**_claim_fields(claim), **ended, **why})


def job_error(claim: Claim, error: BaseException, error_text: str) -> None:
    """Log the class and place of a handler's error.

    `error_text` may quote arguments: sinks receive it, the log line does not.
    """
    frames = traceback.extract_tb(error.__traceback__)
    at = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    fields = {**_claim_fields(claim), "error": type(error).__name__, "at": at}
    emit(log, logging.ERROR, "job_error", fields, error_text)


def job_unfit(claim: Claim, error: BaseException, change: Change) -> None:
    """Log that the params of a job do not fit this worker's code, without the params.

    The end that follows when `max_unfit` has passed is an error too.
    """
    delay = change.delay if change.successor is None else change.successor.delay
    waits = {"delay_seconds": delay.total_seconds()} if delay else {}
    fields = {**_claim_fields(claim), "to": str(change.move.to), "error": type(error).__name__}
    fields |= waits
    emit(log, logging.WARNING, "job_unfit", fields, change.error)
    if change.move.run is RunStatus.FAILED:
        job_error(claim, error, change.error or type(error).__name__)


def job_lost(lease: Lease, **fields: Any) -> None:
    """Log that a worker lost a run."""
    emit(log, logging.WARNING, "job_lost", {**_lease_fields(lease), **fields})


def late_write_refused(change: Change) -> None:
    """Log that the store refused the change of a worker whose lease was lost."""
    fields = {"job": change.job_id, "token": change.token, "wanted": str(change.move.to)}
    emit(log, logging.WARNING, "late_write_refused", fields)


def _claim_fields(claim: Claim) -> dict[str, Any]:
    return {
        "job": claim.job_id,
        "run": claim.run_id,
        "type": claim.type,
        "attempt": claim.failures + 1,
        "token": claim.token,
        **({"slot": claim.slot_at.isoformat()} if claim.slot_at else {}),
    }


def _lease_fields(lease: Lease) -> dict[str, Any]:
    return {"job": lease.job_id, "token": lease.token}
