"""Removing what should never be there: runs whose job is gone."""

from collections.abc import Mapping, Sequence
from typing import Any

from outlast.core.event import EventRecord
from outlast.store.postgres.unit_of_work import UnitOfWork
from outlast.store.rows import jobs as job_rows
from outlast.store.rows.jobs import to_json_param


async def remove_orphans(work: UnitOfWork, found: Sequence[Mapping[str, Any]]) -> list[EventRecord]:
    """Each copied to the events and deleted, unless somebody was quicker."""
    removed: list[EventRecord] = []
    for run in found:
        which = {"job": run["job"], "token": run["token"]}
        told = await work.rows(
            "maintenance.remove_orphan", now=work.now, detail=to_json_param(run), **which
        )
        removed += [job_rows.event(tuple(row)) for row in told]
    return removed
