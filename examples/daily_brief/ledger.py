"""S0's `job_runs`: a copy of Outlast's records for queries in SQL."""

import asyncio
import json
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from outlast import Job, Outlast
from outlast.core.ids import JobId
from outlast.store.contract.jobs import Filter

from .desk import Desk, stamp
from .rules import RULES
from .words import JobRunRow, run_row

PAGE: Final = 200


async def refresh(app: Outlast, desk: Desk) -> int:
    """Update `job_runs` from Outlast's records; return the number of rows written. Idempotent.

    Looked at are the runs that are open here, and jobs from the newest down to a page of which
    every run is closed here already: all that is older was seen before.
    """
    await app.store.open()
    written = await _keep(app, desk, await _open(app, desk))
    for name in RULES:
        before: int | None = None
        while page := await app.store.find(Filter(type=name), limit=PAGE, before=before):
            fresh = [job for job in page if job.token]
            if fresh == page and await asyncio.to_thread(_closed, desk, page) == len(page):
                break
            written += await _keep(app, desk, fresh)
            before = page[-1].seq
    return written


def latest(desk: Desk, most: int) -> list[dict[str, Any]]:
    """Return rows of `job_runs`, newest first."""
    with desk.reading() as tx:
        return [dict(row) for row in tx.run("runs", most=most)]


async def _open(app: Outlast, desk: Desk) -> list[Job]:
    ids = await asyncio.to_thread(_open_ids, desk)
    return [job for job in await app.store.get(ids) if job is not None]


def _open_ids(desk: Desk) -> list[JobId]:
    with desk.reading() as tx:
        return [JobId(row["job_id"]) for row in tx.run("open_runs")]


def _closed(desk: Desk, jobs: list[Job]) -> int:
    with desk.reading() as tx:
        asked = json.dumps([job.id for job in jobs])
        [(count,)] = tx.run("closed_runs_of", jobs=asked)
    return int(count)


async def _keep(app: Outlast, desk: Desk, jobs: list[Job]) -> int:
    rows = [(job, run_row(job, run)) for job in jobs for run in await app.store.runs(job.id)]
    return await asyncio.to_thread(_write, desk, rows) if rows else 0


def _write(desk: Desk, rows: list[tuple[Job, JobRunRow]]) -> int:
    with desk.writing() as tx:
        return sum(tx.run("keep_run", **_plain(job, row)).rowcount for job, row in rows)


def _plain(job: Job, row: JobRunRow) -> dict[str, Any]:
    found = {**asdict(row), "job_id": job.id, "status": str(row.status)}
    return {
        name: stamp(value) if isinstance(value, datetime) else value
        for name, value in found.items()
    }
