"""Removing what should never be there: runs whose job is gone."""

from collections.abc import Mapping, Sequence
from typing import Any

from outlast.clock import from_micros
from outlast.core.event import EventKind, EventRecord
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.verbs.footing import require_open_store
from outlast.store.sqlite.writer import WriteTransaction


@require_open_store
def remove_orphans(
    work: WriteTransaction, found: Sequence[Mapping[str, Any]]
) -> list[EventRecord | None]:
    """Each copied to the events, then deleted; None where somebody was quicker."""
    return [_remove(work, run) for run in found]


def _remove(work: WriteTransaction, run: Mapping[str, Any]) -> EventRecord | None:
    detail = to_json_param(run)
    recorded = work.run(
        "maintenance.record_orphan", run_id=run["run_id"], now=work.now, detail=detail
    )
    if recorded.rowcount <= 0:
        return None
    number = recorded.lastrowid or 0
    work.run("maintenance.delete_orphan", run_id=run["run_id"])
    return EventRecord(
        id=number,
        at=from_micros(work.now),
        job_id=None,
        run_id=run["run_id"],
        kind=EventKind.ORPHAN_RUN_REMOVED,
        token=run["token"],
        reason=run["status"],
        detail=detail,
    )
