"""`outlast explain`: why a job waits."""

import click

from outlast.cli.command import CommandContext, command
from outlast.cli.job_notes import kept_note
from outlast.cli.show import find


@command("explain")
@click.argument("job_id")
async def explain_command(ctx: CommandContext, /, job_id: str) -> None:
    """List every condition a waiting job must pass, the one that blocks it, and how to clear it."""
    explanation = await ctx.app.explain((await find(ctx, job_id)).id)
    if ctx.out.as_json:
        job = explanation.job
        ctx.out.record(
            {
                "id": job.id,
                "state": job.state,
                "at": explanation.at,
                "stop": explanation.stop,
                "gates": explanation.gates,
            }
        )
        return
    for line in ctx.with_target(str(explanation)).splitlines():
        ctx.out.line(line)
    kept = (
        kept_note(explanation.job, ctx.retention(explanation.job.type)) if ctx.knows_types else None
    )
    if kept is not None and not explanation.is_continued:
        ctx.out.line(f"  kept {kept}")
