"""Insight reads: overview, wait facts, description and health, each from one snapshot."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Final

from outlast.clock import Clock, to_micros
from outlast.core.duration import MICROSECOND
from outlast.core.explain import MOST_AHEAD, WaitFacts
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.overview import Overview
from outlast.core.state import State
from outlast.store.rows import insight as insight_rows
from outlast.store.rows import jobs as job_rows
from outlast.store.sqlite.connection import health_warnings
from outlast.store.sqlite.file_modes import permission_warnings
from outlast.store.sqlite.operations.base import SqliteOperations
from outlast.store.sqlite.reader import Query

_BYTES_PER_MEGABYTE: Final = 1_000_000
_SYNCHRONOUS_NAMES: Final = ("OFF", "NORMAL", "FULL", "EXTRA")


class SqliteInsightOperations(SqliteOperations):
    """What the store reports to people."""

    async def overview(self, *, span: timedelta) -> Overview:
        """Return what waits and runs now and what ended within `span`."""
        return await self._reader.in_snapshot(partial(_overview, clock=self._clock, span=span))

    async def wait_facts(self, job_id: JobId) -> WaitFacts | None:
        """Return everything that decides when a job is claimed, or None."""
        read = partial(_wait_facts, clock=self._clock, job_id=job_id)
        return await self._reader.in_snapshot(read)

    async def describe(self) -> Mapping[str, str]:
        """Return engine, file, schema version, size and journal mode."""
        version, schema, size, mode, sync = (await self._reader.rows("insight.describe"))[0]
        return {
            "engine": f"SQLite {version}",
            "file": str(self.path),
            "schema": str(schema),
            "size": f"{size / _BYTES_PER_MEGABYTE:,.1f} MB",
            "journal": f"{mode}, synchronous={_SYNCHRONOUS_NAMES[sync]}",
        }

    def connection_warnings(self) -> list[str]:
        """Return no warnings."""
        return []

    async def health_warnings(self) -> list[str]:
        """Return warnings about the SQLite library and the file's permissions."""
        return [*health_warnings(), *permission_warnings(self.path)]


def _overview(query: Query, *, clock: Clock, span: timedelta) -> Overview:
    now = clock.now()
    return insight_rows.overview(
        now=now,
        span=span,
        backlog=query("insight.backlog", now=to_micros(now)),
        running=query("insight.running", mono=clock.monotonic()),
        ended=query("insight.ended", since=to_micros(now) - span // MICROSECOND),
    )


def _wait_facts(query: Query, *, clock: Clock, job_id: JobId) -> WaitFacts | None:
    found = query("insight.job", id=job_id)
    if not found:
        return None
    job, now, mono = job_rows.job(found[0]), clock.now(), clock.monotonic()
    rows = insight_rows.WaitRows(
        job=found[0],
        queue=query("insight.queue", queue=job.queue),
        open_runs=query("insight.open_runs", queue=job.queue),
        reservation=query("reservations.active", queue=job.queue),
        overlap=query("insight.overlap", name=job.name),
        member=query("insight.member", id=job.id) if job.state is State.BLOCKED else [],
        workers=query("workers.list", mono=mono),
        transfer=query("transfer_status.get"),
        open_runs_by_worker=query("insight.open_runs_by_worker"),
    )
    ahead = [_ahead(query, job, now=to_micros(now), types=types) for types in rows.wanted_types()]
    return rows.facts(now=now, mono=mono, ahead=ahead)


def _ahead(query: Query, job: Job, *, now: int, types: frozenset[str] | None) -> job_rows.Row:
    place = {
        "queue": job.queue,
        "priority": job.priority,
        "position": job.position,
        "available_at": to_micros(job.available_at),
        "created_at": to_micros(job.created_at),
        "seq": job.seq,
    }
    names = types and sorted(types)
    return query("insight.ahead", now=now, most=MOST_AHEAD + 1, types=names, **place)[0]
