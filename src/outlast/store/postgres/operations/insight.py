"""Insight reads: overview, wait facts and description, each in one snapshot."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from outlast.clock import from_micros
from outlast.core.duration import MICROSECOND
from outlast.core.explain import MOST_AHEAD, BlockingJob, WaitFacts
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.overview import Backlog, Overview, Running
from outlast.core.queue import Pause
from outlast.core.run import LeaseHolder
from outlast.core.state import State
from outlast.core.worker_capacity import able, in_use, types_wanted_by
from outlast.store.contract.transfer import TransferStatus, from_row
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork, Row
from outlast.store.postgres.uuids import is_uuid
from outlast.store.rows import jobs as job_rows
from outlast.store.rows import reservations as reservation_rows

BYTES_PER_MEGABYTE = 1_000_000


class PostgresInsightOperations(PostgresOperations):
    """Overview, wait facts and description."""

    async def overview(self, *, span: timedelta) -> Overview:
        """Return the counts of waiting, running and recently ended jobs."""
        return await self._pool.in_snapshot(partial(_overview, span=span))

    async def wait_facts(self, job_id: JobId) -> WaitFacts | None:
        """Return what `explain` needs to know about a job, or None if there is no such job."""
        if not is_uuid(job_id):
            return None
        return await self._pool.in_snapshot(partial(_wait_facts, job_id=job_id))

    async def describe(self) -> Mapping[str, str]:
        """Return the engine, address, size and durability settings of the store."""
        schema = self.address.schema
        found = (await self._pool.rows("insight.describe", schema=schema))[0]
        version, database, number, size, commits, flushes = found
        facts = {
            "engine": f"PostgreSQL {version}",
            "address": self.address.safe_text,
            "database": f"{database}, schema {schema}",
            "schema": str(number),
            "size": f"{size / BYTES_PER_MEGABYTE:,.1f} MB",
            "durability": f"synchronous_commit={commits}, fsync={flushes}",
        }
        if self.address.pooler:
            [(pinned,)] = await self._pool.rows("health.lock_sessions")
            facts["connections pinned by locks"] = str(pinned)
        return facts


async def _overview(work: PostgresUnitOfWork, *, span: timedelta) -> Overview:
    backlog = [
        Backlog(queue=q, type=t, state=State(s), jobs=n, due=due, oldest=from_micros(oldest))
        for q, t, s, n, due, oldest in await work.rows("insight.backlog", now=work.now)
    ]
    running = [
        Running(queue=q, type=t, jobs=n, lapsed=lapsed)
        for q, t, n, lapsed in await work.rows("insight.running", mono=work.mono)
    ]
    since = work.now - span // MICROSECOND
    ended = {
        (queue, State(state)): jobs
        for queue, state, jobs in await work.rows("insight.ended", since=since)
    }
    return Overview(
        now=from_micros(work.now), span=span, backlog=backlog, running=running, ended=ended
    )


async def _wait_facts(work: PostgresUnitOfWork, *, job_id: JobId) -> WaitFacts | None:
    found = await work.rows("insight.job", id=job_id)
    if not found:
        return None
    job = job_rows.job(tuple(found[0]))
    open_runs = await work.rows("insight.open_runs", queue=job.queue)
    reserved = await work.rows("insight.reservation", queue=job.queue)
    overlaps = _blocking_jobs(await work.rows("insight.overlap", name=job.name))
    registered = await work.rows("workers.list", mono=work.mono)
    alive = [worker for worker in map(_worker, registered) if worker.is_alive]
    serving = able(job, alive)
    runs_by_worker = {
        LeaseHolder(instance_id=instance, boot_id=boot): runs
        for instance, boot, runs in await work.rows("insight.runs_by_worker")
    }
    return WaitFacts(
        job=job,
        now=from_micros(work.now),
        transfer=await _transfer_status(work),
        **_queue_limits(await work.rows("insight.queue", queue=job.queue), work.now),
        open_runs=open_runs[0][2] if open_runs else 0,
        running=_blocking_jobs(open_runs),
        reservation=reservation_rows.reservation(tuple(reserved[0])) if reserved else None,
        overlap=next(iter(overlaps), None),
        member=await _blocking_member(work, job),
        **await _ahead(work, job, types_wanted_by(serving, runs_by_worker)),
        workers=alive,
        busy=in_use(serving, runs_by_worker),
        lease_over=job.state is State.RUNNING and _is_expired(found[0], work.mono),
    )


async def _transfer_status(work: PostgresUnitOfWork) -> TransferStatus:
    found = await work.rows("transfer_status.get")
    return from_row(tuple(found[0]) if found else None).at(from_micros(work.now))


def _worker(row: Row) -> Any:
    return job_rows.worker(tuple(row))


def _queue_limits(found: Sequence[Row], now: int) -> dict[str, Any]:
    if not found:
        return {}
    concurrency, paused_at, reason, until = found[0]
    is_paused = paused_at is not None and (until is None or until > now)
    until_moment = None if until is None else from_micros(until)
    pause = (
        Pause(at=from_micros(paused_at), reason=reason, until=until_moment) if is_paused else None
    )
    return {"concurrency": concurrency, "pause": pause}


def _blocking_jobs(found: Sequence[Row]) -> list[BlockingJob]:
    return [BlockingJob(id=row[0], holder=row[1]) for row in found]


async def _blocking_member(work: PostgresUnitOfWork, job: Job) -> BlockingJob | None:
    if job.state is not State.BLOCKED:
        return None
    found = await work.rows("insight.blocking_member", id=job.id)
    return BlockingJob(id=found[0][0]) if found else None


async def _ahead(
    work: PostgresUnitOfWork, job: Job, wanted: set[frozenset[str] | None]
) -> dict[str, Any]:
    if job.is_final or job.state is State.RUNNING:
        return {}
    values = {"id": job.id, "queue": job.queue, "now": work.now, "most": MOST_AHEAD + 1}
    counted = [
        tuple((await work.rows("insight.ahead", types=types and sorted(types), **values))[0])
        for types in wanted
    ]
    ahead, first = min(counted)
    return {"ahead": ahead, "next_one": first}


def _is_expired(row: Row, mono: int) -> bool:
    until = row[job_rows.LEASE_UNTIL]
    return until is not None and until <= mono
