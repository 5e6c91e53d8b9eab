"""procrastinate: psycopg, 30 jobs at a time, woken by NOTIFY; keeps finished jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import procrastinate

from bench.pg import marks
from bench.pg.loop import run
from bench.pg.sides.ours import in_thousands

IS_LEFT = "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
FINISH = "UPDATE procrastinate_jobs SET status = 'succeeded' WHERE status = 'todo'"
COMMAND = None
CONCURRENCY = 30
CONNECTIONS = 20


def _make(url: str) -> tuple[procrastinate.App, Any]:
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=CONNECTIONS)
    app = procrastinate.App(connector=connector)

    @app.task(name="noop")
    async def noop(sent: float) -> None:
        marks.hit(sent)

    return app, noop


def install(url: str) -> None:
    async def installed() -> None:
        app, _ = _make(url)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    run(installed())


def work(url: str) -> None:
    async def until_ended() -> None:
        app, _ = _make(url)
        async with app.open_async():
            await app.run_worker_async(concurrency=CONCURRENCY)

    run(until_ended())


class Client:
    def __init__(self, noop: Any) -> None:
        self._noop = noop

    async def one(self, sent: float) -> None:
        await self._noop.defer_async(sent=sent)

    async def bulk(self, jobs: int) -> None:
        for count in in_thousands(jobs):
            await self._noop.batch_defer_async(*[{"sent": 0.0}] * count)


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    app, noop = _make(url)
    async with app.open_async():
        yield Client(noop)
