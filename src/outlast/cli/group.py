"""`outlast group`: list, show and cancel groups of jobs."""

from typing import Any

import click

from outlast.cli.command import CommandContext, Exit, command
from outlast.cli.json_values import plain
from outlast.cli.output import ago
from outlast.clock import SystemClock
from outlast.core.group import Group


@click.group("group")
def group_group() -> None:
    """List, show and cancel groups of jobs."""


@command("list")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
async def ls(ctx: CommandContext, /, limit: int) -> None:
    """List the newest groups."""
    groups = await ctx.app.groups.list(limit)
    if ctx.out.as_json:
        for group in groups:
            ctx.out.record(_record(group))
        return
    ctx.out.table(
        ("ID", "NAME", "MODE", "ON FAILURE", "STATE", ">DONE", "CREATED"), map(_row, groups)
    )


@command("get")
@click.argument("group_id")
async def show(ctx: CommandContext, /, group_id: str) -> int:
    """Show a group and its progress; exit 1 if it failed."""
    group = await ctx.app.groups.get(group_id)
    if ctx.out.as_json:
        ctx.out.record(_record(group))
    else:
        ctx.out.line("  ".join(_row(group)))
        for state, number in sorted(group.counts.items()):
            ctx.out.line(f"  {state:<12} {number:,}")
    return Exit.FAILED if group.state == "failed" else Exit.OK


@command("cancel")
@click.argument("group_id")
@click.option("--reason", help="Why; stored with the jobs.")
async def cancel(ctx: CommandContext, /, group_id: str, reason: str | None) -> None:
    """Cancel the waiting jobs of a group and ask its running jobs to stop."""
    await ctx.app.groups.cancel(group_id, reason)
    group = await ctx.app.groups.get(group_id)
    ctx.out.done(f"group {group_id}: cancelling", _record(group))


for each in (ls, show, cancel):
    group_group.add_command(each)


def _record(group: Group) -> dict[str, Any]:
    derived = {"state": group.state, "done": group.done, "progress": group.progress}
    return {**plain(group), **derived}


def _row(group: Group) -> tuple[str, ...]:
    age = ago(group.created_at, SystemClock().now())
    return (
        group.id, group.name or "", group.mode, group.on_failure, group.state,
        f"{group.done:,}/{group.total:,}", f"{age} ago",
    )  # fmt: skip
