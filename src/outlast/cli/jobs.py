"""`outlast jobs`: which jobs there are."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import click

from outlast.cli.command import CommandContext, verb
from outlast.cli.job_filter import JobFilter, parse
from outlast.cli.job_search import search_jobs
from outlast.cli.output import ago
from outlast.clock import SystemClock
from outlast.core.duration import format_short
from outlast.core.job import Job
from outlast.core.state import State

COLUMNS = ("ID", "TYPE", "QUEUE", "STATE", ">PRIORITY", "CREATED", "WHAT")


@verb("jobs")
@click.argument("filters", nargs=-1)
@click.option("-n", "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
@click.option("--count", is_flag=True, help="Only how many there are of each queue and state.")
async def command(
    desk: CommandContext, /, filters: tuple[str, ...], limit: int, count: bool
) -> None:
    """List jobs, the newest first; FILTERS such as state:dead_letter type:mail.* since:2h.

    Keys: state type queue key group id since params.NAME error. A state may be one of ours, several
    with commas, or waiting, open, dead, done.
    """
    now = SystemClock().now()
    wanted = parse(filters, now=now)
    if count:
        await _count(desk, wanted if filters else None)
        return
    found: list[Job] = []
    async for job in search_jobs(desk.app.store, wanted, desk.out):
        found.append(job)
        if len(found) == limit:
            break
    if desk.out.as_json:
        for job in found:
            desk.out.record(job)
        return
    desk.out.table(COLUMNS, [_row(job, now) for job in found])
    if len(found) == limit:
        desk.out.message(f"the newest {limit}; -n for more")
    elif not found:
        desk.out.message("no job fits")


async def _count(desk: CommandContext, wanted: JobFilter | None) -> None:
    counts = sorted((await _counted(desk, wanted)).items())
    if desk.out.as_json:
        for (queue, state), number in counts:
            desk.out.record({"queue": queue, "state": state, "jobs": number})
        return
    rows = [(queue, str(state), f"{number:,}") for (queue, state), number in counts]
    desk.out.table(("QUEUE", "STATE", ">JOBS"), rows)


async def _counted(
    desk: CommandContext, wanted: JobFilter | None
) -> Mapping[tuple[str, State], int]:
    if wanted is None:
        return await desk.app.store.counts()
    jobs = search_jobs(desk.app.store, wanted, desk.out)
    return Counter([(job.queue, job.state) async for job in jobs])


def _row(job: Job, now: datetime) -> tuple[str, ...]:
    return (
        job.id, job.type, job.queue, job.state, str(job.priority),
        f"{ago(job.created_at, now)} ago", status_note(job, now),
    )  # fmt: skip


def status_note(job: Job, now: datetime) -> str:
    """The one thing to know about how it stands."""
    if job.is_final:
        took = (
            ""
            if job.started_at is None or job.finished_at is None
            else (f" after {format_short(job.finished_at - job.started_at)}")
        )
        return f"{job.reason or 'done'}{took}"
    if job.holder is not None and job.started_at is not None and job.state == "running":
        asked = ", asked to stop" if job.cancel_requested else ""
        return f"on {job.holder}{asked}"
    if job.available_at > now:
        return f"due in {format_short(job.available_at - now)}"
    return f"{job.failures} failed runs" if job.failures else ""
