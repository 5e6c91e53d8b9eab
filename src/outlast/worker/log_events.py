"""Every log line about a job, made in one place: the same words and the same keys everywhere.

The line itself reads `job_end job=… run=… status=succeeded`; the same facts are on the record as
`facts`, for a formatter that writes JSON. Arguments and results are never among them.
"""

import logging
import traceback
from pathlib import Path
from typing import Any

from outlast.core.decide import Change
from outlast.core.run import Claim, Lease
from outlast.telemetry.events import emit, has_audience

log = logging.getLogger("outlast.jobs")


def job_start(claim: Claim) -> bool:
    """A handler is about to be called. False if nobody wants to hear that, nor of its end."""
    if not has_audience(log, logging.INFO):
        return False
    emit(log, logging.INFO, "job_start", _who(claim))
    return True


def job_end(claim: Claim, change: Change, seconds: float, rows: int = 0) -> None:
    """A handler is done with; the change says what became of its job, `rows` how many it did."""
    status = change.move.run or change.move.to
    ended = {
        "status": str(status),
        "to": str(change.move.to),
        "duration_seconds": round(seconds, 6),
        "rows_processed": rows,
    }
    why = {"reason": change.reason} if change.reason else {}
    emit(log, logging.INFO, "job_end", {**_who(claim), **ended, **why})


def job_error(claim: Claim, error: BaseException, words: str) -> None:
    """A handler raised: what, and where. Its words, which may quote arguments, are on the run."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    facts = {**_who(claim), "error": type(error).__name__, "at": at}
    emit(log, logging.ERROR, "job_error", facts, words)


def job_lost(lease: Lease, **facts: Any) -> None:
    """A run was taken from whoever had it."""
    emit(log, logging.WARNING, "job_lost", {**_lease(lease), **facts})


def late_write_refused(change: Change) -> None:
    """A former holder wanted to end a run that is no longer its own."""
    facts = {"job": change.job_id, "token": change.token, "wanted": str(change.move.to)}
    emit(log, logging.WARNING, "late_write_refused", facts)


def _who(claim: Claim) -> dict[str, Any]:
    return {
        "job": claim.job_id,
        "run": claim.run_id,
        "type": claim.type,
        "attempt": claim.failures + 1,
        "token": claim.token,
        **({"slot": claim.slot_at.isoformat()} if claim.slot_at else {}),
    }


def _lease(lease: Lease) -> dict[str, Any]:
    return {"job": lease.job_id, "token": lease.token}
