"""`outlast explain`: why a job waits."""

import click

from outlast.cli.command import CommandContext, command
from outlast.cli.show import find


@command("explain")
@click.argument("job_id")
async def explain_command(ctx: CommandContext, /, job_id: str) -> None:
    """Say why a job waits: each gate on its way, the one that stops it, and what would open it."""
    told = await ctx.app.explain((await find(ctx, job_id)).id)
    if ctx.out.as_json:
        ctx.out.record(
            {"id": told.job.id, "state": told.job.state, "stop": told.stop, "gates": told.gates}
        )
        return
    for line in told.lines():
        ctx.out.line(line)
