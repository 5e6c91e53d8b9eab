"""`outlast check`: try all waiting work against new code before it is deployed."""

import click

from outlast.cli.command import CommandContext, Exit, command
from outlast.cli.json_values import plain
from outlast.cli.output import count
from outlast.core.state import WAITING, State
from outlast.fit_check import FitReport, Tried, check_fit

COLUMNS = ("WHAT", "TYPE", ">COUNT", "PROBLEM", "SUCH AS")
WORDS = {
    Tried.JOB: "waiting job",
    Tried.RUNNING_JOB: "running job",
    Tried.SCHEDULE: "schedule",
    Tried.TEMPLATE: "template",
}


@command("check", takes_both=True)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1),
    help="Try only the newest that many jobs; all without it.",
)
async def check_command(ctx: CommandContext, /, limit: int | None) -> int:
    """Try waiting jobs, schedules and templates against the code of --app; nothing is changed.

    The store is that of --url, or the app's own. Printed is what would not fit, without values.

    Exit 0: all fits. Exit 1: something waits that the code cannot read; a misfit of a job that
    runs now is only noted.
    """
    ctx.require_types()
    report = await _checked(ctx, limit)
    if ctx.out.as_json:
        for misfit in report.misfits:
            ctx.out.record(plain(misfit))
    elif report.misfits:
        rows = [
            (WORDS[each.what], each.type, f"{each.count:,}", each.problem, ", ".join(each.examples))
            for each in report.misfits
        ]
        ctx.out.table(COLUMNS, rows)
    ctx.out.message(_summary(report))
    return Exit.OK if report.fits else Exit.FAILED


async def _checked(ctx: CommandContext, limit: int | None) -> FitReport:
    counts = await ctx.app.store.counts()
    live = sum(jobs for (_, state), jobs in counts.items() if state in WAITING | {State.RUNNING})
    total = live if limit is None else min(live, limit)
    with ctx.out.progress("check", total) as advance:
        return await check_fit(ctx.app.store, ctx.registry, limit=limit, progress=advance)


def _summary(report: FitReport) -> str:
    tried = ", ".join(count(report.tried[what], word) for what, word in WORDS.items())
    misfits = sum(each.count for each in report.misfits)
    only = "" if report.is_complete else "; older jobs were not tried"
    return f"{tried} tried: {misfits:,} would not fit{only}"
