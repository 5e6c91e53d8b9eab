"""Outlast: the embedded worker and the public API."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from bench.pg import marks
from bench.pg.loop import run
from outlast import JobType, Outlast
from outlast.store.contract import Store

IS_LEFT = "SELECT EXISTS (SELECT FROM outlast.waiting) OR EXISTS (SELECT FROM outlast.open_runs)"
FINISH = None
COMMAND = None
MANY = 1_000


def make(url: str | Store) -> tuple[Outlast, JobType[[float], None]]:
    """Return the app and its job type."""
    app = Outlast(url)

    @app.job
    async def noop(sent: float) -> None:
        marks.hit(sent)

    return app, noop


def install(url: str) -> None:
    async def opened() -> None:
        async with make(url)[0]:
            pass

    run(opened())


def work(url: str) -> None:
    async def until_ended() -> None:
        app, _ = make(url)
        async with app, app.worker():
            await asyncio.Event().wait()

    run(until_ended())


class Client:
    def __init__(self, app: Outlast, noop: JobType[[float], None]) -> None:
        self._app, self._noop = app, noop

    async def one(self, sent: float) -> None:
        await self._noop.enqueue(sent)

    async def bulk(self, jobs: int) -> None:
        for count in in_thousands(jobs):
            await self._app.enqueue_many(self._noop.bind(0.0) for _ in range(count))


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    app, noop = make(url)
    async with app:
        yield Client(app, noop)


def in_thousands(jobs: int) -> Iterator[int]:
    for start in range(0, jobs, MANY):
        yield min(MANY, jobs - start)
