"""Removing what should never be there: runs whose job is gone."""

from collections.abc import Mapping, Sequence
from typing import Any

from outlast.clock import moment
from outlast.core.event import EventRecord, Kind
from outlast.store.rows.jobs import dumps
from outlast.store.sqlite.verbs.footing import while_open
from outlast.store.sqlite.writer import Work


@while_open
def remove_orphans(work: Work, found: Sequence[Mapping[str, Any]]) -> list[EventRecord | None]:
    """Each copied to the events, then deleted; None where somebody was quicker."""
    return [_remove(work, run) for run in found]


def _remove(work: Work, run: Mapping[str, Any]) -> EventRecord | None:
    detail = dumps(run)
    recorded = work.run("orphan.record", run_id=run["run_id"], now=work.now, detail=detail)
    if recorded.rowcount <= 0:
        return None
    number = recorded.lastrowid or 0
    work.run("orphan.delete", run_id=run["run_id"])
    return EventRecord(
        id=number,
        at=moment(work.now),
        job_id=None,
        run_id=run["run_id"],
        kind=Kind.ORPHAN_RUN_REMOVED,
        token=run["token"],
        reason=run["status"],
        detail=detail,
    )
