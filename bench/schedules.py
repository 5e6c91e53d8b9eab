"""Delay of schedules that are due at the same time, and the cost of idle ones."""

import asyncio
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from time import perf_counter, process_time

from bench.progress import tell
from bench.report import table
from outlast import Outlast
from outlast.clock import SystemClock
from outlast.scheduler.loop import TriggerLoop

SOON = timedelta(seconds=20)
IDLE = 100_000
WATCHED = 10.0
POLL = timedelta(milliseconds=500)
GIVEN = {"coalesce": True, "misfire_grace": "5m"}

Found = dict[str, float]


def measure(folder: Path, *, jobs: int) -> Found:
    """Milliseconds from planned to stored, and the share of a core when nothing is due."""
    tell(f"schedules, {jobs:,} due at one moment")
    late = asyncio.run(_lateness(folder / "due.db", jobs))
    tell(f"schedules, {IDLE:,} idle")
    idle = asyncio.run(_idle(folder / "idle.db"))
    at = {"p50": 0.5, "p99": 0.99}
    return {name: late[int(len(late) * part)] for name, part in at.items()} | {"idle": idle}


def lines(found: Found) -> list[str]:
    """Return a table of the figures with their targets."""
    told = [["figure", "found", "asked"]]
    told.append(["late, p50", f"{found['p50']:.0f} ms", ""])
    told.append(["late, p99", f"{found['p99']:.0f} ms", "under 100 ms"])
    told.append([f"{IDLE:,} idle schedules", f"{found['idle']:.2f} % of a core", "under 1 %"])
    return table(told)


async def _lateness(path: Path, jobs: int) -> Sequence[float]:
    async with Outlast(f"sqlite:///{path}") as app:
        app.job(name="due")(_nothing)
        at = await app.store.now() + SOON
        saving = [
            app.schedules.save(f"s{number}", None, "due", every="1h", start=at, **GIVEN)
            for number in range(jobs)
        ]
        await asyncio.gather(*saving)
        loop = _triggering(app)
        left = (at - await app.store.now()).total_seconds()
        assert left > 0, "saving them took too long; measure on a quieter machine"
        await asyncio.sleep(left + 3)
        loop.cancel()
        rows = [
            row
            for each in await app.schedules.list()
            for row in await app.store.slots(each.series, limit=1)
        ]
        return sorted((row.actual - row.planned) / timedelta(milliseconds=1) for row in rows)


async def _idle(path: Path) -> float:
    async with Outlast(f"sqlite:///{path}") as app:
        app.job(name="due")(_nothing)
        await app.schedules.save("one", "0 3 1 1 *", "due", **GIVEN)
        await asyncio.to_thread(_copy, path)
        loop = _triggering(app)
        await asyncio.sleep(1)
        began, used = perf_counter(), process_time()
        await asyncio.sleep(WATCHED)
        share = (process_time() - used) / (perf_counter() - began)
        loop.cancel()
        return 100 * share


def _triggering(app: Outlast) -> "asyncio.Task[None]":
    new_id = app._ids.job  # noqa: SLF001 - as its worker does
    loop = TriggerLoop(app.store, new_id, POLL, clock=SystemClock(), random=lambda: 0.0)
    return asyncio.create_task(loop.run())


def _copy(path: Path) -> None:
    """Copy a schedule many times in one statement; saving each would take minutes."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(
            "INSERT INTO outlast_schedules (id, name, plan, enabled, created_at, updated_at,"
            " next_slot, next_trigger_at)"
            " WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            " SELECT printf('%036d', i), 'copy' || i, plan, 1, created_at, updated_at, next_slot,"
            " next_trigger_at FROM n CROSS JOIN outlast_schedules WHERE name = 'one'",
            (IDLE,),
        )
    connection.close()


def _nothing() -> None: ...
