"""pgqueuer with its best settings here: asyncpg, 500 jobs at a time, logged tables."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries

from bench.pg import marks
from bench.pg.loop import run
from bench.pg.sides.ours import in_thousands

IS_LEFT = "SELECT EXISTS (SELECT FROM pgqueuer)"
FINISH = None
COMMAND = None
BATCH = 500
"""Its default is 10, with which it is about five times slower."""

SENT = struct.Struct("d")


def install(url: str) -> None:
    async def installed() -> None:
        connection = await asyncpg.connect(url)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    run(installed())


def work(url: str) -> None:
    async def until_ended() -> None:
        queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

        @queuer.entrypoint("noop")
        async def noop(job: Job) -> None:
            assert job.payload is not None
            marks.hit(SENT.unpack(job.payload)[0])

        await queuer.run(batch_size=BATCH)

    run(until_ended())


class Client:
    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def one(self, sent: float) -> None:
        await self._queries.enqueue("noop", SENT.pack(sent))

    async def bulk(self, jobs: int) -> None:
        for count in in_thousands(jobs):
            await self._queries.enqueue(["noop"] * count, [SENT.pack(0.0)] * count, [0] * count)


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    connection = await asyncpg.connect(url)
    yield Client(Queries(AsyncpgDriver(connection)))
    await connection.close()
