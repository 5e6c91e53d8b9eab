"""`outlast queue`: queues, their order, limits and pauses."""

from collections import defaultdict
from typing import Any

import click

from outlast.cli.command import CommandContext, verb
from outlast.cli.move_edit import order as print_order
from outlast.cli.output import ago
from outlast.clock import SystemClock
from outlast.core.ordering import Ordering
from outlast.core.state import WAITING, State
from outlast.store.contract.queues import Queue


@click.group("queue")
def command() -> None:
    """Look at queues and change them."""


@verb("ls")
async def ls(desk: CommandContext, /) -> None:
    """Every queue that was set or has jobs."""
    counts: defaultdict[str, defaultdict[State, int]] = defaultdict(lambda: defaultdict(int))
    for (name, state), number in (await desk.app.store.counts()).items():
        counts[name][state] = number
    queues = {queue.name: queue for queue in await desk.app.queues.list()}
    names = sorted({*counts, *queues})
    rows = [(queues.get(name) or Queue(name=name), counts[name]) for name in names]
    if desk.out.as_json:
        for queue, by_state in rows:
            desk.out.record({"queue": queue, "jobs": dict(by_state)})
        return
    desk.out.table(
        ("QUEUE", ">WAITING", ">RUNNING", ">DONE", "ORDER", ">LIMIT", "STATE"),
        [_row(queue, by_state) for queue, by_state in rows],
    )


@verb("order")
@click.argument("queue")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
async def order(desk: CommandContext, /, queue: str, limit: int) -> None:
    """The next jobs in true claim order."""
    await print_order(desk, queue, limit)


@verb("pause")
@click.argument("queue")
@click.option("--reason", help="Why; everybody who asks is told.")
@click.option("--for", "duration", help="Resume by itself after a while, such as 30m.")
async def pause(
    desk: CommandContext, /, queue: str, reason: str | None, duration: str | None
) -> None:
    """Start nothing more from a queue; what runs goes on."""
    await desk.app.queues.pause(queue, reason=reason, duration=duration)
    desk.out.message(f"{queue} is paused")


@verb("resume")
@click.argument("queue")
async def resume(desk: CommandContext, /, queue: str) -> None:
    """Let a paused queue go on."""
    was_paused = await desk.app.queues.resume(queue)
    desk.out.message(f"{queue} goes on" if was_paused else f"{queue} was not paused")


@verb("set", creates=True)
@click.argument("queue")
@click.option("--ordering", type=click.Choice([each.value for each in Ordering]))
@click.option("--gap", type=int)
@click.option(
    "--concurrency", type=int, help="How many of its jobs may run at a time; 0: no limit."
)
async def set_(desk: CommandContext, /, queue: str, **changes: Any) -> None:
    """Set a queue's ordering, gap or concurrency; what is left out stays."""
    now = await desk.app.queues.get(queue)
    asked = {name: value for name, value in changes.items() if value is not None}
    if asked.get("concurrency") == 0:
        asked["concurrency"] = None
    kept = {"ordering": now.ordering, "gap": now.gap, "concurrency": now.concurrency}
    desk.out.record(await desk.app.queues.save(queue, **{**kept, **asked}))


@verb("renumber")
@click.argument("queue")
async def renumber(desk: CommandContext, /, queue: str) -> None:
    """Number the positions afresh: 100, 200, 300, … in the same order."""
    desk.out.message(f"{await desk.app.queues.renumber(queue):,} jobs have a new position")


for each in (ls, order, pause, resume, set_, renumber):
    command.add_command(each)


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
