"""S0's `job_runs`: a view over Outlast's runs, and the slots that an INSERT into it claimed."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from outlast import Outlast
from outlast.clock import to_micros
from outlast.config import UnknownOwnerPolicy

from .desk import Desk

log = logging.getLogger("daily_brief")

STARTUP_RECOVERY: Final = "worker_startup_recovery"
"""The error of a run whose worker died."""


async def install(app: Outlast, desk: Desk) -> None:
    """Create the view beside Outlast's tables, which are created first. Idempotent."""
    await app.store.open()
    await asyncio.to_thread(desk.create_job_runs)


def latest(desk: Desk, most: int) -> list[dict[str, Any]]:
    """Return rows of `job_runs`, newest first."""
    with desk.reading() as tx:
        return [dict(row) for row in tx.run("runs", most=most)]


def recovered(desk: Desk) -> dict[str, int]:
    """Return how many runs a start or a threshold has closed, by reason."""
    with desk.reading() as tx:
        return {row["reason"]: row["count"] for row in tx.run("recovered")}


def close_stale(desk: Desk, name: str, now: datetime, threshold: timedelta) -> int:
    """S0 6.2: close the runs of claimed slots that are older than the threshold; their number."""
    with desk.writing() as tx:
        stale = tx.run(
            "close_stale", name=name, now=to_micros(now), before=to_micros(now - threshold)
        ).fetchall()
    for row in stale:
        _report("stale", name, row["id"], row["worker_instance"])
    return len(stale)


def recover(
    desk: Desk,
    own: str,
    now: datetime,
    *,
    unknown: UnknownOwnerPolicy,
    threshold: Callable[[str], timedelta],
) -> int:
    """S0 7.1: close what earlier starts of this instance left; their number.

    Rows of other instances, or of none, follow the policy `unknown`.
    """
    with desk.reading() as tx:
        rows = tx.run("open_claims").fetchall()
    count = 0
    for row in rows:
        if row["worker_instance"] == own or unknown == "fail":
            with desk.writing() as tx:
                count += tx.run("recover_claim", id=row["id"], now=to_micros(now)).rowcount
            _report("recovered", row["job_name"], row["id"], row["worker_instance"])
        elif unknown == "threshold":
            count += close_stale(desk, row["job_name"], now, threshold(row["job_name"]))
    return count


def _report(event: str, name: str, row_id: str, instance: str | None) -> None:
    facts = {"event": event, "job_name": name, "id": row_id, "worker_instance": instance}
    log.warning(
        "%s job_name=%s id=%s worker_instance=%s",
        event,
        name,
        row_id,
        instance,
        extra={"facts": facts},
    )


def add_job_name(record: logging.LogRecord) -> bool:
    """Add S0's `job_name` to a log record about a job; a filter of the logger `outlast.jobs`."""
    facts = getattr(record, "facts", {})
    if "type" in facts and "job_name" not in facts:
        record.facts = {**facts, "job_name": facts["type"]}
        record.msg = f"{record.msg} job_name={facts['type']}"  # a type's name has no %
    return True
