"""The pooler before PostgreSQL: transactions work through it, nothing else of a session does."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg
import psycopg
import pytest

from outlast.testing.servers.postgres import PostgresServer, postgres_server
from support.servers.transaction_pooler import TransactionPooler, transaction_pooler


@pytest.fixture
def pooler(postgres: PostgresServer) -> Iterator[TransactionPooler]:
    with transaction_pooler(postgres.port) as pooler:
        yield pooler


@pytest.fixture
def url(postgres: PostgresServer, pooler: TransactionPooler) -> Iterator[str]:
    name = postgres.new_database().rpartition("/")[2]
    yield postgres.url(name, port=pooler.port)
    postgres.drop_database(name)


@asynccontextmanager
async def connected(url: str, *, cache: int = 0) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url, statement_cache_size=cache)
    try:
        yield connection
    finally:
        connection.terminate()


async def test_transactions_of_many_clients_share_few_connections(
    url: str, pooler: TransactionPooler
) -> None:
    async with connected(url) as first:
        await first.execute("CREATE TABLE t (n int)")

    async def add(n: int) -> None:
        async with connected(url) as connection:
            for _ in range(5):
                async with connection.transaction():
                    await connection.execute("INSERT INTO t VALUES ($1)", n)

    async with asyncio.timeout(120):
        await asyncio.gather(*map(add, range(10)))

    async with connected(url) as last:
        assert await last.fetchval("SELECT count(*) FROM t") == 50
    assert pooler.servers <= 2
    assert pooler.handed_out >= 50


async def test_a_transaction_stays_on_one_connection(url: str) -> None:
    async with connected(url) as connection, connection.transaction():
        pids = {await connection.fetchval("SELECT pg_backend_pid()") for _ in range(5)}

    assert len(pids) == 1


async def test_the_next_transaction_is_on_another_one(url: str) -> None:
    async with connected(url) as connection, connected(url):
        pids = [await connection.fetchval("SELECT pg_backend_pid()") for _ in range(4)]

    assert pids[0] != pids[1]
    assert pids[:2] == pids[2:]


async def test_a_prepared_statement_does_not_survive(url: str) -> None:
    async with connected(url, cache=100) as connection, connected(url):
        await connection.fetchval("SELECT $1::int", 1)

        with pytest.raises(asyncpg.PostgresError, match=r"prepared statement .* does not exist"):
            await connection.fetchval("SELECT $1::int", 1)


async def test_a_prepared_statement_of_another_is_in_the_way(url: str) -> None:
    async with connected(url) as first, connected(url) as second:
        await first.execute("PREPARE mine AS SELECT 1")
        await second.execute("SELECT 1")

        with pytest.raises(asyncpg.PostgresError, match='"mine" already exists'):
            await second.execute("PREPARE mine AS SELECT 2")


async def test_a_setting_does_not_survive(url: str) -> None:
    async with connected(url) as connection, connected(url):
        await connection.execute("SET application_name TO 'mine'")
        reported = [await connection.fetchval("SHOW application_name") for _ in range(2)]

    assert reported == ["", "mine"]


async def test_a_notification_does_not_arrive(url: str) -> None:
    received: list[object] = []
    async with connected(url) as listener, connected(url) as another:
        await listener.add_listener("news", lambda *args: received.append(args))
        for _ in range(4):
            await another.execute("NOTIFY news, 'now'")
        await another.fetchval("SELECT 1")

    assert not received


async def test_whoever_waits_for_a_connection_gets_the_next_one_free(url: str) -> None:
    async with connected(url) as a, connected(url) as b, connected(url) as c, asyncio.timeout(120):
        first, second = a.transaction(), b.transaction()
        await first.start()
        await second.start()
        third = asyncio.create_task(c.fetchval("SELECT 7"))
        done, _ = await asyncio.wait([third], timeout=0.1)
        assert not done

        await first.commit()

        assert await third == 7
        await second.commit()


async def test_whoever_leaves_in_a_transaction_undoes_it(url: str) -> None:
    async with connected(url) as first:
        await first.execute("CREATE TABLE t (n int)")
    async with connected(url) as leaving:
        await leaving.transaction().start()
        await leaving.execute("INSERT INTO t VALUES (1)")

    async with connected(url) as last:
        assert await last.fetchval("SELECT count(*) FROM t") == 0


async def test_a_cancel_reaches_the_one_who_runs(url: str) -> None:
    async with connected(url) as connection, connected(url):
        with pytest.raises(TimeoutError):
            await connection.fetchval("SELECT pg_sleep(60)", timeout=0.1)
        assert await connection.fetchval("SELECT 7") == 7


def test_another_driver_goes_through_as_well(url: str) -> None:
    with psycopg.connect(url, prepare_threshold=None) as connection:
        assert connection.execute("SELECT %s::int", [7]).fetchone() == (7,)


async def test_a_wrong_password_is_refused_by_the_server(
    url: str, postgres: PostgresServer
) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(url.replace(postgres.password, "guess"))


async def test_when_the_server_is_back_so_are_its_connections() -> None:
    with postgres_server() as server, transaction_pooler(server.port) as pooler:
        url = server.url(port=pooler.port)
        async with connected(url) as connection, asyncio.timeout(240):
            server.kill()
            with pytest.raises((OSError, asyncpg.PostgresConnectionError)):
                await connection.fetchval("SELECT 1")
            server.start()

        async with connected(url) as connection:
            assert await connection.fetchval("SELECT 7") == 7
