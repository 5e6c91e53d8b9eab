"""`outlast queue`: list, pause, resume and configure queues."""

from collections import defaultdict
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
from outlast.core.state import WAITING, State
from outlast.core.suggestion import nearest
from outlast.store.contract.queues import Queue


@click.group("queue")
def queue_group() -> None:
    """List, pause, resume and configure queues."""


@command("list")
async def ls(ctx: CommandContext, /) -> None:
    """List every queue that has settings or jobs."""
    counts: defaultdict[str, defaultdict[State, int]] = defaultdict(lambda: defaultdict(int))
    for (name, state), number in (await ctx.app.store.counts()).items():
        counts[name][state] = number
    queues = {queue.name: queue for queue in await ctx.app.queues.list()}
    names = sorted({*counts, *queues})
    rows = [(queues.get(name) or Queue(name=name), counts[name]) for name in names]
    if ctx.out.as_json:
        for queue, by_state in rows:
            ctx.out.record({"queue": queue, "jobs": dict(by_state)})
        return
    ctx.out.table(
        ("QUEUE", ">WAITING", ">RUNNING", ">DONE", "ORDER", ">LIMIT", "STATE"),
        [_row(queue, by_state) for queue, by_state in rows],
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


def _row(queue: Queue, by_state: dict[State, int]) -> tuple[str, ...]:
    waiting = sum(by_state[state] for state in WAITING)
    done = sum(n for state, n in by_state.items() if state not in WAITING | {State.RUNNING})
    limit = "" if queue.concurrency is None else str(queue.concurrency)
    return (
        queue.name, f"{waiting:,}", f"{by_state[State.RUNNING]:,}", f"{done:,}", queue.ordering,
        limit, _paused(queue),
    )  # fmt: skip


def _paused(queue: Queue) -> str:
    if queue.pause is None:
        return ""
    since = ago(queue.pause.at, SystemClock().now())
    until = "" if queue.pause.until is None else f" until {queue.pause.until:%T} UTC"
    return f"paused {since} ago{until}: {queue.pause.reason or 'no reason given'}"
