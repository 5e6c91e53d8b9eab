"""`outlast jobs`: list and count jobs."""

from collections import Counter
from datetime import datetime, timedelta

import click

from outlast.cli.command import CommandContext, command
from outlast.cli.job_filter import JobFilter, parse
from outlast.cli.job_notes import status_note
from outlast.cli.job_search import search_jobs
from outlast.cli.output import ago
from outlast.clock import SystemClock
from outlast.core.job import Job
from outlast.core.overview import JobCounts
from outlast.core.refusals import Refusals
from outlast.jobs.explanation import refusals_of

COLUMNS = ("ID", "TYPE", "QUEUE", "STATE", ">PRIORITY", "CREATED", "NOTE")


@command("jobs")
@click.argument("filters", nargs=-1)
@click.option("-n", "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
@click.option("--count", is_flag=True, help="Print only the number of jobs per queue and state.")
async def jobs_command(
    ctx: CommandContext, /, filters: tuple[str, ...], limit: int, count: bool
) -> None:
    """List jobs, newest first; FILTERS such as state:dead_letter type:mail.* since:2h.

    Keys: state type queue key group id since tag meta.NAME params.NAME error. A state is the name
    of a state, several separated by commas, or one of waiting, open, dead, done.
    """
    now = SystemClock().now()
    wanted = parse(filters, now=now)
    if count:
        await _print_counts(ctx, wanted if filters else None)
        return
    found: list[Job] = []
    async for job in search_jobs(ctx.app.store, wanted, ctx.out):
        found.append(job)
        if len(found) == limit:
            break
    if ctx.out.as_json:
        for job in found:
            ctx.out.record(job)
        return
    refused = await refusals_of(ctx.app.store, found)
    ctx.out.table(COLUMNS, [_row(job, now, ctx.retention, refused.get(job.id)) for job in found])
    if len(found) == limit:
        ctx.out.message(f"showing the newest {limit}; use -n for more")
    elif not found:
        ctx.out.message("no matching jobs")


async def _print_counts(ctx: CommandContext, wanted: JobFilter | None) -> None:
    counts = await _count_by_state(ctx, wanted)
    if ctx.out.as_json:
        for (queue, state), number in sorted(counts.items()):
            more = {"capped": True} if (queue, state) in counts.capped else {}
            ctx.out.record({"queue": queue, "state": state, "jobs": number, **more})
        return
    rows = [(queue, str(state), counts.text(queue, state)) for queue, state in sorted(counts)]
    ctx.out.table(("QUEUE", "STATE", ">JOBS"), rows)


async def _count_by_state(ctx: CommandContext, wanted: JobFilter | None) -> JobCounts:
    if wanted is None:
        return await ctx.app.store.counts()
    jobs = search_jobs(ctx.app.store, wanted, ctx.out)
    return JobCounts(Counter([(job.queue, job.state) async for job in jobs]))


def _row(
    job: Job, now: datetime, retention: timedelta | None, refusals: Refusals | None
) -> tuple[str, ...]:
    note = status_note(job, now, retention)
    if refusals is not None:
        note = f"{note}, {refusals.text}".removeprefix(", ")
    return (
        job.id, job.type, job.queue, job.state, str(job.priority),
        f"{ago(job.created_at, now)} ago", note,
    )  # fmt: skip
