"""`outlast move` and `outlast edit`: change a job while it waits."""

from typing import Any

import click

from outlast.cli.command import CommandContext, verb
from outlast.cli.enqueue import parse_params
from outlast.cli.output import ago
from outlast.cli.show import find
from outlast.clock import SystemClock
from outlast.core.job import Job
from outlast.errors import InvalidArgument

AROUND = 10


@verb("move")
@click.argument("job_id")
@click.argument("where", type=click.Choice(["front", "back"]), required=False)
@click.option("--before", help="In front of that job.")
@click.option("--after", help="Behind that job.")
@click.option("--swap", help="Change places with that job.")
async def move(
    desk: CommandContext, /, job_id: str, where: str | None, **beside: str | None
) -> None:
    """Move a waiting job to the front or back of its priority, or beside another one."""
    given = {name: other for name, other in beside.items() if other is not None}
    if len(given) + (where is not None) != 1:
        raise InvalidArgument("say once where to: front, back, --before, --after or --swap")
    given = {name: (await find(desk, other)).id for name, other in given.items()}
    job_id = (await find(desk, job_id)).id
    job = await (desk.app.move(job_id, where) if where else desk.app.move(job_id, **given))  # type: ignore[arg-type]
    if desk.out.as_json:
        desk.out.record(job)
        return
    await order(desk, job.queue, AROUND, mark=job.id)


@verb("edit")
@click.argument("job_id")
@click.option("--params", help="A JSON object that replaces its params.")
@click.option("--priority", type=int)
@click.option("--in", "delay", help="Due after a while, such as 5m.")
@click.option("--at", type=click.DateTime(["%Y-%m-%dT%H:%M:%S%z"]))
async def edit(desk: CommandContext, /, job_id: str, params: str | None, **changes: Any) -> None:
    """Change params, priority or due time of a job that waits."""
    asked = {name: value for name, value in changes.items() if value is not None}
    if params is not None:
        desk.require_types()
        asked["params"] = parse_params(params)
    if not asked:
        raise InvalidArgument("nothing to change; give --params, --priority, --in or --at")
    job = await desk.app.edit((await find(desk, job_id)).id, **asked)
    if desk.out.as_json:
        desk.out.record(job)
    else:
        desk.out.line(
            f"{job.id}  {job.state}  priority {job.priority}  due {job.available_at:%F %T}"
        )


async def order(desk: CommandContext, queue: str, limit: int, mark: str | None = None) -> None:
    """Print the next jobs of a queue in claim order."""
    now = SystemClock().now()
    jobs = await desk.app.queues.next_jobs(queue, limit)
    if desk.out.as_json:
        for job in jobs:
            desk.out.record(job)
        return
    rows = [
        (f"{n}{'*' if job.id == mark else ''}", *_row(job, ago(job.created_at, now)))
        for n, job in enumerate(jobs, 1)
    ]
    desk.out.table((">NEXT", "ID", "TYPE", ">PRIORITY", ">POSITION", "CREATED"), rows)


def _row(job: Job, age: str) -> tuple[str, ...]:
    return job.id, job.type, str(job.priority), str(job.position), f"{age} ago"
