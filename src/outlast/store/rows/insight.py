"""Overview and wait facts assembled from rows, shared by the SQL stores."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from outlast.clock import from_micros, to_micros
from outlast.core.explain import BlockingJob, WaitFacts
from outlast.core.job import Job
from outlast.core.overview import Backlog, Overview, Running
from outlast.core.queue import Pause
from outlast.core.run import LeaseHolder
from outlast.core.state import State
from outlast.core.worker import WorkerRecord
from outlast.core.worker_capacity import able, in_use, types_wanted_by
from outlast.store.contract.transfer import from_row
from outlast.store.rows import jobs as job_rows
from outlast.store.rows import reservations as reservation_rows

Row = Sequence[Any]


def overview(
    *,
    now: datetime,
    span: timedelta,
    backlog: Sequence[Row],
    running: Sequence[Row],
    ended: Sequence[Row],
) -> Overview:
    """Return the overview made of the rows of `insight.backlog`, `.running` and `.ended`."""
    return Overview(
        now=now,
        span=span,
        backlog=[
            Backlog(queue=q, type=t, state=State(s), jobs=n, due=due, oldest=from_micros(oldest))
            for q, t, s, n, due, oldest in backlog
        ],
        running=[Running(queue=q, type=t, jobs=n, lapsed=expired) for q, t, n, expired in running],
        ended={(queue, State(state)): jobs for queue, state, jobs in ended},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRows:
    """The rows that decide when a job is claimed, all of one snapshot."""

    job: Row
    queue: Sequence[Row]
    open_runs: Sequence[Row]
    reservation: Sequence[Row]
    overlap: Sequence[Row]
    member: Sequence[Row]
    workers: Sequence[Row]
    transfer: Sequence[Row]
    open_runs_by_worker: Sequence[Row]

    def wanted_types(self) -> set[frozenset[str] | None]:
        """Return the sets of types to count the jobs ahead of this one for.

        Empty if the job does not wait.
        """
        job = self._job()
        if job.is_final or job.state is State.RUNNING:
            return set()
        return types_wanted_by(able(job, self._live_workers()), self._open_runs_by_holder())

    def facts(self, *, now: datetime, mono: int, ahead: Sequence[Row]) -> WaitFacts:
        """Return the wait facts; `ahead` has a row of `insight.ahead` for each wanted set."""
        job, workers = self._job(), self._live_workers()
        counted = [tuple(row) for row in ahead]
        return WaitFacts(
            job=job,
            now=now,
            transfer=from_row(next(iter(self.transfer), None)).at(now),
            **_limits(self.queue, to_micros(now)),
            open_runs=self.open_runs[0][2] if self.open_runs else 0,
            running=_blocking_jobs(self.open_runs),
            reservation=(
                reservation_rows.reservation(tuple(self.reservation[0]))
                if self.reservation
                else None
            ),
            overlap=next(iter(_blocking_jobs(self.overlap)), None),
            member=BlockingJob(id=self.member[0][0]) if self.member else None,
            **(dict(zip(("ahead", "next_one"), min(counted), strict=True)) if counted else {}),
            workers=workers,
            busy=in_use(able(job, workers), self._open_runs_by_holder()),
            lease_over=job.state is State.RUNNING and self._is_lease_expired(mono),
        )

    def _job(self) -> Job:
        return job_rows.job(tuple(self.job))

    def _live_workers(self) -> list[WorkerRecord]:
        workers = (job_rows.worker(tuple(row)) for row in self.workers)
        return [worker for worker in workers if worker.is_alive]

    def _open_runs_by_holder(self) -> dict[LeaseHolder, int]:
        return {
            LeaseHolder(instance_id=instance, boot_id=boot): runs
            for instance, boot, runs in self.open_runs_by_worker
        }

    def _is_lease_expired(self, mono: int) -> bool:
        until = self.job[job_rows.LEASE_UNTIL]
        return until is not None and until <= mono


def _limits(found: Sequence[Row], now: int) -> dict[str, Any]:
    if not found:
        return {}
    concurrency, paused_at, reason, until = found[0]
    is_paused = paused_at is not None and (until is None or until > now)
    if not is_paused:
        return {"concurrency": concurrency, "pause": None}
    end = None if until is None else from_micros(until)
    return {
        "concurrency": concurrency,
        "pause": Pause(at=from_micros(paused_at), reason=reason, until=end),
    }


def _blocking_jobs(found: Sequence[Row]) -> list[BlockingJob]:
    return [BlockingJob(id=row[0], holder=row[1]) for row in found]
