"""`outlast verify`: check the store against its invariants."""

import secrets
from collections.abc import Sequence

import click

from outlast.cli.command import CommandContext, Exit, command
from outlast.cli.json_values import plain
from outlast.cli.output import count
from outlast.clock import SystemClock
from outlast.core.audit.violation import Violation, ViolationCode
from outlast.core.ids import Ids
from outlast.verify import Report, verify
from outlast.worker.maintenance.history_inspector import HistoryInspector

VIOLATIONS_SHOWN = 50

REPAIRABLE = frozenset(
    {ViolationCode.DETACHED, ViolationCode.MISSING_SUCCESSOR, ViolationCode.ORPHAN_RUN}
)
"""Violations that `--repair` repairs."""


@command("verify")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 100_000),
    default=VIOLATIONS_SHOWN,
    show_default=True,
    help="How many violations to print.",
)
@click.option(
    "--repair",
    is_flag=True,
    help="Repair what has a safe repair: detached jobs, missing successors and orphan runs.",
)
async def verify_command(ctx: CommandContext, /, limit: int, *, repair: bool) -> int:
    """Check every job, run, event and reservation against the invariants, even during operation.

    Exit 0: no violation. Exit 1: at least one; each is printed with its rows and a safe repair.
    With --repair the exit code tells what is left.
    """
    report = await _verified(ctx)
    repaired: list[Violation] = []
    if repair and any(violation.code in REPAIRABLE for violation in report.violations):
        before, ids = report, Ids(SystemClock().now, secrets.randbits)
        repairs = await HistoryInspector(ctx.app.store, ids.job).inspect()
        report = await _verified(ctx)
        repaired = [each for each in before.violations if _is_gone(each, report)]
        ctx.out.message(f"{count(repairs.actions, 'repair')} made")
    _print_violations(ctx, repaired[:limit], is_repaired=True)
    _print_violations(ctx, report.violations[:limit], is_repaired=False)
    ctx.out.message(
        f"{count(report.jobs, 'job')}, {count(report.runs, 'run')}, "
        f"{count(report.events, 'event')}: {count(len(report.violations), 'violation')}, "
        f"in {report.seconds:.1f} s"
    )
    return Exit.FAILED if report.violations else Exit.OK


async def _verified(ctx: CommandContext) -> Report:
    with ctx.out.progress("verify", None) as advance:
        done = 0

        def report_progress(now: int, total: int) -> None:
            nonlocal done
            advance(now - done, total)
            done = now

        return await verify(ctx.app.store, progress=report_progress)


def _is_gone(violation: Violation, report: Report) -> bool:
    return violation.code in REPAIRABLE and violation not in report.violations


def _print_violations(
    ctx: CommandContext, violations: Sequence[Violation], *, is_repaired: bool
) -> None:
    for violation in violations:
        repair = "done" if is_repaired else violation.repair
        if ctx.out.as_json:
            ctx.out.record({**plain(violation), "repair": repair})
        else:
            ctx.out.line(f"{violation.code}  {violation.job_id or ''}  {violation.what}")
            ctx.out.line(f"    rows: {', '.join(violation.rows)}")
            ctx.out.line(f"    repair: {repair}")
