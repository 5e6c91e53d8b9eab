"""`outlast queue`: list, pause, resume and configure queues."""

from datetime import timedelta
from typing import Any

import click

from outlast.cli import values
from outlast.cli.command import CommandContext, command
from outlast.cli.move_edit import print_order
from outlast.cli.output import ago, count
from outlast.cli.queue_names import CREATE, CREATE_HINT, known_queues, require_queue
from outlast.clock import SystemClock
from outlast.core.ordering import Ordering
from outlast.core.overview import JobCounts
from outlast.core.state import WAITING, State
from outlast.core.suggestion import nearest
from outlast.jobs.queue_declaration import DeclaredQueue
from outlast.store.contract.queues import Queue


@click.group("queue")
def queue_group() -> None:
    """List, pause, resume and configure queues."""


@command("list")
async def ls(ctx: CommandContext, /) -> None:
    """List every queue that has settings or jobs."""
    counts = await ctx.app.store.counts()
    queues = {queue.name: queue for queue in await ctx.app.queues.list()}
    names = sorted({*(name for name, _ in counts), *queues})
    rows = [queues.get(name) or Queue(name=name) for name in names]
    declared = {each.name: each for each in await ctx.app.queues.declared()}
    if ctx.out.as_json:
        for queue in rows:
            ctx.out.record(_to_record(queue, counts, declared.get(queue.name)))
        return
    ctx.out.table(
        ("QUEUE", ">WAITING", ">RUNNING", ">DONE", "ORDER", ">LIMIT", "DECLARED", "STATE"),
        [_row(queue, counts, declared.get(queue.name)) for queue in rows],
    )


@command("order")
@click.argument("queue")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
async def order(ctx: CommandContext, /, queue: str, limit: int) -> None:
    """List the next jobs of a queue in claim order."""
    await require_queue(ctx, queue)
    await print_order(ctx, queue, limit)


@command("pause")
@click.argument("queue")
@click.option("--reason", help="Why; shown by `explain` and `queue list`.")
@click.option(
    "--for",
    "duration",
    callback=values.duration,
    help="Resume automatically after this time, such as 30m.",
)
@CREATE
async def pause(
    ctx: CommandContext,
    /,
    queue: str,
    reason: str | None,
    duration: timedelta | None,
    create: bool,
) -> None:
    """Start no more jobs of a queue; running jobs continue."""
    if not create:
        await require_queue(ctx, queue, CREATE_HINT)
    paused = await ctx.app.queues.pause(queue, reason=reason, duration=duration)
    ctx.out.done(f"queue {queue} paused", paused)


@command("resume")
@click.argument("queue")
async def resume(ctx: CommandContext, /, queue: str) -> None:
    """Resume a paused queue."""
    await require_queue(ctx, queue)
    was_paused = await ctx.app.queues.resume(queue)
    outcome = "resumed" if was_paused else "was not paused"
    ctx.out.done(f"queue {queue} {outcome}", await ctx.app.queues.get(queue))


@command("save", creates=True)
@click.argument("queue")
@click.option(
    "--ordering",
    type=click.Choice([each.value for each in Ordering]),
    help="Order in which jobs are claimed.",
)
@click.option("--gap", type=int, help="Distance between the positions of two jobs.")
@click.option(
    "--concurrency", type=int, help="How many of its jobs may run at a time; 0 removes the limit."
)
@CREATE
async def set_(ctx: CommandContext, /, queue: str, create: bool, **changes: Any) -> None:
    """Set the ordering, gap or concurrency of a queue; options left out stay as they are.

    A new queue whose name is nearly that of another one needs --create.
    """
    if not create and nearest(queue, await known_queues(ctx)) is not None:
        await require_queue(ctx, queue, CREATE_HINT)
    given = {name: value for name, value in changes.items() if value is not None}
    if given.get("concurrency") == 0:
        given["concurrency"] = None
    saved = await ctx.app.queues.save(queue, **given)
    if ctx.out.as_json:
        ctx.out.record(saved)
        return
    limit = "no limit" if saved.concurrency is None else f"{saved.concurrency} at a time"
    ctx.out.line(f"queue {queue}: ordered by {saved.ordering}, gap {saved.gap}, {limit}")


@command("renumber")
@click.argument("queue")
async def renumber(ctx: CommandContext, /, queue: str) -> None:
    """Renumber the positions to 100, 200, 300, … in the same order."""
    await require_queue(ctx, queue)
    number = await ctx.app.queues.renumber(queue)
    ctx.out.done(f"{count(number, 'job')} renumbered", {"name": queue, "renumbered": number})


for each in (ls, order, pause, resume, set_, renumber):
    queue_group.add_command(each)


def _to_record(queue: Queue, counts: JobCounts, declared: DeclaredQueue | None) -> dict[str, Any]:
    by_state = {state: number for (name, state), number in counts.items() if name == queue.name}
    capped = sorted(state for name, state in counts.capped if name == queue.name)
    more = {"capped": capped} if capped else {}
    return {"queue": queue, "declared": declared, "jobs": by_state, **more}


def _row(queue: Queue, counts: JobCounts, declared: DeclaredQueue | None) -> tuple[str, ...]:
    limit = "" if queue.concurrency is None else str(queue.concurrency)
    kinds = (WAITING, {State.RUNNING}, set(State) - WAITING - {State.RUNNING})
    numbers = [counts.text(queue.name, *states) for states in kinds]
    return queue.name, *numbers, queue.ordering, limit, _declared(declared), _paused(queue)


def _declared(declared: DeclaredQueue | None) -> str:
    """Return what code declares, which an operator may have changed since: `concurrency 3`."""
    given = {} if declared is None else declared.settings
    return ", ".join(
        f"{name} {'no limit' if value is None else value}" for name, value in given.items()
    )


def _paused(queue: Queue) -> str:
    if queue.pause is None:
        return ""
    since = ago(queue.pause.at, SystemClock().now())
    until = "" if queue.pause.until is None else f" until {queue.pause.until:%T} UTC"
    return f"paused {since} ago{until}: {queue.pause.reason or 'no reason given'}"
