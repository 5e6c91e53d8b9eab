"""The proxy before PostgreSQL: each fault is what it says, and without one all goes through."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from time import perf_counter

import asyncpg
import psycopg
import pytest

from outlast.testing.servers.postgres import PostgresServer
from support.servers.fault_proxy import FaultProxy, fault_proxy


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[FaultProxy]:
    with fault_proxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    name = postgres.new_database().rpartition("/")[2]
    yield name
    postgres.drop_database(name)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        connection.terminate()


@pytest.fixture
async def through(
    postgres: PostgresServer, proxy: FaultProxy, database: str
) -> AsyncIterator[asyncpg.Connection]:
    async with connected(postgres.url(database, port=proxy.port)) as connection:
        await connection.execute("CREATE TABLE t (n int)")
        yield connection


LOST = (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError)


async def test_much_goes_through_unchanged(through: asyncpg.Connection) -> None:
    text = "x" * 3_000_000

    assert await through.fetchval("SELECT $1::text", text) == text
    assert len(await through.fetch("SELECT generate_series(1, 20000)")) == 20_000


def test_another_driver_goes_through_as_well(postgres: PostgresServer, proxy: FaultProxy) -> None:
    with psycopg.connect(postgres.url(port=proxy.port)) as connection:
        assert connection.execute("SELECT 7").fetchone() == (7,)


async def test_a_pause_lets_nothing_through_and_closes_nothing(
    through: asyncpg.Connection, proxy: FaultProxy
) -> None:
    proxy.pause()
    answer = asyncio.create_task(through.fetchval("SELECT 7"))
    done, _ = await asyncio.wait([answer], timeout=0.1)
    assert not done

    proxy.resume()

    assert await answer == 7


async def test_a_delay_holds_each_way(through: asyncpg.Connection, proxy: FaultProxy) -> None:
    proxy.delay(0.05)
    since = perf_counter()

    await through.execute("SELECT 1")

    assert perf_counter() - since >= 0.1


async def test_a_limit_makes_much_slow(through: asyncpg.Connection, proxy: FaultProxy) -> None:
    proxy.limit(1_000_000)
    since = perf_counter()

    await through.fetchval("SELECT repeat('x', 200000)")

    assert perf_counter() - since >= 0.2


async def test_a_cut_ends_what_is_open_and_nothing_else(
    postgres: PostgresServer, through: asyncpg.Connection, proxy: FaultProxy
) -> None:
    assert proxy.cut() == 1

    with pytest.raises(LOST):
        await through.execute("SELECT 1")
    async with connected(postgres.url(port=proxy.port)) as another:
        assert await another.fetchval("SELECT 7") == 7


async def test_refusing_ends_when_it_accepts(postgres: PostgresServer, proxy: FaultProxy) -> None:
    proxy.refuse()
    with pytest.raises(LOST):
        await asyncpg.connect(postgres.url(port=proxy.port))

    proxy.accept()

    async with connected(postgres.url(port=proxy.port)) as connection:
        assert await connection.fetchval("SELECT 7") == 7


async def count(postgres: PostgresServer, database: str) -> int:
    return int(postgres.execute("SELECT count(*) FROM t", database))


async def test_a_lost_reply_to_commit_leaves_it_committed(
    postgres: PostgresServer, database: str, through: asyncpg.Connection, proxy: FaultProxy
) -> None:
    sprung = proxy.lose_reply("COMMIT")

    with pytest.raises(LOST):
        async with through.transaction():
            await through.execute("INSERT INTO t VALUES (1)")

    assert sprung.is_set()
    assert await count(postgres, database) == 1


async def test_a_lost_request_to_commit_leaves_nothing(
    postgres: PostgresServer, database: str, through: asyncpg.Connection, proxy: FaultProxy
) -> None:
    sprung = proxy.lose_request("COMMIT")

    with pytest.raises(LOST):
        async with through.transaction():
            await through.execute("INSERT INTO t VALUES (1)")

    assert sprung.is_set()
    assert await count(postgres, database) == 0


async def test_a_statement_prepared_earlier_is_known_by_its_text(
    postgres: PostgresServer, database: str, through: asyncpg.Connection, proxy: FaultProxy
) -> None:
    insert = await through.prepare("INSERT INTO t VALUES ($1) RETURNING n")
    assert await insert.fetchval(1) == 1
    sprung = proxy.lose_reply("INSERT INTO t")

    with pytest.raises(LOST):
        await insert.fetchval(2)

    assert sprung.is_set()
    assert await count(postgres, database) == 2


async def test_only_the_statement_named_is_lost_and_only_once(
    postgres: PostgresServer, database: str, through: asyncpg.Connection, proxy: FaultProxy
) -> None:
    sprung = proxy.lose_reply("INSERT INTO t")
    assert await through.fetchval("SELECT 7") == 7
    assert not sprung.is_set()
    with pytest.raises(LOST):
        await through.execute("INSERT INTO t VALUES (1)")

    async with connected(postgres.url(database, port=proxy.port)) as again:
        await again.execute("INSERT INTO t VALUES (2)")

    assert await count(postgres, database) == 2


def test_what_was_asked_before_in_one_go_is_answered(
    postgres: PostgresServer, database: str, proxy: FaultProxy
) -> None:
    postgres.execute("CREATE TABLE t (n int)", database)
    answers: list[object] = []

    def ask(connection: psycopg.Connection) -> None:
        with connection.pipeline() as pipeline:
            first = connection.execute("SELECT 7")
            pipeline.sync()
            connection.execute("INSERT INTO t VALUES (1)")
            answers.append(first.fetchone())
            pipeline.sync()

    with psycopg.connect(postgres.url(database, port=proxy.port), autocommit=True) as connection:
        proxy.lose_reply("INSERT INTO t")
        with pytest.raises(psycopg.OperationalError):
            ask(connection)

    assert answers == [(7,)]
    assert int(postgres.execute("SELECT count(*) FROM t", database)) == 1


async def test_it_counts_its_connections(through: asyncpg.Connection, proxy: FaultProxy) -> None:
    assert proxy.connections == 1
