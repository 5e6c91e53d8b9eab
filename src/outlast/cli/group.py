"""`outlast group`: jobs watched together."""

from typing import Any

import click

from outlast.cli.command import CommandContext, Exit, verb
from outlast.cli.output import ago, plain
from outlast.clock import SystemClock
from outlast.core.group import Group


@click.group("group")
def command() -> None:
    """Jobs watched together."""


@verb("ls")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
async def ls(desk: CommandContext, /, limit: int) -> None:
    """The newest groups."""
    groups = await desk.app.groups.list(limit)
    if desk.out.as_json:
        for group in groups:
            desk.out.record(_record(group))
        return
    desk.out.table(
        ("ID", "NAME", "MODE", "ON FAILURE", "STATE", ">DONE", "CREATED"), map(_row, groups)
    )


@verb("show")
@click.argument("group_id")
async def show(desk: CommandContext, /, group_id: str) -> int:
    """A group and how far it is; exit 1 if it failed."""
    group = await desk.app.groups.get(group_id)
    if desk.out.as_json:
        desk.out.record(_record(group))
    else:
        desk.out.line("  ".join(_row(group)))
        for state, number in sorted(group.counts.items()):
            desk.out.line(f"  {state:<12} {number:,}")
    return Exit.FAILED if group.state == "failed" else Exit.OK


@verb("cancel")
@click.argument("group_id")
@click.option("--reason")
async def cancel(desk: CommandContext, /, group_id: str, reason: str | None) -> None:
    """Cancel what has not started, ask what runs to stop."""
    await desk.app.groups.cancel(group_id, reason)
    desk.out.message(f"group {group_id} is being stopped")


for each in (ls, show, cancel):
    command.add_command(each)


def _record(group: Group) -> dict[str, Any]:
    told = {"state": group.state, "done": group.done, "progress": group.progress}
    return {**plain(group), **told}


def _row(group: Group) -> tuple[str, ...]:
    age = ago(group.created_at, SystemClock().now())
    return (
        group.id, group.name or "", group.mode, group.on_failure, group.state,
        f"{group.done:,}/{group.total:,}", f"{age} ago",
    )  # fmt: skip
