"""Applications with a transaction of their own, one for each kind of connection to hand in."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import asyncpg
import psycopg
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

INVOICE: Final = "INSERT INTO invoices VALUES (7)"


class Caller:
    """A transaction under way: `tx` is what is handed in."""

    def __init__(self, tx: Any, run: Any, commit: Any, rollback: Any) -> None:
        self.tx = tx
        self._run = run
        self._commit = commit
        self._rollback = rollback

    async def run(self, sql: str) -> None:
        await _done(self._run(sql))

    async def commit(self) -> None:
        await _done(self._commit())

    async def rollback(self) -> None:
        await _done(self._rollback())


async def _done(answer: Any) -> None:
    if hasattr(answer, "__await__"):
        await answer


Open = Callable[[str], AbstractAsyncContextManager[Caller]]


@asynccontextmanager
async def of_asyncpg(url: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    yield Caller(connection, connection.execute, transaction.commit, transaction.rollback)
    await connection.close()


@asynccontextmanager
async def of_a_pool(url: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield Caller(connection, connection.execute, transaction.commit, transaction.rollback)


@asynccontextmanager
async def of_psycopg(url: str) -> AsyncIterator[Caller]:
    connection = psycopg.connect(url)
    yield Caller(connection, connection.execute, connection.commit, connection.rollback)
    connection.close()


@asynccontextmanager
async def of_awaited_psycopg(url: str) -> AsyncIterator[Caller]:
    connection = await psycopg.AsyncConnection.connect(url)
    yield Caller(connection, connection.execute, connection.commit, connection.rollback)
    await connection.close()


@asynccontextmanager
async def of_alchemy(url: str) -> AsyncIterator[Caller]:
    engine = create_engine(with_driver(url, "psycopg"))
    with engine.connect() as own:
        yield Caller(own, lambda sql: own.execute(text(sql)), own.commit, own.rollback)
    engine.dispose()


@asynccontextmanager
async def of_a_session(url: str) -> AsyncIterator[Caller]:
    engine = create_engine(with_driver(url, "psycopg"))
    with Session(engine) as own:
        yield Caller(own, lambda sql: own.execute(text(sql)), own.commit, own.rollback)
    engine.dispose()


def of_awaited_alchemy(driver: str) -> Open:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(with_driver(url, driver))
        async with engine.connect() as own:
            yield Caller(own, lambda sql: own.execute(text(sql)), own.commit, own.rollback)
        await engine.dispose()

    return opened


def of_an_awaited_session(driver: str) -> Open:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(with_driver(url, driver))
        async with AsyncSession(engine) as own:
            yield Caller(own, lambda sql: own.execute(text(sql)), own.commit, own.rollback)
        await engine.dispose()

    return opened


def with_driver(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://", 1)


CALLERS: Final[dict[str, Open]] = {
    "asyncpg": of_asyncpg,
    "a pool of asyncpg": of_a_pool,
    "psycopg": of_psycopg,
    "psycopg, awaited": of_awaited_psycopg,
    "SQLAlchemy": of_alchemy,
    "a session": of_a_session,
    "SQLAlchemy, awaited, on asyncpg": of_awaited_alchemy("asyncpg"),
    "SQLAlchemy, awaited, on psycopg": of_awaited_alchemy("psycopg"),
    "a session, awaited, on asyncpg": of_an_awaited_session("asyncpg"),
    "a session, awaited, on psycopg": of_an_awaited_session("psycopg"),
}
