"""`outlast verify`: the store proves its own history."""

import click

from outlast.cli.command import CommandContext, Exit, command
from outlast.verify import verify

SHOWN = 50


@command("verify")
@click.option("-n", "--limit", type=click.IntRange(1, 100_000), default=SHOWN, show_default=True)
async def verify_command(ctx: CommandContext, /, limit: int) -> int:
    """Go through every job, run, event and reservation, and prove or refute the invariants.

    Exit 0: all hold. Exit 1: some do not; each violation names the rows and the safe repair. It
    may be run while workers work.
    """
    with ctx.out.progress("verify", None) as advance:
        done = 0

        def moved(now: int, total: int) -> None:
            nonlocal done
            advance(now - done, total)
            done = now

        report = await verify(ctx.app.store, progress=moved)
    for violation in report.violations[:limit]:
        if ctx.out.as_json:
            ctx.out.record(violation)
        else:
            ctx.out.line(f"{violation.code}  {violation.job_id or ''}  {violation.what}")
            ctx.out.line(f"    rows: {', '.join(violation.rows)}\n    repair: {violation.repair}")
    ctx.out.message(
        f"{report.jobs:,} jobs, {report.runs:,} runs, {report.events:,} events: "
        f"{len(report.violations):,} violations, in {report.seconds:.1f} s"
    )
    return Exit.FAILED if report.violations else Exit.OK
