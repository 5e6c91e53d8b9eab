"""The reads for people, each from one consistent moment."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from outlast.clock import Clock, from_micros, to_micros
from outlast.core.duration import MICROSECOND
from outlast.core.explain import MOST_AHEAD, BlockingJob, WaitFacts, able, in_use, types_wanted_by
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.overview import Backlog, Overview, Running
from outlast.core.queue import Pause
from outlast.core.run import LeaseHolder
from outlast.core.state import State
from outlast.store.rows import jobs as job_rows
from outlast.store.rows import reservations as reservation_rows
from outlast.store.sqlite.connection import health_warnings
from outlast.store.sqlite.operations.base import SqliteOperations
from outlast.store.sqlite.reader import Query

MEGABYTE = 1_000_000
SYNC = ("OFF", "NORMAL", "FULL", "EXTRA")


class SqliteViews(SqliteOperations):
    """What a store on a file tells people."""

    async def overview(self, *, span: timedelta) -> Overview:
        return await self._reader.in_snapshot(partial(_overview, clock=self._clock, span=span))

    async def wait_facts(self, job_id: JobId) -> WaitFacts | None:
        return await self._reader.in_snapshot(partial(_situation, clock=self._clock, job_id=job_id))

    async def describe(self) -> Mapping[str, str]:
        version, schema, size, mode, sync = (await self._reader.rows("insight.facts"))[0]
        return {
            "engine": f"SQLite {version}",
            "file": str(self.path),
            "schema": str(schema),
            "size": f"{size / MEGABYTE:,.1f} MB",
            "journal": f"{mode}, synchronous={SYNC[sync]}",
        }

    async def health_warnings(self) -> list[str]:
        return [*health_warnings(), *_permissions(self.path)]


def _permissions(path: Path) -> list[str]:
    if path.exists() and path.stat().st_mode & 0o002:
        return [f"anybody on this machine may write {path}; take that away: chmod o-w {path}"]
    return []


def _overview(ask: Query, *, clock: Clock, span: timedelta) -> Overview:
    now = clock.now()
    backlog = [
        Backlog(queue=q, type=t, state=State(s), jobs=n, due=due, oldest=from_micros(oldest))
        for q, t, s, n, due, oldest in ask("insight.backlog", now=to_micros(now))
    ]
    running = [
        Running(queue=q, type=t, jobs=n, lapsed=lapsed)
        for q, t, n, lapsed in ask("insight.running", mono=clock.monotonic())
    ]
    ended = {
        (queue, State(state)): jobs
        for queue, state, jobs in ask("insight.ended", since=to_micros(now) - span // MICROSECOND)
    }
    return Overview(now=now, span=span, backlog=backlog, running=running, ended=ended)


def _situation(ask: Query, *, clock: Clock, job_id: JobId) -> WaitFacts | None:
    found = ask("insight.job", id=job_id)
    if not found:
        return None
    job, now = job_rows.job(found[0]), clock.now()
    open_runs = ask("insight.open_runs", queue=job.queue)
    reserved = ask("reservations.active", queue=job.queue)
    limits = _limits(ask("insight.queue", queue=job.queue), to_micros(now))
    workers = [job_rows.worker(row) for row in ask("jobs.workers", mono=clock.monotonic())]
    alive = [worker for worker in workers if worker.is_alive]
    serving = able(job, alive)
    held = {
        LeaseHolder(instance_id=instance, boot_id=boot): runs
        for instance, boot, runs in ask("insight.held")
    }
    return WaitFacts(
        job=job,
        now=now,
        **limits,
        open_runs=open_runs[0][2] if open_runs else 0,
        running=_others(open_runs),
        reservation=reservation_rows.reservation(reserved[0]) if reserved else None,
        overlap=next(iter(_others(ask("insight.overlap", name=job.name))), None),
        member=_member(ask, job),
        **_ahead(ask, job, to_micros(now), types_wanted_by(serving, held)),
        workers=alive,
        busy=in_use(serving, held),
        lease_over=job.state is State.RUNNING and _is_over(found[0], clock),
    )


def _limits(found: Sequence[job_rows.Row], now: int) -> dict[str, Any]:
    if not found:
        return {}
    concurrency, paused_at, reason, until = found[0]
    is_paused = paused_at is not None and (until is None or until > now)
    until_moment = None if until is None else from_micros(until)
    pause = (
        Pause(at=from_micros(paused_at), reason=reason, until=until_moment) if is_paused else None
    )
    return {"concurrency": concurrency, "pause": pause}


def _others(found: Sequence[job_rows.Row]) -> list[BlockingJob]:
    return [BlockingJob(id=row[0], holder=row[1]) for row in found]


def _member(ask: Query, job: Job) -> BlockingJob | None:
    if job.state is not State.BLOCKED:
        return None
    found = ask("insight.member", id=job.id)
    return BlockingJob(id=found[0][0]) if found else None


def _ahead(ask: Query, job: Job, now: int, wanted: set[frozenset[str] | None]) -> dict[str, Any]:
    place = {
        "queue": job.queue,
        "priority": job.priority,
        "position": job.position,
        "available_at": to_micros(job.available_at),
        "created_at": to_micros(job.created_at),
        "seq": job.seq,
    }
    if job.is_final or job.state is State.RUNNING:
        return {}
    ahead, first = min(
        ask("insight.ahead", now=now, most=MOST_AHEAD + 1, types=types and sorted(types), **place)[
            0
        ]
        for types in wanted
    )
    return {"ahead": ahead, "next_one": first}


_LEASE_UNTIL = -2


def _is_over(row: job_rows.Row, clock: Clock) -> bool:
    until = row[_LEASE_UNTIL]
    return until is not None and until <= clock.monotonic()
