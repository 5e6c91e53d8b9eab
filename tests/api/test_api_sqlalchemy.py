"""The same SQLAlchemy code enqueues in its own transaction on SQLite and on PostgreSQL."""

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing
from uuid import uuid4

import aiosqlite
import pytest
from sqlalchemy import column, create_engine, event, table, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outlast import InvalidArgument, Outlast, State, StoreBusy

DRIVERS = {
    "sqlite": ("sqlite", "sqlite+aiosqlite"),
    "postgresql": ("postgresql+psycopg", "postgresql+asyncpg"),
}


@pytest.fixture(params=DRIVERS)
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def file_url(tmp_path):
    return f"sqlite:///{tmp_path}/shop.db"


@pytest.fixture
async def app(url):
    async with Outlast(url) as app:
        yield app


@pytest.fixture
def send(app):
    @app.job
    def send(number: int) -> int:
        return number

    return send


def alchemy_url(url, *, is_async=False):
    name, _, rest = url.partition("?")[0].partition(":")
    return f"{DRIVERS[name][is_async]}:{rest}"


@asynccontextmanager
async def opened(kind, url):
    """A session or connection of that kind, and awaitable forms of its methods."""
    if kind in {"AsyncSession", "AsyncConnection"}:
        engine = create_async_engine(alchemy_url(url, is_async=True))
        made = AsyncSession(engine) if kind == "AsyncSession" else engine.connect()
        async with made as tx:
            yield tx, lambda method, *args: getattr(tx, method)(*args)
        await engine.dispose()
        return
    engine = create_engine(alchemy_url(url))

    async def call(method, *args):
        return getattr(tx, method)(*args)

    with Session(engine) if kind == "Session" else engine.connect() as tx:
        yield tx, call
    engine.dispose()


KINDS = ["Session", "Connection", "AsyncSession", "AsyncConnection"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_session_carries_its_rows_and_jobs_into_one_commit(app, send, url, kind):
    async with opened(kind, url) as (tx, call):
        orders = table(f"orders_{uuid4().hex}", column("number"))  # other tests share the database
        await call("execute", text(f"CREATE TABLE {orders.name} (number INTEGER)"))
        await call("commit")
        await call("execute", orders.insert().values(number=1))
        dropped = await send.options(tx=tx, key="order:1").enqueue(1)
        await call("rollback")
        kept = await send.options(tx=tx, key="order:1").enqueue(1)  # its first statement
        await call("execute", orders.insert().values(number=2))
        many = await app.enqueue_many([send.bind(2), send.bind(3)], tx=tx)
        early = await app.store.get([kept.id])
        await call("commit")
        rows = (await call("execute", orders.select())).all()

    assert (dropped.created, kept.created) == (True, True)
    assert early == [None]
    assert [row[0] for row in rows] == [2]
    assert await app.store.get([dropped.id]) == [None]
    assert {(await each.read()).state for each in [kept, *many]} == {State.QUEUED}


async def test_a_session_carries_jobs_through_the_bridge_of_sync_code(app, send, url):
    other = Outlast(url)
    same = other.job(name="send")(send.function)
    engine = create_engine(alchemy_url(url))

    def work():
        with other.sync() as wait, Session(engine) as session, session.begin():
            return wait(same.options(tx=session).enqueue(1)).id

    [found] = await app.store.get([await asyncio.to_thread(work)])
    engine.dispose()
    assert found is not None


async def test_a_session_that_emits_its_own_begin_carries_jobs(file_url):
    """The recipe of SQLAlchemy's documentation for savepoints and serializable transactions."""
    engine = create_engine(file_url)

    @event.listens_for(engine, "connect")
    def no_implicit_begin(driver, _):
        driver.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection):
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    async with Outlast(file_url) as app:
        send = app.job(name="send")(lambda: None)
        with Session(engine) as session:
            with session.begin():
                kept = await send.options(tx=session).enqueue()
            dropped = await send.options(tx=session).enqueue()
        found = await app.store.get([kept.id, dropped.id])
    engine.dispose()

    assert [job is not None for job in found] == [True, False]


async def test_a_connection_of_aiosqlite_carries_jobs(file_url):
    async with Outlast(file_url) as app, aiosqlite.connect(app.store.path) as conn:
        send = app.job(name="send")(lambda: None)
        dropped = await send.options(tx=conn).enqueue()
        await conn.rollback()
        kept = await send.options(tx=conn).enqueue()
        await conn.commit()
        found = await app.store.get([kept.id, dropped.id])

    assert [job is not None for job in found] == [True, False]


async def test_a_session_that_cannot_carry_a_job_is_refused_with_the_reason(file_url, tmp_path):
    elsewhere = create_engine(f"sqlite:///{tmp_path}/other.db")
    here = create_engine(file_url)
    autocommit = here.execution_options(isolation_level="AUTOCOMMIT")
    away = create_engine("postgresql+psycopg://nowhere/shop")
    gone = here.connect()
    gone.close()
    ended = await aiosqlite.connect(tmp_path / "shop.db")
    await ended.close()
    async with Outlast(file_url) as app:
        send = app.job(name="send")(lambda: None)
        wrong = [
            (Session(elsewhere), "other.db, not to"),
            (autocommit.connect(), "no transaction open"),
            (Session(away), r"a Session on postgresql \(psycopg\); give"),
            (Session(), "tx cannot be used: This session is not bound"),
            (gone, "tx cannot be used: This Connection is closed"),
            (ended, "tx cannot be used"),
        ]
        for tx, why in wrong:
            with pytest.raises(InvalidArgument, match=why):
                await send.options(tx=tx).enqueue()
            if tx is not ended:
                tx.close()
    for engine in (elsewhere, here, away):
        engine.dispose()


async def test_a_locked_file_is_a_clear_error_and_the_session_may_try_again(file_url):
    engine = create_async_engine(alchemy_url(file_url, is_async=True), connect_args={"timeout": 0})
    async with Outlast(file_url) as app, AsyncSession(engine) as session:
        send = app.job(name="send")(lambda: None)
        with closing(sqlite3.connect(app.store.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy):
                await send.options(tx=session).enqueue()
            other.execute("ROLLBACK")
        job = await send.options(tx=session).enqueue()
        await session.commit()

        assert (await job.read()).state is State.QUEUED
    await engine.dispose()
