"""`add_within` on PostgreSQL: connections and transactions that cannot carry a job."""

import asyncio
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from outlast.errors import InvalidArgument
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import make_job
from outlast.testing.servers.postgres import PostgresServer
from store.pg_callers import CALLERS, INVOICE, Caller, with_driver
from store.pg_waiting import until_somebody_waits


async def _refused(store: PostgresStore, tx: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        await store.add_within(tx, [make_job()])


@pytest.mark.parametrize("thing", [None, "postgresql://", object()], ids=["None", "text", "thing"])
async def test_what_is_no_connection_is_refused(store: PostgresStore, thing: Any) -> None:
    await _refused(store, thing, f"tx is a {type(thing).__name__}; give a connection of psycopg")


async def test_cursors_engines_and_registries_are_refused(
    store: PostgresStore, own_url: str
) -> None:
    engine = create_engine(with_driver(own_url, "psycopg"))
    with psycopg.connect(own_url) as own:
        await _refused(store, own.cursor(), "tx is a psycopg Cursor; give a connection")
        await _refused(store, engine, "tx is a sqlalchemy Engine; give a connection")
        registry = scoped_session(sessionmaker(engine))
        await _refused(store, registry, "tx is a sqlalchemy scoped_session; give a connection")
    engine.dispose()


async def test_connection_of_another_driver_is_refused(store: PostgresStore) -> None:
    engine = create_engine("sqlite://")

    with engine.connect() as own:
        await _refused(store, own, r"tx is a sqlalchemy Connection on sqlite \(pysqlite\); give")
    with Session(engine) as session:
        await _refused(store, session, r"tx is a sqlalchemy Session on sqlite \(pysqlite\); give")
    engine.dispose()


@pytest.mark.parametrize("kind", ["asyncpg", "psycopg", "SQLAlchemy, awaited, on asyncpg"])
async def test_connection_to_another_database_is_refused(
    store: PostgresStore, postgres: PostgresServer, kind: str
) -> None:
    elsewhere = postgres.new_database()
    async with CALLERS[kind](elsewhere) as caller:
        await caller.run("CREATE TABLE invoices (number integer)")
        await _refused(store, caller.tx, f"connection to database {elsewhere.rpartition('/')[2]}")
        await caller.run(INVOICE)
        await caller.commit()
    postgres.drop_database(elsewhere.rpartition("/")[2])


async def test_connection_to_a_copy_of_the_schema_is_refused(
    store: PostgresStore, postgres: PostgresServer
) -> None:
    elsewhere = postgres.new_database()
    twin = PostgresStore(f"{elsewhere}?schema={store.address.schema}")
    await twin.open()

    async with CALLERS["asyncpg"](elsewhere) as caller:
        await _refused(store, caller.tx, "not to postgresql://")
        [added] = await twin.add_within(caller.tx, [make_job()])
    assert added.created
    await twin.close()
    postgres.drop_database(elsewhere.rpartition("/")[2])


async def test_connection_that_commits_by_itself_is_told_to_begin(
    store: PostgresStore, own_url: str
) -> None:
    words = "no open transaction; begin one on it first"
    by_itself = psycopg.connect(own_url, autocommit=True)
    awaited = await psycopg.AsyncConnection.connect(own_url, autocommit=True)
    plain = await asyncpg.connect(own_url)
    engine = create_engine(with_driver(own_url, "psycopg"), isolation_level="AUTOCOMMIT")
    awaited_engine = create_async_engine(
        with_driver(own_url, "asyncpg"), isolation_level="AUTOCOMMIT"
    )

    for tx in (by_itself, awaited, plain):
        await _refused(store, tx, words)
    with engine.connect() as own:
        await _refused(store, own, words)
    async with awaited_engine.connect() as own:
        await _refused(store, own, words)
    with by_itself.transaction():
        [added] = await store.add_within(by_itself, [make_job()])

    assert added.created
    by_itself.close()
    await awaited.close()
    await plain.close()
    engine.dispose()
    await awaited_engine.dispose()


async def test_closed_connection_is_refused(store: PostgresStore, own_url: str) -> None:
    closed: list[Any] = []
    for open_one in CALLERS.values():
        async with open_one(own_url) as caller:
            closed.append(caller.tx)
            await caller.rollback()

    for tx in closed:
        if "Session" not in type(tx).__name__:  # those open another connection when asked
            await _refused(store, tx, "tx cannot be used: .*(closed|released)")


async def test_failed_transaction_is_refused_and_can_still_be_rolled_back(
    store: PostgresStore, caller: Caller
) -> None:
    with pytest.raises(Exception, match="nowhere"):
        await caller.run("SELECT * FROM nowhere")

    with pytest.raises(InvalidArgument, match=r"transaction of tx failed"):
        await store.add_within(caller.tx, [make_job()])

    await caller.rollback()


async def test_read_only_transaction_is_refused(store: PostgresStore, caller: Caller) -> None:
    await caller.run("SET TRANSACTION READ ONLY")

    await _refused(store, caller.tx, "tx is read-only")

    await caller.run("SELECT 1")


async def test_busy_connection_is_refused(
    store: PostgresStore, own_url: str, outside: asyncpg.Connection
) -> None:
    own = await asyncpg.connect(own_url)
    async with own.transaction():
        async with outside.transaction():
            await outside.execute("SELECT pg_advisory_xact_lock(7)")
            waiting = asyncio.create_task(own.execute("SELECT pg_advisory_xact_lock(7)"))
            await until_somebody_waits(own_url)
            await _refused(store, own, "tx cannot be used: .*another operation")
        await waiting
    await own.close()
