"""`outlast verify`: check the store against its invariants."""

from contextlib import suppress

import click

from outlast.cli.command import CommandContext, Exit, command
from outlast.cli.json_values import plain
from outlast.cli.output import count
from outlast.core.audit.violation import ViolationCode
from outlast.errors import OperatorError
from outlast.verify import verify
from outlast.worker.maintenance.history_inspector import request_inspection

VIOLATIONS_SHOWN = 50

REPAIRED_BY_INSPECTION = frozenset(
    {ViolationCode.DETACHED, ViolationCode.MISSING_SUCCESSOR, ViolationCode.ORPHAN_RUN}
)
"""Violations whose repair is to start a worker: its start, or a running worker, repairs them."""


@command("verify")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 100_000),
    default=VIOLATIONS_SHOWN,
    show_default=True,
    help="How many violations to print.",
)
async def verify_command(ctx: CommandContext, /, limit: int) -> int:
    """Check every job, run, event and reservation against the invariants, even during operation.

    Exit 0: no violation. Exit 1: at least one; each is printed with its rows and a safe repair.
    """
    with ctx.out.progress("verify", None) as advance:
        done = 0

        def report_progress(now: int, total: int) -> None:
            nonlocal done
            advance(now - done, total)
            done = now

        report = await verify(ctx.app.store, progress=report_progress)
    if any(violation.code in REPAIRED_BY_INSPECTION for violation in report.violations):
        with suppress(OperatorError):  # the store may be read-only
            await request_inspection(ctx.app.store)
    for violation in report.violations[:limit]:
        if ctx.out.as_json:
            ctx.out.record({**plain(violation), "repair": violation.repair})
        else:
            ctx.out.line(f"{violation.code}  {violation.job_id or ''}  {violation.what}")
            ctx.out.line(f"    rows: {', '.join(violation.rows)}")
            ctx.out.line(f"    repair: {violation.repair}")
    ctx.out.message(
        f"{count(report.jobs, 'job')}, {count(report.runs, 'run')}, "
        f"{count(report.events, 'event')}: {count(len(report.violations), 'violation')}, "
        f"in {report.seconds:.1f} s"
    )
    return Exit.FAILED if report.violations else Exit.OK
