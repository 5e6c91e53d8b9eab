"""`outlast move` and `outlast edit`: change a waiting job."""

from typing import Any

import click

from outlast.cli import values
from outlast.cli.command import CommandContext, command
from outlast.cli.enqueue import parse_params
from outlast.cli.output import ago
from outlast.cli.show import find
from outlast.clock import SystemClock
from outlast.core.job import Job
from outlast.errors import InvalidArgument

JOBS_SHOWN = 10
"""How many jobs `move` prints afterwards."""


@command("move")
@click.argument("job_id")
@click.argument("where", type=click.Choice(["front", "back"]), required=False)
@click.option("--before", help="Move it directly before that job.")
@click.option("--after", help="Move it directly after that job.")
@click.option("--swap", help="Swap positions with that job.")
async def move(
    ctx: CommandContext, /, job_id: str, where: str | None, **beside: str | None
) -> None:
    """Move a waiting job to the front or back of its priority, or next to another job."""
    given = {name: other for name, other in beside.items() if other is not None}
    if len(given) + (where is not None) != 1:
        raise InvalidArgument("give exactly one of front, back, --before, --after or --swap")
    given = {name: (await find(ctx, other)).id for name, other in given.items()}
    job_id = (await find(ctx, job_id)).id
    job = await (ctx.app.move(job_id, where) if where else ctx.app.move(job_id, **given))  # type: ignore[arg-type]
    if ctx.out.as_json:
        ctx.out.record(job)
        return
    await print_order(ctx, job.queue, JOBS_SHOWN, mark=job.id)


@command("edit")
@click.argument("job_id")
@click.option("--params", help="New params: a JSON object that replaces the old ones.")
@click.option("--priority", type=int, help="New priority.")
@click.option(
    "--in", "delay", callback=values.duration, help="New delay before the job is due, such as 5m."
)
@click.option(
    "--at",
    callback=values.time,
    help="New time when the job is due, such as 2026-11-16T08:00Z.",
)
async def edit(ctx: CommandContext, /, job_id: str, params: str | None, **changes: Any) -> None:
    """Change the params, the priority or the due time of a waiting job."""
    asked = {name: value for name, value in changes.items() if value is not None}
    if params is not None:
        ctx.require_types()
        asked["params"] = parse_params(params)
    if not asked:
        raise InvalidArgument("nothing to change; give --params, --priority, --in or --at")
    job = await ctx.app.edit((await find(ctx, job_id)).id, **asked)
    if ctx.out.as_json:
        ctx.out.record(job)
    else:
        ctx.out.line(
            f"{job.id}  {job.state}  priority {job.priority}  due {job.available_at:%F %T}"
        )


async def print_order(ctx: CommandContext, queue: str, limit: int, mark: str | None = None) -> None:
    """Print the next jobs of a queue in claim order; `mark` is the id of a job to highlight."""
    now = SystemClock().now()
    jobs = await ctx.app.queues.next_jobs(queue, limit)
    if ctx.out.as_json:
        for job in jobs:
            ctx.out.record(job)
        return
    rows = [
        (f"{n}{'*' if job.id == mark else ''}", *_row(job, ago(job.created_at, now)))
        for n, job in enumerate(jobs, 1)
    ]
    ctx.out.table((">NEXT", "ID", "TYPE", ">PRIORITY", ">POSITION", "CREATED"), rows)


def _row(job: Job, age: str) -> tuple[str, ...]:
    return job.id, job.type, str(job.priority), str(job.position), f"{age} ago"
