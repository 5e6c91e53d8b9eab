"""`outlast top`: live view of queues, workers and running jobs."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from outlast.cli.command import CommandContext, command
from outlast.cli.json_values import plain
from outlast.cli.output import ago, count
from outlast.core.job import Job
from outlast.core.overview import Overview
from outlast.core.printable import printable
from outlast.core.progress import describe_progress
from outlast.core.state import State
from outlast.core.worker import WorkerRecord
from outlast.jobs.explanation import judged
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

MINUTE: Final = timedelta(minutes=1)
JOBS_SHOWN: Final = 20
RATES_SHOWN: Final = 30
BARS: Final = "▁▂▃▄▅▆▇█"


@command("top")
@click.option("--once", is_flag=True, help="Print one snapshot and exit.")
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 60),
    default=1.0,
    show_default=True,
    help="Seconds between two snapshots.",
)
async def top_command(ctx: CommandContext, /, once: bool, interval: float) -> None:
    """Watch waiting jobs, running jobs and workers. Ctrl-C quits."""
    seen = await snapshot(ctx)
    if ctx.out.as_json:
        ctx.out.record(_to_record(seen))
        return
    if once:
        ctx.out.print(_render(seen, []))
        return
    with suppress(asyncio.CancelledError), _screen(ctx) as show:  # Ctrl-C cancels this task
        rates: list[int] = []
        while True:
            rates = [*rates, _per_minute(seen["overview"])][-RATES_SHOWN:]
            show(_render(seen, rates))
            await asyncio.sleep(interval)
            seen = await snapshot(ctx)


@contextmanager
def _screen(ctx: CommandContext) -> "Iterator[Callable[[RenderableType], None]]":
    """Yield a function that shows a snapshot: in place on a terminal, else one below the other."""
    from rich.live import Live  # noqa: PLC0415 - slow import, needed by this command only

    console = ctx.out.console()
    if not console.is_terminal:
        yield ctx.out.print
        return
    with Live(console=console, screen=False) as live:
        yield live.update


async def snapshot(ctx: CommandContext) -> dict[str, Any]:
    """Read what one screen shows: overview, live workers, queues and running jobs."""
    store = ctx.app.store
    running = await store.find(Filter(states=frozenset({State.RUNNING})), limit=JOBS_SHOWN)
    return {
        "overview": await store.overview(span=MINUTE),
        "workers": [each for each in judged(await store.workers()) if each.is_alive],
        "queues": {queue.name: queue for queue in await store.queues()},
        "running": [ctx.reveal(job) for job in running],
    }


def _to_record(seen: dict[str, Any]) -> dict[str, Any]:
    """Return the snapshot for `--json`, without mappings whose keys are values."""
    ended = [
        {"queue": queue, "state": state, "jobs": number}
        for (queue, state), number in sorted(seen["overview"].ended.items())
    ]
    overview = {**plain(replace(seen["overview"], ended={})), "ended": ended}
    return {**seen, "overview": overview, "queues": list(seen["queues"].values())}


def _render(seen: dict[str, Any], rates: Sequence[int]) -> "RenderableType":
    from rich.console import Group  # noqa: PLC0415 - slow import

    overview: Overview = seen["overview"]
    parts = [
        _headline(overview, seen["workers"], rates),
        _queues(overview, seen["queues"]),
        _running(seen["running"], overview.now),
    ]
    return Group(*parts)


def _headline(overview: Overview, workers: Sequence[WorkerRecord], rates: Sequence[int]) -> str:
    failed = sum(n for (_, state), n in overview.ended.items() if state in _FAILURES)
    done = _per_minute(overview)
    share = f"{failed / done:.1%}" if done else "0%"
    due = [row.oldest for row in overview.backlog if row.due]
    oldest = ago(min(due), overview.now) if due else "-"
    busy, slots = (
        sum(r.jobs for r in overview.running),
        sum(w.concurrency * w.processes for w in workers),
    )
    return (
        f"{done:,}/min finished  {share} failed  oldest due {oldest}  "
        f"{count(len(workers), 'worker')}  {busy}/{slots} slots busy  {_sparkline(rates)}"
    )


_FAILURES = frozenset({State.FAILED, State.DEAD_LETTER})


def _per_minute(overview: Overview) -> int:
    return sum(overview.ended.values())


def _sparkline(rates: Sequence[int]) -> str:
    most = max(rates, default=0) or 1
    return "".join(BARS[min(len(BARS) - 1, rate * len(BARS) // (most + 1))] for rate in rates)


def _table(*names: str) -> "Table":
    """Return an empty table whose cells are cut at the edge of the terminal, not wrapped."""
    from rich.table import Column, Table  # noqa: PLC0415 - slow import

    columns = (Column(name, no_wrap=True, overflow="ellipsis") for name in names)
    return Table(*columns, box=None, pad_edge=False)


def _queues(overview: Overview, settings: dict[str, Queue]) -> "RenderableType":
    table = _table("QUEUE", "WAITING", "DUE", "RUNNING", "DONE/MIN", "STATE")
    for name in overview.queues:
        rows = [row for row in overview.backlog if row.queue == name]
        runs = sum(row.jobs for row in overview.running if row.queue == name)
        ended = sum(n for (queue, _), n in overview.ended.items() if queue == name)
        waits, due = sum(row.jobs for row in rows), sum(row.due for row in rows)
        numbers = (f"{n:,}" for n in (waits, due, runs, ended))
        table.add_row(printable(name), *numbers, printable(_state(settings.get(name))))
    return table


def _state(queue: Queue | None) -> str:
    if queue is None:
        return ""
    if queue.pause is not None:
        return f"paused: {queue.pause.reason or 'no reason given'}"
    return "" if queue.concurrency is None else f"at most {queue.concurrency} at a time"


def _running(jobs: Sequence[Job], now: datetime) -> "RenderableType":
    table = _table("RUNNING", "TYPE", "FOR", "PROGRESS", "ON")
    for job in jobs:
        age = ago(job.started_at, now)
        row = (
            job.id,
            job.type,
            age,
            "" if job.progress is None else describe_progress(job.progress),
            job.holder or "?",
        )
        table.add_row(*map(printable, row))
    return table
