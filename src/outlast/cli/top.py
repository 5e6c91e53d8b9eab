"""`outlast top`: queues, workers and running jobs, live."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from outlast.cli.command import CommandContext, command
from outlast.cli.output import ago
from outlast.core.job import Job
from outlast.core.overview import Overview
from outlast.core.state import State
from outlast.core.worker import WorkerRecord
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue

if TYPE_CHECKING:
    from rich.console import RenderableType

MINUTE: Final = timedelta(minutes=1)
SHOWN: Final = 20
BARS: Final = "▁▂▃▄▅▆▇█"


@command("top")
@click.option("--once", is_flag=True, help="Print one picture and exit.")
@click.option("--interval", type=click.FloatRange(0.2, 60), default=1.0, show_default=True)
async def top_command(ctx: CommandContext, /, once: bool, interval: float) -> None:
    """Watch the store: what waits, what runs, who works. Ctrl-C leaves."""
    look = await snapshot(ctx)
    if ctx.out.as_json:
        ctx.out.record(look)
        return
    if once:
        ctx.out.print(_drawn(look, []))
        return
    with suppress(asyncio.CancelledError), _screen(ctx) as show:  # Ctrl-C is how one leaves
        rates: list[int] = []
        while True:
            rates = [*rates, _per_minute(look["overview"])][-30:]
            show(_drawn(look, rates))
            await asyncio.sleep(interval)
            look = await snapshot(ctx)


@contextmanager
def _screen(ctx: CommandContext) -> "Iterator[Callable[[RenderableType], None]]":
    """Where pictures go: each over the last one on a terminal, one below the other elsewhere."""
    from rich.live import Live  # noqa: PLC0415 - nobody else needs it

    console = ctx.out.console()
    if not console.is_terminal:
        yield ctx.out.print
        return
    with Live(console=console, screen=False) as live:
        yield live.update


async def snapshot(ctx: CommandContext) -> dict[str, Any]:
    """Everything that one picture shows."""
    store = ctx.app.store
    return {
        "overview": await store.overview(span=MINUTE),
        "workers": [worker for worker in await store.workers() if worker.is_alive],
        "queues": {queue.name: queue for queue in await store.queues()},
        "running": await store.find(Filter(states=frozenset({State.RUNNING})), limit=SHOWN),
    }


def _drawn(look: dict[str, Any], rates: Sequence[int]) -> "RenderableType":
    from rich.console import Group  # noqa: PLC0415 - as above

    overview: Overview = look["overview"]
    parts = [
        _headline(overview, look["workers"], rates),
        _queues(overview, look["queues"]),
        _running(look["running"], overview.now),
    ]
    return Group(*parts)


def _headline(overview: Overview, workers: Sequence[WorkerRecord], rates: Sequence[int]) -> str:
    bad = sum(n for (_, state), n in overview.ended.items() if state in _BAD)
    done = _per_minute(overview)
    share = f"{bad / done:.1%}" if done else "0%"
    due = [row.oldest for row in overview.backlog if row.due]
    oldest = ago(min(due), overview.now) if due else "-"
    busy, slots = (
        sum(r.jobs for r in overview.running),
        sum(w.concurrency * w.processes for w in workers),
    )
    return (
        f"{done:,}/min ended  {share} failed  oldest due {oldest}  {len(workers)} workers  "
        f"{busy}/{slots} busy  {_spark(rates)}"
    )


_BAD = frozenset({State.FAILED, State.DEAD_LETTER})


def _per_minute(overview: Overview) -> int:
    return sum(overview.ended.values())


def _spark(rates: Sequence[int]) -> str:
    most = max(rates, default=0) or 1
    return "".join(BARS[min(len(BARS) - 1, rate * len(BARS) // (most + 1))] for rate in rates)


def _queues(overview: Overview, settings: dict[str, Queue]) -> "RenderableType":
    from rich.table import Table  # noqa: PLC0415 - as above

    table = Table("QUEUE", "WAIT", "DUE", "RUN", "ENDED/m", "STATE", box=None, pad_edge=False)
    for name in overview.queues:
        rows = [row for row in overview.backlog if row.queue == name]
        runs = sum(row.jobs for row in overview.running if row.queue == name)
        ended = sum(n for (queue, _), n in overview.ended.items() if queue == name)
        waits, due = sum(row.jobs for row in rows), sum(row.due for row in rows)
        table.add_row(
            name, *(f"{n:,}" for n in (waits, due, runs, ended)), _state(settings.get(name))
        )
    return table


def _state(queue: Queue | None) -> str:
    if queue is None:
        return ""
    if queue.pause is not None:
        return f"paused: {queue.pause.reason or 'no reason given'}"
    return "" if queue.concurrency is None else f"at most {queue.concurrency} at a time"


def _running(jobs: Sequence[Job], now: datetime) -> "RenderableType":
    from rich.table import Table  # noqa: PLC0415 - as above

    table = Table("RUNNING", "TYPE", "FOR", "PROGRESS", "ON", box=None, pad_edge=False)
    for job in jobs:
        table.add_row(
            job.id, job.type, ago(job.started_at, now), job.progress or "", job.holder or "?"
        )
    return table
