"""`outlast explain`: why a job waits."""

import click

from outlast.cli.command import CommandContext, verb
from outlast.cli.show import find


@verb("explain")
@click.argument("job_id")
async def command(desk: CommandContext, /, job_id: str) -> None:
    """Say why a job waits: each gate on its way, the one that stops it, and what would open it."""
    told = await desk.app.explain((await find(desk, job_id)).id)
    if desk.out.as_json:
        desk.out.record(
            {"id": told.job.id, "state": told.job.state, "stop": told.stop, "gates": told.gates}
        )
        return
    for line in str(told).splitlines():
        desk.out.line(line)
