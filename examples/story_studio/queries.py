"""S1's queries, asked of a studio and answered with S1's columns."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from outlast import Job, State
from outlast.store.contract.jobs import Filter

from .studio import QUEUE, Studio
from .words import (
    JobRunStatus,
    JobStatus,
    job_row,
    reservation_row,
    run_row,
    schedule_row,
    template_row,
)

Row = Mapping[str, Any]
Query = Callable[[Studio], Awaitable[Sequence[Row]]]

PAGE: Final = 1_000
ORDER: Final = ("job_id", "priority", "position", "created_at")


async def jobs(studio: Studio) -> list[Row]:
    """Every job, in the order of creation; a direct one is no part of the queue until it runs."""
    return [asdict(job_row(job)) for job in await _find(studio)]


async def job_runs(studio: Studio) -> list[Row]:
    """Every run, in the order in which they were started."""
    found = [run for job in await _find(studio) for run in await studio.app.runs(job.id)]
    return [asdict(run_row(run)) for run in sorted(found, key=lambda run: run.started_at)]


async def direct_reservations(studio: Studio) -> list[Row]:
    """Every reservation, the oldest first."""
    return await _reservations(studio, active_only=False)


async def job_templates(studio: Studio) -> list[Row]:
    """Every template, by name."""
    return [asdict(template_row(each)) for each in await studio.app.templates.list()]


async def schedules(studio: Studio) -> list[Row]:
    """Every schedule, by its identifier."""
    ids = {each.name: each.id for each in await studio.app.templates.list()}
    found = await studio.app.schedules.list()
    return [asdict(schedule_row(each, ids.get(each.plan.template or ""))) for each in found]


async def order(studio: Studio) -> list[Row]:
    """S1 5.4: the queue in its order, to verify it by."""
    return [{name: row[name] for name in ORDER} for row in await _waiting(studio, PAGE)]


async def head(studio: Studio) -> list[Row]:
    """S1 3.1: the job that is dispatched next."""
    return await _waiting(studio, 1)


async def reserved(studio: Studio) -> list[Row]:
    """S1 3.3: the reservation that holds the queue, if there is one."""
    return await _reservations(studio, active_only=True)


async def interrupted(studio: Studio) -> list[Row]:
    """S1 4.2: jobs that are RUNNING; those that have finished are not meant."""
    rows = await jobs(studio)
    return [row for row in rows if row["status"] == JobStatus.RUNNING and not row["finished_at"]]


async def failed(studio: Studio) -> list[Row]:
    """S1 4.4: failed runs of finished jobs, with what their job is a retry of."""
    by_id = {row["job_id"]: row for row in await jobs(studio)}
    runs = [run for run in await job_runs(studio) if run["status"] == JobRunStatus.FAILED]
    return [{**run, "retry_of": by_id[run["job_id"]]["retry_of"]} for run in runs]


async def permanently_failed(studio: Studio) -> list[Row]:
    """S1 4.4: jobs whose retries are used up."""
    return [asdict(job_row(job)) for job in await _find(studio, State.DEAD_LETTER)]


async def without_run(studio: Studio) -> list[Row]:
    """S1 5.1: jobs that are RUNNING without a run. There are none."""
    began = {run["job_id"] for run in await job_runs(studio)}
    rows = [row for row in await jobs(studio) if row["status"] == JobStatus.RUNNING]
    return [row for row in rows if row["job_id"] not in began]


async def _waiting(studio: Studio, limit: int) -> list[Row]:
    return [asdict(job_row(job)) for job in await studio.app.queues.next_jobs(QUEUE, limit)]


async def _reservations(studio: Studio, *, active_only: bool) -> list[Row]:
    await studio.app.store.open()
    found = await studio.app.store.reservations(active_only=active_only, limit=PAGE)
    return [asdict(reservation_row(each)) for each in found[::-1] if each.queue == QUEUE]


async def _find(studio: Studio, *states: State) -> list[Job]:
    what = Filter(queue=QUEUE, states=frozenset(states) if states else None)
    await studio.app.store.open()
    found: list[Job] = []
    while page := await studio.app.store.find(
        what, limit=PAGE, before=found[-1].seq if found else None
    ):
        found.extend(page)
    held = await studio.app.store.reservations(active_only=True, limit=PAGE)
    direct = {each.job_id for each in held}
    return [job for job in found[::-1] if job.token or job.is_final or job.id not in direct]


QUERIES: Final[Mapping[str, Query]] = {
    "jobs": jobs,
    "job_runs": job_runs,
    "direct_reservations": direct_reservations,
    "job_templates": job_templates,
    "schedules": schedules,
    "next": head,
    "order": order,
    "reserved": reserved,
    "interrupted": interrupted,
    "failed": failed,
    "permanently_failed": permanently_failed,
    "without_run": without_run,
}
